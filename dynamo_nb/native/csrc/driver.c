/* Runs units: (code, globals, builtins, closure, region) over a flat array of bound locals.
 *
 * Picks the entry whose guards hold, asks the region's `convert` on a miss, runs the entry's code
 * and whatever that hands over through tail calls. Target code never runs in any other way.
 */
#include "dnb.h"
#include <stddef.h>

#define CONVERT_DEPTH 3000 /* Python frames the compiler may use beyond the user's recursion limit */

typedef struct {
    PyObject_VAR_HEAD
    PyObject *code, *globals, *builtins, *closure; /* closure may be NULL */
    bool plain;
    PyObject *args[1];
} TailCall;

static PyTypeObject TailCall_Type;

/* ---- picking an entry ---- */
static DnbPick lookup(DnbThread *t, const DnbUnit *u, CodeState *state, CacheEntry **out)
{
    PyObject *snapshot = state->entries;
    if (!snapshot) return PICK_PLAIN;
    Py_INCREF(snapshot); /* guards can run Python, which can recompile or reset */
    DnbPick pick = PICK_PLAIN;
    t->off++; /* Python called by a guard is not the user's program */
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(snapshot); i++) {
        CacheEntry *entry = (CacheEntry *)PyTuple_GET_ITEM(snapshot, i);
        if (entry->region_id != u->region->id) continue;
        int ok = dnb_guard_check(entry->guard_root, u->locals, u->n, u->globals, u->builtins, u->closure);
        if (ok == 0) continue;
        if (ok < 0) {
            pick = PICK_ERROR;
            break;
        }
        entry->hits++;
        *out = (CacheEntry *)Py_NewRef(entry);
        if (i) dnb_entry_to_front(u->code, snapshot, i);
        pick = PICK_ENTRY;
        break;
    }
    t->off--;
    Py_DECREF(snapshot);
    return pick;
}

static PyObject *call_convert(DnbThread *t, const DnbUnit *u)
{
    PyObject *locals = PyTuple_New(u->n);
    if (!locals) return NULL;
    for (Py_ssize_t i = 0; i < u->n; i++) PyTuple_SET_ITEM(locals, i, Py_NewRef(u->locals[i]));
    PyObject *args[] = {(PyObject *)u->code, u->globals, u->builtins, u->closure ? u->closure : Py_None,
                        locals, u->fn ? u->fn : Py_None, u->is_resume ? Py_True : Py_False};
    PyObject *convert = Py_NewRef(u->region->convert);
    int off = t->off;
    t->off = off + 1;
    dnb_recursion_bonus(CONVERT_DEPTH);
    PyObject *result = PyObject_Vectorcall(convert, args, Py_ARRAY_LENGTH(args), NULL);
    dnb_recursion_bonus(-CONVERT_DEPTH);
    t->off = off;
    Py_DECREF(convert);
    Py_DECREF(locals);
    return result;
}

static DnbPick convert_locked(DnbThread *t, const DnbUnit *u, CacheEntry **out)
{
    PyObject *result = call_convert(t, u);
    if (!result) return PICK_ERROR;
    if (Py_IS_TYPE(result, &CacheEntry_Type)) {
        *out = (CacheEntry *)result;
        return PICK_ENTRY;
    }
    if (result != Py_None) {
        PyErr_Format(PyExc_TypeError, "convert() must return a CacheEntry or None, not %.100s", Py_TYPE(result)->tp_name);
        Py_DECREF(result);
        return PICK_ERROR;
    }
    Py_DECREF(result);
    CodeState *state = dnb_state_get(u->code);
    return state && state->action == ACTION_SKIP_RECURSIVE ? PICK_OFF : PICK_PLAIN;
}

static DnbPick miss(DnbThread *t, const DnbUnit *u, CacheEntry **out)
{
    DnbLock lock = dnb_lock_acquire(true);
    if (lock == LOCK_ERROR) return PICK_ERROR;
    if (lock == LOCK_REFUSED) return PICK_PLAIN;
    DnbPick pick = PICK_PLAIN;
    CodeState *state = lock == LOCK_WAITED ? dnb_state_get(u->code) : NULL;
    if (state) pick = lookup(t, u, state, out);
    if (pick == PICK_PLAIN) pick = convert_locked(t, u, out);
    dnb_lock_release();
    return pick;
}

