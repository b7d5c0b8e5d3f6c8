/* The PEP 523 eval-frame function: sends the Python frames of a region through the compiler.
 *
 * It runs a converted frame by calling a function over the entry's code with the frame's arguments;
 * on 3.11 the caller clears the original frame, whether or not it was evaluated.
 */
#define Py_BUILD_CORE 1
#include "dnb.h"
#include "internal/pycore_frame.h"
#include "internal/pycore_pystate.h"
#undef Py_BUILD_CORE

static long active;                      /* regions entered, over all threads */
static _PyFrameEvalFunction chained;     /* what was installed before us, NULL for the default */
static _PyFrameEvalFunction buried_by;   /* a hook installed over ours when our last region ended */

static PyObject *eval_hook(PyThreadState *tstate, _PyInterpreterFrame *frame, int throwflag);

void dnb_hook_acquire(void)
{
    if (active++) return;
    PyInterpreterState *interp = PyInterpreterState_Get();
    _PyFrameEvalFunction now = _PyInterpreterState_GetEvalFrameFunc(interp);
    if (now == eval_hook) return;
    if (buried_by && now == buried_by) return; /* ours is still below it in the chain */
    buried_by = NULL;
    chained = now == _PyEval_EvalFrameDefault ? NULL : now;
    _PyInterpreterState_SetEvalFrameFunc(interp, eval_hook);
}

static void uninstall(PyInterpreterState *interp)
{
    _PyInterpreterState_SetEvalFrameFunc(interp, chained ? chained : _PyEval_EvalFrameDefault);
    chained = NULL;
    buried_by = NULL;
}

void dnb_hook_release(void)
{
    if (--active) return;
    PyInterpreterState *interp = PyInterpreterState_Get();
    _PyFrameEvalFunction now = _PyInterpreterState_GetEvalFrameFunc(interp);
    if (now == eval_hook) uninstall(interp);
    else buried_by = now;
}

/* In a forked child only the forking thread's regions are left. */
void dnb_hook_after_fork(int depth)
{
    active = depth;
    PyInterpreterState *interp = PyInterpreterState_Get();
    if (!active && _PyInterpreterState_GetEvalFrameFunc(interp) == eval_hook) uninstall(interp);
}

bool dnb_hook_present(void) { return active > 0; }

bool dnb_tracing(void) { return PyThreadState_Get()->c_tracefunc != NULL; }

int dnb_recursion_bonus(int amount)
{
    PyThreadState_Get()->recursion_remaining += amount;
    return amount;
}

static PyObject *pass_on(DnbThread *t, PyThreadState *tstate, _PyInterpreterFrame *frame, int throwflag)
{
    if (!chained || t->passing == frame) return _PyEval_EvalFrameDefault(tstate, frame, throwflag);
    void *before = t->passing;
    t->passing = frame;
    PyObject *result = chained(tstate, frame, throwflag);
    t->passing = before;
    return result;
}

typedef struct {
    PyThreadState *tstate;
    _PyInterpreterFrame *frame;
    int throwflag;
    PyObject *result;
} HookCall;

static void hook_call(void *arg)
{
    HookCall *call = (HookCall *)arg;
    call->result = eval_hook(call->tstate, call->frame, call->throwflag);
}

static bool convertible(PyCodeObject *code, _PyInterpreterFrame *frame)
{
    const int wanted = CO_OPTIMIZED | CO_NEWLOCALS;
    return (code->co_flags & (wanted | CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) == wanted &&
           frame->owner == FRAME_OWNED_BY_THREAD && frame->prev_instr == _PyCode_CODE(code) - 1 && !dnb_tracing();
}

static PyObject *run_off(DnbThread *t, PyThreadState *tstate, _PyInterpreterFrame *frame)
{
    int before = t->off;
    t->off = before + 1;
    PyObject *result = pass_on(t, tstate, frame, 0);
    t->off = before;
    return result;
}

static PyObject *eval_hook(PyThreadState *tstate, _PyInterpreterFrame *frame, int throwflag)
{
    DnbThread *t = dnb_thread();
    if (DNB_UNLIKELY(dnb_stack_low(t))) {
        HookCall call = {tstate, frame, throwflag, NULL};
        return dnb_on_fresh_stack(hook_call, &call) < 0 ? NULL : call.result;
    }
    PyCodeObject *code = frame->f_code;
    if (t->own == code) {
        t->own = NULL;
        return pass_on(t, tstate, frame, throwflag);
    }
    if (!t->current || t->off || throwflag || t->passing == frame || !convertible(code, frame)) {
        if (active == 0 && _PyInterpreterState_GetEvalFrameFunc(tstate->interp) == eval_hook) {
            PyObject *result;
            _PyFrameEvalFunction next = chained;
            uninstall(tstate->interp); /* left over from a hook that restored us after our last region */
            result = next ? next(tstate, frame, throwflag) : _PyEval_EvalFrameDefault(tstate, frame, throwflag);
            return result;
        }
        return pass_on(t, tstate, frame, throwflag);
    }
    CodeState *state = dnb_state_get(code);
    if (state && state->action == ACTION_SKIP) return pass_on(t, tstate, frame, 0);
    if (state && state->action == ACTION_SKIP_RECURSIVE) return run_off(t, tstate, frame);
    DnbUnit unit = {code, frame->f_globals, frame->f_builtins, frame->f_func->func_closure, t->current,
                    frame->localsplus, dnb_arg_count(code), NULL, NULL, false};
    CacheEntry *entry = NULL;
    switch (dnb_pick(t, &unit, &entry)) {
    case PICK_ERROR: return NULL;
    case PICK_OFF: return run_off(t, tstate, frame);
    case PICK_PLAIN: return pass_on(t, tstate, frame, 0);
    case PICK_ENTRY: break;
    }
    PyObject *result = dnb_run_entry(t, &unit, entry);
    Py_DECREF(entry);
    return result;
}
