/* CompiledFunction: a Python function seen through its cache entries.
 *
 * It owns the functions made over entries' code, because those hold globals and cells; the entries,
 * which the garbage collector can't see, hold code only.
 */
#include "dnb.h"
#include <stddef.h>
#include <structmember.h>

typedef struct {
    uint64_t entry_id;
    PyObject *function;
} Cached;

typedef struct CompiledFunction {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *fn, *dict, *weakrefs;
    Region *region;
    Cached *cache;
    int cached, capacity;
    struct CompiledFunction *prev, *next;
} CompiledFunction;

static PyTypeObject Compiled_Type;
static CompiledFunction *all_compiled;

PyObject *dnb_cached_function(CompiledFunction *cf, CacheEntry *entry)
{
    for (int i = 0; i < cf->cached; i++)
        if (cf->cache[i].entry_id == entry->id) return Py_NewRef(cf->cache[i].function);
    PyFunctionObject *fn = (PyFunctionObject *)cf->fn;
    PyObject *function = dnb_entry_function(entry, fn->func_globals, fn->func_builtins, fn->func_closure);
    if (!function) return NULL;
    if (cf->cached == cf->capacity) {
        int capacity = cf->capacity ? 2 * cf->capacity : 2;
        Cached *grown = (Cached *)PyMem_Realloc(cf->cache, capacity * sizeof(Cached));
        if (!grown) return function; /* it works without being remembered */
        cf->cache = grown;
        cf->capacity = capacity;
    }
    cf->cache[cf->cached++] = (Cached){entry->id, Py_NewRef(function)};
    return function;
}

/* Takes one function of the entry (0: of any) out of some cache; NULL when there is none left. */
static PyObject *take_cached(uint64_t entry_id)
{
    for (CompiledFunction *cf = all_compiled; cf; cf = cf->next)
        for (int i = 0; i < cf->cached; i++)
            if (!entry_id || cf->cache[i].entry_id == entry_id) {
                PyObject *function = cf->cache[i].function;
                cf->cache[i] = cf->cache[--cf->cached];
                return function;
            }
    return NULL;
}

void dnb_forget_entry(uint64_t entry_id)
{
    PyObject *function;
    while ((function = take_cached(entry_id))) Py_DECREF(function);
}

/* ---- calling ---- */
static PyObject *call_in_region(DnbThread *t, CompiledFunction *cf, PyCodeObject *code, PyObject *const *args, size_t nargsf,
                                PyObject *kwnames)
{
    int depth = t->depth, base = t->base;
    if (dnb_region_push(t, cf->region) < 0) return NULL;
    t->base = t->depth;
    t->own = code; /* it was looked up already: its own frame runs as it is */
    PyObject *result = PyObject_Vectorcall(cf->fn, args, nargsf, kwnames);
    t->own = NULL;
    dnb_region_unwind(t, depth);
    t->base = base;
    return result;
}

static PyObject *call_off(DnbThread *t, CompiledFunction *cf, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    int before = t->off;
    t->off = before + 1;
    PyObject *result = PyObject_Vectorcall(cf->fn, args, nargsf, kwnames);
    t->off = before;
    return result;
}

static PyObject *compiled_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames);

typedef struct {
    PyObject *self, *kwnames, *result;
    PyObject *const *args;
    size_t nargsf;
} FreshCall;

static void fresh_call(void *arg)
{
    FreshCall *call = (FreshCall *)arg;
    call->result = compiled_call(call->self, call->args, call->nargsf, call->kwnames);
}

static PyObject *compiled_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    CompiledFunction *cf = (CompiledFunction *)self;
    DnbThread *t = dnb_thread();
    if (DNB_UNLIKELY(dnb_stack_low(t))) {
        FreshCall call = {self, kwnames, NULL, args, nargsf};
        return dnb_on_fresh_stack(fresh_call, &call) < 0 ? NULL : call.result;
    }
    PyFunctionObject *fn = (PyFunctionObject *)cf->fn;
    PyCodeObject *code = (PyCodeObject *)fn->func_code;
    if (t->off || (code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) || dnb_tracing())
        return PyObject_Vectorcall(cf->fn, args, nargsf, kwnames);
    DnbBound bound;
    int fits = dnb_bind(cf->fn, args, PyVectorcall_NARGS(nargsf), kwnames, &bound);
    if (fits < 0) return NULL;
    if (fits == 0) return PyObject_Vectorcall(cf->fn, args, nargsf, kwnames);
    DnbUnit unit = {code, fn->func_globals, fn->func_builtins, fn->func_closure, cf->region,
                    bound.values ? bound.values : args, bound.n, cf->fn, cf, false};
    CacheEntry *entry = NULL;
    PyObject *result = NULL;
    switch (dnb_pick(t, &unit, &entry)) {
    case PICK_ENTRY:
        result = dnb_run_entry(t, &unit, entry);
        Py_DECREF(entry);
        break;
    case PICK_PLAIN: result = call_in_region(t, cf, code, args, nargsf, kwnames); break;
    case PICK_OFF: result = call_off(t, cf, args, nargsf, kwnames); break;
    case PICK_ERROR: break;
    }
    dnb_bound_clear(&bound);
    return result;
}

