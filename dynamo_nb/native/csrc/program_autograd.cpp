// Compiled graphs with gradients: the forward's results get a node of autograd's graph whose backward is the other compiled graph.
//
// The same work as a torch.autograd.Function over the two, without a Python object per call.
#include "program.hpp"
#include "torch_python.hpp"
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <structmember.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

python_error::python_error()
{
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    PyObject *text = value ? PyObject_Str(value) : nullptr;
    const char *chars = text ? PyUnicode_AsUTF8(text) : nullptr;
    message = chars ? chars : "python_error";
    Py_XDECREF(text);
    PyErr_Clear();
}

python_error::python_error(python_error &&other) noexcept
    : type(std::exchange(other.type, nullptr)), value(std::exchange(other.value, nullptr)), traceback(std::exchange(other.traceback, nullptr)),
      message(std::move(other.message))
{
}

python_error::~python_error()
{
    if (!type && !value && !traceback) return;
    PyGILState_STATE state = PyGILState_Ensure();
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    PyGILState_Release(state);
}

namespace dnb {

namespace autograd = torch::autograd;

class Gil {
    PyGILState_STATE state = PyGILState_Ensure();

public:
    Gil() = default;
    Gil(const Gil &) = delete;
    ~Gil() { PyGILState_Release(state); }
};

// A reference that may be dropped without the GIL.
class Reference {
    PyObject *object;

public:
    explicit Reference(PyObject *object = nullptr) : object(Py_XNewRef(object)) {}
    Reference(Reference &&other) noexcept : object(std::exchange(other.object, nullptr)) {}
    Reference(const Reference &) = delete;
    Reference &operator=(Reference &&other) noexcept
    {
        std::swap(object, other.object);
        return *this;
    }
    ~Reference()
    {
        if (!object || !Py_IsInitialized() || _Py_IsFinalizing()) return;
        Gil gil;
        Py_DECREF(object);
    }
    PyObject *get() const { return object; }
};

// A reference that is the GIL's holder's alone.
class Local {
    PyObject *object;

public:
    explicit Local(PyObject *owned) : object(owned) {}  // an error is set where it is null
    Local(const Local &) = delete;
    ~Local() { Py_XDECREF(object); }
    PyObject *get() const { return object; }
    PyObject *given() { return std::exchange(object, nullptr); }
    explicit operator bool() const { return object; }
};

// done: nullptr or false where Python has raised something.
static void need(bool done)
{
    if (!done) throw python_error();
}

// ---- what all calls of a graph share ----
// The gradient of a result that the backward takes, and how it must be laid out.
struct Tangent {
    int64_t result = 0;
    std::optional<at::MemoryFormat> format;  // else sizes and strides
    Ints sizes, strides;
    Reference layout;                        // what `lay_out` is told

    bool fits(const at::TensorBase &grad) const
    {
        if (grad.unsafeGetTensorImpl()->is_python_dispatch() || grad.layout() != at::kStrided) return false;
        return format ? grad.is_contiguous(*format) : grad.sizes() == sizes && grad.strides() == strides;
    }
};

struct Slice {
    Py_ssize_t start = 0, stop = 0;
    Slice within(Py_ssize_t n) const
    {
        Slice found = *this;
        const Py_ssize_t count = PySlice_AdjustIndices(n, &found.start, &found.stop, 1);
        return {found.start, found.start + count};
    }
};

struct Graph {
    Reference forward, backward, last, lay_out;
    std::vector<char> differentiable;  // one per result
    std::vector<char> cut;             // one per argument: no gradient flows to it
    Slice saved, symbols;              // of the forward's results
    std::vector<Tangent> tangents;

    bool is_cut(PyObject *value, PyObject *const *args) const
    {
        for (size_t i = 0; i < cut.size(); i++)
            if (cut[i] && args[i] == value) return true;
        return false;
    }
};

// ---- the node ----
struct CompiledGraphBackward : autograd::Node {
    std::shared_ptr<const Graph> graph;
    std::vector<autograd::SavedVariable> saved;
    std::vector<Reference> symbols;
    bool released = false, last_run = false;

    using Node::Node;
    std::string name() const override { return "CompiledGraphBackward"; }

    void will_release_variables() override { last_run = true; }

    void release_variables() override
    {
        std::lock_guard<std::mutex> lock(mutex_);
        for (autograd::SavedVariable &variable : saved) variable.reset_data();
        released = true;
    }