DnbPick dnb_pick(DnbThread *t, const DnbUnit *u, CacheEntry **out)
{
    CodeState *state = dnb_state_get(u->code);
    if (!state) return miss(t, u, out);
    if (state->action == ACTION_SKIP) return PICK_PLAIN;
    if (state->action == ACTION_SKIP_RECURSIVE) return PICK_OFF;
    Py_INCREF(u->code);
    DnbPick pick = lookup(t, u, state, out);
    if (pick == PICK_PLAIN) {
        state = dnb_state_get(u->code);
        if (!state || state->action == ACTION_DEFAULT) pick = miss(t, u, out);
    }
    Py_DECREF(u->code);
    return pick;
}

/* ---- running ---- */
/* Calls a function over trusted code: its own frame and what it calls outside its regions is not hooked. */
static PyObject *run_trusted(DnbThread *t, PyObject *function, PyObject *const *locals, Py_ssize_t n)
{
    Region *current = t->current;
    int depth = t->depth, base = t->base;
    t->current = NULL;
    t->base = depth;
    if (dnb_hook_present()) t->own = (PyCodeObject *)((PyFunctionObject *)function)->func_code;
    PyObject *result = _PyFunction_Vectorcall(function, locals, n, NULL);
    t->own = NULL;
    if (DNB_UNLIKELY(t->depth > depth)) dnb_region_unwind(t, depth);
    t->base = base;
    t->current = current;
    return result;
}

/* Runs a resume or original function as Python would, outside any region. */
static PyObject *run_plain(DnbThread *t, PyObject *function, PyObject *const *locals, Py_ssize_t n)
{
    Region *current = t->current;
    t->current = NULL;
    PyObject *result = dnb_call_flat(function, locals, n);
    t->current = current;
    return result;
}

/* The same for a frame that is not converted: what it calls is. */
static PyObject *run_plain_in_region(DnbThread *t, Region *region, PyObject *function, PyObject *const *locals, Py_ssize_t n)
{
    int depth = t->depth, base = t->base;
    if (dnb_region_push(t, region) < 0) return NULL;
    t->base = t->depth;
    t->own = (PyCodeObject *)((PyFunctionObject *)function)->func_code;
    PyObject *result = dnb_call_flat(function, locals, n);
    t->own = NULL;
    dnb_region_unwind(t, depth);
    t->base = base;
    return result;
}

static PyObject *run_not_converted(DnbThread *t, const DnbUnit *u, bool off)
{
    PyObject *function = dnb_make_function((PyObject *)u->code, u->globals, u->builtins, u->closure);
    if (!function) return NULL;
    int before = t->off;
    t->off = before + off;
    PyObject *result = t->off ? run_plain(t, function, u->locals, u->n)
                              : run_plain_in_region(t, u->region, function, u->locals, u->n);
    t->off = before;
    Py_DECREF(function);
    return result;
}

static PyObject *run_tail_unit(DnbThread *t, TailCall *tail, Region *region)
{
    DnbUnit u = {(PyCodeObject *)tail->code, tail->globals, tail->builtins, tail->closure, region,
                 tail->args, Py_SIZE(tail), NULL, NULL, true};
    if (tail->plain || t->off) return run_not_converted(t, &u, true);
    CacheEntry *entry = NULL;
    DnbPick pick = dnb_tracing() ? PICK_PLAIN : dnb_pick(t, &u, &entry);
    if (pick == PICK_ERROR) return NULL;
    if (pick != PICK_ENTRY) return run_not_converted(t, &u, pick == PICK_OFF);
    PyObject *function = dnb_entry_function(entry, u.globals, u.builtins, u.closure);
    PyObject *result = function ? run_trusted(t, function, u.locals, u.n) : NULL;
    Py_XDECREF(function);
    Py_DECREF(entry);
    return result;
}

/* Follows tail calls until a real result is there. Steals `result`. */
static PyObject *finish(DnbThread *t, PyObject *result, Region *region)
{
    while (result && Py_IS_TYPE(result, &TailCall_Type)) {
        PyObject *next = run_tail_unit(t, (TailCall *)result, region);
        Py_DECREF(result);
        result = next;
    }
    return result;
}

PyObject *dnb_run_entry(DnbThread *t, const DnbUnit *u, CacheEntry *entry)
{
    PyObject *function = u->cf ? dnb_cached_function(u->cf, entry) : dnb_entry_function(entry, u->globals, u->builtins, u->closure);
    if (!function) return NULL;
    Region *region = (Region *)Py_NewRef(u->region);
    PyObject *result = run_trusted(t, function, u->locals, u->n);
    Py_DECREF(function);
    if (result && DNB_UNLIKELY(Py_IS_TYPE(result, &TailCall_Type))) result = finish(t, result, region);
    Py_DECREF(region);
    return result;
}

