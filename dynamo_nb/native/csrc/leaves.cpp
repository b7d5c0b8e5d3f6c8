// Leaves that need no torch header, and the table from native forms to leaves.
#include "guards.hpp"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_set>

namespace dnb {

static PyObject *arg(PyObject *form, Py_ssize_t i) { return PyTuple_GET_ITEM(form, i); }

struct TypeLeaf : Leaf {
    Identity type;
    int check(PyObject *value, Check &) override { return type.is((PyObject *)Py_TYPE(value)); }
};

struct IdLeaf : Leaf {
    Identity object;
    int check(PyObject *value, Check &) override { return object.is(value); }
    int traverse(visitproc visit, void *a) override { return object.traverse(visit, a); }
};

struct ContentLeaf : Leaf {
    std::unique_ptr<Content> content;
    int check(PyObject *value, Check &) override { return content->equals(value); }
    int traverse(visitproc visit, void *a) override { return content->traverse(visit, a); }
};

struct WithObject : Leaf {
    PyObject *object = nullptr;
    ~WithObject() override { Py_XDECREF(object); }
    int traverse(visitproc visit, void *arg) override { Py_VISIT(object); return 0; }
};

struct HasAttrLeaf : WithObject {
    bool wanted;
    // 1 or 0 where plain lookup decides without running anything, -1 where it does not
    int quick(PyObject *value)
    {
        PyTypeObject *type = Py_TYPE(value);
        if (type->tp_getattro != PyObject_GenericGetAttr || PyType_HasFeature(type, Py_TPFLAGS_MANAGED_DICT)) return -1;
        if (_PyType_Lookup(type, object)) return -1;
        PyObject **dict = _PyObject_GetDictPtr(value);
        return dict && *dict ? PyDict_Contains(*dict, object) : 0;
    }
    int check(PyObject *value, Check &) override
    {
        int has_quick = quick(value);
        if (has_quick >= 0) return has_quick == wanted;
        if (PyErr_Occurred()) return -1;
        PyObject *found;
        if (_PyObject_LookupAttr(value, object, &found) < 0) return -1;
        bool has = found != nullptr;
        Py_XDECREF(found);
        return has == wanted;
    }
};

struct ClassAttrAbsentLeaf : WithObject {  // no class of the value's type has the name
    int check(PyObject *value, Check &) override { return _PyType_Lookup(Py_TYPE(value), object) == nullptr; }
};

// A module's global by content: `object` is (the module's dict, name).
struct ModuleValueLeaf : WithObject {
    std::unique_ptr<Content> content;
    int check(PyObject *, Check &) override
    {
        PyObject *value = PyDict_GetItemWithError(PyTuple_GET_ITEM(object, 0), PyTuple_GET_ITEM(object, 1));
        if (!value) return PyErr_Occurred() ? -1 : 0;
        Py_INCREF(value);
        int ok = content->equals(value);
        Py_DECREF(value);
        return ok;
    }
};

static Py_ssize_t length_of(PyObject *value)
{
    if (PyTuple_Check(value) || PyList_Check(value)) return Py_SIZE(value);
    if (PyDict_Check(value)) return PyDict_GET_SIZE(value);
    if (PyAnySet_Check(value)) return PySet_GET_SIZE(value);
    return PyObject_Size(value);
}

struct LengthLeaf : Leaf {
    Py_ssize_t expected;
    Identity type;
    bool typed = false;
    int check(PyObject *value, Check &) override
    {
        if (typed && !type.is((PyObject *)Py_TYPE(value))) return 0;
        Py_ssize_t n = length_of(value);
        return n < 0 && PyErr_Occurred() ? -1 : n == expected;
    }
};

struct DictKeysLeaf : Leaf {
    std::vector<std::unique_ptr<Content>> content;  // nullptr: compare by identity
    std::vector<Identity> identity;
    int one(size_t i, PyObject *key) { return content[i] ? content[i]->equals(key) : identity[i].is(key); }
    int check(PyObject *value, Check &) override
    {
        if (!PyDict_Check(value) || PyDict_GET_SIZE(value) != (Py_ssize_t)content.size()) return 0;
        PyObject *keys = PyODict_Check(value) ? ordered(value) : PyDict_Keys(value);
        if (!keys) return -1;
        int ok = PyList_GET_SIZE(keys) == (Py_ssize_t)content.size();
        for (size_t i = 0; ok == 1 && i < content.size(); i++) ok = one(i, PyList_GET_ITEM(keys, i));
        Py_DECREF(keys);
        return ok;
    }
    static PyObject *ordered(PyObject *value)
    {
        PyObject *iterator = PyODict_Type.tp_iter(value), *keys = iterator ? PySequence_List(iterator) : nullptr;
        Py_XDECREF(iterator);
        return keys;
    }
};

struct ContainsLeaf : WithObject {
    bool wanted;
    int check(PyObject *value, Check &) override
    {
        int has = PyDict_Check(value) ? PyDict_Contains(value, object) : PyAnySet_Check(value) ? PySet_Contains(value, object) : 2;
        return has < 0 ? -1 : has == 2 ? 0 : has == wanted;
    }
};

// The code of a Python function, by content. `object` is (key, make_key): plain data and the function
// that computes it; the last code object found equal is remembered weakly.
struct FunctionLeaf : WithObject {
    PyObject *last = nullptr;
    ~FunctionLeaf() override { Py_XDECREF(last); }
    int check(PyObject *value, Check &) override
    {
        PyObject *code = PyFunction_Check(value) ? ((PyFunctionObject *)value)->func_code : nullptr;
        if (PyCode_Check(value)) code = value;
        if (!code) return 0;
        if (last && PyWeakref_GET_OBJECT(last) == code) return 1;
        Py_INCREF(code);
        PyObject *key = PyObject_CallOneArg(PyTuple_GET_ITEM(object, 1), code);
        int ok = key ? PyObject_RichCompareBool(key, PyTuple_GET_ITEM(object, 0), Py_EQ) : -1;
        Py_XDECREF(key);
        if (ok == 1) {
            PyObject *ref = PyWeakref_NewRef(code, nullptr);
            if (ref) Py_XSETREF(last, ref);
            else ok = -1;
        }
        Py_DECREF(code);
        return ok;
    }
};

struct WeakrefAliveLeaf : Leaf {
    int check(PyObject *value, Check &) override { return PyWeakref_Check(value) && PyWeakref_GetObject(value) != Py_None; }
};

struct NanLeaf : Leaf {
    int check(PyObject *value, Check &) override { return PyFloat_CheckExact(value) && std::isnan(PyFloat_AS_DOUBLE(value)); }
};

// What iter(tuple) and iter(range) hold, read through their own __reduce__ and __length_hint__.
struct TupleIteratorLeaf : Leaf {
    Py_ssize_t expected;
    int check(PyObject *value, Check &) override
    {
        if (Py_TYPE(value) != &PyTupleIter_Type) return 0;
        Py_ssize_t n = PyObject_LengthHint(value, -1);
        return n == -1 && PyErr_Occurred() ? -1 : n == expected;
    }
};

struct ReduceLeaf : Leaf {  // a range iterator: start, stop, step and position
    std::unique_ptr<Content> content;
    int check(PyObject *value, Check &) override
    {
        if (Py_TYPE(value) != &PyRangeIter_Type && Py_TYPE(value) != &PyLongRangeIter_Type) return 0;
        PyObject *state = range_state(value);
        if (!state) return -1;
        int ok = content->equals(state);
        Py_DECREF(state);
        return ok;
    }
    static PyObject *range_state(PyObject *iterator)  // (range, position)
    {
        PyObject *parts = PyObject_CallMethod(iterator, "__reduce__", nullptr);
        if (!parts) return nullptr;
        PyObject *inner = PyTuple_GetItem(parts, 1), *range = inner ? PyTuple_GetItem(inner, 0) : nullptr;
        PyObject *position = PyTuple_GET_SIZE(parts) > 2 ? PyTuple_GET_ITEM(parts, 2) : Py_None;
        PyObject *state = range ? PyTuple_Pack(2, range, position) : nullptr;
        Py_DECREF(parts);
        return state;
    }
};

struct CallbackLeaf : WithObject {
    int check(PyObject *value, Check &) override
    {
        PyObject *answer = PyObject_CallOneArg(object, value);
        int ok = answer ? PyObject_IsTrue(answer) : -1;
        Py_XDECREF(answer);
        return ok;
    }
};

// value._dynamo_dynamic_indices (absent: empty) must be a subset of `object`, a frozenset of int.
struct DynamicIndicesLeaf : WithObject {
    PyObject *name;
    DynamicIndicesLeaf() : name(PyUnicode_InternFromString("_dynamo_dynamic_indices")) {}
    ~DynamicIndicesLeaf() override { Py_XDECREF(name); }
    int check(PyObject *value, Check &) override
    {
        PyObject *marked;
        if (_PyObject_LookupAttr(value, name, &marked) < 0) return -1;
        if (!marked) return 1;
        PyObject *iterator = PyObject_GetIter(marked), *item;
        Py_DECREF(marked);
        int ok = iterator ? 1 : -1;
        while (ok == 1 && (item = PyIter_Next(iterator))) {
            ok = PySet_Contains(object, item);
            Py_DECREF(item);
        }
        Py_XDECREF(iterator);
        return PyErr_Occurred() ? -1 : ok;
    }
};

// Exact contents of a set: constants by content, other members by identity.
struct SetLeaf : DictKeysLeaf {
    int check(PyObject *value, Check &) override
    {
        if (!PyAnySet_Check(value) || PySet_GET_SIZE(value) != (Py_ssize_t)content.size()) return 0;
        PyObject *members = PyList_New(0), *key;
        Py_ssize_t at = 0;
        Py_hash_t hash;
        while (members && _PySet_NextEntry(value, &at, &key, &hash))
            if (PyList_Append(members, key) < 0) Py_CLEAR(members);
        if (!members) return -1;
        int ok = 1;
        for (size_t i = 0; ok == 1 && i < content.size(); i++) {
            ok = 0;
            for (Py_ssize_t m = 0; ok == 0 && m < PyList_GET_SIZE(members); m++) ok = one(i, PyList_GET_ITEM(members, m));
        }
        Py_DECREF(members);
        return ok;
    }
};

// ---- leaves over several values ----
struct SlotsLeaf : Leaf {
    std::vector<Py_ssize_t> slots;
};

struct AliasLeaf : SlotsLeaf {  // two values are, or are not, one object
    bool same;
    int check(PyObject *, Check &c) override { return (c.slots[slots[0]] == c.slots[slots[1]]) == same; }
};

struct NoAliasingLeaf : SlotsLeaf {  // all tensors are distinct
    int check(PyObject *, Check &c) override
    {
        std::vector<void *> seen;
        seen.reserve(slots.size());
        for (Py_ssize_t slot : slots) seen.push_back(is_tensor(c.slots[slot]) ? tensor_identity(c.slots[slot]) : c.slots[slot]);
        std::sort(seen.begin(), seen.end());
        return std::adjacent_find(seen.begin(), seen.end()) == seen.end();
    }
};

struct Extent {
    uintptr_t low, high;
    void *storage;
    bool real;
};

static Extent extent_of(PyObject *value)
{
    Extent e{};
    e.real = is_tensor(value) && tensor_extent(value, &e.storage, &e.low, &e.high) && e.low < e.high;
    return e;
}

struct OverlapLeaf : SlotsLeaf {  // the first tensor's memory against each of the others'
    bool overlap;
    int check(PyObject *, Check &c) override
    {
        Extent a = extent_of(c.slots[slots[0]]);
        for (size_t i = 1; i < slots.size(); i++) {
            Extent b = extent_of(c.slots[slots[i]]);
            bool meets = a.real && b.real && a.low < b.high && b.low < a.high;
            if (meets != overlap) return 0;
        }
        return 1;
    }
};

struct NoOverlapLeaf : SlotsLeaf {  // all pairs disjoint
    int check(PyObject *, Check &c) override
    {
        std::vector<Extent> all;
        all.reserve(slots.size());
        for (Py_ssize_t slot : slots) {
            Extent e = extent_of(c.slots[slot]);
            if (e.real) all.push_back(e);
        }
        std::sort(all.begin(), all.end(), [](const Extent &a, const Extent &b) { return a.low < b.low; });
        for (size_t i = 1; i < all.size(); i++)
            if (all[i].low < all[i - 1].high) return 0;
        return 1;
    }
};

// ---- making leaves ----
static bool parse_slots(SlotsLeaf &leaf, PyObject *tuple)
{
    if (!PyTuple_Check(tuple)) return PyErr_SetString(PyExc_TypeError, "slots must be a tuple"), false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) leaf.slots.push_back(PyLong_AsSsize_t(PyTuple_GET_ITEM(tuple, i)));
    return !PyErr_Occurred();
}

