// SHAPE_ENV: a boolean expression over tensor sizes, strides, offsets and Python numbers.
//
// The expression arrives as a program for a small stack machine. Integers are 64 bits; an overflow, a
// division by zero or a value that is no number makes the guard fail, which costs a recompile and
// never a wrong answer.
#include "guards.hpp"
#include <cmath>
#include <cstring>

namespace dnb {

enum class Op { Int, Float, Symbol, Add, Sub, Mul, FloorDiv, TrueDiv, Mod, Pow, Neg, Min, Max, Abs, Eq, Ne, Lt, Le, Gt, Ge, Not,
                And, Or, JumpIfFalseKeep, JumpIfTrueKeep, Pop, Floor, Ceil, Trunc, ToFloat, Sqrt, Round };

static const struct { const char *name; Op op; } op_names[] = {
    {"int", Op::Int}, {"float", Op::Float}, {"symbol", Op::Symbol}, {"add", Op::Add}, {"sub", Op::Sub}, {"mul", Op::Mul},
    {"floordiv", Op::FloorDiv}, {"truediv", Op::TrueDiv}, {"mod", Op::Mod}, {"pow", Op::Pow}, {"neg", Op::Neg}, {"min", Op::Min},
    {"max", Op::Max}, {"abs", Op::Abs}, {"eq", Op::Eq}, {"ne", Op::Ne}, {"lt", Op::Lt}, {"le", Op::Le}, {"gt", Op::Gt},
    {"ge", Op::Ge}, {"not", Op::Not}, {"jump_if_false", Op::JumpIfFalseKeep}, {"jump_if_true", Op::JumpIfTrueKeep},
    {"pop", Op::Pop}, {"floor", Op::Floor}, {"ceil", Op::Ceil}, {"trunc", Op::Trunc}, {"to_float", Op::ToFloat}, {"sqrt", Op::Sqrt}};

struct Number {
    bool is_float;
    int64_t i;
    double d;
    double real() const { return is_float ? d : (double)i; }
    bool truth() const { return is_float ? d != 0 : i != 0; }
};

static Number integer(int64_t i) { return {false, i, 0}; }
static Number floating(double d) { return {true, 0, d}; }

struct Instruction {
    Op op;
    int64_t i;  // value, symbol index or jump target
    double d;
};

struct Symbol {
    Py_ssize_t slot;
    int property;  // -1: the value itself is the number
    Py_ssize_t index;
};

static bool exact_as_double(int64_t i) { return i >= -(1LL << 53) && i <= (1LL << 53); }

// a < b as Python has it for mixed operands; false when it can't be told exactly
static bool compare(Op op, const Number &a, const Number &b, Number *out)
{
    int order;  // -1, 0, 1; 2: unordered
    if (!a.is_float && !b.is_float) {
        order = a.i < b.i ? -1 : a.i > b.i;
    } else {
        if ((!a.is_float && !exact_as_double(a.i)) || (!b.is_float && !exact_as_double(b.i))) return false;
        double x = a.real(), y = b.real();
        order = std::isnan(x) || std::isnan(y) ? 2 : x < y ? -1 : x > y;
    }
    bool answer = op == Op::Eq ? order == 0 : op == Op::Ne ? order != 0 : op == Op::Lt ? order == -1
                : op == Op::Le ? order == -1 || order == 0 : op == Op::Gt ? order == 1 : order == 0 || order == 1;
    *out = integer(answer);
    return true;
}

static bool integer_pow(int64_t base, int64_t exponent, int64_t *out)
{
    int64_t result = 1;
    if (exponent > 128 && base != 0 && base != 1 && base != -1) return false;
    if (exponent > 128) exponent = 128 + exponent % 2;
    for (; exponent > 0; exponent--)
        if (__builtin_mul_overflow(result, base, &result)) return false;
    *out = result;
    return true;
}

static bool integer_op(Op op, int64_t a, int64_t b, Number *out)
{
    int64_t r = 0;
    switch (op) {
    case Op::Add: if (__builtin_add_overflow(a, b, &r)) return false; break;
    case Op::Sub: if (__builtin_sub_overflow(a, b, &r)) return false; break;
    case Op::Mul: if (__builtin_mul_overflow(a, b, &r)) return false; break;
    case Op::FloorDiv:
        if (b == 0 || (a == INT64_MIN && b == -1)) return false;
        r = a / b - (a % b != 0 && (a % b < 0) != (b < 0));
        break;
    case Op::Mod:
        if (b == 0 || (a == INT64_MIN && b == -1)) return false;
        r = a % b;
        if (r != 0 && (r < 0) != (b < 0)) r += b;
        break;
    case Op::Pow:
        if (b < 0) return *out = floating(std::pow((double)a, (double)b)), a != 0 && exact_as_double(a);
        if (!integer_pow(a, b, &r)) return false;
        break;
    case Op::TrueDiv:
        if (b == 0 || !exact_as_double(a) || !exact_as_double(b)) return false;
        *out = floating((double)a / (double)b);
        return true;
    default: return false;
    }
    *out = integer(r);
    return true;
}

static bool float_mod(double a, double b, double *out)
{
    if (b == 0) return false;
    double mod = std::fmod(a, b);
    if (mod != 0) {
        if ((b < 0) != (mod < 0)) mod += b;
    } else {
        mod = std::copysign(0.0, b);
    }
    *out = mod;
    return true;
}

static bool float_op(Op op, double a, double b, Number *out)
{
    double mod;
    switch (op) {
    case Op::Add: *out = floating(a + b); return true;
    case Op::Sub: *out = floating(a - b); return true;
    case Op::Mul: *out = floating(a * b); return true;
    case Op::TrueDiv: *out = floating(a / b); return b != 0;
    case Op::Mod: return float_mod(a, b, &mod) ? (*out = floating(mod), true) : false;
    case Op::FloorDiv: {
        if (!float_mod(a, b, &mod)) return false;
        double div = (a - mod) / b, floored = std::floor(div);
        if (div - floored > 0.5) floored += 1.0;
        *out = floating(div != 0 ? floored : std::copysign(0.0, a / b));
        return true;
    }
    case Op::Pow:
        if ((a < 0 && b != std::floor(b)) || (a == 0 && b < 0)) return false;
        *out = floating(std::pow(a, b));
        return std::isfinite(out->d) || !std::isfinite(a) || !std::isfinite(b);
    default: return false;
    }
}

static bool binary(Op op, const Number &a, const Number &b, Number *out)
{
    if (op >= Op::Eq && op <= Op::Ge) return compare(op, a, b, out);
    if (op == Op::Min || op == Op::Max) {  // Python keeps the first of equals
        Number less;
        if (!compare(Op::Lt, op == Op::Min ? b : a, op == Op::Min ? a : b, &less)) return false;
        *out = less.i ? b : a;
        return true;
    }
    if (!a.is_float && !b.is_float) return integer_op(op, a.i, b.i, out);
    if ((!a.is_float && !exact_as_double(a.i)) || (!b.is_float && !exact_as_double(b.i))) return false;
    return float_op(op, a.real(), b.real(), out);
}

static bool to_integer(double d, Number *out)
{
    if (!(d >= -9.2e18 && d <= 9.2e18)) return false;
    *out = integer((int64_t)d);
    return true;
}

static bool unary(Op op, const Number &a, Number *out)
{
    switch (op) {
    case Op::Not: *out = integer(!a.truth()); return true;
    case Op::Neg:
        *out = a.is_float ? floating(-a.d) : integer(-a.i);
        return a.is_float || a.i != INT64_MIN;
    case Op::Abs:
        *out = a.is_float ? floating(std::fabs(a.d)) : integer(a.i < 0 ? -a.i : a.i);
        return a.is_float || a.i != INT64_MIN;
    case Op::Floor: return a.is_float ? to_integer(std::floor(a.d), out) : (*out = a, true);
    case Op::Ceil: return a.is_float ? to_integer(std::ceil(a.d), out) : (*out = a, true);
    case Op::Trunc: return a.is_float ? to_integer(std::trunc(a.d), out) : (*out = a, true);
    case Op::ToFloat: *out = floating(a.real()); return a.is_float || exact_as_double(a.i);
    case Op::Sqrt: *out = floating(std::sqrt(a.real())); return a.real() >= 0 && (a.is_float || exact_as_double(a.i));
    default: return false;
    }
}

struct ShapeLeaf : Leaf {
    std::vector<Instruction> program;
    std::vector<Symbol> symbols;
    size_t depth = 0;

