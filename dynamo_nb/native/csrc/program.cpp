// The Program type: a compiled graph that runs without Python between its operations.
//
// A call binds arguments to slots, runs the steps without the GIL, and wraps the results. Slots borrow the arguments they
// can: a tensor whose only reference is Python's would take the GIL whenever an operator counts references to it.
#include "program.hpp"
#include "torch_python.hpp"
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <structmember.h>

namespace dnb {

Program::~Program()
{
    for (Output &output : outputs) Py_XDECREF(output.constant);
}

struct ProgramObject {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Program *program;
    PyObject *weakrefs;
};

// ---- arguments ----
// A TypeError of its own: raised before anything of the call was taken or run, so that the caller may run the operators instead.
static PyObject *NotPlain;

static bool check_tensor(PyObject *value, Py_ssize_t i)
{
    if (!is_tensor(value)) {
        PyErr_Format(PyExc_TypeError, "Program: argument %zd must be a Tensor, got %.200s", i, Py_TYPE(value)->tp_name);
        return false;
    }
    const at::TensorBase &tensor = tensor_in(value);
    if (!tensor.defined() || tensor.key_set().has(c10::DispatchKey::Python)) {
        PyErr_Format(NotPlain, "Program: argument %zd is a %.200s, whose operators run in Python: only plain tensors can be passed", i,
                     Py_TYPE(value)->tp_name);
        return false;
    }
    c10::TensorImpl *impl = tensor.unsafeGetTensorImpl();
    constexpr c10::DispatchKeySet wrapped({c10::DispatchKey::Batched, c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper});
    if (impl->key_set().has_any(wrapped)) {
        PyErr_Format(NotPlain, "Program: argument %zd stands for other tensors, as inside torch.func's transforms or with is_grads_batched=True: "
                     "kernels need one", i);
        return false;
    }
    if (impl->autograd_meta() && impl->_fw_grad(0, tensor).defined()) {
        PyErr_Format(NotPlain, "Program: argument %zd carries a tangent of forward-mode differentiation, which kernels would drop", i);
        return false;
    }
    return true;
}

// Checks the arguments and fills in integers; nothing is owned yet.
static bool read_arguments(const Program &program, PyObject *const *args, Py_ssize_t n, Held *held, int64_t *ints)
{
    if (n != (Py_ssize_t)program.inputs.size()) {
        PyErr_Format(PyExc_TypeError, "Program: expected %zd arguments, got %zd", (Py_ssize_t)program.inputs.size(), n);
        return false;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        const Input &input = program.inputs[i];
        if (input.slot >= 0) {
            if (!check_tensor(args[i], i)) return false;
            held[i].object = args[i];
        } else if (PyLong_Check(args[i])) {
            ints[input.integer] = PyLong_AsLongLong(args[i]);
            if (ints[input.integer] == -1 && PyErr_Occurred()) return false;
        } else {
            PyErr_Format(PyExc_TypeError, "Program: argument %zd must be an int, got %.200s", i, Py_TYPE(args[i])->tp_name);
            return false;
        }
    }
    return true;
}

static bool check_layouts(const Program &program, const Held *held, int64_t *ints)
{
    if (program.expected.empty()) return true;
    if (program.derive) program.derive(ints);
    for (const Expected &expected : program.expected) {
        bool agrees = false;
        try {
            agrees = expected.agrees(tensor_in(held[expected.input].object), ints);
        } catch (const std::exception &) {  // some tensors have no sizes to be asked for
        }
        if (agrees) continue;
        PyErr_Format(NotPlain, "Program: argument %d has another dtype, other sizes or strides than the graph was compiled for", expected.input);
        return false;
    }
    return true;
}

// Empties the argument list; the call then owns its tensors.
static bool take_list(const Program &program, PyObject *list, Held *held)
{
    const size_t n = program.inputs.size();
    for (size_t i = 0; i < n; i++)
        if (held[i].object) {
            Py_INCREF(held[i].object);
            held[i].owned = true;
        }
    if (PyList_SetSlice(list, 0, PY_SSIZE_T_MAX, nullptr) < 0) return false;
    for (size_t i = 0; i < n; i++) held[i].sole = held[i].object && Py_REFCNT(held[i].object) == 1;
    return true;
}

static void fill_slots(Frame &frame)
{
    for (size_t i = 0; i < frame.program.inputs.size(); i++) {
        const Input &input = frame.program.inputs[i];
        if (input.slot < 0) continue;
        const at::TensorBase &tensor = tensor_in(frame.held[i].object);
        if (input.retained) frame.slots[input.slot] = tensor;
        else c10::MaybeOwnedTraits<at::TensorBase>::assignBorrow(frame.slots[input.slot], tensor);
    }
}

static void drop_arguments(Frame &frame)
{
    for (size_t i = 0; i < frame.program.inputs.size(); i++) {
        const Input &input = frame.program.inputs[i];
        if (input.slot < 0) continue;
        if (!input.retained) frame.slots[input.slot].unsafeReleaseTensorImpl();
        if (frame.held[i].owned) Py_CLEAR(frame.held[i].object);
    }
}

// ---- steps and results ----
static void run_steps(Frame &frame)
{
    // The graph is what is left below autograd, views' bookkeeping and autocast.
    static constexpr c10::DispatchKeySet above = c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;
    c10::impl::ExcludeDispatchKeyGuard below(above);
    ReleasedGil released;
    frame.gil = &released;
    for (const StepPtr &step : frame.program.steps) step->run(frame);
}

static PyObject *wrap_output(Frame &frame, const Output &output)
{
    if (output.kind == Output::CONSTANT) return Py_NewRef(output.constant);
    if (output.kind == Output::INTEGER) return PyLong_FromLongLong(frame.ints[output.index]);
    at::TensorBase &tensor = frame.slots[output.index];
    if (!tensor.defined()) Py_RETURN_NONE;
    return output.last ? THPVariable_Wrap(std::move(tensor)) : THPVariable_Wrap(static_cast<const at::TensorBase &>(tensor));
}

static PyObject *wrap_outputs(Frame &frame)
{
    const std::vector<Output> &outputs = frame.program.outputs;
    PyObject *result = PyTuple_New((Py_ssize_t)outputs.size());
    for (size_t i = 0; result && i < outputs.size(); i++) {
        PyObject *value = wrap_output(frame, outputs[i]);
        if (value) PyTuple_SET_ITEM(result, i, value);
        else Py_CLEAR(result);
    }
    return result;
}

// The result, or nullptr with the exception that eager would raise.
static PyObject *run(Frame &frame)
{
    PyObject *result = nullptr;
    try {
        torch::PyWarningHandler warnings;
        try {
            fill_slots(frame);
            run_steps(frame);
            result = wrap_outputs(frame);
        } catch (...) {
            warnings.set_in_exception();
            throw;
        }
    } catch (...) {
        Py_CLEAR(result);
        torch::translate_exception_to_python(std::current_exception());
    }
    return result;
}

// list: the arguments are its items, and it is emptied; nullptr: they stay the caller's.
static PyObject *call(const Program &program, PyObject *const *args, Py_ssize_t n, PyObject *list)
{
    c10::SmallVector<Held, 16> held(program.inputs.size());
    c10::SmallVector<int64_t, 32> ints(program.ints, 0);
    if (!read_arguments(program, args, n, held.data(), ints.data()) || !check_layouts(program, held.data(), ints.data())) return nullptr;
    c10::SmallVector<at::TensorBase, 32> slots(program.slots);
    Frame frame{program, slots.data(), ints.data(), held.data()};
    if (list && !take_list(program, list, held.data())) return nullptr;
    PyObject *result = run(frame);
    drop_arguments(frame);
    return result;
}

// ---- the Python type ----
static PyObject *program_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    Py_ssize_t n = PyVectorcall_NARGS(nargsf);
    if (n != 1 || (names && PyTuple_GET_SIZE(names)) || !PyList_CheckExact(args[0]))
        return PyErr_Format(PyExc_TypeError, "Program takes one list of its arguments; program.call(*args) takes them one by one");
    PyObject *list = args[0];
    return call(*((ProgramObject *)self)->program, PySequence_Fast_ITEMS(list), PyList_GET_SIZE(list), list);
}

