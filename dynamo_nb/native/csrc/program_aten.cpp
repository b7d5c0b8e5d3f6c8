// Operators called through the dispatcher.
//
// In: an operator's name and its arguments in schema order. Out: a step with one template per argument, so that a call only
// puts tensors and integers in their places.
#include "program.hpp"
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/Dtype.h>

#pragma GCC visibility push(default)
namespace pybind11 {
// As in pybind11: one pointer, not counted. Its headers would take 11 seconds.
class handle {
    PyObject *object;

public:
    explicit handle(PyObject *object) : object(object) {}
};
}  // namespace pybind11
namespace torch::jit {
c10::IValue toIValue(pybind11::handle object, const c10::TypePtr &type, std::optional<int32_t> size);  // of libtorch_python
// While it stands, toIValue makes tensors of numbers, as eager does for x + 2.
class ToIValueAllowNumbersAsTensors {
    bool before;

public:
    explicit ToIValueAllowNumbersAsTensors(bool enable);
    ~ToIValueAllowNumbersAsTensors();
};
}  // namespace torch::jit
#pragma GCC visibility pop

namespace dnb {

using c10::IValue;
using c10::TypeKind;

static at::Tensor tensor_of_slot(const Frame &frame, int slot) { return at::Tensor(frame.slots[slot]); }

static at::Tensor number_as_tensor(int64_t value)
{
    at::TensorBase tensor = at::detail::empty_strided_cpu({}, {}, at::kLong);
    *static_cast<int64_t *>(tensor.mutable_data_ptr()) = value;
    tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
    return at::Tensor(std::move(tensor));
}

// One argument, or one element of a list.
struct Template {
    enum Kind { CONSTANT, SLOT, OPTIONAL_SLOT, INT, INT_AS_FLOAT, INT_AS_TENSOR, INTS, FLOATS, TENSORS, OPTIONAL_TENSORS, LIST } kind = CONSTANT;
    IValue constant;
    int index = -1;               // SLOT, INT…
    std::vector<Template> items;  // of the lists
    c10::TypePtr element;         // LIST

    IValue make(const Frame &frame) const
    {
        switch (kind) {
        case CONSTANT: return constant;
        case SLOT: return tensor_of_slot(frame, index);
        case OPTIONAL_SLOT: return frame.slots[index].defined() ? IValue(tensor_of_slot(frame, index)) : IValue();
        case INT: return frame.ints[index];
        case INT_AS_FLOAT: return (double)frame.ints[index];
        case INT_AS_TENSOR: return number_as_tensor(frame.ints[index]);
        default: return make_list(frame);
        }
    }

    template <class T, class Convert> c10::List<T> list(c10::List<T> made, const Frame &frame, Convert convert) const
    {
        made.reserve(items.size());
        for (const Template &item : items) made.push_back(convert(item.make(frame)));
        return made;
    }

    IValue make_list(const Frame &frame) const
    {
        switch (kind) {
        case INTS: return list(c10::List<int64_t>(), frame, [](IValue &&v) { return v.toInt(); });
        case FLOATS: return list(c10::List<double>(), frame, [](IValue &&v) { return v.toDouble(); });
        case TENSORS: return list(c10::List<at::Tensor>(), frame, [](IValue &&v) { return std::move(v).toTensor(); });
        case OPTIONAL_TENSORS:
            return list(c10::List<std::optional<at::Tensor>>(), frame, [](IValue &&v) { return std::move(v).toOptional<at::Tensor>(); });
        default: {
            c10::impl::GenericList made(element);
            for (const Template &item : items) made.push_back(item.make(frame));
            return made;
        }
        }
    }
};

// ---- templates from Python ----
static bool is_list(PyObject *form) { return (PyList_Check(form) || PyTuple_Check(form)) && ref_kind(form) == Ref::NONE; }

static bool has_refs(PyObject *form)
{
    if (ref_kind(form) != Ref::NONE) return true;
    if (!is_list(form)) return false;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(form); i++)
        if (has_refs(PySequence_Fast_GET_ITEM(form, i))) return true;
    return false;
}

static Template constant_template(PyObject *form, const c10::TypePtr &type, std::optional<int32_t> size)
{
    Template made;
    torch::jit::ToIValueAllowNumbersAsTensors numbers(true);
    try {
        made.constant = torch::jit::toIValue(pybind11::handle(form), type, size);
    } catch (const std::exception &) {
        PyErr_Clear();
        bad_type("expected a value of type " + type->str() + ", got " + type_name(form));
    }
    return made;
}