    // Without the GIL: a hook of a saved tensor takes it, and may give it up, while the lock is held.
    autograd::variable_list unpacked()
    {
        std::lock_guard<std::mutex> lock(mutex_);
        TORCH_CHECK(!released || saved.empty(), autograd::ERR_BACKWARD_TWICE);
        autograd::variable_list values;
        values.reserve(saved.size());
        for (const autograd::SavedVariable &variable : saved) values.push_back(variable.unpack(getptr()));
        if (last_run) {  // the backward then frees each of them once it's done with it
            for (autograd::SavedVariable &variable : saved) variable.reset_data();
            released = true;
        }
        return values;
    }

    PyObject *tangent(const Tangent &wanted, at::Tensor grad) const
    {
        if (!grad.defined()) grad = input_metadata(wanted.result).zeros_like();
        if (grad.is_neg()) grad = grad.resolve_neg();
        constexpr c10::DispatchKeySet batched({c10::DispatchKey::Batched, c10::DispatchKey::FuncTorchBatched});
        Local value(THPVariable_Wrap(grad));
        if (!value || grad.key_set().has_any(batched) || wanted.fits(grad)) return value.given();
        return PyObject_CallFunctionObjArgs(graph->lay_out.get(), value.get(), wanted.layout.get(), nullptr);
    }

    PyObject *arguments(autograd::variable_list &&values, const autograd::variable_list &grads) const
    {
        Local list(PyList_New((Py_ssize_t)(symbols.size() + values.size() + graph->tangents.size())));
        need((bool)list);
        Py_ssize_t i = 0;
        auto add = [&](PyObject *item) {
            need(item);
            PyList_SET_ITEM(list.get(), i++, item);
        };
        for (const Reference &symbol : symbols) add(Py_NewRef(symbol.get()));
        for (at::Tensor &value : values) add(THPVariable_Wrap(std::move(value)));
        for (const Tangent &wanted : graph->tangents) add(tangent(wanted, grads.at(wanted.result)));
        return list.given();
    }

    PyObject *run(autograd::variable_list &&values, autograd::variable_list &&grads) const
    {
        Local list(arguments(std::move(values), grads));
        values.clear();
        grads.clear();
        Local made(PyObject_CallOneArg(at::GradMode::is_enabled() ? graph->last.get() : graph->backward.get(), list.get()));
        return made ? PySequence_Fast(made.get(), "a compiled backward must return a sequence") : nullptr;
    }

    autograd::variable_list apply(autograd::variable_list &&grads) override
    {
        autograd::variable_list values = unpacked();
        Gil gil;
        Local results(run(std::move(values), std::move(grads)));
        need((bool)results);
        return gradients(results.get());
    }

    autograd::variable_list gradients(PyObject *results) const
    {
        autograd::variable_list found;
        found.reserve(num_outputs());
        const Py_ssize_t n = PySequence_Fast_GET_SIZE(results);
        TORCH_CHECK((size_t)n == num_outputs(), "a compiled backward returned ", n, " gradients for ", num_outputs(), " arguments");
        for (Py_ssize_t i = 0; i < n; i++) {
            PyObject *item = PySequence_Fast_GET_ITEM(results, i);
            if (is_tensor(item)) found.emplace_back(tensor_in(item));
            else found.emplace_back();
        }
        return found;
    }
};

// ---- a call ----
static bool shows_memory(const c10::TensorImpl *impl)
{
    return impl->has_storage() && !impl->is_python_dispatch() && impl->layout() == at::kStrided;
}

// In eager, tensors of the same memory count its changes together, so that a backward notices when what it saved has changed.
// Operators below autograd give every view a count of its own.
static void share_version(c10::TensorImpl *impl, PyObject *const *others, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        if (!is_tensor(others[i])) continue;
        c10::TensorImpl *other = tensor_in(others[i]).unsafeGetTensorImpl();
        if (other == impl || other->is_inference() || !shows_memory(other)) continue;
        if (other->storage().unsafeGetStorageImpl() == impl->storage().unsafeGetStorageImpl()) return impl->set_version_counter(other->version_counter());
    }
}

static bool among(c10::TensorImpl *impl, PyObject *const *args, Py_ssize_t n)
{
    return std::any_of(args, args + n, [&](PyObject *arg) { return is_tensor(arg) && tensor_in(arg).unsafeGetTensorImpl() == impl; });
}