PyObject *run_program(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    return call(*((ProgramObject *)self)->program, args, n, nullptr);
}

static void set_problem(const BadProgram &problem)
{
    if (problem.type) PyErr_Format(problem.type, "Program: %s", problem.text.c_str());
}

static PyObject *program_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static const char *names[] = {"inputs", "slots", "ints", "steps", "outputs", nullptr};
    PyObject *inputs, *slots, *ints, *steps, *outputs;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOOO:Program", const_cast<char **>(names), &inputs, &slots, &ints, &steps, &outputs))
        return nullptr;
    auto program = std::make_unique<Program>();
    try {
        parse_program(*program, inputs, slots, ints, steps, outputs);
    } catch (const BadProgram &problem) {
        set_problem(problem);
        return nullptr;
    } catch (...) {
        torch::translate_exception_to_python(std::current_exception());
        return nullptr;
    }
    auto *self = (ProgramObject *)type->tp_alloc(type, 0);
    if (!self) return nullptr;
    self->vectorcall = program_vectorcall;
    self->program = program.release();
    return (PyObject *)self;
}

static void program_dealloc(PyObject *object)
{
    auto *self = (ProgramObject *)object;
    if (self->weakrefs) PyObject_ClearWeakRefs(object);
    delete self->program;
    Py_TYPE(object)->tp_free(object);
}