static Template::Kind int_kind(const c10::TypePtr &type)
{
    switch (type->kind()) {
    case TypeKind::IntType:
    case TypeKind::SymIntType:
    case TypeKind::NumberType: return Template::INT;
    case TypeKind::FloatType: return Template::INT_AS_FLOAT;
    case TypeKind::TensorType: return Template::INT_AS_TENSOR;
    default: bad_type("an integer can't be a value of type " + type->str());
    }
}

static Template::Kind list_kind(const c10::TypePtr &element)
{
    switch (element->kind()) {
    case TypeKind::IntType:
    case TypeKind::SymIntType: return Template::INTS;
    case TypeKind::FloatType: return Template::FLOATS;
    case TypeKind::TensorType: return Template::TENSORS;
    case TypeKind::OptionalType:
        if (element->castRaw<c10::OptionalType>()->getElementType()->kind() == TypeKind::TensorType) return Template::OPTIONAL_TENSORS;
        [[fallthrough]];
    default: return Template::LIST;
    }
}

static Template make_template(Builder &builder, PyObject *form, c10::TypePtr type, std::optional<int32_t> size);

static Template list_template(Builder &builder, PyObject *form, const c10::TypePtr &type, std::optional<int32_t> size)
{
    if (type->kind() != TypeKind::ListType) bad_type("expected a value of type " + type->str() + ", got a list");
    Template made;
    made.element = type->castRaw<c10::ListType>()->getElementType();
    made.kind = list_kind(made.element);
    if (!is_list(form)) {  // one integer for every element of an int[2]
        made.items.assign(*size, make_template(builder, form, made.element, std::nullopt));
        return made;
    }
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(form); i++)
        made.items.push_back(make_template(builder, PySequence_Fast_GET_ITEM(form, i), made.element, std::nullopt));
    return made;
}

static Template make_template(Builder &builder, PyObject *form, c10::TypePtr type, std::optional<int32_t> size)
{
    if (!has_refs(form)) return constant_template(form, type, size);
    bool optional = type->kind() == TypeKind::OptionalType;
    if (optional) type = type->castRaw<c10::OptionalType>()->getElementType();
    if (is_list(form) || (ref_kind(form) == Ref::INTEGER && type->kind() == TypeKind::ListType && size))
        return list_template(builder, form, type, size);
    Template made;
    if (ref_kind(form) == Ref::TENSOR) {
        if (type->kind() != TypeKind::TensorType) bad_type("a tensor can't be a value of type " + type->str());
        made.kind = optional ? Template::OPTIONAL_SLOT : Template::SLOT;
        made.index = builder.reads(PyTuple_GET_ITEM(form, 1), true);
    } else {
        made.kind = int_kind(type);
        made.index = integer_index(builder, form);
    }
    return made;
}

// ---- results ----
// Where one returned value goes.
struct Target {
    enum Kind { DROP, SLOT, SLOTS, INT } kind = DROP;
    int index = -1;
    std::vector<int> slots;  // of a Tensor[]; -1: dropped
};

[[noreturn]] static void wrong_count(const c10::OperatorHandle &op, size_t got, size_t expected)
{
    TORCH_CHECK(false, c10::toString(op.operator_name()), " returned ", got, " tensors, but the program expects ", expected);
}

static void store_list(Frame &frame, const c10::OperatorHandle &op, const Target &target, IValue &&value)
{
    c10::List<at::Tensor> tensors = std::move(value).toTensorList();
    if (tensors.size() != target.slots.size()) wrong_count(op, tensors.size(), target.slots.size());
    for (size_t i = 0; i < tensors.size(); i++)
        if (target.slots[i] >= 0) frame.set(target.slots[i], at::Tensor(tensors.get(i)));
}

static int64_t integer_of(const c10::OperatorHandle &op, const IValue &value)
{
    if (value.isInt()) return value.toInt();
    if (value.isBool()) return value.toBool();
    if (value.isSymInt()) return value.toSymInt().guard_int(__FILE__, __LINE__);
    TORCH_CHECK(false, c10::toString(op.operator_name()), " returned a ", value.tagKind(), " where the program expects an integer");
}

