// Steps that need no operator: buffers, kernels, derived integers, views.
#include "program.hpp"
#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>

namespace dnb {

static PyObject *item(PyObject *form, int i) { return PyTuple_GET_ITEM(form, i); }

// ("ints", address)
struct IntsStep : Step {
    void (*function)(int64_t *);
    void run(Frame &frame) const override { function(frame.ints); }
};

StepPtr make_ints_step(Builder &builder, PyObject *form)
{
    auto step = std::make_unique<IntsStep>();
    step->function = reinterpret_cast<void (*)(int64_t *)>(address_of(item(form, 1)));
    if (builder.program.steps.empty()) builder.program.derive = step->function;
    return step;
}

// ("expect", slot, dtype, sizes, strides): no step, what a call is refused without.
StepPtr make_expect_step(Builder &builder, PyObject *form)
{
    const int slot = builder.slot_number(item(form, 1));
    if (builder.input_of[slot] < 0) bad_value("slot " + std::to_string(slot) + " isn't an argument's");
    if (!THPDtype_Check(item(form, 2))) bad_type("expected a torch.dtype, got " + type_name(item(form, 2)));
    Expected expected{builder.input_of[slot], reinterpret_cast<THPDtype *>(item(form, 2))->scalar_type, builder.int_list(item(form, 3)),
                      builder.int_list(item(form, 4))};
    if (expected.sizes.exprs.size() != expected.strides.exprs.size()) bad_value("as many strides as sizes are needed");
    builder.program.expected.push_back(std::move(expected));
    return nullptr;
}

bool Expected::agrees(const at::TensorBase &tensor, const int64_t *ints) const
{
    Ints size_room, stride_room;
    if (tensor.layout() != at::kStrided || tensor.scalar_type() != dtype) return false;
    c10::IntArrayRef size = sizes.at(ints, size_room), stride = strides.at(ints, stride_room);
    if (tensor.sizes() != size) return false;
    for (size_t d = 0; d < size.size(); d++)
        if (size[d] > 1 && tensor.stride((int64_t)d) != stride[d]) return tensor.numel() == 0;
    return true;
}

// ("alloc", slot, dtype, device, sizes, strides), on the CPU
struct AllocStep : Step {
    int slot;
    at::ScalarType dtype;
    IntList sizes, strides;

    void run(Frame &frame) const override
    {
        Ints size_room, stride_room;
        constexpr c10::DispatchKeySet cpu(c10::DispatchKey::CPU);
        frame.set(slot, at::detail::empty_strided_generic(sizes.at(frame.ints, size_room), strides.at(frame.ints, stride_room), program_allocator(),
                                                          cpu, dtype));
    }
};

StepPtr make_alloc_step(Builder &builder, PyObject *form)
{
    PyObject *dtype = item(form, 2), *device = item(form, 3);
    if (!THPDtype_Check(dtype)) bad_type("expected a torch.dtype, got " + type_name(dtype));
    if (!THPDevice_Check(device)) bad_type("expected a torch.device, got " + type_name(device));
    IntList sizes = builder.int_list(item(form, 4)), strides = builder.int_list(item(form, 5));
    if (sizes.exprs.size() != strides.exprs.size()) bad_value("as many strides as sizes are needed");
    int slot = builder.writes(item(form, 1));
    if (!reinterpret_cast<THPDevice *>(device)->device.is_cpu())
        return make_empty_strided_step(slot, std::move(sizes), std::move(strides), dtype, device);
    auto step = std::make_unique<AllocStep>();
    step->slot = slot;
    step->dtype = reinterpret_cast<THPDtype *>(dtype)->scalar_type;
    step->sizes = std::move(sizes);
    step->strides = std::move(strides);
    return step;
}

// ("kernel", address, slots, ints, count, grain); ("checked", …, errors)
struct KernelStep : Step {
    using Function = void (*)(void *const *, const int64_t *, int64_t, int64_t);
    struct Note {  // what a kernel leaves about a check of its own
        int64_t failed, index, size;
    };
    struct Error {
        bool index;  // an IndexError, else a RuntimeError
        std::string text;
    };
    Function function;
    std::vector<int> slots;
    IntList ints;
    IntExpr count, grain;
    std::vector<Error> errors;