/* ---- tail calls ---- */
static int tail_traverse(TailCall *self, visitproc visit, void *arg)
{
    Py_VISIT(self->code);
    Py_VISIT(self->globals);
    Py_VISIT(self->builtins);
    Py_VISIT(self->closure);
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) Py_VISIT(self->args[i]);
    return 0;
}

static void tail_dealloc(TailCall *self)
{
    PyObject_GC_UnTrack(self);
    Py_CLEAR(self->code);
    Py_CLEAR(self->globals);
    Py_CLEAR(self->builtins);
    Py_CLEAR(self->closure);
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) Py_CLEAR(self->args[i]);
    PyObject_GC_Del(self);
}

static PyTypeObject TailCall_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dynamo_nb.native.TailCall",
    .tp_doc = "What target code returns to have another unit run in its place.",
    .tp_basicsize = offsetof(TailCall, args),
    .tp_itemsize = sizeof(PyObject *),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = (destructor)tail_dealloc,
    .tp_traverse = (traverseproc)tail_traverse,
};

static bool closure_arg(PyObject *given, PyObject **closure)
{
    *closure = given == Py_None ? NULL : given;
    if (!*closure || PyTuple_Check(given)) return true;
    PyErr_Format(PyExc_TypeError, "closure must be a tuple of cells or None, not %.100s", Py_TYPE(given)->tp_name);
    return false;
}

static PyObject *make_tail(PyObject *const *args, Py_ssize_t nargs, bool plain)
{
    PyObject *closure, *globals = PyEval_GetGlobals(), *builtins = PyEval_GetBuiltins();
    if (nargs < 2 || !PyCode_Check(args[0]) || !globals) {
        PyErr_SetString(PyExc_TypeError, "tail_call(code, closure, *args), from Python code");
        return NULL;
    }
    if (!closure_arg(args[1], &closure)) return NULL;
    Py_ssize_t n = nargs - 2, wanted = dnb_arg_count((PyCodeObject *)args[0]);
    if (n != wanted) {
        PyErr_Format(PyExc_SystemError, "dynamo_nb: tail call of %U with %zd values instead of %zd",
                     ((PyCodeObject *)args[0])->co_qualname, n, wanted);
        return NULL;
    }
    TailCall *tail = PyObject_GC_NewVar(TailCall, &TailCall_Type, n);
    if (!tail) return NULL;
    tail->code = Py_NewRef(args[0]);
    tail->globals = Py_NewRef(globals);
    tail->builtins = Py_XNewRef(builtins);
    tail->closure = Py_XNewRef(closure);
    tail->plain = plain;
    for (Py_ssize_t i = 0; i < n; i++) tail->args[i] = Py_NewRef(args[2 + i]);
    PyObject_GC_Track(tail);
    return (PyObject *)tail;
}

static PyObject *tail_call(PyObject *module, PyObject *const *args, Py_ssize_t nargs) { return make_tail(args, nargs, false); }
static PyObject *tail_call_plain(PyObject *module, PyObject *const *args, Py_ssize_t nargs) { return make_tail(args, nargs, true); }

static PyObject *run_fragment(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *closure;
    if (nargs < 4 || !PyCode_Check(args[0]) || !PyDict_Check(args[1]) || !Py_IS_TYPE(args[3], &Region_Type)) {
        PyErr_SetString(PyExc_TypeError, "run_fragment(code, globals, closure, region, *args)");
        return NULL;
    }
    if (!closure_arg(args[2], &closure)) return NULL;
    DnbThread *t = dnb_thread();
    PyObject *function = dnb_make_function(args[0], args[1], NULL, closure);
    if (!function) return NULL;
    PyObject *result = run_trusted(t, function, args + 4, nargs - 4);
    Py_DECREF(function);
    return finish(t, result, (Region *)args[3]);
}

static PyMethodDef driver_methods[] = {
    {"tail_call", (PyCFunction)(void (*)(void))tail_call, METH_FASTCALL,
     "tail_call(code, closure, *locals): a value to return from target code; `code` then runs as a unit in its place."},
    {"tail_call_plain", (PyCFunction)(void (*)(void))tail_call_plain, METH_FASTCALL,
     "tail_call_plain(code, closure, *locals): the same, run as ordinary Python without guards or compiler."},
    {"run_fragment", (PyCFunction)(void (*)(void))run_fragment, METH_FASTCALL,
     "run_fragment(code, globals, closure, region, *args): run target code now and return its result."},
    {NULL}};

int dnb_driver_init(PyObject *module)
{
    if (PyType_Ready(&TailCall_Type) < 0 || PyModule_AddObjectRef(module, "TailCall", (PyObject *)&TailCall_Type) < 0) return -1;
    return PyModule_AddFunctions(module, driver_methods);
}