static PyObject *program_repr(PyObject *object)
{
    const Program &p = *((ProgramObject *)object)->program;
    return PyUnicode_FromFormat("<Program: %zu inputs, %zu steps, %zu outputs>", p.inputs.size(), p.steps.size(), p.outputs.size());
}

static PyObject *program_boxed(PyObject *, void *) { Py_RETURN_TRUE; }

static PyMethodDef program_methods[] = {
    {"call", (PyCFunction)(void *)run_program, METH_FASTCALL, "call(*args) -> tuple: as calling it with a list, but the caller keeps the arguments."},
    {nullptr}};
static PyGetSetDef program_getset[] = {{"_boxed_call", program_boxed, nullptr, "True: called with one list, which is emptied."}, {nullptr}};

static PyTypeObject Program_Type = {PyVarObject_HEAD_INIT(nullptr, 0)};

bool is_program(PyObject *object) { return Py_IS_TYPE(object, &Program_Type); }

extern "C" int dnb_program_init(PyObject *module)
{
    PyTypeObject *type = &Program_Type;
    type->tp_name = "dynamo_nb.native.Program";
    type->tp_doc = "Program(inputs, slots, ints, steps, outputs): a compiled graph; called with one list of arguments, returns a tuple.";
    type->tp_basicsize = sizeof(ProgramObject);
    type->tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL;
    type->tp_vectorcall_offset = offsetof(ProgramObject, vectorcall);
    type->tp_weaklistoffset = offsetof(ProgramObject, weakrefs);
    type->tp_call = PyVectorcall_Call;
    type->tp_new = program_new;
    type->tp_dealloc = program_dealloc;
    type->tp_repr = program_repr;
    type->tp_methods = program_methods;
    type->tp_getset = program_getset;
    if (PyType_Ready(type) < 0) return -1;
    if (!NotPlain && !(NotPlain = PyErr_NewException("dynamo_nb.native.NotPlain", PyExc_TypeError, nullptr))) return -1;
    if (PyModule_AddObjectRef(module, "NotPlain", NotPlain) < 0) return -1;
    return PyModule_AddObjectRef(module, "Program", (PyObject *)type);
}

}  // namespace dnb
