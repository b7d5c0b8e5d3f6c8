// The guard tree and its Python types.
//
// A tree has one node per source. A node fetches its value from its parent's value (accessor), checks
// its leaves in the order they were added, then its children. Parents are always checked before their
// children; among siblings those that failed more often come first. Every fetched value is owned while
// it is looked at, because a guard can run Python. A fetch that raises counts as a failed guard.
#include "guards.hpp"
#include <algorithm>
#include <memory>
#include <structmember.h>

namespace dnb {

enum class Fetch {
    Local, Free, FreeCell, Global, Globals, Builtin, Module, Attr, InstanceDict, Type, TypeDict, Mro, Item, DictItem, DictKey, DictValue,
    Cell, Weakref, TensorProp, Call, Root
};

static const struct { const char *name; Fetch fetch; } fetch_names[] = {
    {"local", Fetch::Local}, {"free", Fetch::Free}, {"free_cell", Fetch::FreeCell}, {"global", Fetch::Global}, {"globals", Fetch::Globals},
    {"builtin", Fetch::Builtin}, {"module", Fetch::Module}, {"attr", Fetch::Attr}, {"instance_dict", Fetch::InstanceDict},
    {"type", Fetch::Type}, {"type_dict", Fetch::TypeDict}, {"mro", Fetch::Mro}, {"item", Fetch::Item},
    {"dict_item", Fetch::DictItem}, {"dict_key", Fetch::DictKey}, {"dict_value", Fetch::DictValue}, {"cell", Fetch::Cell},
    {"weakref", Fetch::Weakref}, {"tensor_prop", Fetch::TensorProp}, {"call", Fetch::Call}};

static PyTypeObject *deque_type;

struct Node {
    PyObject_HEAD
    Fetch fetch;
    int property;
    PyObject *key;         // name, dict key or callable; NULL
    Py_hash_t hash;        // of a dict key
    uint64_t version;      // of the dict `cached` was read from; 0: none
    PyObject *cached;      // borrowed from that dict, and valid while its version is the same
    std::vector<LeafPtr> leaves;
    std::vector<Node *> children;
    Py_ssize_t slot, index, failed_child;
    long long fails;
    Node *root;            // borrowed; itself for the root
    PyObject *source, *accessor;  // str, for people
    // root only
    int active;            // checks now running, over all threads
    Py_ssize_t slots;
    std::vector<LeafPtr> epilogue;  // leaves over several values
    PyObject *observer;    // called after each check, may raise; NULL
};

extern PyTypeObject Node_Type, Root_Type;

// ---- fetching: a new reference, or NULL with or without an exception ----
static PyObject *found(PyObject *borrowed) { return Py_XNewRef(borrowed); }

static PyObject *by_name(PyObject *dict, PyObject *name)
{
    return PyDict_Check(dict) ? found(PyDict_GetItemWithError(dict, name)) : PyObject_GetItem(dict, name);
}

// A dict's version is unique among all dicts and moves with every change: the same version, the same value.
static PyObject *fetch_dict_item(Node *node, PyObject *dict)
{
    uint64_t version = ((PyDictObject *)dict)->ma_version_tag;
    if (version == node->version) return Py_NewRef(node->cached);
    PyObject *value = _PyDict_GetItem_KnownHash(dict, node->key, node->hash);
    if (value && ((PyDictObject *)dict)->ma_version_tag == version) { /* comparing keys can run code */
        node->version = version;
        node->cached = value;
    }
    return Py_XNewRef(value);
}

static PyObject *fetch_item(PyObject *value, Py_ssize_t i)
{
    if (PyTuple_Check(value)) {
        if (i < 0) i += PyTuple_GET_SIZE(value);
        return i >= 0 && i < PyTuple_GET_SIZE(value) ? found(PyTuple_GET_ITEM(value, i)) : nullptr;
    }
    if (PyList_Check(value)) {
        if (i < 0) i += PyList_GET_SIZE(value);
        return i >= 0 && i < PyList_GET_SIZE(value) ? found(PyList_GET_ITEM(value, i)) : nullptr;
    }
    if (PyObject_TypeCheck(value, deque_type)) {
        if (i < 0) i += deque_type->tp_as_sequence->sq_length(value);
        return deque_type->tp_as_sequence->sq_item(value, i);
    }
    return nullptr;
}

static PyObject *fetch_instance_dict(PyObject *value)
{
    PyObject **slot = _PyObject_GetDictPtr(value);
    if (!slot) return nullptr;
    return *slot ? found(*slot) : PyDict_New();
}

// Keys in the order iteration gives them; an OrderedDict keeps its own.
static PyObject *fetch_nth(PyObject *dict, Py_ssize_t index, bool want_key)
{
    if (!PyDict_Check(dict) || index < 0) return nullptr;
    PyObject *key = nullptr, *value = nullptr;
    if (PyODict_Check(dict)) {
        PyObject *iterator = PyODict_Type.tp_iter(dict);
        if (!iterator) return nullptr;
        for (Py_ssize_t i = 0; i <= index; i++) {
            Py_XDECREF(key);
            if (!(key = PyIter_Next(iterator))) break;
        }
        Py_DECREF(iterator);
        if (!key || want_key) return key;
        value = found(PyDict_GetItemWithError(dict, key));
        Py_DECREF(key);
        return value;
    }
    Py_ssize_t at = 0;
    for (Py_ssize_t i = 0; i <= index; i++)
        if (!PyDict_Next(dict, &at, &key, &value)) return nullptr;
    return found(want_key ? key : value);
}

static PyObject *fetch_local(Node *node, Check &c)
{
    if (c.names) {
        PyObject *value = by_name(c.names, node->key);
        if (!value || node->fetch != Fetch::FreeCell) return value;
        PyObject *cell = PyCell_New(value);
        Py_DECREF(value);
        return cell;
    }
    if (node->fetch == Fetch::Local) return node->index < c.n ? found(c.locals[node->index]) : nullptr;
    if (!c.closure || node->index >= PyTuple_GET_SIZE(c.closure)) return nullptr;
    PyObject *cell = PyTuple_GET_ITEM(c.closure, node->index);
    if (!PyCell_Check(cell)) return nullptr;
    return node->fetch == Fetch::FreeCell ? found(cell) : found(PyCell_GET(cell));
}

static PyObject *fetch_builtin(Node *node, Check &c)
{
    if (!c.globals || !c.builtins) return nullptr;
    int shadowed = PyDict_Contains(c.globals, node->key);
    if (shadowed) return nullptr;
    return by_name(c.builtins, node->key);
}

static PyObject *fetch_value(Node *node, PyObject *base, Check &c)
{
    switch (node->fetch) {
    case Fetch::Local: case Fetch::Free: case Fetch::FreeCell: return fetch_local(node, c);
    case Fetch::Global: return c.globals ? fetch_dict_item(node, c.globals) : nullptr;
    case Fetch::Globals: return c.globals ? found(c.globals) : nullptr;
    case Fetch::Builtin: return fetch_builtin(node, c);
    case Fetch::Module: return found(PyDict_GetItemWithError(PyImport_GetModuleDict(), node->key));
    case Fetch::Attr: return PyObject_GetAttr(base, node->key);
    case Fetch::InstanceDict: return fetch_instance_dict(base);
    case Fetch::Type: return found((PyObject *)Py_TYPE(base));
    case Fetch::TypeDict: return PyType_Check(base) ? found(((PyTypeObject *)base)->tp_dict) : nullptr;
    case Fetch::Mro: return PyType_Check(base) && ((PyTypeObject *)base)->tp_mro ? fetch_item(((PyTypeObject *)base)->tp_mro, node->index) : nullptr;
    case Fetch::Item: return fetch_item(base, node->index);
    case Fetch::DictItem: return PyDict_Check(base) ? fetch_dict_item(node, base) : nullptr;
    case Fetch::DictKey: return fetch_nth(base, node->index, true);
    case Fetch::DictValue: return fetch_nth(base, node->index, false);
    case Fetch::Cell: return PyCell_Check(base) ? found(PyCell_GET(base)) : nullptr;
    case Fetch::Weakref: return PyWeakref_Check(base) ? found(PyWeakref_GetObject(base)) : nullptr;
    case Fetch::TensorProp: {
        int64_t number;
        return tensor_property(base, node->property, node->index, &number) ? PyLong_FromLongLong(number) : nullptr;
    }
    case Fetch::Call: return PyObject_CallOneArg(node->key, base);
    case Fetch::Root: break;
    }
    return nullptr;
}

// ---- checking ----
static int check_children(Node *node, PyObject *value, Check &c);

static int check_node(Node *node, PyObject *value, Check &c)
{
    for (auto &leaf : node->leaves) {
        int ok = leaf->check(value, c);
        if (ok != 1) return ok;
    }
    if (node->slot >= 0) {
        Py_INCREF(value);
        Py_XSETREF(c.slots[node->slot], value);
    }
    return check_children(node, value, c);
}

static int check_children(Node *node, PyObject *value, Check &c)
{
    Node *const *children = node->children.data();
    for (size_t i = 0, n = node->children.size(); i < n; i++) {
        Node *child = children[i];
        PyObject *item = fetch_value(child, value, c);
        int ok = item ? check_node(child, item, c) : PyErr_Occurred() ? -1 : 0;
        Py_XDECREF(item);
        if (ok != 1) {
            child->fails++;
            node->failed_child = (Py_ssize_t)i;
            return ok;
        }
    }
    return 1;
}

// Moves what just failed ahead of siblings that failed less often, on the way down from the root.
static void reorder(Node *node)
{
    while (node && node->failed_child >= 0) {
        auto &children = node->children;
        size_t at = (size_t)node->failed_child;
        node->failed_child = -1;
        Node *failed = children[at];
        for (; at > 0 && children[at - 1]->fails < failed->fails; at--) children[at] = children[at - 1];
        children[at] = failed;
        node = failed;
    }
}

static int check_root(Node *root, Check &c)
{
    PyObject **slots = root->slots ? (PyObject **)alloca(root->slots * sizeof(PyObject *)) : nullptr;
    for (Py_ssize_t i = 0; i < root->slots; i++) slots[i] = nullptr;
    c.slots = slots;
    root->active++;
    int ok = check_node(root, Py_None, c);
    for (size_t i = 0; ok == 1 && i < root->epilogue.size(); i++) ok = root->epilogue[i]->check(Py_None, c);
    for (Py_ssize_t i = 0; i < root->slots; i++) Py_XDECREF(slots[i]);
    root->active--;
    if (ok < 0 && PyErr_ExceptionMatches(PyExc_Exception)) {
        PyErr_Clear(); /* user code raised under a guard: a miss; KeyboardInterrupt and the like go on */
        ok = 0;
    }
    if (ok != 1) {
        root->fails++;
        if (root->active == 0) reorder(root);
    }
    return ok;
}

static PyObject *locals_of(Check &c)
{
    if (c.names) return Py_NewRef(c.names);
    PyObject *tuple = PyTuple_New(c.n);
    for (Py_ssize_t i = 0; tuple && i < c.n; i++) PyTuple_SET_ITEM(tuple, i, Py_NewRef(c.locals[i]));
    return tuple;
}

static int observed_check(Node *root, Check &c)
{
    int ok = check_root(root, c);
    if (ok < 0 || !root->observer || root->active) return ok;
    PyObject *locals = locals_of(c);
    if (!locals) return -1;
    PyObject *args[] = {ok ? Py_True : Py_False, locals, c.globals ? c.globals : Py_None, c.builtins ? c.builtins : Py_None,
                        c.closure ? c.closure : Py_None};
    PyObject *observer = Py_NewRef(root->observer);
    root->active++; /* the observer's own checks are not observed again */
    PyObject *answer = PyObject_Vectorcall(observer, args, Py_ARRAY_LENGTH(args), nullptr);
    root->active--;
    Py_DECREF(observer);
    Py_DECREF(locals);
    if (!answer) return -1;
    Py_DECREF(answer);
    return ok;
}

// ---- Python types ----
static Node *node_alloc(PyTypeObject *type)
{
    Node *node = (Node *)type->tp_alloc(type, 0);
    if (!node) return nullptr;
    node->slot = node->failed_child = -1;
    new (&node->leaves) std::vector<LeafPtr>;
    new (&node->children) std::vector<Node *>;
    new (&node->epilogue) std::vector<LeafPtr>;
    return node;
}

static int node_traverse(Node *self, visitproc visit, void *arg)
{
    Py_VISIT(self->key);
    Py_VISIT(self->observer);
    for (Node *child : self->children) Py_VISIT(child);
    for (auto *list : {&self->leaves, &self->epilogue})
        for (auto &leaf : *list)
            if (int stop = leaf->traverse(visit, arg)) return stop;
    return 0;
}

static void node_dealloc(Node *self)
{
    PyObject_GC_UnTrack(self);
    for (Node *child : self->children) Py_DECREF(child);
    std::destroy_at(&self->children);
    std::destroy_at(&self->leaves);
    std::destroy_at(&self->epilogue);
    Py_XDECREF(self->key);
    Py_XDECREF(self->source);
    Py_XDECREF(self->accessor);
    Py_XDECREF(self->observer);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static bool may_build(Node *node)
{
    if (node->root && node->root->active == 0) return true;
    PyErr_SetString(PyExc_RuntimeError, "this guard tree is being checked, or its root is gone");
    return false;
}

// child(fetch, key_or_index, source, accessor): new child node
static PyObject *node_child(Node *self, PyObject *args)
{
    const char *fetch;
    PyObject *key, *source, *accessor;
    if (!PyArg_ParseTuple(args, "sOUU:child", &fetch, &key, &source, &accessor) || !may_build(self)) return nullptr;
    const auto *entry = std::find_if(std::begin(fetch_names), std::end(fetch_names), [&](auto &f) { return !strcmp(f.name, fetch); });
    if (entry == std::end(fetch_names)) return PyErr_Format(PyExc_ValueError, "unknown accessor '%s'", fetch);
    Node *node = node_alloc(&Node_Type);
    if (!node) return nullptr;
    node->fetch = entry->fetch;
    node->root = self->root;
    node->source = Py_NewRef(source);
    node->accessor = Py_NewRef(accessor);
    bool ok = true;
    switch (node->fetch) {
    case Fetch::Local: case Fetch::Free: case Fetch::FreeCell:  // (name, index)
        ok = PyArg_ParseTuple(key, "Un", &node->key, &node->index);
        if (ok) Py_INCREF(node->key); else node->key = nullptr;
        break;
    case Fetch::Mro: case Fetch::Item: case Fetch::DictKey: case Fetch::DictValue:
        node->index = PyLong_AsSsize_t(key);
        ok = !PyErr_Occurred();
        break;
    case Fetch::TensorProp: ok = PyArg_ParseTuple(key, "in", &node->property, &node->index); break;
    case Fetch::DictItem: case Fetch::Global:
        node->hash = PyObject_Hash(key);
        ok = node->hash != -1;
        node->key = Py_NewRef(key);
        break;
    default: node->key = key == Py_None ? nullptr : Py_NewRef(key);
    }
    if (!ok) {
        Py_DECREF(node);
        return nullptr;
    }
    self->children.push_back((Node *)Py_NewRef((PyObject *)node));
    return (PyObject *)node;
}

static PyObject *add_to(std::vector<LeafPtr> *list, PyObject *args)
{
    const char *kind, *text;
    PyObject *form;
    if (!PyArg_ParseTuple(args, "ssO!:add_leaf", &kind, &text, &PyTuple_Type, &form)) return nullptr;
    LeafPtr leaf = make_leaf(form);
    if (!leaf) return nullptr;
    leaf->words = std::make_unique<Leaf::Words>(Leaf::Words{kind, text});
    list->push_back(std::move(leaf));
    Py_RETURN_NONE;
}

static PyObject *node_add_leaf(Node *self, PyObject *args) { return may_build(self) ? add_to(&self->leaves, args) : nullptr; }
static PyObject *root_add_epilogue(Node *self, PyObject *args) { return may_build(self) ? add_to(&self->epilogue, args) : nullptr; }

static PyObject *node_need_slot(Node *self, PyObject *)
{
    if (!may_build(self)) return nullptr;
    if (self->slot < 0) self->slot = self->root->slots++;
    return PyLong_FromSsize_t(self->slot);
}

static PyObject *node_get_source(Node *self, PyObject *) { return self->source ? Py_NewRef(self->source) : PyUnicode_FromString(""); }
static PyObject *node_get_accessor(Node *self, PyObject *) { return self->accessor ? Py_NewRef(self->accessor) : PyUnicode_FromString(""); }
static PyObject *node_fail_count(Node *self, PyObject *) { return PyLong_FromLongLong(self->fails); }

static PyObject *node_children(Node *self, PyObject *)
{
    PyObject *list = PyList_New(0);
    for (Node *child : self->children)
        if (list && PyList_Append(list, (PyObject *)child) < 0) Py_CLEAR(list);
    return list;
}

static PyObject *node_accessors(Node *self, PyObject *)
{
    PyObject *list = PyList_New(0);
    for (Node *child : self->children)
        if (list && PyList_Append(list, child->accessor) < 0) Py_CLEAR(list);
    return list;
}

static PyObject *leaf_list(std::vector<LeafPtr> *leaves)
{
    PyObject *list = PyList_New(0);
    for (auto &leaf : *leaves) {
        PyObject *pair = list ? Py_BuildValue("(ss)", leaf->words->kind.c_str(), leaf->words->text.c_str()) : nullptr;
        if (!pair || PyList_Append(list, pair) < 0) Py_CLEAR(list);
        Py_XDECREF(pair);
    }
    return list;
}

static PyObject *node_leaves(Node *self, PyObject *) { return leaf_list(&self->leaves); }
static PyObject *root_epilogue(Node *self, PyObject *) { return leaf_list(&self->epilogue); }

static PyObject *root_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    if (!PyArg_ParseTuple(args, ":RootGuardManager")) return nullptr;
    Node *node = node_alloc(type);
    if (!node) return nullptr;
    node->fetch = Fetch::Root;
    node->root = node;
    return (PyObject *)node;
}

static void root_dealloc(Node *self)
{
    for (Node *child : self->children) {
        std::vector<Node *> todo{child};
        while (!todo.empty()) {  // nodes that outlive the tree can no longer be built upon
            Node *node = todo.back();
            todo.pop_back();
            node->root = nullptr;
            todo.insert(todo.end(), node->children.begin(), node->children.end());
        }
    }
    node_dealloc(self);
}

static bool optional(PyObject **object)
{
    if (*object == Py_None) *object = nullptr;
    return true;
}

static PyObject *root_check(Node *self, PyObject *args)
{
    PyObject *locals, *globals = Py_None, *builtins = Py_None;
    if (!PyArg_ParseTuple(args, "O!|OO:check", &PyDict_Type, &locals, &globals, &builtins)) return nullptr;
    optional(&globals), optional(&builtins);
    Check c{nullptr, 0, locals, globals ? globals : PyEval_GetGlobals(), builtins ? builtins : PyEval_GetBuiltins(), nullptr, nullptr};
    int ok = observed_check(self, c);
    return ok < 0 ? nullptr : PyBool_FromLong(ok);
}

static PyObject *root_check_flat(Node *self, PyObject *args)
{
    PyObject *locals, *globals, *builtins, *closure = Py_None;
    if (!PyArg_ParseTuple(args, "O!OO|O:check_flat", &PyTuple_Type, &locals, &globals, &builtins, &closure)) return nullptr;
    optional(&globals), optional(&builtins), optional(&closure);
    if (closure && !PyTuple_Check(closure)) return PyErr_Format(PyExc_TypeError, "closure must be a tuple or None");
    if (globals && !PyDict_Check(globals)) return PyErr_Format(PyExc_TypeError, "globals must be a dict or None");
    Check c{((PyTupleObject *)locals)->ob_item, PyTuple_GET_SIZE(locals), nullptr, globals, builtins, closure, nullptr};
    int ok = observed_check(self, c);
    return ok < 0 ? nullptr : PyBool_FromLong(ok);
}

static PyObject *root_set_observer(Node *self, PyObject *arg)
{
    PyObject *old = self->observer;
    self->observer = arg == Py_None ? nullptr : Py_NewRef(arg);
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

static PyObject *node_repr(Node *self)
{
    return PyUnicode_FromFormat("<%s %S>", Py_TYPE(self) == &Root_Type ? "RootGuardManager" : "GuardManager",
                                self->source ? self->source : Py_None);
}

#define SHARED_METHODS                                                                                              \
    {"child", (PyCFunction)node_child, METH_VARARGS, "child(fetch, key, source, accessor) -> new child node."},     \
        {"add_leaf", (PyCFunction)node_add_leaf, METH_VARARGS, "add_leaf(kind, text, native_form)."},               \
        {"need_slot", (PyCFunction)node_need_slot, METH_NOARGS, "need_slot() -> index where this value is kept."},  \
        {"get_source", (PyCFunction)node_get_source, METH_NOARGS, "The source's expression."},                      \
        {"get_accessor", (PyCFunction)node_get_accessor, METH_NOARGS, "How the value is reached from the parent."}, \
        {"fail_count", (PyCFunction)node_fail_count, METH_NOARGS, "How often this node or one below it failed."},   \
        {"get_child_managers", (PyCFunction)node_children, METH_NOARGS, "Children in the order they are checked."}, \
        {"get_accessors", (PyCFunction)node_accessors, METH_NOARGS, "The children's accessors."},                   \
        {"get_leaf_guards", (PyCFunction)node_leaves, METH_NOARGS, "Leaves as (kind, text)."}

static PyMethodDef node_methods[] = {SHARED_METHODS, {nullptr}};
static PyMethodDef root_methods[] = {
    SHARED_METHODS,
    {"check", (PyCFunction)root_check, METH_VARARGS,
     "check(locals, globals=None, builtins=None) -> bool; locals by name, globals default to the caller's."},
    {"check_flat", (PyCFunction)root_check_flat, METH_VARARGS, "check_flat(locals, globals, builtins, closure=None) -> bool."},
    {"add_epilogue_leaf", (PyCFunction)root_add_epilogue, METH_VARARGS, "add_epilogue_leaf(kind, text, native_form)."},
    {"get_epilogue_lambda_guards", (PyCFunction)root_epilogue, METH_NOARGS, "Leaves over several values, as (kind, text)."},
    {"set_observer", (PyCFunction)root_set_observer, METH_O, "set_observer(fn | None): fn(ok, locals, globals, builtins, closure)."},
    {nullptr}};

PyTypeObject Node_Type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyTypeObject Root_Type = {PyVarObject_HEAD_INIT(nullptr, 0)};

static int ready(PyObject *module, PyTypeObject *type, const char *name, PyMethodDef *methods, destructor dealloc)
{
    type->tp_name = name;
    type->tp_basicsize = sizeof(Node);
    type->tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC;
    type->tp_traverse = (traverseproc)node_traverse;
    type->tp_dealloc = dealloc;
    type->tp_repr = (reprfunc)node_repr;
    type->tp_methods = methods;
    if (type == &Root_Type) type->tp_new = root_new;
    else type->tp_flags |= Py_TPFLAGS_DISALLOW_INSTANTIATION;
    return PyModule_AddType(module, type);
}

}  // namespace dnb

extern "C" int dnb_guard_check(PyObject *root, PyObject *const *locals, Py_ssize_t n, PyObject *globals, PyObject *builtins,
                               PyObject *closure)
{
    dnb::Check c{locals, n, nullptr, globals, builtins, closure, nullptr};
    return dnb::observed_check((dnb::Node *)root, c);
}

extern "C" bool dnb_guard_root_check(PyObject *object) { return Py_TYPE(object) == &dnb::Root_Type; }

extern "C" int dnb_guards_init(PyObject *module)
{
    PyObject *collections = PyImport_ImportModule("collections");
    PyObject *deque = collections ? PyObject_GetAttrString(collections, "deque") : nullptr;
    Py_XDECREF(collections);
    if (!deque) return -1;
    dnb::deque_type = (PyTypeObject *)deque;
    if (dnb::ready(module, &dnb::Node_Type, "dynamo_nb.native.GuardManager", dnb::node_methods, (destructor)dnb::node_dealloc) < 0 ||
        dnb::ready(module, &dnb::Root_Type, "dynamo_nb.native.RootGuardManager", dnb::root_methods, (destructor)dnb::root_dealloc) < 0)
        return -1;
    return dnb::content_init(module) < 0 || dnb::tensor_init(module) < 0 || dnb::global_state_init(module) < 0 ? -1 : 0;
}