static void store(Frame &frame, const c10::OperatorHandle &op, const Target &target, IValue &&value)
{
    switch (target.kind) {
    case Target::DROP: break;
    case Target::SLOT:
        if (value.isNone()) frame.set(target.index, at::TensorBase());
        else frame.set(target.index, std::move(value).toTensor());
        break;
    case Target::SLOTS: store_list(frame, op, target, std::move(value)); break;
    case Target::INT: frame.ints[target.index] = integer_of(op, value);
    }
}

static Target make_target(Builder &builder, PyObject *form)
{
    Target target;
    if (form == Py_None) return target;
    if (PyLong_Check(form)) {
        target.kind = Target::SLOT;
        target.index = builder.writes(form);
    } else if (ref_kind(form) == Ref::INTEGER) {
        target.kind = Target::INT;
        target.index = integer_index(builder, form);
    } else {
        target.kind = Target::SLOTS;
        PyObject *items = items_of(form, "a result");
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items); i++) {
            PyObject *item = PySequence_Fast_GET_ITEM(items, i);
            target.slots.push_back(item == Py_None ? -1 : builder.writes(item));
        }
    }
    return target;
}

static void check_target(const Target &target, const c10::TypePtr &type)
{
    TypeKind kind = type->kind() == TypeKind::OptionalType ? type->castRaw<c10::OptionalType>()->getElementType()->kind() : type->kind();
    bool fits = target.kind == Target::DROP;
    if (target.kind == Target::SLOT) fits = kind == TypeKind::TensorType;
    if (target.kind == Target::SLOTS) fits = kind == TypeKind::ListType;
    if (target.kind == Target::INT)
        fits = kind == TypeKind::IntType || kind == TypeKind::SymIntType || kind == TypeKind::BoolType || kind == TypeKind::NumberType;
    if (!fits) bad_type("a result of type " + type->str() + " can't go where the program puts it");
}

// ---- the step ----
struct AtenStep : Step {
    c10::OperatorHandle op;
    std::vector<Template> args;
    std::vector<Target> targets;
    explicit AtenStep(c10::OperatorHandle op) : op(op) {}

    void run(Frame &frame) const override
    {
        torch::jit::Stack stack;
        stack.reserve(std::max(args.size(), targets.size()));
        for (const Template &arg : args) stack.push_back(arg.make(frame));
        op.callBoxed(stack);
        if (stack.size() != targets.size()) wrong_count(op, stack.size(), targets.size());
        for (size_t i = 0; i < targets.size(); i++) store(frame, op, targets[i], std::move(stack[i]));
    }
};

static c10::OperatorHandle find_operator(PyObject *name, PyObject *overload)
{
    const char *first = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : nullptr, *second = PyUnicode_Check(overload) ? PyUnicode_AsUTF8(overload) : nullptr;
    if (!first || !second) {
        PyErr_Clear();
        bad_type("an operator's name and overload must be str");
    }
    auto op = c10::Dispatcher::singleton().findSchema({first, second});
    if (!op) bad_value(std::string("there is no operator ") + first + (*second ? "." : "") + second + ": import the library that defines it first");
    return *op;
}

static Template argument_template(Builder &builder, const c10::FunctionSchema &schema, size_t i, PyObject *form)
{
    const c10::Argument &argument = schema.arguments()[i];
    try {
        return make_template(builder, form, argument.real_type(), argument.N());
    } catch (BadProgram &problem) {
        if (problem.type) problem.text = c10::toString(schema.operator_name()) + ", argument '" + argument.name() + "': " + problem.text;
        throw;
    }
}

