/* Calls on a fresh C stack.
 *
 * CPython 3.11 runs Python-to-Python calls without C recursion, but not through an eval-frame hook
 * or a native callable. So that such calls reach the same depth as plain ones, and never overrun
 * the C stack, a call that finds little of it left continues on a stack of its own.
 */
#define _GNU_SOURCE
#include "dnb.h"
#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define RESERVE ((uintptr_t)1 << 20)  /* what must be left for whatever a frame calls: torch kernels, compilers */
#define SEGMENT ((size_t)256 << 20)   /* address space only: pages are committed when touched */
#define SMALLEST ((size_t)4 << 20)    /* where address space is limited */

static void find_stack(DnbThread *t)
{
    pthread_attr_t attr;
    void *low = NULL;
    size_t size = 0, guard = 0;
    t->stack_low = UINTPTR_MAX; /* not found: every address then looks far away */
    if (pthread_getattr_np(pthread_self(), &attr) != 0) return;
    if (pthread_attr_getstack(&attr, &low, &size) == 0 && size) {
        pthread_attr_getguardsize(&attr, &guard);
        t->stack_low = (uintptr_t)low + guard;
        t->stack_size = size - guard;
    }
    pthread_attr_destroy(&attr);
}

bool dnb_stack_low(DnbThread *t)
{
    if (DNB_UNLIKELY(t->stack_low == 0)) find_stack(t);
    uintptr_t reserve = RESERVE < t->stack_size / 2 ? RESERVE : t->stack_size / 2;
    /* unsigned: an address outside the known stack counts as plenty */
    return (uintptr_t)__builtin_frame_address(0) - t->stack_low < reserve;
}

typedef struct {
    ucontext_t here, there;
    DnbStackFn fn;
    void *arg;
} Switch;

static void trampoline(unsigned high, unsigned low)
{
    Switch *s = (Switch *)(((uintptr_t)high << 32) | (uintptr_t)low);
    s->fn(s->arg);
}

int dnb_on_fresh_stack(DnbStackFn fn, void *arg)
{
    DnbThread *t = dnb_thread();
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t segment = SEGMENT;
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK;
    char *memory = (char *)mmap(NULL, segment, PROT_READ | PROT_WRITE, flags, -1, 0);
    while (memory == (char *)MAP_FAILED && segment > SMALLEST)
        memory = (char *)mmap(NULL, segment /= 2, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == (char *)MAP_FAILED) {
        PyErr_NoMemory();
        return -1;
    }
    mprotect(memory, page, PROT_NONE);
    Switch *s = (Switch *)PyMem_RawMalloc(sizeof(Switch)); /* kept off the stack that is running out */
    if (!s || getcontext(&s->there) != 0) {
        PyMem_RawFree(s);
        munmap(memory, segment);
        PyErr_NoMemory();
        return -1;
    }
    s->fn = fn;
    s->arg = arg;
    s->there.uc_stack.ss_sp = memory + page;
    s->there.uc_stack.ss_size = segment - page;
    s->there.uc_link = &s->here;
    makecontext(&s->there, (void (*)(void))trampoline, 2, (unsigned)((uintptr_t)s >> 32), (unsigned)(uintptr_t)s);
    uintptr_t low = t->stack_low, size = t->stack_size;
    t->stack_low = (uintptr_t)(memory + page);
    t->stack_size = segment - page;
    int failed = swapcontext(&s->here, &s->there);
    t->stack_low = low;
    t->stack_size = size;
    PyMem_RawFree(s);
    munmap(memory, segment);
    if (failed) {
        PyErr_SetString(PyExc_MemoryError, "could not switch to a fresh stack");
        return -1;
    }
    return 0;
}