template <class T> static LeafPtr with_object(PyObject *form)
{
    auto leaf = std::make_unique<T>();
    leaf->object = Py_NewRef(arg(form, 1));
    return leaf;
}

template <class T> static LeafPtr wanted(PyObject *form)
{
    auto leaf = std::make_unique<T>();
    leaf->object = Py_NewRef(arg(form, 1));
    leaf->wanted = arg(form, 2) == Py_True;
    return leaf;
}

template <class T> static LeafPtr simple(PyObject *) { return std::make_unique<T>(); }

static LeafPtr make_type(PyObject *form)
{
    auto leaf = std::make_unique<TypeLeaf>();
    return leaf->type.set(arg(form, 1)) ? std::move(leaf) : nullptr;
}

static LeafPtr make_id(PyObject *form)
{
    auto leaf = std::make_unique<IdLeaf>();
    return leaf->object.set(arg(form, 1)) ? std::move(leaf) : nullptr;
}

static LeafPtr make_equals(PyObject *form)
{
    auto leaf = std::make_unique<ContentLeaf>();
    leaf->content = make_content(arg(form, 1));
    return leaf->content ? std::move(leaf) : nullptr;
}

// ("module_value", (dict, name), value)
static LeafPtr make_module_value(PyObject *form)
{
    auto leaf = std::make_unique<ModuleValueLeaf>();
    PyObject *where = arg(form, 1);
    if (!PyTuple_Check(where) || PyTuple_GET_SIZE(where) != 2 || !PyDict_Check(PyTuple_GET_ITEM(where, 0))) {
        PyErr_SetString(PyExc_TypeError, "module_value needs (dict, name)");
        return nullptr;
    }
    leaf->object = Py_NewRef(where);
    leaf->content = make_content(arg(form, 2));
    return leaf->content ? std::move(leaf) : nullptr;
}

