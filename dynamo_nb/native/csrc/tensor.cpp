// Leaves and helpers that read tensors directly.
//
// A tensor object is a PyObject followed by an at::TensorBase; dynamo_nb.native checks at import that
// this agrees with `t._cdata`.
#include "guards.hpp"
#include <ATen/core/TensorBase.h>

namespace dnb {

static PyTypeObject *tensor_type;  // torch._C.TensorBase, given by set_tensor_type

static const at::TensorBase &tensor_of(PyObject *object) { return *reinterpret_cast<at::TensorBase *>(object + 1); }

bool is_tensor(PyObject *object) { return tensor_type && PyObject_TypeCheck(object, tensor_type); }

void *tensor_identity(PyObject *object) { return tensor_of(object).unsafeGetTensorImpl(); }

bool tensor_property(PyObject *object, int property, Py_ssize_t index, int64_t *out)
{
    if (!is_tensor(object)) return false;
    try {
        const at::TensorBase &t = tensor_of(object);
        if (!t.defined()) return false;
        if (property == PROP_OFFSET) {
            *out = t.storage_offset();
            return true;
        }
        c10::IntArrayRef values = property == PROP_SIZE ? t.sizes() : t.strides();
        if (index < 0 || (size_t)index >= values.size()) return false;
        *out = values[index];
        return true;
    } catch (const std::exception &) {
        return false;
    }
}

bool tensor_extent(PyObject *object, void **storage, uintptr_t *low, uintptr_t *high)
{
    try {
        const at::TensorBase &t = tensor_of(object);
        if (!t.defined() || !t.has_storage() || t.numel() == 0) return false;
        int64_t last = 0;
        for (int64_t d = 0; d < t.dim(); d++) last += (t.size(d) - 1) * t.stride(d);
        uintptr_t base = reinterpret_cast<uintptr_t>(t.storage().data());
        if (!base) return false;
        *storage = t.storage().unsafeGetStorageImpl();
        *low = base + t.storage_offset() * t.itemsize();
        *high = *low + (last + 1) * t.itemsize();
        return true;
    } catch (const std::exception &) {
        return false;
    }
}

struct TensorLeaf : Leaf {
    Identity type;
    uint64_t keys;
    int dtype, device_type, device_index, requires_grad;
    bool has_sizes, has_strides;
    c10::SmallVector<int64_t, 4> sizes, strides;  // -1: any

    static bool match(c10::ArrayRef<int64_t> expected, c10::IntArrayRef actual)
    {
        if (expected.size() != actual.size()) return false;
        for (size_t i = 0; i < expected.size(); i++)
            if (expected[i] != actual[i] && expected[i] != -1) return false;
        return true;
    }

    int check(PyObject *value, Check &) override
    {
        if (!type.is((PyObject *)Py_TYPE(value))) return 0;
        const at::TensorBase &t = tensor_of(value);
        if (!t.defined()) return 0;
        const c10::TensorImpl *impl = t.unsafeGetTensorImpl();
        try {
            if (impl->key_set().raw_repr() != keys || (int)c10::typeMetaToScalarType(impl->dtype()) != dtype) return 0;
            c10::Device device = impl->device();
            if ((int)device.type() != device_type || (int)device.index() != device_index) return 0;
            if (impl->requires_grad() != (bool)requires_grad) return 0;
            if (has_sizes && !match(sizes, impl->sizes())) return 0;
            if (has_strides && !match(strides, impl->strides())) return 0;
            return 1;
        } catch (const std::exception &) {
            return 0;
        }
    }
};

static bool parse_numbers(PyObject *value, bool *present, c10::SmallVector<int64_t, 4> *out)
{
    *present = value != Py_None;
    if (!*present) return true;
    PyObject *items = PySequence_Tuple(value);
    if (!items) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); i++) {
        PyObject *item = PyTuple_GET_ITEM(items, i);
        out->push_back(item == Py_None ? -1 : PyLong_AsLongLong(item));
    }
    Py_DECREF(items);
    return !PyErr_Occurred();
}

