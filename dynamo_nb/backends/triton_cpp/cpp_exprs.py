"""C text of single expressions: types, constants, index expressions and operations of the loop IR.

In: an `Op`, its operands' texts; a sympy index expression; a `Const`. Out: C text over the types and functions of cpp_math.
f16 and bf16 are u16 in memory and f32 in registers, every result rounded; b1 is u8 in memory and bool in registers.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping

import sympy
import torch

from . import cpp_math
from .ir import Const, DType, Op

INT64_MIN = -(2**63)


def memory_type(dtype: DType) -> str:
    return {DType.f16: "u16", DType.bf16: "u16", DType.b1: "u8"}.get(dtype, dtype.value)


def register_type(dtype: DType) -> str:
    return "f32" if dtype in (DType.f16, DType.bf16) else dtype.value


def is_half(dtype: DType) -> bool:
    return dtype in (DType.f16, DType.bf16)


def from_memory(dtype: DType, text: str) -> str:
    if is_half(dtype):
        return f"f32_of_{dtype.value}({text})"
    return f"({text} != 0)" if dtype is DType.b1 else text


def to_memory(dtype: DType, text: str) -> str:
    return f"{dtype.value}_of_f32({text})" if is_half(dtype) else f"({memory_type(dtype)})({text})"


def zero(dtype: DType) -> str:
    return f"({register_type(dtype)})0"


def constant(const: Const) -> str:
    dtype, value = const.dtype, const.value
    if dtype.is_float:
        return cpp_math.literal(torch.tensor(value, dtype=dtype.torch).item(), "f64" if dtype is DType.f64 else "f32")
    if dtype is DType.b1:
        return "true" if value else "false"
    return f"({dtype.value}){integer(int(value))}"


def integer(value: int) -> str:
    return "((i64)(1ull << 63))" if value == INT64_MIN else f"{value}ll" if value >= 0 else f"({value}ll)"


# -- index expressions -------------------------------------------------------------------------------
class IndexPrinter:
    """sympy integer expressions as i64 text. symbols: their C names; nonnegative: those that can't be below 0."""

    def __init__(self, symbols: Mapping[sympy.Symbol, str], nonnegative: Collection[sympy.Symbol] = ()) -> None:
        self.symbols = symbols
        self.nonnegative = nonnegative

    def __call__(self, expr: sympy.Expr) -> str:
        if isinstance(expr, sympy.Integer):
            return integer(int(expr))
        if isinstance(expr, sympy.Symbol):
            return self.symbols[expr]
        if isinstance(expr, sympy.Add | sympy.Mul):
            return self.arithmetic(expr)
        if isinstance(expr, sympy.Pow) and expr.exp.is_integer and expr.exp.is_nonnegative:
            if isinstance(expr.exp, sympy.Integer) and int(expr.exp) <= 8:
                return "(" + " * ".join([self(expr.base)] * int(expr.exp)) + ")"
            return f"index_pow({self(expr.base)}, {self(expr.exp)})"
        return self.function(expr)

    def arithmetic(self, expr: sympy.Expr) -> str:
        terms = expr.args if isinstance(expr, sympy.Add) else (expr,)
        if any(not t.as_coeff_Mul()[0].is_Integer or any(f.is_Pow and not f.exp.is_nonnegative for f in t.args) for t in terms):
            numerator, denominator = sympy.together(expr).as_numer_denom()      # exact: an index is an integer
            return f"({self(numerator)} / {self(denominator)})"
        return "(" + (" + " if isinstance(expr, sympy.Add) else " * ").join(self(a) for a in expr.args) + ")"

    def function(self, expr: sympy.Expr) -> str:
        kind, args = type(expr).__name__, expr.args
        if kind in ("floor", "ceiling"):
            numerator, denominator = sympy.together(args[0]).as_numer_denom()
            return self.divide("/", numerator, denominator) if kind == "floor" else f"(-{self.divide('/', -numerator, denominator)})"
        if kind in ("FloorDiv", "CleanDiv"):
            return self.divide("/", args[0], args[1])
        if kind in ("Mod", "PythonMod"):
            return self.divide("%", args[0], args[1])
        if kind == "CeilDiv":
            return f"(-{self.divide('/', -args[0], args[1])})"
        if kind == "ModularIndexing":
            signed = not (self.at_least_0(args[0]) and self.at_least_0(args[1]) and self.at_least_0(args[2]))
            inner, modulus = self.divide("/", args[0], args[1]), self(args[2])
            return f"floor_mod({inner}, {modulus})" if signed else f"({inner} % {modulus})"
        if kind in ("Max", "Min"):
            return functools.reduce(lambda text, a: f"index_{kind.lower()}({text}, {self(a)})", args[1:], self(args[0]))
        if kind == "Abs":
            return f"abs_int({self(args[0])})"
        raise NotImplementedError(f"index expression {expr}: no C form for {kind}; lower it with floor division, modulo, Min, Max, + and * only")

    def divide(self, sign: str, a: sympy.Expr, b: sympy.Expr) -> str:
        left, right = self(a), self(b)
        if self.at_least_0(a) and self.at_least_0(b):
            return f"({left} {sign} {right})"
        return f"floor_{'div' if sign == '/' else 'mod'}({left}, {right})"

    def at_least_0(self, expr: sympy.Expr) -> bool:
        if expr.is_nonnegative or expr in self.nonnegative:
            return True
        if isinstance(expr, sympy.Symbol | sympy.Integer):
            return False
        if isinstance(expr, sympy.Add | sympy.Mul) or type(expr).__name__ in ("FloorDiv", "Mod", "PythonMod", "ModularIndexing", "floor", "Max"):
            return all(self.at_least_0(a) for a in expr.args)
        return False


