/* Thread state and hook regions.
 *
 * A region says "Python frames that start from here on go through the compiler of this region".
 * The eval-frame hook is process-wide, so it is counted; what it does is decided per thread.
 */
#include "dnb.h"
#include <stddef.h>
#include <structmember.h>

static __thread DnbThread thread_state;
static uint64_t next_region_id = 1;

DnbThread *dnb_thread(void) { return &thread_state; }

int dnb_region_push(DnbThread *t, Region *region)
{
    if (t->depth == t->capacity) {
        int capacity = t->capacity ? 2 * t->capacity : 16;
        RegionSlot *grown = (RegionSlot *)PyMem_RawRealloc(t->stack, capacity * sizeof(RegionSlot));
        if (!grown) {
            PyErr_NoMemory();
            return -1;
        }
        t->stack = grown;
        t->capacity = capacity;
    }
    t->stack[t->depth++] = (RegionSlot){(Region *)Py_NewRef(region), t->current};
    t->current = region;
    dnb_hook_acquire();
    return 0;
}

void dnb_region_pop(DnbThread *t)
{
    RegionSlot slot = t->stack[--t->depth];
    t->current = slot.before;
    dnb_hook_release();
    if (t->depth == 0) {
        PyMem_RawFree(t->stack); /* nothing is left behind when the thread ends */
        t->stack = NULL;
        t->capacity = 0;
    }
    Py_DECREF(slot.region);
}

void dnb_region_unwind(DnbThread *t, int depth)
{
    while (t->depth > depth) dnb_region_pop(t);
}

/* ---- enter and exit: builtins whose self is the region's handle, so that code constants do not own the region ---- */
static PyObject *region_enter(PyObject *self, PyObject *unused)
{
    Region *region = ((RegionHandle *)self)->region;
    if (!region) {
        PyErr_SetString(PyExc_RuntimeError, "this compile region is gone");
        return NULL;
    }
    if (dnb_region_push(dnb_thread(), region) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *region_exit(PyObject *self, PyObject *unused)
{
    DnbThread *t = dnb_thread();
    if (t->depth <= t->base) {
        PyErr_SetString(PyExc_RuntimeError, "region.exit() without region.enter() on this thread");
        return NULL;
    }
    dnb_region_pop(t);
    Py_RETURN_NONE;
}

static PyMethodDef enter_def = {"enter_region", region_enter, METH_NOARGS, "Start compiling the frames of this thread."};
static PyMethodDef exit_def = {"exit_region", region_exit, METH_NOARGS, "Undo the last enter of this thread."};

static PyTypeObject RegionHandle_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dynamo_nb.native.RegionHandle",
    .tp_basicsize = sizeof(RegionHandle),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
};

/* ---- Region ---- */
static PyObject *region_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"convert", "name", "options", "reduce", NULL};
    PyObject *convert, *name = NULL, *options = Py_None, *reduce = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|UOO:Region", names, &convert, &name, &options, &reduce)) return NULL;
    Region *self = (Region *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->id = next_region_id++;
    self->convert = Py_NewRef(convert);
    self->reduce = Py_NewRef(reduce);
    self->options = Py_NewRef(options);
    self->name = name ? Py_NewRef(name) : PyUnicode_FromString("");
    self->handle = PyObject_New(RegionHandle, &RegionHandle_Type);
    if (!self->name || !self->handle) goto fail;
    self->handle->region = self;
    self->enter = PyCFunction_New(&enter_def, (PyObject *)self->handle);
    self->exit = PyCFunction_New(&exit_def, (PyObject *)self->handle);
    if (!self->enter || !self->exit) goto fail;
    return (PyObject *)self;
fail:
    Py_DECREF(self);
    return NULL;
}

static int region_traverse(Region *self, visitproc visit, void *arg)
{
    Py_VISIT(self->convert);
    Py_VISIT(self->reduce);
    Py_VISIT(self->options);
    Py_VISIT(self->dict);
    return 0;
}

static int region_clear(Region *self)
{
    Py_CLEAR(self->convert);
    Py_CLEAR(self->reduce);
    Py_CLEAR(self->options);
    Py_CLEAR(self->dict);
    return 0;
}