static void share_versions(PyObject *const *args, Py_ssize_t n, PyObject *results)
{
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(results);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *result = PySequence_Fast_GET_ITEM(results, i);
        if (!is_tensor(result)) continue;
        c10::TensorImpl *impl = tensor_in(result).unsafeGetTensorImpl();
        if (!shows_memory(impl) || impl->storage().use_count() < 2 || !impl->unique_version() || impl->is_inference()) continue;
        if (among(impl, args, n)) continue;
        share_version(impl, args, n);
        if (impl->unique_version()) share_version(impl, PySequence_Fast_ITEMS(results), count);
    }
}

static PyObject *run_forward(const Graph &graph, PyObject *const *args, Py_ssize_t n)
{
    if (is_program(graph.forward.get())) return run_program(graph.forward.get(), args, n);
    at::AutoGradMode no_grad(false);
    Local list(PyList_New(n));
    if (!list) return nullptr;
    for (Py_ssize_t i = 0; i < n; i++) PyList_SET_ITEM(list.get(), i, Py_NewRef(args[i]));
    Local made(PyObject_CallOneArg(graph.forward.get(), list.get()));
    return made ? PySequence_Fast(made.get(), "a compiled forward must return a sequence") : nullptr;
}

// Where gradients of the arguments go; whether there are any.
static bool edges_of(const Graph &graph, PyObject *const *args, Py_ssize_t n, autograd::edge_list &edges)
{
    bool any = false;
    edges.reserve(n);
    for (Py_ssize_t i = 0; i < n; i++) {
        if (is_tensor(args[i]) && !((size_t)i < graph.cut.size() && graph.cut[i]) && tensor_in(args[i]).requires_grad()) {
            edges.push_back(autograd::impl::gradient_edge(at::Tensor(tensor_in(args[i]))));
            any = true;
        } else
            edges.emplace_back();
    }
    return any;
}

// A result without history of its own: one made by operators in Python may be a view of something, for good reasons of theirs.
static at::Tensor plain(const at::TensorBase &tensor)
{
    at::Tensor value(tensor);
    return value.is_view() || value.requires_grad() ? value.detach() : value;
}

// The results of a call, with their history.
static PyObject *recorded(const std::shared_ptr<const Graph> &graph, autograd::edge_list &&edges, PyObject *const *args, PyObject *outs)
{
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(outs), returns = (Py_ssize_t)graph->differentiable.size();
    TORCH_CHECK(n >= returns, "a compiled forward returned ", n, " values, ", returns, " of which should be results");
    PyObject *const *values = PySequence_Fast_ITEMS(outs);
    auto node = c10::make_intrusive<CompiledGraphBackward>(std::move(edges));
    node->graph = graph;
    Local results(PyTuple_New(returns));
    need((bool)results);
    for (Py_ssize_t i = 0; i < returns; i++) {
        PyObject *result = nullptr;
        if (is_tensor(values[i])) {
            at::Tensor tensor = plain(tensor_in(values[i]));
            if (graph->differentiable[i]) autograd::impl::set_gradient_edge(tensor, {node, node->add_input_metadata(tensor)});
            else node->add_input_metadata(autograd::Node::undefined_input());
            result = THPVariable_Wrap(std::move(tensor));
            need(result);
        } else {
            node->add_input_metadata(autograd::Node::undefined_input());
            result = Py_NewRef(values[i]);
        }
        PyTuple_SET_ITEM(results.get(), i, result);
    }
    const Slice saved = graph->saved.within(n), symbols = graph->symbols.within(n);
    node->saved.reserve(saved.stop - saved.start);
    for (Py_ssize_t i = saved.start; i < saved.stop; i++) {
        TORCH_CHECK(is_tensor(values[i]), "a compiled forward saved something that isn't a tensor");
        at::Tensor tensor(tensor_in(values[i]));
        const bool result = tensor.grad_fn().get() == node.get();
        const bool apart = !result && (tensor.is_view() || graph->is_cut(values[i], args));  // its history isn't this graph's
        node->saved.emplace_back(apart ? tensor.detach() : tensor, result);
    }
    for (Py_ssize_t i = symbols.start; i < symbols.stop; i++) node->symbols.emplace_back(values[i]);
    return results.given();
}

