// Comparison by content, type-strictly: 1 is not True, 0.0 is not -0.0, a NaN equals a NaN of the same bits.
//
// Numbers, str, bytes, None and friends, tuples (also named ones), lists, sets, slices, ranges, enum
// members, NumPy scalars, torch dtypes and devices compare by content, descriptors implemented in C by
// owner and name. Classes are compared by weak identity.
#include "guards.hpp"
#include <cstring>

namespace dnb {

static PyObject *enum_type;                            // enum.Enum
static PyObject *singleton_types, *plain_equal_types, *byte_types;  // tuples of types, set from Python

bool Identity::set(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    bool immortal = object == Py_None || object == Py_True || object == Py_False || object == Py_Ellipsis ||
                    object == Py_NotImplemented || (PyType_Check(object) && !PyType_HasFeature((PyTypeObject *)object, Py_TPFLAGS_HEAPTYPE)) ||
                    (singleton_types && PySequence_Contains(singleton_types, (PyObject *)type) == 1);
    if (immortal) {
        strong = Py_NewRef(object);
        return true;
    }
    weak = PyWeakref_NewRef(object, nullptr);
    return weak != nullptr;
}

using ContentPtr = std::unique_ptr<Content>;

struct Same : Content {  // identity
    Identity identity;
    int equals(PyObject *value) override { return identity.is(value); }
    int traverse(visitproc visit, void *arg) override { return identity.traverse(visit, arg); }
};

struct Typed : Content {
    Identity type;
    bool exact(PyObject *value) const { return type.is((PyObject *)Py_TYPE(value)); }
};

struct Bits : Typed {  // float and complex
    double real, imag;
    static bool same(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }
    int equals(PyObject *value) override
    {
        if (!exact(value)) return 0;
        if (PyFloat_CheckExact(value)) return same(real, PyFloat_AS_DOUBLE(value));
        Py_complex z = ((PyComplexObject *)value)->cval;
        return same(real, z.real) && same(imag, z.imag);
    }
};

struct Plain : Typed {  // exact type, then ==, for types whose == runs no user code
    PyObject *expected;
    explicit Plain(PyObject *value) : expected(Py_NewRef(value)) {}
    ~Plain() override { Py_DECREF(expected); }
    int equals(PyObject *value) override
    {
        if (value == expected) return 1;
        return exact(value) ? PyObject_RichCompareBool(value, expected, Py_EQ) : 0;
    }
};

struct Bytes : Typed {  // scalars of one exact type with the same bytes in memory
    PyObject *bytes = nullptr;
    ~Bytes() override { Py_XDECREF(bytes); }
    static PyObject *read(PyObject *value) { return PyObject_CallMethod(value, "tobytes", nullptr); }
    int equals(PyObject *value) override
    {
        if (!exact(value)) return 0;
        PyObject *mine = read(value);
        int ok = mine ? PyObject_RichCompareBool(mine, bytes, Py_EQ) : -1;
        Py_XDECREF(mine);
        return ok;
    }
};

struct Sequence : Typed {  // tuples, lists
    std::vector<ContentPtr> items;
    int equals(PyObject *value) override
    {
        if (!exact(value)) return 0;
        for (size_t i = 0; i < items.size(); i++) {
            if ((Py_ssize_t)i >= Py_SIZE(value)) return 0;
            PyObject *item = Py_NewRef(PyTuple_Check(value) ? PyTuple_GET_ITEM(value, i) : PyList_GET_ITEM(value, i));
            int ok = items[i]->equals(item);
            Py_DECREF(item);
            if (ok != 1) return ok;
        }
        return Py_SIZE(value) == (Py_ssize_t)items.size();
    }
    int traverse(visitproc visit, void *arg) override
    {
        for (auto &item : items)
            if (int stop = item->traverse(visit, arg)) return stop;
        return 0;
    }
};

struct Parts : Typed {  // slices and ranges: their three fields; enum members: the value; descriptors in C: owner and name
    std::vector<std::pair<PyObject *, ContentPtr>> fields;
    ~Parts() override
    {
        for (auto &field : fields) Py_DECREF(field.first);
    }
    int equals(PyObject *value) override
    {
        if (!exact(value)) return 0;
        for (auto &field : fields) {
            PyObject *part = PyObject_GetAttr(value, field.first);
            if (!part) return -1;
            int ok = field.second->equals(part);
            Py_DECREF(part);
            if (ok != 1) return ok;
        }
        return 1;
    }
};

struct Set : Typed {
    std::vector<ContentPtr> items;
    int equals(PyObject *value) override
    {
        if (!exact(value) || PySet_GET_SIZE(value) != (Py_ssize_t)items.size()) return 0;
        PyObject *list = PySequence_List(value);
        if (!list) return -1;
        int ok = 1;
        for (auto &item : items) {
            ok = 0;
            for (Py_ssize_t i = 0; ok == 0 && i < PyList_GET_SIZE(list); i++) ok = item->equals(PyList_GET_ITEM(list, i));
            if (ok != 1) break;
        }
        Py_DECREF(list);
        return ok;
    }
};

static bool add_items(std::vector<ContentPtr> &items, PyObject *value)
{
    PyObject *list = PySequence_List(value);
    if (!list) return false;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        items.push_back(make_content(PyList_GET_ITEM(list, i)));
        if (!items.back()) {
            Py_DECREF(list);
            return false;
        }
    }
    Py_DECREF(list);
    return true;
}