# -- operations ---------------------------------------------------------------------------------------
COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
BITS = {"and": "&", "or": "|", "xor": "^"}
LOGICAL = {"add": "|", "max": "|", "mul": "&", "min": "&", "and": "&", "or": "|", "xor": "^", "sub": "^", "fmax": "|", "fmin": "&"}
ROUND = {"floor": "floor", "ceil": "ceil", "round": "rint", "trunc": "trunc"}
TEMPLATES = frozenset("neg abs truncdiv floordiv mod fmod sign shl shr pow".split())
EXACT = frozenset("neg abs min max fmin fmax sign copysign floor ceil round trunc fmod".split())       # results are values of the type already
ELEMENTARY = frozenset((
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc lgamma sigmoid "
    "pow atan2 hypot floordiv mod fmod max min fmax fmin sign"
).split())


def operation(op: Op, texts: list[str]) -> str:
    """The operation on operands that are names or literals."""
    if op.name == "cast":
        return cast(op.operands[0].dtype, op.dtype, texts[0])
    if op.name == "where":
        return f"({texts[0]} ? {texts[1]} : {texts[2]})"
    source = op.operands[0].dtype
    if op.name in COMPARE:
        return f"({texts[0]} {COMPARE[op.name]} {texts[1]})"
    if is_half(source) and op.name == "floordiv":
        return f"floordiv_{source.value}({', '.join(texts)})"
    if is_half(source) and op.name == "truncdiv":       # eager divides in the type, then truncates
        return f"__builtin_truncf(round_{source.value}({texts[0]} / {texts[1]}))"
    if source.is_float:
        text = _float_operation(op.name, register_type(source), texts)
        return f"round_{op.dtype.value}({text})" if is_half(op.dtype) and op.name not in EXACT else text
    if source is DType.b1:
        return _bool_operation(op.name, texts)
    return _int_operation(op.name, source, texts)


def _unknown(name: str, kind: str) -> NotImplementedError:
    return NotImplementedError(f"operation {name} on {kind} has no C form; cast its operands to a type that has one")