static PyObject *call(const std::shared_ptr<const Graph> &graph, PyObject *const *args, Py_ssize_t n)
{
    Local outs(run_forward(*graph, args, n));
    if (!outs) return nullptr;
    try {
        share_versions(args, n, outs.get());
        autograd::edge_list edges;
        if (edges_of(*graph, args, n, edges)) return recorded(graph, std::move(edges), args, outs.get());
        Local all(PySequence_Tuple(outs.get()));
        return all ? PyTuple_GetSlice(all.get(), 0, (Py_ssize_t)graph->differentiable.size()) : nullptr;
    } catch (...) {
        torch::translate_exception_to_python(std::current_exception());
        return nullptr;
    }
}

// ---- the Python type ----
struct TrainedGraphObject {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *otherwise;
    std::shared_ptr<const Graph> *graph;  // nullptr once the garbage collector has cleared it
};

static PyObject *trained_vectorcall(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *names)
{
    auto *self = (TrainedGraphObject *)object;
    if (!self->graph) return PyErr_Format(PyExc_RuntimeError, "TrainedGraph: called after the garbage collector has taken it apart");
    const bool transformed = c10::impl::tls_local_dispatch_key_set().included_.has(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
    if (transformed || !at::GradMode::is_enabled() || (names && PyTuple_GET_SIZE(names)))
        return PyObject_Vectorcall(self->otherwise, args, nargsf, names);
    std::shared_ptr<const Graph> graph = *self->graph;
    return call(graph, args, PyVectorcall_NARGS(nargsf));
}

static std::vector<char> flags(PyObject *tuple)
{
    std::vector<char> found;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) found.push_back((char)(PyTuple_GET_ITEM(tuple, i) == Py_True));
    return found;
}

static Slice slice(PyObject *object)
{
    Slice found;
    Py_ssize_t step;
    need(PySlice_Unpack(object, &found.start, &found.stop, &step) == 0);
    return found;
}

static Ints numbers(PyObject *sequence)
{
    Ints found;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(sequence); i++) found.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(sequence, i)));
    need(!PyErr_Occurred());
    return found;
}

// (result, memory format or None, sizes, strides, layout)
static Tangent tangent_of(PyObject *form)
{
    Tangent found;
    PyObject *format, *sizes, *strides, *layout;
    need(PyArg_ParseTuple(form, "LOO!O!O:tangent", &found.result, &format, &PyTuple_Type, &sizes, &PyTuple_Type, &strides, &layout));
    if (THPMemoryFormat_Check(format)) found.format = reinterpret_cast<THPMemoryFormat *>(format)->memory_format;
    found.sizes = numbers(sizes);
    found.strides = numbers(strides);
    found.layout = Reference(layout);
    return found;
}

static PyObject *trained_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static const char *names[] = {"otherwise", "forward", "backward", "last", "lay_out", "differentiable", "cut", "saved", "symbols", "tangents", nullptr};
    PyObject *otherwise, *forward, *backward, *last, *lay_out, *differentiable, *cut, *saved, *symbols, *tangents;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O$OOOOO!O!O!O!O!:TrainedGraph", const_cast<char **>(names), &otherwise, &forward, &backward, &last,
                                     &lay_out, &PyTuple_Type, &differentiable, &PyTuple_Type, &cut, &PySlice_Type, &saved, &PySlice_Type, &symbols,
                                     &PyTuple_Type, &tangents))
        return nullptr;
    auto graph = std::make_shared<Graph>();
    try {
        graph->forward = Reference(forward);
        graph->backward = Reference(backward);
        graph->last = Reference(last);
        graph->lay_out = Reference(lay_out);
        graph->differentiable = flags(differentiable);
        graph->cut = flags(cut);
        graph->saved = slice(saved);
        graph->symbols = slice(symbols);
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tangents); i++) graph->tangents.push_back(tangent_of(PyTuple_GET_ITEM(tangents, i)));
        for (const Tangent &tangent : graph->tangents)
            TORCH_CHECK_VALUE(tangent.result >= 0 && tangent.result < (int64_t)graph->differentiable.size(), "TrainedGraph: no result ", tangent.result);
    } catch (...) {
        torch::translate_exception_to_python(std::current_exception());
        return nullptr;
    }
    auto *self = (TrainedGraphObject *)type->tp_alloc(type, 0);
    if (!self) return nullptr;
    self->vectorcall = trained_vectorcall;
    self->otherwise = Py_NewRef(otherwise);
    self->graph = new std::shared_ptr<const Graph>(std::move(graph));
    return (PyObject *)self;
}

