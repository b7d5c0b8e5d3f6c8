/* State kept on code objects: cache entries in the order they are tried, the action, a dict of data.
 *
 * It hangs on the code object's extra slot and dies with the code. That slot is invisible to the
 * garbage collector, so nothing here may own the code, a function over it or its region.
 */
#include "dnb.h"
#include <stddef.h>
#include <structmember.h>

static Py_ssize_t extra_index = -1;
static CodeState *all_states;
static uint64_t next_entry_id = 1;

CodeState *dnb_state_get(PyCodeObject *code)
{
    void *found = NULL;
    if (_PyCode_GetExtra((PyObject *)code, extra_index, &found) < 0) {
        PyErr_Clear();
        return NULL;
    }
    return (CodeState *)found;
}

static void free_state(void *pointer)
{
    CodeState *state = (CodeState *)pointer;
    if (state == NULL) return;
    if (state->prev) state->prev->next = state->next;
    else all_states = state->next;
    if (state->next) state->next->prev = state->prev;
    PyObject *entries = state->entries, *data = state->data;
    PyMem_Free(state);
    Py_XDECREF(entries);
    Py_XDECREF(data);
}

static CodeState *state_make(PyCodeObject *code)
{
    CodeState *state = dnb_state_get(code);
    if (state) return state;
    state = (CodeState *)PyMem_Calloc(1, sizeof(CodeState));
    if (!state) {
        PyErr_NoMemory();
        return NULL;
    }
    state->code = code;
    state->next = all_states;
    if (all_states) all_states->prev = state;
    all_states = state;
    if (_PyCode_SetExtra((PyObject *)code, extra_index, state) < 0) {
        free_state(state);
        return NULL;
    }
    return state;
}

static PyCodeObject *as_code(PyObject *object)
{
    if (PyCode_Check(object)) return (PyCodeObject *)object;
    PyErr_Format(PyExc_TypeError, "expected a code object, got %.100s", Py_TYPE(object)->tp_name);
    return NULL;
}

/* ---- CacheEntry ---- */
static PyObject *entry_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"code", "guard_root", "region", "free_map", "data", NULL};
    PyObject *code, *root, *region, *free_map = Py_None, *data = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OO!|OO:CacheEntry", names, &PyCode_Type, &code, &root, &Region_Type,
                                     &region, &free_map, &data))
        return NULL;
    if (!dnb_guard_root_check(root)) {
        PyErr_Format(PyExc_TypeError, "guard_root must be a RootGuardManager, got %.100s", Py_TYPE(root)->tp_name);
        return NULL;
    }
    if (free_map != Py_None &&
        (!PyTuple_Check(free_map) || PyTuple_GET_SIZE(free_map) != ((PyCodeObject *)code)->co_nfreevars)) {
        PyErr_Format(PyExc_ValueError, "free_map must be None or a tuple of %d items, one per free variable of the code",
                     ((PyCodeObject *)code)->co_nfreevars);
        return NULL;
    }
    PyObject *region_ref = PyWeakref_NewRef(region, NULL);
    if (!region_ref) return NULL;
    CacheEntry *self = (CacheEntry *)type->tp_alloc(type, 0);
    if (!self) {
        Py_DECREF(region_ref);
        return NULL;
    }
    self->id = next_entry_id++;
    self->region_id = ((Region *)region)->id;
    self->region_ref = region_ref;
    self->code = Py_NewRef(code);
    self->guard_root = Py_NewRef(root);
    self->guard_manager = Py_NewRef(Py_None);
    self->compile_id = Py_NewRef(Py_None);
    self->free_map = Py_NewRef(free_map);
    self->data = Py_NewRef(data);
    return (PyObject *)self;
}

static int entry_traverse(CacheEntry *self, visitproc visit, void *arg)
{
    Py_VISIT(self->code);
    Py_VISIT(self->guard_root);
    Py_VISIT(self->guard_manager);
    Py_VISIT(self->compile_id);
    Py_VISIT(self->free_map);
    Py_VISIT(self->data);
    Py_VISIT(self->dict);
    return 0;
}

static int entry_clear(CacheEntry *self)
{
    Py_CLEAR(self->guard_manager);
    Py_CLEAR(self->compile_id);
    Py_CLEAR(self->data);
    Py_CLEAR(self->dict);
    return 0;
}