    // The memory a kernel may touch. What memory alone doesn't tell (a lazy negative, zeros that have no memory) is refused.
    static void *memory(const at::TensorBase &tensor)
    {
        c10::TensorImpl *impl = tensor.unsafeGetTensorImpl();
        constexpr c10::DispatchKeySet lazy({c10::DispatchKey::Negative, c10::DispatchKey::Conjugate, c10::DispatchKey::ZeroTensor});
        TORCH_CHECK(!impl->key_set().has_any(lazy), "a kernel got a tensor with a pending conjugation, negation or zero: resolve it first");
        void *data = impl->mutable_data();
        TORCH_CHECK(data || impl->numel() == 0, "a kernel got a tensor without memory");
        return data;
    }

    static std::string filled(std::string text, const char *name, int64_t value)
    {
        const size_t at = text.find(name);
        return at == std::string::npos ? text : text.replace(at, strlen(name), std::to_string(value));
    }

    void raise(const c10::SmallVector<Note, 4> &notes) const
    {
        for (size_t i = 0; i < notes.size(); i++) {
            if (!notes[i].failed) continue;
            const std::string text = filled(filled(errors[i].text, "{index}", notes[i].index), "{size}", notes[i].size);
            TORCH_CHECK_INDEX(!errors[i].index, text);
            TORCH_CHECK(false, text);
        }
    }

    void run(Frame &frame) const override
    {
        c10::SmallVector<void *, 16> pointers(slots.size());
        for (size_t i = 0; i < slots.size(); i++) pointers[i] = memory(frame.slots[slots[i]]);
        c10::SmallVector<Note, 4> notes(errors.size(), Note{});
        if (!notes.empty()) pointers.push_back(notes.data());
        Ints room;
        const int64_t *values = ints.at(frame.ints, room).data();
        const int64_t n = count.at(frame.ints), least = grain.at(frame.ints);
        if (n <= 0) return;
        if (n > 1 && n > least && !at::in_parallel_region() && at::get_num_threads() > 1)
            at::parallel_for(0, n, least, [&](int64_t begin, int64_t end) { function(pointers.data(), values, begin, end); });
        else
            function(pointers.data(), values, 0, n);
        raise(notes);
    }
};

StepPtr make_kernel_step(Builder &builder, PyObject *form)
{
    auto step = std::make_unique<KernelStep>();
    step->function = reinterpret_cast<KernelStep::Function>(address_of(item(form, 1)));
    PyObject *slots = items_of(item(form, 2), "slots");
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(slots); i++)
        step->slots.push_back(builder.reads(PySequence_Fast_GET_ITEM(slots, i), false));
    step->ints = builder.int_list(item(form, 3));
    step->count = builder.int_expr(item(form, 4));
    step->grain = builder.int_expr(item(form, 5));
    if (step->grain.index < 0 && step->grain.value < 1) bad_value("grain must be 1 or more");
    return step;
}

StepPtr make_checked_step(Builder &builder, PyObject *form)
{
    StepPtr made = make_kernel_step(builder, form);
    PyObject *errors = items_of(item(form, 6), "errors");
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(errors); i++) {
        PyObject *pair = items_of(PySequence_Fast_GET_ITEM(errors, i), "an error");
        const bool two = PySequence_Fast_GET_SIZE(pair) == 2;
        const char *type = two ? PyUnicode_AsUTF8(PySequence_Fast_GET_ITEM(pair, 0)) : nullptr;
        const char *text = type ? PyUnicode_AsUTF8(PySequence_Fast_GET_ITEM(pair, 1)) : nullptr;
        if (PyErr_Occurred()) python_failed();
        if (!text) bad_value("an error must be the exception's name and its text");
        const std::string name = type;
        if (name != "IndexError" && name != "RuntimeError") bad_value("an error must be an IndexError or a RuntimeError, got " + name);
        static_cast<KernelStep &>(*made).errors.push_back({name == "IndexError", text});
    }
    return made;
}

// ("view", slot, base, sizes, strides, offset)
struct ViewStep : Step {
    int slot, base;
    IntList sizes, strides;
    IntExpr offset;