static int trained_traverse(PyObject *object, visitproc visit, void *arg)
{
    auto *self = (TrainedGraphObject *)object;
    Py_VISIT(self->otherwise);
    if (!self->graph || self->graph->use_count() > 1) return 0;  // nodes that the collector doesn't see hold it too
    const Graph &graph = **self->graph;
    for (const Reference *reference : {&graph.forward, &graph.backward, &graph.last, &graph.lay_out}) Py_VISIT(reference->get());
    return 0;
}

static int trained_clear(PyObject *object)
{
    auto *self = (TrainedGraphObject *)object;
    Py_CLEAR(self->otherwise);
    delete std::exchange(self->graph, nullptr);
    return 0;
}

static void trained_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    trained_clear(object);
    Py_TYPE(object)->tp_free(object);
}

static PyTypeObject TrainedGraph_Type = {PyVarObject_HEAD_INIT(nullptr, 0)};

static PyObject *share_versions_of(PyObject *, PyObject *args)
{
    PyObject *inputs, *results;
    if (!PyArg_ParseTuple(args, "OO:share_versions", &inputs, &results)) return nullptr;
    Local given(PySequence_Fast(inputs, "share_versions: the arguments must be a sequence"));
    Local made(given ? PySequence_Fast(results, "share_versions: the results must be a sequence") : nullptr);
    if (!made) return nullptr;
    try {
        share_versions(PySequence_Fast_ITEMS(given.get()), PySequence_Fast_GET_SIZE(given.get()), made.get());
    } catch (...) {
        torch::translate_exception_to_python(std::current_exception());
        return nullptr;
    }
    Py_RETURN_NONE;
}

// Does an earlier one of the gradients, as another tensor, show the same memory?
static bool shown_before(PyObject *const *gradients, Py_ssize_t i)
{
    if (!is_tensor(gradients[i])) return false;
    c10::TensorImpl *impl = tensor_in(gradients[i]).unsafeGetTensorImpl();
    if (!shows_memory(impl) || impl->storage().use_count() < 2) return false;
    return std::any_of(gradients, gradients + i, [&](PyObject *object) {
        c10::TensorImpl *other = is_tensor(object) ? tensor_in(object).unsafeGetTensorImpl() : nullptr;
        return other && other != impl && shows_memory(other) && other->storage().unsafeGetStorageImpl() == impl->storage().unsafeGetStorageImpl();
    });
}

static PyObject *own_memory(PyObject *, PyObject *results)
{
    Local items(PySequence_List(results));
    if (!items) return nullptr;
    try {
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); i++) {
            if (!shown_before(PySequence_Fast_ITEMS(items.get()), i)) continue;
            PyObject *copy = THPVariable_Wrap(at::Tensor(tensor_in(PyList_GET_ITEM(items.get(), i))).clone());
            if (!copy) return nullptr;
            PyList_SetItem(items.get(), i, copy);
        }
    } catch (...) {
        torch::translate_exception_to_python(std::current_exception());
        return nullptr;
    }
    return items.given();
}

static PyMethodDef functions[] = {
    {"share_versions", share_versions_of, METH_VARARGS,
     "share_versions(args, results): results that show the memory of others, or of arguments, count its changes together with them."},
    {"own_memory", own_memory, METH_O, "own_memory(gradients): a list of them in which none shows another's memory: autograd keeps them as they are."},
    {nullptr}};

extern "C" int dnb_autograd_init(PyObject *module)
{
    PyTypeObject *type = &TrainedGraph_Type;
    type->tp_name = "dynamo_nb.native.TrainedGraph";
    type->tp_doc = "TrainedGraph(otherwise, *, forward, backward, ...): a compiled graph with gradients.";
    type->tp_basicsize = sizeof(TrainedGraphObject);
    type->tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC;
    type->tp_vectorcall_offset = offsetof(TrainedGraphObject, vectorcall);
    type->tp_call = PyVectorcall_Call;
    type->tp_new = trained_new;
    type->tp_traverse = trained_traverse;
    type->tp_clear = trained_clear;
    type->tp_dealloc = trained_dealloc;
    if (PyType_Ready(type) < 0 || PyModule_AddFunctions(module, functions) < 0) return -1;
    return PyModule_AddObjectRef(module, "TrainedGraph", (PyObject *)type);
}

}  // namespace dnb