static LeafPtr make_length(PyObject *form)
{
    auto leaf = std::make_unique<LengthLeaf>();
    leaf->expected = PyLong_AsSsize_t(arg(form, 1));
    leaf->typed = arg(form, 2) != Py_None;
    if (PyErr_Occurred() || (leaf->typed && !leaf->type.set(arg(form, 2)))) return nullptr;
    return leaf;
}

template <class T> static LeafPtr make_keys(PyObject *form)
{
    auto leaf = std::make_unique<T>();
    PyObject *keys = PySequence_List(arg(form, 1));
    if (!keys) return nullptr;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keys); i++) {
        PyObject *key = PyList_GET_ITEM(keys, i);
        leaf->content.push_back(make_content(key));
        leaf->identity.emplace_back();
        if (leaf->content.back()) continue;
        PyErr_Clear();
        if (!leaf->identity.back().set(key)) {
            Py_DECREF(keys);
            return nullptr;
        }
    }
    Py_DECREF(keys);
    return leaf;
}

static LeafPtr make_tuple_iterator(PyObject *form)
{
    auto leaf = std::make_unique<TupleIteratorLeaf>();
    leaf->expected = PyLong_AsSsize_t(arg(form, 1));
    return PyErr_Occurred() ? nullptr : std::move(leaf);
}

