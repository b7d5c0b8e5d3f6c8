// The state of torch that a graph depends on besides its inputs, as one leaf.
#include "guards.hpp"
#include <ATen/PythonTorchFunctionTLS.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/SafePyObject.h>
#include <c10/core/ScalarTypeToTypeMeta.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace at {
// Declared here because the headers that hold them take seconds to compile; a change of signature fails at load.
class Context {
public:
    bool deterministicAlgorithms() const;
    bool deterministicAlgorithmsWarnOnly() const;
};
Context &globalContext();
namespace autocast {
bool is_autocast_enabled(c10::DeviceType);
c10::ScalarType get_autocast_dtype(c10::DeviceType);
bool is_autocast_cache_enabled();
}
}

namespace dnb {

static const c10::DeviceType autocast_devices[] = {c10::DeviceType::CPU, c10::DeviceType::CUDA, c10::DeviceType::XPU,
                                                   c10::DeviceType::MPS, c10::DeviceType::HPU, c10::DeviceType::PrivateUse1};
constexpr size_t autocast_count = sizeof autocast_devices / sizeof *autocast_devices;

struct GlobalState {
    bool grad, inference, forward_grad, autocast_cache, deterministic, deterministic_warn_only;
    int default_dtype, torch_function;
    bool autocast[autocast_count];
    int autocast_dtype[autocast_count];
    uint64_t included, excluded;
    std::vector<PyTypeObject *> modes;  // types of the torch-function modes, outermost first; borrowed
};

static GlobalState read_state()
{
    GlobalState s{};
    auto &autograd = c10::AutogradState::get_tls_state();
    s.grad = autograd.get_grad_mode();
    s.inference = autograd.get_inference_mode();
    s.forward_grad = autograd.get_fw_grad_mode();
    s.autocast_cache = at::autocast::is_autocast_cache_enabled();
    s.deterministic = at::globalContext().deterministicAlgorithms();
    s.deterministic_warn_only = at::globalContext().deterministicAlgorithmsWarnOnly();
    s.default_dtype = (int)c10::get_default_dtype_as_scalartype();
    s.torch_function = (int)at::impl::PythonTorchFunctionTLS::get_disabled_state();
    for (size_t i = 0; i < autocast_count; i++) {
        s.autocast[i] = at::autocast::is_autocast_enabled(autocast_devices[i]);
        s.autocast_dtype[i] = s.autocast[i] ? (int)at::autocast::get_autocast_dtype(autocast_devices[i]) : -1;
    }
    auto keys = c10::impl::tls_local_dispatch_key_set();
    s.included = keys.included_.raw_repr();
    s.excluded = keys.excluded_.raw_repr();
    for (int64_t i = 0, n = at::impl::PythonTorchFunctionTLS::stack_len(); i < n; i++) {
        const auto &mode = at::impl::PythonTorchFunctionTLS::get_stack_at(i);
        s.modes.push_back(Py_TYPE(mode->ptr(&mode->pyinterpreter())));
    }
    return s;
}

// Whether the state is as expected now. An autocast device's on/off is one of the excluded dispatch
// keys, so that only the dtype of an enabled one is left to ask for.
static bool unchanged(const GlobalState &s)
{
    auto keys = c10::impl::tls_local_dispatch_key_set();
    auto &autograd = c10::AutogradState::get_tls_state();
    if (keys.included_.raw_repr() != s.included || keys.excluded_.raw_repr() != s.excluded ||
        autograd.get_grad_mode() != s.grad || autograd.get_inference_mode() != s.inference ||
        autograd.get_fw_grad_mode() != s.forward_grad)
        return false;
    for (size_t i = 0; i < autocast_count; i++)
        if (s.autocast[i] && (int)at::autocast::get_autocast_dtype(autocast_devices[i]) != s.autocast_dtype[i]) return false;
    if (at::autocast::is_autocast_cache_enabled() != s.autocast_cache ||
        at::globalContext().deterministicAlgorithms() != s.deterministic ||
        at::globalContext().deterministicAlgorithmsWarnOnly() != s.deterministic_warn_only ||
        (int)c10::get_default_dtype_as_scalartype() != s.default_dtype ||
        (int)at::impl::PythonTorchFunctionTLS::get_disabled_state() != s.torch_function ||
        at::impl::PythonTorchFunctionTLS::stack_len() != (int64_t)s.modes.size())
        return false;
    for (size_t i = 0; i < s.modes.size(); i++) {
        const auto &mode = at::impl::PythonTorchFunctionTLS::get_stack_at((int64_t)i);
        if (Py_TYPE(mode->ptr(&mode->pyinterpreter())) != s.modes[i]) return false;
    }
    return true;
}

struct GlobalStateLeaf : Leaf {
    GlobalState expected;
    std::vector<Identity> mode_types;  // so that a dead type's address can't come back as another
    int check(PyObject *, Check &) override
    {
        for (size_t i = 0; i < mode_types.size(); i++)
            if (!mode_types[i].is((PyObject *)expected.modes[i])) return 0;
        try {
            return unchanged(expected);
        } catch (const std::exception &) {
            return 0;
        }
    }
};

// ("global_state", None): the state as it is now
LeafPtr make_global_state_leaf(PyObject *)
{
    auto leaf = std::make_unique<GlobalStateLeaf>();
    try {
        leaf->expected = read_state();
    } catch (const std::exception &error) {
        PyErr_Format(PyExc_RuntimeError, "torch's global state can't be read: %.200s", error.what());
        return nullptr;
    }
    for (PyTypeObject *type : leaf->expected.modes) {
        leaf->mode_types.emplace_back();
        if (!leaf->mode_types.back().set((PyObject *)type)) return nullptr;
    }
    return leaf;
}

PyObject *read_global_state()
{
    GlobalState s;
    try {
        s = read_state();
    } catch (const std::exception &error) {
        return PyErr_Format(PyExc_RuntimeError, "torch's global state can't be read: %.200s", error.what());
    }
    PyObject *autocast = PyTuple_New(autocast_count), *modes = PyTuple_New((Py_ssize_t)s.modes.size());
    for (size_t i = 0; autocast && i < autocast_count; i++) {
        PyObject *item = Py_BuildValue("(Oi)", s.autocast[i] ? Py_True : Py_False, s.autocast_dtype[i]);
        if (!item) Py_CLEAR(autocast);
        else PyTuple_SET_ITEM(autocast, i, item);
    }
    for (size_t i = 0; modes && i < s.modes.size(); i++) {
        PyObject *name = PyUnicode_FromString(s.modes[i]->tp_name);
        if (!name) Py_CLEAR(modes);
        else PyTuple_SET_ITEM(modes, i, name);
    }
    if (!autocast || !modes) {
        Py_XDECREF(autocast);
        Py_XDECREF(modes);
        return nullptr;
    }
    return Py_BuildValue("{s:O,s:O,s:O,s:O,s:O,s:O,s:i,s:i,s:N,s:K,s:K,s:N}", "grad_mode", s.grad ? Py_True : Py_False, "inference_mode",
                         s.inference ? Py_True : Py_False, "forward_grad", s.forward_grad ? Py_True : Py_False, "autocast_cache",
                         s.autocast_cache ? Py_True : Py_False, "deterministic_algorithms", s.deterministic ? Py_True : Py_False,
                         "deterministic_algorithms_warn_only", s.deterministic_warn_only ? Py_True : Py_False, "default_dtype",
                         s.default_dtype, "torch_function_state", s.torch_function, "autocast", autocast, "dispatch_included",
                         (unsigned long long)s.included, "dispatch_excluded", (unsigned long long)s.excluded, "torch_function_modes", modes);
}

static PyObject *global_state(PyObject *, PyObject *) { return read_global_state(); }

static PyMethodDef state_methods[] = {{"global_state", global_state, METH_NOARGS, "global_state() -> dict of what GLOBAL_STATE guards."},
                                      {nullptr}};

int global_state_init(PyObject *module) { return PyModule_AddFunctions(module, state_methods); }

}  // namespace dnb