static bool add_field(Parts &parts, PyObject *value, const char *name)
{
    PyObject *part = PyObject_GetAttrString(value, name);
    ContentPtr content = part ? make_content(part) : nullptr;
    Py_XDECREF(part);
    PyObject *text = content ? PyUnicode_InternFromString(name) : nullptr;
    if (!text) return false;
    parts.fields.emplace_back(text, std::move(content));
    return true;
}

template <class T> static ContentPtr typed(std::unique_ptr<T> content, PyObject *value)
{
    if (!content->type.set((PyObject *)Py_TYPE(value))) return nullptr;
    return content;
}

static bool is_enum(PyObject *value) { return PyObject_IsInstance(value, enum_type) == 1; }

static ContentPtr make_parts(PyObject *value, std::initializer_list<const char *> names)
{
    auto parts = std::make_unique<Parts>();
    for (const char *name : names)
        if (!add_field(*parts, value, name)) return nullptr;
    return typed(std::move(parts), value);
}

static ContentPtr make_bits(PyObject *value)
{
    auto bits = std::make_unique<Bits>();
    Py_complex z = PyFloat_Check(value) ? Py_complex{PyFloat_AS_DOUBLE(value), 0} : PyComplex_AsCComplex(value);
    bits->real = z.real;
    bits->imag = z.imag;
    return typed(std::move(bits), value);
}

static ContentPtr make_bytes(PyObject *value)
{
    auto content = std::make_unique<Bytes>();
    content->bytes = Bytes::read(value);
    if (!content->bytes) return nullptr;
    return typed(std::move(content), value);
}

static bool is_descriptor(PyTypeObject *type)
{
    return type == &PyMethodDescr_Type || type == &PyWrapperDescr_Type || type == &PyClassMethodDescr_Type ||
           type == &PyGetSetDescr_Type || type == &PyMemberDescr_Type;
}

ContentPtr make_content(PyObject *value)
{
    PyObject *type = (PyObject *)Py_TYPE(value);
    bool singleton = value == Py_None || PyBool_Check(value) || value == Py_Ellipsis || value == Py_NotImplemented ||
                     PySequence_Contains(singleton_types, type) == 1;
    if (singleton || PyType_Check(value)) {
        auto same = std::make_unique<Same>();
        if (!same->identity.set(value)) return nullptr;
        return same;
    }
    if (PyFloat_CheckExact(value) || PyComplex_CheckExact(value)) return make_bits(value);
    if (PyLong_CheckExact(value) || PyUnicode_CheckExact(value) || PyBytes_CheckExact(value) ||
        PySequence_Contains(plain_equal_types, type) == 1)
        return typed(std::make_unique<Plain>(value), value);
    if (PySlice_Check(value) || PyRange_Check(value)) return make_parts(value, {"start", "stop", "step"});
    if (is_enum(value)) return make_parts(value, {"_value_"});
    if (is_descriptor(Py_TYPE(value))) return make_parts(value, {"__objclass__", "__name__"});
    if (Py_TYPE(value) == &_PyMethodWrapper_Type) return make_parts(value, {"__self__", "__name__"});
    if (PySequence_Contains(byte_types, type) == 1) return make_bytes(value);
    if (PyTuple_Check(value) || PyList_CheckExact(value)) {
        auto sequence = std::make_unique<Sequence>();
        if (!add_items(sequence->items, value)) return nullptr;
        return typed(std::move(sequence), value);
    }
    if (PyFrozenSet_CheckExact(value) || PySet_CheckExact(value)) {
        auto set = std::make_unique<Set>();
        if (!add_items(set->items, value)) return nullptr;
        return typed(std::move(set), value);
    }
    if (!PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "a %.200s can't be guarded by content", Py_TYPE(value)->tp_name);
    return nullptr;
}

// set_content_types(singletons, plain, bytes): types whose instances are compared by identity, by plain ==, by tobytes().
static PyObject *set_content_types(PyObject *, PyObject *args)
{
    PyObject *singletons, *plain, *bytes;
    if (!PyArg_ParseTuple(args, "O!O!O!:set_content_types", &PyTuple_Type, &singletons, &PyTuple_Type, &plain, &PyTuple_Type,
                          &bytes)) return nullptr;
    Py_XSETREF(singleton_types, Py_NewRef(singletons));
    Py_XSETREF(plain_equal_types, Py_NewRef(plain));
    Py_XSETREF(byte_types, Py_NewRef(bytes));
    Py_RETURN_NONE;
}

// content_equal(expected, value) -> bool, as EQUALS_MATCH compares.
static PyObject *content_equal(PyObject *, PyObject *args)
{
    PyObject *expected, *value;
    if (!PyArg_ParseTuple(args, "OO:content_equal", &expected, &value)) return nullptr;
    ContentPtr content = make_content(expected);
    if (!content) return nullptr;
    int ok = content->equals(value);
    return ok < 0 ? nullptr : PyBool_FromLong(ok);
}

static PyMethodDef content_methods[] = {
    {"set_content_types", set_content_types, METH_VARARGS, "set_content_types(singletons, plain, bytes): tuples of types."},
    {"content_equal", content_equal, METH_VARARGS, "content_equal(expected, value) -> bool, type-strict."},
    {nullptr}};

int content_init(PyObject *module)
{
    PyObject *enums = PyImport_ImportModule("enum");
    enum_type = enums ? PyObject_GetAttrString(enums, "Enum") : nullptr;
    Py_XDECREF(enums);
    singleton_types = PyTuple_New(0);
    plain_equal_types = PyTuple_New(0);
    byte_types = PyTuple_New(0);
    if (!enum_type || !singleton_types || !plain_equal_types || !byte_types) return -1;
    return PyModule_AddFunctions(module, content_methods);
}

}  // namespace dnb