    // Throws unless every element lies in the storage.
    static void check_bounds(const at::TensorBase &base, c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset)
    {
        int64_t last = offset;
        bool empty = false;
        TORCH_CHECK(offset >= 0, "a view begins before its storage: offset ", offset);
        for (size_t d = 0; d < sizes.size(); d++) {
            TORCH_CHECK(sizes[d] >= 0 && strides[d] >= 0, "a view has sizes ", sizes, " and strides ", strides, ": none may be negative");
            if (sizes[d] == 0) empty = true;
            int64_t reach;
            bool over = !empty && (__builtin_mul_overflow(sizes[d] - 1, strides[d], &reach) || __builtin_add_overflow(last, reach, &last));
            TORCH_CHECK(!over, "a view of sizes ", sizes, " and strides ", strides, " is too large");
        }
        const size_t itemsize = base.itemsize();
        TORCH_CHECK(empty || (uint64_t)last < base.storage().nbytes() / itemsize, "a view of sizes ", sizes, ", strides ", strides, " and offset ",
                    offset, " ends outside its storage of ", base.storage().nbytes(), " bytes");
    }

    void run(Frame &frame) const override
    {
        const at::TensorBase &from = frame.slots[base];
        Ints size_room, stride_room;
        c10::IntArrayRef size = sizes.at(frame.ints, size_room), stride = strides.at(frame.ints, stride_room);
        int64_t start = from.storage_offset() + offset.at(frame.ints);
        check_bounds(from, size, stride, start);
        at::TensorBase view =
            at::detail::make_tensor_base<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(from.storage()), from.key_set(), from.dtype());
        view.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride, start);
        if (!view.is_inference()) view.unsafeGetTensorImpl()->set_version_counter(from.unsafeGetTensorImpl()->version_counter());
        frame.set(slot, std::move(view));
    }
};

StepPtr make_view_step(Builder &builder, PyObject *form)
{
    auto step = std::make_unique<ViewStep>();
    step->base = builder.reads(item(form, 2), true);
    step->sizes = builder.int_list(item(form, 3));
    step->strides = builder.int_list(item(form, 4));
    step->offset = builder.int_expr(item(form, 5));
    if (step->sizes.exprs.size() != step->strides.exprs.size()) bad_value("as many strides as sizes are needed");
    step->slot = builder.writes(item(form, 1));
    return step;
}

// ("same", slot, other)
struct SameStep : Step {
    int slot, other;
    void run(Frame &frame) const override { frame.set(slot, at::TensorBase(frame.slots[other])); }
};

StepPtr make_same_step(Builder &builder, PyObject *form)
{
    auto step = std::make_unique<SameStep>();
    step->other = builder.reads(item(form, 2), true);
    step->slot = builder.writes(item(form, 1));
    return step;
}

// ("free", slot, ...)
struct FreeStep : Step {
    struct One {
        int slot, input;  // input: whose slot it is, or -1
    };
    std::vector<One> all;

    // An argument that others refer to as well is dropped at the end of the call: that frees no memory, and taking the GIL
    // here could wait for another thread's time slice.
    static void drop(Frame &frame, const One &one)
    {
        at::TensorBase &slot = frame.slots[one.slot];
        if (one.input < 0) return slot.reset();
        Held &held = frame.held[one.input];
        if (!frame.program.inputs[one.input].retained) slot.unsafeReleaseTensorImpl();
        else if (held.sole || !held.object || !slot.is_same(tensor_in(held.object))) slot.reset();
        if (!held.sole) return;
        held.owned = held.sole = false;
        Py_CLEAR(held.object);
    }

    void run(Frame &frame) const override
    {
        bool locked = false;
        for (const One &one : all) {
            if (!locked && one.input >= 0 && frame.held[one.input].sole) {
                frame.gil->take();
                locked = true;
            }
            drop(frame, one);
        }
        if (locked) frame.gil->release();
    }
};

StepPtr make_free_step(Builder &builder, PyObject *form)
{
    auto step = std::make_unique<FreeStep>();
    for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(form); i++) {
        int slot = builder.reads(PyTuple_GET_ITEM(form, i), false);
        builder.empties(slot);
        step->all.push_back({slot, builder.input_of[slot]});
    }
    return step;
}

}  // namespace dnb
