/* Declarations shared by the native part: who owns what, and what each file offers the others.
 *
 * state.c    code-extra state: cache entries, action, data of a code object
 * region.c   thread state, hook regions, disabling
 * lock.c     the process-wide compile lock
 * stack.c    running a call on a fresh C stack when the present one runs out
 * frame.c    the PEP 523 eval-frame function
 * bind.c     binding call arguments to a code object's locals, and the reverse
 * driver.c   choosing an entry for a unit, running it, tail calls, fragments
 * compiled.c the CompiledFunction type
 * guards.cpp the guard tree (declared in guards.hpp)
 * program.cpp the Program type, which runs compiled graphs (declared in program.hpp)
 */
#ifndef DNB_H
#define DNB_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DNB_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* ---- regions (region.c) ---- */
typedef struct {
    PyObject_HEAD
    struct Region *region; /* borrowed; NULL once the region is gone */
} RegionHandle;

typedef struct Region {
    PyObject_HEAD
    uint64_t id; /* never reused, so that entries can name a region without owning it */
    PyObject *convert, *reduce, *options, *name, *enter, *exit, *dict, *weakrefs;
    RegionHandle *handle;
} Region;

typedef struct {
    Region *region; /* strong */
    Region *before; /* what was current, owned by a lower slot */
} RegionSlot;

typedef struct {
    Region *current;      /* region whose Python frames are being compiled, or NULL; borrowed */
    int off;              /* > 0: frames of this thread run plainly */
    PyCodeObject *own;    /* code whose very next frame must run as it is; compared, never followed */
    void *passing;        /* frame being handed to a chained hook */
    RegionSlot *stack;
    int depth, capacity;
    int base;             /* regions below this belong to callers of the unit being run */
    uintptr_t stack_low;  /* lowest address of the C stack in use, 0 if not known yet */
    uintptr_t stack_size;
} DnbThread;

extern PyTypeObject Region_Type;
DnbThread *dnb_thread(void);
bool dnb_hook_present(void);
int dnb_region_push(DnbThread *t, Region *region); /* -1 with an exception when out of memory */
void dnb_region_pop(DnbThread *t);
void dnb_region_unwind(DnbThread *t, int depth);
PyObject *dnb_region_module_init(PyObject *module);

/* ---- frame.c ---- */
void dnb_hook_acquire(void);
void dnb_hook_release(void);
void dnb_hook_after_fork(int depth);
bool dnb_tracing(void);
int dnb_recursion_bonus(int amount); /* adds to the thread's remaining recursion depth */

/* ---- state.c ---- */
typedef enum { ACTION_DEFAULT = 0, ACTION_SKIP = 1, ACTION_RUN_ONLY = 2, ACTION_SKIP_RECURSIVE = 3 } DnbAction;

typedef struct {
    PyObject_HEAD
    uint64_t id, region_id;
    Py_ssize_t hits;
    PyObject *code, *guard_root, *guard_manager, *compile_id, *region_ref, *free_map, *data, *dict, *weakrefs;
} CacheEntry;

typedef struct CodeState {
    struct CodeState *prev, *next;
    PyCodeObject *code;  /* borrowed: the state dies with it */
    PyObject *entries;   /* tuple of CacheEntry, replaced and never changed; NULL when empty */
    PyObject *data;      /* dict or NULL */
    DnbAction action;
} CodeState;

extern PyTypeObject CacheEntry_Type;
CodeState *dnb_state_get(PyCodeObject *code);  /* NULL when there is none; no exception */
void dnb_entry_to_front(PyCodeObject *code, PyObject *snapshot, Py_ssize_t index);
PyObject *dnb_entry_function(CacheEntry *entry, PyObject *globals, PyObject *builtins, PyObject *closure);
PyObject *dnb_make_function(PyObject *code, PyObject *globals, PyObject *builtins, PyObject *closure);
int dnb_state_init(PyObject *module);

/* ---- lock.c ---- */
typedef enum { LOCK_ERROR = -1, LOCK_AT_ONCE = 0, LOCK_WAITED = 1, LOCK_REFUSED = 2 } DnbLock;
DnbLock dnb_lock_acquire(bool may_refuse); /* with may_refuse: REFUSED where waiting could deadlock */
void dnb_lock_release(void);
int dnb_lock_init(PyObject *module);

/* ---- stack.c ---- */
bool dnb_stack_low(DnbThread *t);
typedef void (*DnbStackFn)(void *);
int dnb_on_fresh_stack(DnbStackFn fn, void *arg); /* -1 with MemoryError when no stack can be had */

/* ---- bind.c ---- */
typedef struct {
    PyObject **values;  /* NULL: use the caller's array as it is */
    PyObject *small[24];
    Py_ssize_t n;
} DnbBound;
Py_ssize_t dnb_arg_count(PyCodeObject *code); /* with *args and **kwargs */
int dnb_bind(PyObject *fn, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, DnbBound *out);
void dnb_bound_clear(DnbBound *bound);
PyObject *dnb_call_flat(PyObject *fn, PyObject *const *locals, Py_ssize_t n);

/* ---- driver.c ---- */
struct CompiledFunction;
typedef struct {
    PyCodeObject *code;
    PyObject *globals, *builtins, *closure; /* closure may be NULL */
    Region *region;
    PyObject *const *locals;
    Py_ssize_t n;
    PyObject *fn; /* the function a CompiledFunction stands for; NULL for hooked frames and resume units */
    struct CompiledFunction *cf;
    bool is_resume;
} DnbUnit;
typedef enum { PICK_ERROR = -1, PICK_PLAIN = 0, PICK_ENTRY = 1, PICK_OFF = 2 } DnbPick;
DnbPick dnb_pick(DnbThread *t, const DnbUnit *unit, CacheEntry **entry);
PyObject *dnb_run_entry(DnbThread *t, const DnbUnit *unit, CacheEntry *entry);
int dnb_driver_init(PyObject *module);

/* ---- compiled.c ---- */
PyObject *dnb_cached_function(struct CompiledFunction *cf, CacheEntry *entry); /* new reference */
void dnb_forget_entry(uint64_t entry_id); /* 0: every entry */
int dnb_compiled_init(PyObject *module);

/* ---- guards.cpp ---- */
/* 1 passes, 0 fails (no exception set), -1 an exception that must reach the user */
int dnb_guard_check(PyObject *root, PyObject *const *locals, Py_ssize_t n, PyObject *globals, PyObject *builtins,
                    PyObject *closure);
bool dnb_guard_root_check(PyObject *object);
int dnb_guards_init(PyObject *module);

/* ---- program.cpp ---- */
int dnb_program_init(PyObject *module);
int dnb_memory_init(PyObject *module);
int dnb_autograd_init(PyObject *module);
void dnb_memory_after_fork(void);

#ifdef __cplusplus
}
#endif
#endif