/* ---- the type ---- */
static PyObject *compiled_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"fn", "region", NULL};
    PyObject *fn, *region;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!:CompiledFunction", names, &PyFunction_Type, &fn, &Region_Type, &region))
        return NULL;
    PyObject *own = PyObject_GetAttrString(fn, "__dict__"), *dict = own ? PyDict_Copy(own) : NULL;
    Py_XDECREF(own);
    if (!dict || PyDict_SetItemString(dict, "__wrapped__", fn) < 0) {
        Py_XDECREF(dict);
        return NULL;
    }
    CompiledFunction *self = (CompiledFunction *)type->tp_alloc(type, 0);
    if (!self) {
        Py_DECREF(dict);
        return NULL;
    }
    self->vectorcall = compiled_call;
    self->fn = Py_NewRef(fn);
    self->region = (Region *)Py_NewRef(region);
    self->dict = dict;
    self->next = all_compiled;
    if (all_compiled) all_compiled->prev = self;
    all_compiled = self;
    return (PyObject *)self;
}

static int compiled_traverse(CompiledFunction *self, visitproc visit, void *arg)
{
    Py_VISIT(self->fn);
    Py_VISIT(self->region);
    Py_VISIT(self->dict);
    for (int i = 0; i < self->cached; i++) Py_VISIT(self->cache[i].function);
    return 0;
}

static void drop_cache(CompiledFunction *self)
{
    Cached *cache = self->cache;
    int n = self->cached;
    self->cache = NULL;
    self->cached = self->capacity = 0;
    for (int i = 0; i < n; i++) Py_DECREF(cache[i].function);
    PyMem_Free(cache);
}

static int compiled_clear(CompiledFunction *self)
{
    drop_cache(self);
    Py_CLEAR(self->dict);
    return 0; /* fn and region stay until dealloc: a call must always find them */
}

static void compiled_dealloc(CompiledFunction *self)
{
    PyObject_GC_UnTrack(self);
    if (self->weakrefs) PyObject_ClearWeakRefs((PyObject *)self);
    if (self->prev) self->prev->next = self->next;
    else all_compiled = self->next;
    if (self->next) self->next->prev = self->prev;
    compiled_clear(self);
    Py_CLEAR(self->fn);
    Py_CLEAR(self->region);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *compiled_descr_get(PyObject *self, PyObject *object, PyObject *type)
{
    return object && object != Py_None ? PyMethod_New(self, object) : Py_NewRef(self);
}

static PyObject *compiled_getattro(PyObject *self, PyObject *name)
{
    PyObject *value = PyObject_GenericGetAttr(self, name);
    if (value || !PyErr_ExceptionMatches(PyExc_AttributeError)) return value;
    PyErr_Clear();
    return PyObject_GetAttr(((CompiledFunction *)self)->fn, name);
}

static PyObject *forward_get(CompiledFunction *self, void *name) { return PyObject_GetAttrString(self->fn, (const char *)name); }
static int forward_set(CompiledFunction *self, PyObject *value, void *name)
{
    return value ? PyObject_SetAttrString(self->fn, (const char *)name, value) : PyObject_DelAttrString(self->fn, (const char *)name);
}

static PyObject *compiled_repr(CompiledFunction *self)
{
    return PyUnicode_FromFormat("<compiled %U at %p>", ((PyFunctionObject *)self->fn)->func_qualname, self);
}

static PyObject *compiled_reduce(CompiledFunction *self, PyObject *unused)
{
    if (!self->region->reduce || self->region->reduce == Py_None) {
        PyErr_Format(PyExc_TypeError, "cannot pickle %R: its compile options have no reduce hook", self);
        return NULL;
    }
    return PyObject_CallOneArg(self->region->reduce, (PyObject *)self);
}

static PyObject *compiled_same(PyObject *self, PyObject *unused) { return Py_NewRef(self); }

#define FORWARD(name) {name, (getter)forward_get, (setter)forward_set, NULL, (void *)name}
static PyGetSetDef compiled_getset[] = {
    FORWARD("__code__"), FORWARD("__globals__"), FORWARD("__closure__"), FORWARD("__defaults__"), FORWARD("__kwdefaults__"),
    FORWARD("__annotations__"), FORWARD("__name__"), FORWARD("__qualname__"), FORWARD("__doc__"), FORWARD("__module__"),
    FORWARD("__builtins__"), {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL}, {NULL}};
static PyMemberDef compiled_members[] = {
    {"_torchdynamo_orig_callable", T_OBJECT, offsetof(CompiledFunction, fn), READONLY, "the function as written"},
    {"region", T_OBJECT, offsetof(CompiledFunction, region), READONLY, "the compile options it runs under"},
    {NULL}};
static PyMethodDef compiled_methods[] = {{"__reduce__", (PyCFunction)compiled_reduce, METH_NOARGS, NULL},
                                         {"__copy__", compiled_same, METH_NOARGS, NULL},
                                         {"__deepcopy__", compiled_same, METH_O, NULL},
                                         {NULL}};

static PyTypeObject Compiled_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dynamo_nb.native.CompiledFunction",
    .tp_basicsize = sizeof(CompiledFunction),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_new = compiled_new,
    .tp_dealloc = (destructor)compiled_dealloc,
    .tp_traverse = (traverseproc)compiled_traverse,
    .tp_clear = (inquiry)compiled_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(CompiledFunction, vectorcall),
    .tp_descr_get = compiled_descr_get,
    .tp_getattro = compiled_getattro,
    .tp_setattro = PyObject_GenericSetAttr,
    .tp_repr = (reprfunc)compiled_repr,
    .tp_getset = compiled_getset,
    .tp_members = compiled_members,
    .tp_methods = compiled_methods,
    .tp_dictoffset = offsetof(CompiledFunction, dict),
    .tp_weaklistoffset = offsetof(CompiledFunction, weakrefs),
};

int dnb_compiled_init(PyObject *module) { return PyModule_AddType(module, &Compiled_Type); }