// ("tensor", (type, keys, dtype, device type, device index, requires_grad, sizes, strides))
LeafPtr make_tensor_leaf(PyObject *form)
{
    auto leaf = std::make_unique<TensorLeaf>();
    PyObject *type, *sizes, *strides;
    unsigned long long keys;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(form, 1), "OKiiipOO", &type, &keys, &leaf->dtype, &leaf->device_type,
                          &leaf->device_index, &leaf->requires_grad, &sizes, &strides))
        return nullptr;
    if (!PyType_Check(type) || !tensor_type || !PyType_IsSubtype((PyTypeObject *)type, tensor_type)) {
        PyErr_SetString(PyExc_TypeError, "TENSOR_MATCH needs a tensor class");
        return nullptr;
    }
    leaf->keys = keys;
    if (!leaf->type.set(type) || !parse_numbers(sizes, &leaf->has_sizes, &leaf->sizes) ||
        !parse_numbers(strides, &leaf->has_strides, &leaf->strides))
        return nullptr;
    return leaf;
}

static PyObject *numbers(c10::IntArrayRef values)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)values.size());
    for (size_t i = 0; tuple && i < values.size(); i++) {
        PyObject *number = PyLong_FromLongLong(values[i]);
        if (!number) Py_CLEAR(tuple);
        else PyTuple_SET_ITEM(tuple, i, number);
    }
    return tuple;
}

// tensor_meta(t) -> (keys, dtype, device type, device index, requires_grad, sizes or None, strides or None)
static PyObject *tensor_meta(PyObject *, PyObject *object)
{
    if (!is_tensor(object)) return PyErr_Format(PyExc_TypeError, "expected a tensor, got %.200s", Py_TYPE(object)->tp_name);
    const at::TensorBase &t = tensor_of(object);
    const c10::TensorImpl *impl = t.unsafeGetTensorImpl();
    PyObject *sizes = nullptr, *strides = nullptr, *result = nullptr;
    int device_type = 0, device_index = 0, dtype = 0, requires_grad = 0;
    try {
        dtype = (int)c10::typeMetaToScalarType(impl->dtype());
        c10::Device device = impl->device();
        device_type = (int)device.type();
        device_index = (int)device.index();
        requires_grad = impl->requires_grad();
        sizes = numbers(impl->sizes());
    } catch (const std::exception &) {
    }
    try {
        strides = numbers(impl->strides());
    } catch (const std::exception &) {
    }
    if (PyErr_Occurred()) goto done;
    result = Py_BuildValue("(KiiiNOO)", (unsigned long long)impl->key_set().raw_repr(), dtype, device_type, device_index,
                           PyBool_FromLong(requires_grad), sizes ? sizes : Py_None, strides ? strides : Py_None);
done:
    Py_XDECREF(sizes);
    Py_XDECREF(strides);
    return result;
}

static PyObject *tensor_address(PyObject *, PyObject *object)
{
    if (!is_tensor(object)) return PyErr_Format(PyExc_TypeError, "expected a tensor, got %.200s", Py_TYPE(object)->tp_name);
    return PyLong_FromVoidPtr(tensor_identity(object));
}

// tensors_overlap(a, b) -> bool: whether the address ranges they can touch meet.
static PyObject *tensors_overlap(PyObject *, PyObject *args)
{
    PyObject *a, *b;
    if (!PyArg_ParseTuple(args, "OO:tensors_overlap", &a, &b)) return nullptr;
    void *storage;
    uintptr_t low_a, high_a, low_b, high_b;
    bool real = is_tensor(a) && is_tensor(b) && tensor_extent(a, &storage, &low_a, &high_a) && tensor_extent(b, &storage, &low_b, &high_b);
    return PyBool_FromLong(real && low_a < high_b && low_b < high_a);
}

static PyObject *set_tensor_type(PyObject *, PyObject *type)
{
    if (!PyType_Check(type)) return PyErr_Format(PyExc_TypeError, "expected a type");
    Py_XSETREF(tensor_type, (PyTypeObject *)Py_NewRef(type));
    Py_RETURN_NONE;
}

static PyMethodDef tensor_methods[] = {
    {"set_tensor_type", set_tensor_type, METH_O, "set_tensor_type(torch._C.TensorBase)"},
    {"tensor_address", tensor_address, METH_O, "tensor_address(t) -> address of its TensorImpl, as t._cdata."},
    {"tensor_meta", tensor_meta, METH_O,
     "tensor_meta(t) -> (keys, dtype, device type, device index, requires_grad, sizes | None, strides | None), as TENSOR_MATCH reads it."},
    {"tensors_overlap", tensors_overlap, METH_VARARGS, "tensors_overlap(a, b) -> bool, by the address ranges they span."},
    {nullptr}};

int tensor_init(PyObject *module) { return PyModule_AddFunctions(module, tensor_methods); }

}  // namespace dnb
