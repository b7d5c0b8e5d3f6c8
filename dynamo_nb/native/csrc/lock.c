/* The process-wide, re-entrant compile lock. Waiters release the GIL. All fields are guarded by the GIL. */
#include "dnb.h"
#include "pythread.h"

static PyThread_type_lock lock;
static unsigned long owner;
static int depth;
static PyObject *may_wait; /* callable without arguments, or NULL: may this thread wait now? */

static bool waiting_allowed(void)
{
    if (!may_wait) return true;
    DnbThread *t = dnb_thread();
    t->off++; /* its own frames must not miss: they would ask again */
    PyObject *answer = PyObject_CallNoArgs(may_wait);
    int allowed = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    t->off--;
    if (allowed < 0) PyErr_Clear();
    return allowed > 0;
}

DnbLock dnb_lock_acquire(bool may_refuse)
{
    unsigned long me = PyThread_get_thread_ident();
    if (depth && owner == me) {
        depth++;
        return LOCK_AT_ONCE;
    }
    DnbLock how = LOCK_AT_ONCE;
    if (!PyThread_acquire_lock(lock, NOWAIT_LOCK)) {
        how = LOCK_WAITED;
        if (may_refuse && !waiting_allowed()) return LOCK_REFUSED;
        for (;;) {
            PyLockStatus status;
            Py_BEGIN_ALLOW_THREADS
            status = PyThread_acquire_lock_timed(lock, -1, 1);
            Py_END_ALLOW_THREADS
            if (status == PY_LOCK_ACQUIRED) break;
            if (status == PY_LOCK_INTR && PyErr_CheckSignals() < 0) return LOCK_ERROR;
        }
    }
    owner = me;
    depth = 1;
    return how;
}

void dnb_lock_release(void)
{
    if (--depth == 0) {
        owner = 0;
        PyThread_release_lock(lock);
    }
}

/* In the child only the forking thread lives: it keeps what it held, anybody else's hold is void. */
static PyObject *after_fork(PyObject *module, PyObject *unused)
{
    PyThread_type_lock fresh = PyThread_allocate_lock();
    if (!fresh) return PyErr_NoMemory();
    lock = fresh; /* the old one may be in any state: it is left alone */
    if (depth && owner == PyThread_get_thread_ident()) PyThread_acquire_lock(lock, NOWAIT_LOCK);
    else depth = 0, owner = 0;
    dnb_hook_after_fork(dnb_thread()->depth);
    dnb_memory_after_fork();
    Py_RETURN_NONE;
}

static PyObject *set_may_wait(PyObject *module, PyObject *arg)
{
    PyObject *old = may_wait;
    may_wait = arg == Py_None ? NULL : Py_NewRef(arg);
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

static PyObject *lock_enter(PyObject *self, PyObject *unused)
{
    if (dnb_lock_acquire(false) == LOCK_ERROR) return NULL;
    return Py_NewRef(self);
}

static PyObject *lock_exit(PyObject *self, PyObject *args)
{
    if (!depth || owner != PyThread_get_thread_ident()) {
        PyErr_SetString(PyExc_RuntimeError, "this thread does not hold the compile lock");
        return NULL;
    }
    dnb_lock_release();
    Py_RETURN_FALSE;
}

static PyObject *lock_held(PyObject *self, PyObject *unused)
{
    return PyBool_FromLong(depth && owner == PyThread_get_thread_ident());
}

static PyMethodDef lock_type_methods[] = {{"__enter__", lock_enter, METH_NOARGS, NULL},
                                          {"__exit__", lock_exit, METH_VARARGS, NULL},
                                          {"held", lock_held, METH_NOARGS, "Whether this thread holds the lock."},
                                          {NULL}};
static PyTypeObject Lock_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dynamo_nb.native.CompileLock",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = PyType_GenericNew,
    .tp_methods = lock_type_methods,
};

static PyObject *compile_lock(PyObject *module, PyObject *unused) { return PyObject_CallNoArgs((PyObject *)&Lock_Type); }

static PyMethodDef lock_methods[] = {
    {"compile_lock", compile_lock, METH_NOARGS, "compile_lock() -> context manager over the process-wide re-entrant lock."},
    {"set_may_wait", set_may_wait, METH_O, "set_may_wait(fn | None): asked before a miss waits for the lock."},
    {"after_fork", after_fork, METH_NOARGS, "after_fork(): to be called in the child: lock and regions of other threads are void."},
    {NULL}};

int dnb_lock_init(PyObject *module)
{
    lock = PyThread_allocate_lock();
    if (!lock) {
        PyErr_NoMemory();
        return -1;
    }
    if (PyType_Ready(&Lock_Type) < 0) return -1;
    return PyModule_AddFunctions(module, lock_methods);
}