    bool read(const Symbol &symbol, Check &c, Number *out)
    {
        PyObject *value = c.slots[symbol.slot];
        if (symbol.property >= 0) {
            *out = integer(0);
            return tensor_property(value, symbol.property, symbol.index, &out->i);
        }
        if (PyFloat_CheckExact(value)) return *out = floating(PyFloat_AS_DOUBLE(value)), true;
        if (!PyLong_Check(value)) return false;
        int overflow;
        *out = integer(PyLong_AsLongLongAndOverflow(value, &overflow));
        return !overflow;
    }

    int check(PyObject *, Check &c) override
    {
        Number small[32];
        std::vector<Number> large;
        Number *stack = small;
        if (depth > 32) large.resize(depth), stack = large.data();
        size_t top = 0;
        for (size_t at = 0; at < program.size(); at++) {
            const Instruction &in = program[at];
            switch (in.op) {
            case Op::Int: stack[top++] = integer(in.i); break;
            case Op::Float: stack[top++] = floating(in.d); break;
            case Op::Symbol:
                if (!read(symbols[in.i], c, &stack[top++])) return 0;
                break;
            case Op::Pop: top--; break;
            case Op::JumpIfFalseKeep: if (!stack[top - 1].truth()) at = in.i - 1; break;
            case Op::JumpIfTrueKeep: if (stack[top - 1].truth()) at = in.i - 1; break;
            case Op::Not: case Op::Neg: case Op::Abs: case Op::Floor: case Op::Ceil: case Op::Trunc: case Op::ToFloat: case Op::Sqrt:
                if (!unary(in.op, stack[top - 1], &stack[top - 1])) return 0;
                break;
            default:
                top--;
                if (!binary(in.op, stack[top - 1], stack[top], &stack[top - 1])) return 0;
            }
        }
        return stack[0].truth();
    }
};

static bool parse_instruction(PyObject *item, size_t length, size_t symbols, Instruction *out)
{
    const char *name;
    PyObject *operand = Py_None;
    if (!PyArg_ParseTuple(item, "s|O", &name, &operand)) return false;
    for (const auto &entry : op_names) {
        if (std::strcmp(entry.name, name)) continue;
        out->op = entry.op;
        if (out->op == Op::Float) out->d = PyFloat_AsDouble(operand);
        else if (operand != Py_None) out->i = PyLong_AsLongLong(operand);
        bool jump = out->op == Op::JumpIfFalseKeep || out->op == Op::JumpIfTrueKeep;
        if (!PyErr_Occurred() && ((out->op == Op::Symbol && (uint64_t)out->i >= symbols) || (jump && (uint64_t)out->i > length)))
            PyErr_SetString(PyExc_ValueError, "shape program: operand out of range");
        return !PyErr_Occurred();
    }
    PyErr_Format(PyExc_ValueError, "shape program: unknown operation '%s'", name);
    return false;
}

// ("shape", program, symbols, stack depth): symbols are (slot, property or -1, index)
LeafPtr make_shape_leaf(PyObject *form)
{
    auto leaf = std::make_unique<ShapeLeaf>();
    PyObject *program = PyTuple_GET_ITEM(form, 1), *symbols = PyTuple_GET_ITEM(form, 2);
    leaf->depth = PyLong_AsSize_t(PyTuple_GET_ITEM(form, 3));
    if (PyErr_Occurred()) return nullptr;
    if (!PyTuple_Check(program) || !PyTuple_Check(symbols)) {
        PyErr_SetString(PyExc_TypeError, "shape program and symbols must be tuples");
        return nullptr;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(symbols); i++) {
        Symbol symbol;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(symbols, i), "nin", &symbol.slot, &symbol.property, &symbol.index)) return nullptr;
        leaf->symbols.push_back(symbol);
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(program); i++) {
        Instruction in{};
        if (!parse_instruction(PyTuple_GET_ITEM(program, i), PyTuple_GET_SIZE(program), leaf->symbols.size(), &in)) return nullptr;
        leaf->program.push_back(in);
    }
    return leaf;
}

}  // namespace dnb