static LeafPtr make_range_iterator(PyObject *form)
{
    auto leaf = std::make_unique<ReduceLeaf>();
    PyObject *state = ReduceLeaf::range_state(arg(form, 1));
    leaf->content = state ? make_content(state) : nullptr;
    Py_XDECREF(state);
    return leaf->content ? std::move(leaf) : nullptr;
}

template <class T> static LeafPtr slots_leaf(PyObject *form)
{
    auto leaf = std::make_unique<T>();
    return parse_slots(*leaf, arg(form, 1)) ? std::move(leaf) : nullptr;
}

static LeafPtr make_alias(PyObject *form)
{
    auto leaf = std::make_unique<AliasLeaf>();
    leaf->same = arg(form, 2) == Py_True;
    return parse_slots(*leaf, arg(form, 1)) ? std::move(leaf) : nullptr;
}

static LeafPtr make_overlap(PyObject *form)
{
    auto leaf = std::make_unique<OverlapLeaf>();
    leaf->overlap = arg(form, 2) == Py_True;
    return parse_slots(*leaf, arg(form, 1)) ? std::move(leaf) : nullptr;
}

static const struct {
    const char *name;
    Py_ssize_t arguments;
    LeafPtr (*make)(PyObject *form);
} makers[] = {
    {"type", 1, make_type}, {"id", 1, make_id}, {"equals", 1, make_equals}, {"hasattr", 2, wanted<HasAttrLeaf>},
    {"module_value", 2, make_module_value},
    {"class_attr_absent", 1, with_object<ClassAttrAbsentLeaf>},
    {"length", 2, make_length}, {"dict_keys", 1, make_keys<DictKeysLeaf>}, {"contains", 2, wanted<ContainsLeaf>},
    {"set_contents", 1, make_keys<SetLeaf>}, {"function", 1, with_object<FunctionLeaf>},
    {"weakref_alive", 0, simple<WeakrefAliveLeaf>}, {"nan", 0, simple<NanLeaf>}, {"tuple_iterator", 1, make_tuple_iterator},
    {"range_iterator", 1, make_range_iterator}, {"callback", 1, with_object<CallbackLeaf>},
    {"dynamic_indices", 1, with_object<DynamicIndicesLeaf>}, {"alias", 2, make_alias},
    {"no_aliasing", 1, slots_leaf<NoAliasingLeaf>}, {"overlap", 2, make_overlap}, {"no_overlap", 1, slots_leaf<NoOverlapLeaf>},
    {"tensor", 1, make_tensor_leaf}, {"shape", 3, make_shape_leaf}, {"global_state", 1, make_global_state_leaf},
};

LeafPtr make_leaf(PyObject *form)
{
    const char *name = PyTuple_GET_SIZE(form) ? PyUnicode_AsUTF8(arg(form, 0)) : "";
    if (!name) return nullptr;
    for (const auto &maker : makers) {
        if (std::strcmp(maker.name, name)) continue;
        if (PyTuple_GET_SIZE(form) != maker.arguments + 1) {
            PyErr_Format(PyExc_TypeError, "leaf '%s' takes %zd arguments", name, maker.arguments);
            return nullptr;
        }
        return maker.make(form);
    }
    PyErr_Format(PyExc_ValueError, "unknown leaf '%s'", name);
    return nullptr;
}

}  // namespace dnb