// ("aten", name, overload, args, outs)
StepPtr make_aten_step(Builder &builder, PyObject *form)
{
    auto step = std::make_unique<AtenStep>(find_operator(PyTuple_GET_ITEM(form, 1), PyTuple_GET_ITEM(form, 2)));
    const c10::FunctionSchema &schema = step->op.schema();
    const std::string name = c10::toString(schema.operator_name());
    PyObject *args = items_of(PyTuple_GET_ITEM(form, 3), "args"), *outs = items_of(PyTuple_GET_ITEM(form, 4), "outs");
    size_t given = PySequence_Fast_GET_SIZE(args), wanted = schema.arguments().size(), returned = schema.returns().size();
    if (given != wanted) bad_value(name + " has " + std::to_string(wanted) + " arguments, " + std::to_string(given) + " are given");
    if ((size_t)PySequence_Fast_GET_SIZE(outs) != returned)
        bad_value(name + " returns " + std::to_string(returned) + " values, but outs has " + std::to_string(PySequence_Fast_GET_SIZE(outs)));
    for (size_t i = 0; i < wanted; i++) step->args.push_back(argument_template(builder, schema, i, PySequence_Fast_GET_ITEM(args, i)));
    for (size_t i = 0; i < returned; i++) {
        step->targets.push_back(make_target(builder, PySequence_Fast_GET_ITEM(outs, i)));
        check_target(step->targets.back(), schema.returns()[i].real_type());
    }
    return step;
}

static Template ints_template(const IntList &ints)
{
    Template made;
    made.kind = Template::INTS;
    for (const IntExpr &expr : ints.exprs) {
        Template item;
        if (expr.index < 0) item.constant = expr.value;
        else item.kind = Template::INT, item.index = expr.index;
        made.items.push_back(item);
    }
    return made;
}

// Buffers of other devices come from the operator.
StepPtr make_empty_strided_step(int slot, IntList sizes, IntList strides, PyObject *dtype, PyObject *device)
{
    auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::empty_strided", "");
    auto step = std::make_unique<AtenStep>(op);
    const auto &arguments = op.schema().arguments();
    step->args.push_back(ints_template(sizes));
    step->args.push_back(ints_template(strides));
    for (PyObject *value : {dtype, Py_None, device, Py_None})
        step->args.push_back(constant_template(value, arguments[step->args.size()].real_type(), std::nullopt));
    Target target;
    target.kind = Target::SLOT;
    target.index = slot;
    step->targets.push_back(target);
    return step;
}

// ("layout", slot, dtype or None, sizes, strides): an operator's result as its example said. Kernels have dtype and strides compiled in, so
// another result is copied (examples of some operators have another dtype than they do); other sizes are an error.
struct LayoutStep : Step {
    c10::OperatorHandle empty, copy;
    int slot;
    std::optional<at::ScalarType> dtype;
    IntList sizes, strides;

    LayoutStep()
        : empty(c10::Dispatcher::singleton().findSchemaOrThrow("aten::empty_strided", "")),
          copy(c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", ""))
    {
    }

    static bool agree(const at::TensorBase &t, c10::IntArrayRef strides)
    {
        for (int64_t d = 0; d < t.dim(); d++)
            if (t.size(d) > 1 && t.stride(d) != strides[d]) return t.numel() == 0;
        return true;
    }

    void run(Frame &frame) const override
    {
        Ints size_room, stride_room;
        c10::IntArrayRef size = sizes.at(frame.ints, size_room), stride = strides.at(frame.ints, stride_room);
        at::TensorBase &t = frame.slots[slot];
        TORCH_CHECK(t.sizes() == size, "an operator returned a tensor of sizes ", t.sizes(), " where ", size, " were expected");
        const at::ScalarType wanted = dtype.value_or(t.scalar_type());
        if (t.scalar_type() == wanted && agree(t, stride)) return;
        torch::jit::Stack stack{c10::IValue(size), c10::IValue(stride), c10::IValue(wanted), c10::IValue(), c10::IValue(t.device()), c10::IValue()};
        empty.callBoxed(stack);
        stack.emplace_back(at::Tensor(t));
        stack.emplace_back(false);
        copy.callBoxed(stack);
        frame.set(slot, std::move(stack.back()).toTensor());
    }
};

StepPtr make_layout_step(Builder &builder, PyObject *form)
{
    auto step = std::make_unique<LayoutStep>();
    PyObject *dtype = PyTuple_GET_ITEM(form, 2);
    if (dtype != Py_None && !THPDtype_Check(dtype)) bad_type("expected a torch.dtype or None, got " + type_name(dtype));
    step->slot = builder.reads(PyTuple_GET_ITEM(form, 1), true);
    if (dtype != Py_None) step->dtype = reinterpret_cast<THPDtype *>(dtype)->scalar_type;
    step->sizes = builder.int_list(PyTuple_GET_ITEM(form, 3));
    step->strides = builder.int_list(PyTuple_GET_ITEM(form, 4));
    return step;
}

}  // namespace dnb