static void entry_dealloc(CacheEntry *self)
{
    PyObject_GC_UnTrack(self);
    if (self->weakrefs) PyObject_ClearWeakRefs((PyObject *)self);
    dnb_forget_entry(self->id);
    entry_clear(self);
    Py_CLEAR(self->code);
    Py_CLEAR(self->guard_root);
    Py_CLEAR(self->free_map);
    Py_CLEAR(self->region_ref);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *entry_region(CacheEntry *self, void *unused)
{
    return Py_NewRef(PyWeakref_GetObject(self->region_ref));
}

static PyObject *entry_repr(CacheEntry *self)
{
    return PyUnicode_FromFormat("<CacheEntry %S of %U, %zd hits>", self->compile_id, ((PyCodeObject *)self->code)->co_qualname,
                                self->hits);
}

static PyMemberDef entry_members[] = {
    {"code", T_OBJECT, offsetof(CacheEntry, code), READONLY, "the rewritten code object"},
    {"guard_root", T_OBJECT, offsetof(CacheEntry, guard_root), READONLY, "native root of the guard tree"},
    {"guard_manager", T_OBJECT, offsetof(CacheEntry, guard_manager), 0, "Python face of the guard tree"},
    {"compile_id", T_OBJECT, offsetof(CacheEntry, compile_id), 0, "which compile made this entry"},
    {"free_map", T_OBJECT, offsetof(CacheEntry, free_map), READONLY, "how the code's closure is built"},
    {"data", T_OBJECT, offsetof(CacheEntry, data), 0, "anything the compiler keeps with the entry"},
    {"hits", T_PYSSIZET, offsetof(CacheEntry, hits), 0, "how often the entry was run after its guards passed"},
    {NULL}};
static PyGetSetDef entry_getset[] = {
    {"region", (getter)entry_region, NULL, "the region the entry was made for; None once that is gone", NULL},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL}};

PyTypeObject CacheEntry_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dynamo_nb.native.CacheEntry",
    .tp_doc = "CacheEntry(code, guard_root, region, free_map=None, data=None): one compiled form of a code object.",
    .tp_basicsize = sizeof(CacheEntry),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = entry_new,
    .tp_dealloc = (destructor)entry_dealloc,
    .tp_traverse = (traverseproc)entry_traverse,
    .tp_clear = (inquiry)entry_clear,
    .tp_repr = (reprfunc)entry_repr,
    .tp_members = entry_members,
    .tp_getset = entry_getset,
    .tp_dictoffset = offsetof(CacheEntry, dict),
    .tp_weaklistoffset = offsetof(CacheEntry, weakrefs),
};

/* A function over `code` with the given globals, builtins and closure (NULL or a tuple of cells). */
PyObject *dnb_make_function(PyObject *code, PyObject *globals, PyObject *builtins, PyObject *closure)
{
    Py_ssize_t given = closure ? PyTuple_GET_SIZE(closure) : 0;
    int wanted = ((PyCodeObject *)code)->co_nfreevars;
    if (wanted && given != wanted) {
        PyErr_Format(PyExc_SystemError, "dynamo_nb: code '%U' needs %d closure cells, got %zd",
                     ((PyCodeObject *)code)->co_qualname, wanted, given);
        return NULL;
    }
    PyObject *function = PyFunction_New(code, globals);
    if (!function) return NULL;
    if (wanted && PyFunction_SetClosure(function, closure) < 0) {
        Py_DECREF(function);
        return NULL;
    }
    PyFunctionObject *raw = (PyFunctionObject *)function;
    if (builtins && builtins != raw->func_builtins) {
        Py_INCREF(builtins);
        Py_SETREF(raw->func_builtins, builtins);
    }
    return function;
}

PyObject *dnb_entry_function(CacheEntry *entry, PyObject *globals, PyObject *builtins, PyObject *closure)
{
    if (entry->free_map == Py_None) return dnb_make_function(entry->code, globals, builtins, closure);
    Py_ssize_t n = PyTuple_GET_SIZE(entry->free_map), given = closure ? PyTuple_GET_SIZE(closure) : 0;
    PyObject *cells = PyTuple_New(n);
    if (!cells) return NULL;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PyTuple_GET_ITEM(entry->free_map, i);
        if (PyLong_Check(item)) {
            Py_ssize_t index = PyLong_AsSsize_t(item);
            if (index < 0 || index >= given) {
                if (!PyErr_Occurred()) PyErr_Format(PyExc_SystemError, "dynamo_nb: free_map index %zd out of range", index);
                Py_DECREF(cells);
                return NULL;
            }
            item = PyTuple_GET_ITEM(closure, index);
        }
        if (!PyCell_Check(item)) {
            PyErr_SetString(PyExc_SystemError, "dynamo_nb: free_map items are indices or cells");
            Py_DECREF(cells);
            return NULL;
        }
        PyTuple_SET_ITEM(cells, i, Py_NewRef(item));
    }
    PyObject *function = dnb_make_function(entry->code, globals, builtins, cells);
    Py_DECREF(cells);
    return function;
}