static void region_dealloc(Region *self)
{
    PyObject_GC_UnTrack(self);
    if (self->weakrefs) PyObject_ClearWeakRefs((PyObject *)self);
    if (self->handle) self->handle->region = NULL;
    region_clear(self);
    Py_CLEAR(self->name);
    Py_CLEAR(self->enter);
    Py_CLEAR(self->exit);
    Py_CLEAR(self->handle);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *region_repr(Region *self) { return PyUnicode_FromFormat("<Region %R>", self->name); }

static PyMemberDef region_members[] = {
    {"convert", T_OBJECT, offsetof(Region, convert), 0, "convert(code, globals, builtins, closure, locals, fn or None, is_resume) on a miss; fn: only where a CompiledFunction is called"},
    {"reduce", T_OBJECT, offsetof(Region, reduce), 0, "reduce(compiled_function) for pickle and copy, or None"},
    {"options", T_OBJECT, offsetof(Region, options), 0, "the compile options"},
    {"name", T_OBJECT, offsetof(Region, name), 0, "for messages"},
    {"enter", T_OBJECT, offsetof(Region, enter), READONLY, "builtin of no arguments: start compiling this thread's frames"},
    {"exit", T_OBJECT, offsetof(Region, exit), READONLY, "builtin of no arguments: undo the last enter"},
    {NULL}};
static PyGetSetDef region_getset[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL}, {NULL}};

PyTypeObject Region_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dynamo_nb.native.Region",
    .tp_doc = "Region(convert, name='', options=None, reduce=None): one set of compile options.",
    .tp_basicsize = sizeof(Region),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = region_new,
    .tp_dealloc = (destructor)region_dealloc,
    .tp_traverse = (traverseproc)region_traverse,
    .tp_clear = (inquiry)region_clear,
    .tp_repr = (reprfunc)region_repr,
    .tp_members = region_members,
    .tp_getset = region_getset,
    .tp_dictoffset = offsetof(Region, dict),
    .tp_weaklistoffset = offsetof(Region, weakrefs),
};

/* ---- disabling ---- */
static PyObject *set_disabled(PyObject *module, PyObject *arg)
{
    int on = PyObject_IsTrue(arg);
    if (on < 0) return NULL;
    DnbThread *t = dnb_thread();
    bool before = t->off > 0;
    t->off = on;
    return PyBool_FromLong(before);
}

static PyObject *is_disabled(PyObject *module, PyObject *unused) { return PyBool_FromLong(dnb_thread()->off > 0); }

static PyObject *disable_enter(PyObject *module, PyObject *unused)
{
    dnb_thread()->off++;
    Py_RETURN_NONE;
}

static PyObject *disable_exit(PyObject *module, PyObject *unused)
{
    DnbThread *t = dnb_thread();
    if (t->off > 0) t->off--;
    Py_RETURN_NONE;
}

static PyObject *call_disabled(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    if (nargs < 1) {
        PyErr_SetString(PyExc_TypeError, "call_disabled(fn, *args, **kwargs) needs a callable");
        return NULL;
    }
    DnbThread *t = dnb_thread();
    int before = t->off;
    t->off = before + 1;
    PyObject *result = PyObject_Vectorcall(args[0], args + 1, nargs - 1, kwnames);
    t->off = before;
    return result;
}

static PyObject *region_depth(PyObject *module, PyObject *unused) { return PyLong_FromLong(dnb_thread()->depth); }

static PyMethodDef region_methods[] = {
    {"set_disabled", set_disabled, METH_O, "set_disabled(on) -> what it was: run this thread's frames plainly."},
    {"is_disabled", is_disabled, METH_NOARGS, "is_disabled() -> bool, for this thread."},
    {"disable_enter", disable_enter, METH_NOARGS, "disable_enter(): one more reason to run plainly."},
    {"disable_exit", disable_exit, METH_NOARGS, "disable_exit(): undo one disable_enter."},
    {"call_disabled", (PyCFunction)(void (*)(void))call_disabled, METH_FASTCALL | METH_KEYWORDS,
     "call_disabled(fn, *args, **kwargs): call with this thread's compiler off."},
    {"region_depth", region_depth, METH_NOARGS, "region_depth() -> regions entered and not left on this thread."},
    {NULL}};

PyObject *dnb_region_module_init(PyObject *module)
{
    if (PyType_Ready(&RegionHandle_Type) < 0 || PyModule_AddType(module, &Region_Type) < 0 ||
        PyModule_AddFunctions(module, region_methods) < 0)
        return NULL;
    return module;
}