def _float_operation(name: str, kind: str, texts: list[str]) -> str:
    c = "f" if kind == "f32" else ""
    a = texts[0]
    if name in INFIX:
        return f"({a} {INFIX[name]} {texts[1]})"
    if name in ROUND:
        return f"__builtin_{ROUND[name]}{c}({a})"
    if name in ELEMENTARY:
        return f"{name}_{kind}({', '.join(texts)})"
    if name == "neg":
        return f"(- {a})"       # of -1 too
    if name == "abs":
        return f"__builtin_fabs{c}({a})"
    if name == "truncdiv":
        return f"__builtin_trunc{c}({a} / {texts[1]})"
    if name == "copysign":
        return f"__builtin_copysign{c}({a}, {texts[1]})"
    if name == "isnan":
        return f"({a} != {a})"
    if name == "isinf":
        return f"(__builtin_fabs{c}({a}) == __builtin_inf{c}())"
    if name == "signbit":
        return f"((bits_{kind}({a}) >> {31 if c else 63}) != 0)"
    raise _unknown(name, kind)


def _bool_operation(name: str, texts: list[str]) -> str:
    if name in LOGICAL:
        return f"({texts[0]} {LOGICAL[name]} {texts[1]})"
    if name == "not":
        return f"(!{texts[0]})"
    if name in ("abs", "sign"):
        return texts[0]
    if name in ("isnan", "isinf", "signbit"):
        return "false"
    raise _unknown(name, "b1")


def _int_operation(name: str, dtype: DType, texts: list[str]) -> str:
    kind, a = dtype.value, texts[0]
    wide = "u64" if dtype is DType.i64 else "u32"
    if name in ("add", "sub", "mul"):
        return f"({kind})(({wide}){a} {INFIX[name]} ({wide}){texts[1]})"
    if name in BITS:
        return f"({kind})({a} {BITS[name]} {texts[1]})"
    if name == "not":
        return f"({kind})(~{a})"
    if name in ("max", "min", "fmax", "fmin"):
        return f"({a} {'>' if name.endswith('max') else '<'} {texts[1]} ? {a} : {texts[1]})"
    if name in ROUND or (name == "abs" and dtype is DType.u8):
        return a
    if name in ("isnan", "isinf"):
        return "false"
    if name == "signbit":
        return f"({a} < 0)"
    if name in TEMPLATES:
        return f"{name}_int<{kind}>({', '.join(texts)})"
    raise _unknown(name, kind)


def cast(source: DType, target: DType, text: str) -> str:
    """C's conversion; floats to integers as x86 does it, floats out of range included."""
    if source is target:
        return text
    if target is DType.b1:
        return f"({text} != 0)"
    if target.is_float:
        wide = text if register_type(source) == register_type(target) else f"({register_type(target)}){text}"
        if not is_half(target):
            return wide
        return f"round_{target.value}({wide})" if source is not DType.b1 else wide
    if source.is_float:
        kind = register_type(source)
        through = "i64" if target in (DType.i64, DType.u8) else "i32"
        return f"({target.value}){through}_of_{kind}({text})" if through != target.value else f"{through}_of_{kind}({text})"
    return f"({target.value}){text}"


# -- costs: in cheap vector operations -----------------------------------------------------------------
COSTS = dict.fromkeys("exp exp2 expm1 log sigmoid tanh".split(), 12) | dict.fromkeys("div sqrt rsqrt".split(), 4)
COSTS |= dict.fromkeys("erf erfc sin cos tan sinh cosh asin acos atan asinh acosh atanh log1p log2 log10 hypot".split(), 30)
COSTS |= dict.fromkeys("pow mod fmod floordiv atan2 lgamma truncdiv".split(), 60)


def cost(op: Op) -> int:
    base = COSTS.get(op.name, 1)
    if op.operands[0].dtype is DType.f64 and base > 4:
        base *= 4
    return base + (6 if is_half(op.dtype) else 0)