/* ---- operations on code objects ---- */
static PyObject *entries_without(PyObject *old, PyObject *drop)
{
    PyObject *list = PyList_New(0);
    if (!list) return NULL;
    for (Py_ssize_t i = 0; old && i < PyTuple_GET_SIZE(old); i++) {
        CacheEntry *entry = (CacheEntry *)PyTuple_GET_ITEM(old, i);
        if ((PyObject *)entry == drop || PyWeakref_GetObject(entry->region_ref) == Py_None) continue;
        if (PyList_Append(list, (PyObject *)entry) < 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

void dnb_entry_to_front(PyCodeObject *code, PyObject *snapshot, Py_ssize_t index)
{
    CodeState *state = dnb_state_get(code);
    if (!state || state->entries != snapshot) return; /* changed while the guards ran: that order stands */
    Py_ssize_t n = PyTuple_GET_SIZE(snapshot);
    PyObject *fresh = PyTuple_New(n);
    if (!fresh) {
        PyErr_Clear();
        return;
    }
    PyTuple_SET_ITEM(fresh, 0, Py_NewRef(PyTuple_GET_ITEM(snapshot, index)));
    for (Py_ssize_t i = 0, to = 1; i < n; i++)
        if (i != index) PyTuple_SET_ITEM(fresh, to++, Py_NewRef(PyTuple_GET_ITEM(snapshot, i)));
    state->entries = fresh;
    Py_DECREF(snapshot); /* the caller still holds its own reference */
}

static PyObject *get_entries(PyObject *module, PyObject *arg)
{
    PyCodeObject *code = as_code(arg);
    if (!code) return NULL;
    CodeState *state = dnb_state_get(code);
    return state && state->entries ? PySequence_List(state->entries) : PyList_New(0);
}

/* Puts `list` (stolen) in place as the new snapshot. */
static int set_entries(PyCodeObject *code, PyObject *list)
{
    PyObject *fresh = PyList_GET_SIZE(list) ? PyList_AsTuple(list) : NULL;
    Py_DECREF(list);
    if (PyErr_Occurred()) return -1;
    CodeState *state = state_make(code);
    if (!state) {
        Py_XDECREF(fresh);
        return -1;
    }
    PyObject *old = state->entries;
    state->entries = fresh;
    Py_XDECREF(old);
    return 0;
}

static PyObject *insert_entry(PyObject *module, PyObject *args)
{
    PyObject *code, *entry;
    if (!PyArg_ParseTuple(args, "O!O!:insert_entry", &PyCode_Type, &code, &CacheEntry_Type, &entry)) return NULL;
    CodeState *state = state_make((PyCodeObject *)code);
    if (!state) return NULL;
    PyObject *list = entries_without(state->entries, entry);
    if (!list) return NULL;
    if (PyList_Insert(list, 0, entry) < 0) {
        Py_DECREF(list);
        return NULL;
    }
    if (set_entries((PyCodeObject *)code, list) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *remove_entry(PyObject *module, PyObject *args)
{
    PyObject *code, *entry;
    if (!PyArg_ParseTuple(args, "O!O!:remove_entry", &PyCode_Type, &code, &CacheEntry_Type, &entry)) return NULL;
    CodeState *state = dnb_state_get((PyCodeObject *)code);
    if (!state || !state->entries) Py_RETURN_FALSE;
    Py_ssize_t before = PyTuple_GET_SIZE(state->entries);
    PyObject *list = entries_without(state->entries, entry);
    if (!list) return NULL;
    bool removed = PyList_GET_SIZE(list) < before;
    if (set_entries((PyCodeObject *)code, list) < 0) return NULL;
    dnb_forget_entry(((CacheEntry *)entry)->id);
    return PyBool_FromLong(removed);
}

static PyObject *set_action(PyObject *module, PyObject *args)
{
    PyObject *code;
    int action;
    if (!PyArg_ParseTuple(args, "O!i:set_action", &PyCode_Type, &code, &action)) return NULL;
    if (action < ACTION_DEFAULT || action > ACTION_SKIP_RECURSIVE) {
        PyErr_Format(PyExc_ValueError, "unknown action %d", action);
        return NULL;
    }
    CodeState *state = state_make((PyCodeObject *)code);
    if (!state) return NULL;
    state->action = (DnbAction)action;
    Py_RETURN_NONE;
}

static PyObject *get_action(PyObject *module, PyObject *arg)
{
    PyCodeObject *code = as_code(arg);
    if (!code) return NULL;
    CodeState *state = dnb_state_get(code);
    return PyLong_FromLong(state ? state->action : ACTION_DEFAULT);
}

static PyObject *code_data(PyObject *module, PyObject *arg)
{
    PyCodeObject *code = as_code(arg);
    CodeState *state = code ? state_make(code) : NULL;
    if (!state) return NULL;
    if (!state->data && !(state->data = PyDict_New())) return NULL;
    return Py_NewRef(state->data);
}

static void clear_state(CodeState *state)
{
    PyObject *entries = state->entries, *data = state->data;
    state->entries = state->data = NULL;
    state->action = ACTION_DEFAULT;
    for (Py_ssize_t i = 0; entries && i < PyTuple_GET_SIZE(entries); i++)
        dnb_forget_entry(((CacheEntry *)PyTuple_GET_ITEM(entries, i))->id);
    Py_XDECREF(entries);
    Py_XDECREF(data);
}

static PyObject *reset_code(PyObject *module, PyObject *arg)
{
    PyCodeObject *code = as_code(arg);
    if (!code) return NULL;
    CodeState *state = dnb_state_get(code);
    if (state) clear_state(state);
    Py_RETURN_NONE;
}

static PyObject *all_codes(void)
{
    PyObject *list = PyList_New(0);
    if (!list) return NULL;
    for (CodeState *state = all_states; state; state = state->next)
        if (PyList_Append(list, (PyObject *)state->code) < 0) {
            Py_DECREF(list);
            return NULL;
        }
    return list;
}

static PyObject *reset_all(PyObject *module, PyObject *unused)
{
    PyObject *codes = all_codes(); /* strong references: clearing a state can free other code objects */
    if (!codes) return NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(codes); i++) {
        CodeState *state = dnb_state_get((PyCodeObject *)PyList_GET_ITEM(codes, i));
        if (state) clear_state(state);
    }
    Py_DECREF(codes);
    dnb_forget_entry(0);
    Py_RETURN_NONE;
}

static PyObject *codes_with_state(PyObject *module, PyObject *unused) { return all_codes(); }

static PyMethodDef state_methods[] = {
    {"get_entries", get_entries, METH_O, "get_entries(code) -> list of CacheEntry in the order they are tried."},
    {"insert_entry", insert_entry, METH_VARARGS, "insert_entry(code, entry): put an entry first; entries of dead regions go."},
    {"remove_entry", remove_entry, METH_VARARGS, "remove_entry(code, entry) -> whether anything was removed."},
    {"set_action", set_action, METH_VARARGS, "set_action(code, DEFAULT | SKIP | RUN_ONLY | SKIP_RECURSIVE)."},
    {"get_action", get_action, METH_O, "get_action(code) -> int."},
    {"code_data", code_data, METH_O, "code_data(code) -> dict kept with the code until reset."},
    {"reset_code", reset_code, METH_O, "reset_code(code): forget entries, action and data."},
    {"reset_all", reset_all, METH_NOARGS, "reset_all(): reset_code for every code object that has state."},
    {"codes_with_state", codes_with_state, METH_NOARGS, "codes_with_state() -> list of code objects that carry state."},
    {NULL}};

int dnb_state_init(PyObject *module)
{
    extra_index = _PyEval_RequestCodeExtraIndex(free_state);
    if (extra_index < 0) {
        PyErr_SetString(PyExc_ImportError, "dynamo_nb: no code extra index is left in this process");
        return -1;
    }
    if (PyModule_AddFunctions(module, state_methods) < 0 || PyModule_AddType(module, &CacheEntry_Type) < 0) return -1;
    if (PyModule_AddIntConstant(module, "DEFAULT", ACTION_DEFAULT) < 0 ||
        PyModule_AddIntConstant(module, "SKIP", ACTION_SKIP) < 0 ||
        PyModule_AddIntConstant(module, "RUN_ONLY", ACTION_RUN_ONLY) < 0 ||
        PyModule_AddIntConstant(module, "SKIP_RECURSIVE", ACTION_SKIP_RECURSIVE) < 0)
        return -1;
    return 0;
}
