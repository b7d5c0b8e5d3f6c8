// Memory of the tensors that programs make: large blocks are kept when their tensor dies, and given out again.
//
// A fresh block of 40 MB costs more in page faults than the kernel that fills it. Blocks of 1 MiB and more are aligned to huge
// pages, where the system gives them on request; up to `limit` bytes of free blocks are kept. Smaller ones are torch's own
// allocator's, and so is everything where the user has set another one.
#include "program.hpp"
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <sys/mman.h>

namespace dnb {

namespace {

constexpr size_t LARGE = size_t(1) << 20, HUGE_PAGE = size_t(1) << 21;

struct Block {
    void *memory;
    size_t size;
};

// The lock is only tried: a forked child may find it taken by a thread that it doesn't have.
struct Pool {
    std::mutex lock;
    std::vector<Block *> idle;  // the latest freed last
    size_t kept = 0, limit = 0, reused = 0;

    Block *take(size_t size)
    {
        std::unique_lock<std::mutex> held(lock, std::try_to_lock);
        if (!held) return nullptr;
        for (size_t i = idle.size(); i-- > 0;) {
            Block *block = idle[i];
            if (block->size < size || block->size - size > size / 8) continue;
            idle.erase(idle.begin() + (ptrdiff_t)i);
            kept -= block->size;
            reused++;
            return block;
        }
        return nullptr;
    }

    bool keep(Block *block)
    {
        std::unique_lock<std::mutex> held(lock, std::try_to_lock);
        if (!held || block->size > limit) return false;
        shrink(limit - block->size);
        idle.push_back(block);
        kept += block->size;
        return true;
    }

    // Frees the blocks that have waited longest, until at most `most` bytes are kept. The lock is held.
    void shrink(size_t most)
    {
        size_t n = 0;
        for (; n < idle.size() && kept > most; n++) {
            kept -= idle[n]->size;
            std::free(idle[n]->memory);
            delete idle[n];
        }
        idle.erase(idle.begin(), idle.begin() + (ptrdiff_t)n);
    }
};

// Never destroyed: tensors may die after every static object.
Pool &pool()
{
    static Pool *one = new Pool;
    return *one;
}

void give_back(void *context)
{
    auto *block = static_cast<Block *>(context);
    c10::profiledCPUMemoryReporter().Delete(block->memory);
    if (pool().keep(block)) return;
    std::free(block->memory);
    delete block;
}

Block *fresh(size_t size)
{
    const size_t unit = size >= HUGE_PAGE ? HUGE_PAGE : 4096;
    const size_t room = (size + unit - 1) / unit * unit;
    void *memory = nullptr;
    if (room < size || posix_memalign(&memory, unit, room) != 0) return nullptr;
#ifdef MADV_HUGEPAGE
    if (unit == HUGE_PAGE) madvise(memory, room, MADV_HUGEPAGE);
#endif
    return new Block{memory, room};
}

struct PoolAllocator final : c10::Allocator {
    at::DataPtr allocate(size_t size) override
    {
        c10::Allocator *torchs = c10::GetCPUAllocator();
        if (size < LARGE || pool().limit == 0 || torchs != c10::GetDefaultCPUAllocator()) return torchs->allocate(size);
        Block *block = pool().take(size);
        if (!block) block = fresh(size);
        if (!block) return torchs->allocate(size);  // which raises torch's own error
        c10::profiledCPUMemoryReporter().New(block->memory, size);
        return {block->memory, block, &give_back, at::Device(at::kCPU)};
    }
    void copy_data(void *to, const void *from, std::size_t count) const override { std::memcpy(to, from, count); }
};

}  // namespace

c10::Allocator *program_allocator()
{
    static PoolAllocator *one = new PoolAllocator;
    return one;
}

// ---- for Python ----
static PyObject *pool_limit(PyObject *, PyObject *value)
{
    const size_t limit = PyLong_AsSize_t(value);
    if (limit == (size_t)-1 && PyErr_Occurred()) return nullptr;
    std::lock_guard<std::mutex> held(pool().lock);
    pool().limit = limit;
    pool().shrink(limit);
    Py_RETURN_NONE;
}

static PyObject *pool_clear(PyObject *, PyObject *)
{
    std::lock_guard<std::mutex> held(pool().lock);
    pool().shrink(0);
    Py_RETURN_NONE;
}

static PyObject *pool_state(PyObject *, PyObject *)
{
    std::lock_guard<std::mutex> held(pool().lock);
    return Py_BuildValue("{snsnsn}", "blocks", (Py_ssize_t)pool().idle.size(), "bytes", (Py_ssize_t)pool().kept, "reused", (Py_ssize_t)pool().reused);
}

static PyMethodDef memory_methods[] = {
    {"pool_limit", pool_limit, METH_O, "pool_limit(bytes): how much free memory programs keep for their next results; 0 turns the pool off."},
    {"pool_clear", pool_clear, METH_NOARGS, "pool_clear(): give the kept memory back to the system."},
    {"pool_state", pool_state, METH_NOARGS, "pool_state() -> dict: blocks and bytes kept, and how often one was reused."},
    {nullptr}};

// The child of a fork has only the thread that forked: another one may have been in the middle of a change.
extern "C" void dnb_memory_after_fork(void)
{
    new (&pool().lock) std::mutex;
    new (&pool().idle) std::vector<Block *>;
    pool().kept = 0;
}

extern "C" int dnb_memory_init(PyObject *module) { return PyModule_AddFunctions(module, memory_methods); }

}  // namespace dnb
