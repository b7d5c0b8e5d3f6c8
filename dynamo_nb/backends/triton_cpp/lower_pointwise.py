"""Lowerings of elementwise operators: one expression of the operands' elements, computed in eager's types."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as Kind
from torch._prims_common import elementwise_dtypes

from .graph import GraphLowering, NotLowered, lowers
from .ir import DType, Expr
from .tensors import LazyTensor, sympy_of, variable

aten = torch.ops.aten
prims = torch.ops.prims
DEFAULT, INT_TO_FLOAT, TO_BOOL = Kind.DEFAULT, Kind.INT_TO_FLOAT, Kind.ALWAYS_BOOL


class Elements:
    """The operands of one elementwise call at one point, and the way back to a tensor.

    common: the type the operands are promoted to. compute: the one eager computes in (f32 for half types; they are rounded
    once, at the end). result: the output's. exact_scalar: as in eager's mul and div, a second operand that is a number or
    has no dimensions is taken as it is, where it is rounded to the common type otherwise.
    """

    def __init__(self, g: GraphLowering, operands: tuple[Any, ...], kind: Any = DEFAULT, exact_scalar: bool = False) -> None:
        self.g, self.exprs = g, g.exprs
        example = g.node.meta["val"]
        self.sizes = tuple(map(sympy_of, example.size()))
        self.device = example.device
        examples = tuple(map(self._example, operands))
        compute, _ = elementwise_dtypes(*examples, type_promotion_kind=kind)
        _, common = elementwise_dtypes(*examples, type_promotion_kind=DEFAULT if kind is TO_BOOL else kind)
        self.common, self.compute, self.result = supported(common), supported(compute), supported(example.dtype)
        self.args = [self.element(o) if exact_scalar and i == 1 and _is_scalar(o) else self.promoted(o) for i, o in enumerate(operands)]

    def _example(self, operand: Any) -> Any:
        if isinstance(operand, LazyTensor):
            return torch.empty((1,) * operand.ndim, dtype=operand.dtype.torch, device="meta")
        return 1 if isinstance(operand, sympy.Expr) else operand

    def promoted(self, operand: Any) -> Expr:
        """An operand in the compute type, after promotion to the common one."""
        return self.exprs.cast(self.element(operand, self.common), self.compute)

    def element(self, operand: Any, dtype: DType | None = None) -> Expr:
        dtype = dtype or self.compute
        if isinstance(operand, LazyTensor):
            return self.exprs.cast(operand.expand(self.sizes).value, dtype)
        if isinstance(operand, sympy.Expr):
            return self.exprs.cast(self.exprs.index(operand), dtype)
        if isinstance(operand, (bool, int, float)):
            return self.exprs.const(operand, dtype)
        raise NotLowered(f"an operand of type {type(operand).__name__}")

    def tensor(self, value: Expr) -> LazyTensor:
        return LazyTensor(self.exprs, self.sizes, self.result, self.device, self.exprs.cast(value, self.result))


def _is_scalar(operand: Any) -> bool:
    return not isinstance(operand, LazyTensor) or operand.ndim == 0


def supported(dtype: torch.dtype) -> DType:
    found = DType.of(dtype)
    if found is None:
        raise NotLowered(f"dtype {dtype}")
    return found


def elementwise(name: str, kind: Any = DEFAULT, exact_scalar: bool = False) -> Callable[..., LazyTensor]:
    """The lowering of an operator that is one operation of the IR."""

    def lower(g: GraphLowering, *operands: Any) -> LazyTensor:
        at = Elements(g, operands, kind, exact_scalar)
        return at.tensor(at.exprs.op(name, *at.args))

    return lower


FLOAT_FUNCTIONS = (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc lgamma sigmoid"
).split()
for _name in FLOAT_FUNCTIONS:
    lowers(getattr(aten, _name).default)(elementwise(_name, INT_TO_FLOAT))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    lowers(getattr(aten, _name).Tensor, getattr(aten, _name).Scalar)(elementwise(_name, TO_BOOL))
for _name, _op in (("minimum", "min"), ("maximum", "max"), ("fmin", "fmin"), ("fmax", "fmax")):
    lowers(getattr(aten, _name).default)(elementwise(_op))
for _name, _op in (("bitwise_and", "and"), ("bitwise_or", "or"), ("bitwise_xor", "xor")):
    lowers(getattr(aten, _name).Tensor, getattr(aten, _name).Scalar, getattr(aten, _name).Scalar_Tensor)(elementwise(_op))
for _name, _op in (("bitwise_left_shift", "shl"), ("bitwise_right_shift", "shr")):
    lowers(getattr(aten, _name).Tensor, getattr(aten, _name).Tensor_Scalar, getattr(aten, _name).Scalar_Tensor)(elementwise(_op))
for _name, _op in (("__lshift__", "shl"), ("__rshift__", "shr")):
    lowers(getattr(aten, _name).Tensor, getattr(aten, _name).Scalar)(elementwise(_op))
lowers(aten.bitwise_not.default)(elementwise("not"))
lowers(aten.mul.Tensor, aten.mul.Scalar)(elementwise("mul", exact_scalar=True))
lowers(aten.atan2.default)(elementwise("atan2", INT_TO_FLOAT))
lowers(aten.hypot.default)(elementwise("hypot"))
lowers(aten.copysign.Tensor, aten.copysign.Scalar)(elementwise("copysign", INT_TO_FLOAT))


def _float_only(name: str) -> Callable[..., LazyTensor]:
    """Rounding functions leave integers as they are."""

    def lower(g: GraphLowering, x: LazyTensor) -> LazyTensor:
        at = Elements(g, (x,))
        return at.tensor(at.exprs.op(name, *at.args) if at.compute.is_float else at.args[0])

    return lower


for _name in ("floor", "ceil", "trunc", "round"):
    lowers(getattr(aten, _name).default)(_float_only(_name))


def _tests(name: str) -> Callable[..., LazyTensor]:
    def lower(g: GraphLowering, x: LazyTensor) -> LazyTensor:
        at = Elements(g, (x,), TO_BOOL)
        value = at.element(x, x.dtype)
        return at.tensor(at.exprs.op(name, value) if x.dtype.is_float else at.exprs.const(False, DType.b1))

    return lower


lowers(aten.isnan.default)(_tests("isnan"))
lowers(aten.isinf.default)(_tests("isinf"))


@lowers(aten.signbit.default)
def signbit(g: GraphLowering, x: LazyTensor) -> LazyTensor:
    at = Elements(g, (x,), TO_BOOL)
    value = at.element(x, x.dtype)
    return at.tensor(at.exprs.op("signbit", value) if x.dtype.is_float else at.exprs.op("lt", value, at.exprs.const(0, x.dtype)))


@lowers(aten.neg.default, aten.abs.default, aten.sign.default, aten.sgn.default)
def negative_absolute_sign(g: GraphLowering, x: LazyTensor) -> LazyTensor:
    at = Elements(g, (x,))
    name = g.node.target._schema.name.split("::")[1].replace("sgn", "sign")  # type: ignore[union-attr]
    if x.dtype is DType.b1:
        if name == "neg":
            raise NotLowered("neg of bools raises")
        return at.tensor(at.args[0])
    return at.tensor(at.exprs.op(name, *at.args))


def _scaled(at: Elements, alpha: Any) -> Expr:
    other = at.args[1]
    if alpha != 1 and at.common is not at.compute:
        raise NotLowered("alpha with half types")
    return other if alpha == 1 else at.exprs.op("mul", at.element(alpha), other)


@lowers(aten.add.Tensor, aten.add.Scalar)
def add(g: GraphLowering, x: Any, y: Any, *, alpha: Any = 1) -> LazyTensor:
    at = Elements(g, (x, y))
    if at.compute is DType.b1:
        return at.tensor(at.exprs.op("or", *at.args)) if alpha == 1 else _refuse("add of bools with alpha")
    return at.tensor(at.exprs.op("add", at.args[0], _scaled(at, alpha)))


@lowers(aten.sub.Tensor, aten.sub.Scalar)
def sub(g: GraphLowering, x: Any, y: Any, *, alpha: Any = 1) -> LazyTensor:
    at = Elements(g, (x, y))
    return at.tensor(at.exprs.op("sub", at.args[0], _scaled(at, alpha)))


@lowers(aten.rsub.Tensor, aten.rsub.Scalar)
def rsub(g: GraphLowering, x: Any, y: Any, alpha: Any = 1) -> LazyTensor:
    at = Elements(g, (y, x))
    return at.tensor(at.exprs.op("sub", at.args[0], _scaled(at, alpha)))


def _refuse(why: str) -> LazyTensor:
    raise NotLowered(why)


div = elementwise("div", INT_TO_FLOAT, exact_scalar=True)
lowers(aten.div.Tensor, aten.div.Scalar)(div)


@lowers(aten.div.Tensor_mode, aten.div.Scalar_mode)
def div_mode(g: GraphLowering, x: Any, y: Any, *, rounding_mode: str | None) -> LazyTensor:
    if rounding_mode is None:
        return div(g, x, y)
    at = Elements(g, (x, y))
    _no_integer_zero(at, y)
    if at.common is not at.compute and (_is_scalar(x) or _is_scalar(y)):
        raise NotLowered("rounding division of half types by a number, which eager takes as it is but rounds on the way")
    args = [at.element(o, at.common) for o in (x, y)]      # half types are rounded at every step here
    return at.tensor(at.exprs.op("floordiv" if rounding_mode == "floor" else "truncdiv", *args))


def _no_integer_zero(at: Elements, divisor: Any) -> None:
    """Eager raises where an integer is divided by zero: only a constant divisor is known not to be."""
    if not at.compute.is_float and (not isinstance(divisor, int) or divisor == 0):
        raise NotLowered("integer division by a tensor may raise")


@lowers(aten.remainder.Tensor, aten.remainder.Scalar, aten.fmod.Tensor, aten.fmod.Scalar)
def remainder(g: GraphLowering, x: Any, y: Any) -> LazyTensor:
    at = Elements(g, (x, y))
    _no_integer_zero(at, y)
    return at.tensor(at.exprs.op("mod" if "remainder" in str(g.node.target) else "fmod", *at.args))


@lowers(aten.floor_divide.default, aten.floor_divide.Scalar)
def floor_divide(g: GraphLowering, x: Any, y: Any) -> LazyTensor:
    return div_mode(g, x, y, rounding_mode="floor")


@lowers(aten.pow.Tensor_Scalar, aten.pow.Tensor_Tensor, aten.pow.Scalar)
def power(g: GraphLowering, x: Any, y: Any) -> LazyTensor:
    at = Elements(g, (x, y))
    base = at.args[0]
    if y in (3, -2) and at.common is not at.compute:
        raise NotLowered(f"the power {y} of half types, which eager rounds on the way")
    if isinstance(y, (int, float)) and y in (1, 2, 3) and at.compute is not DType.b1:
        value = base
        for _ in range(int(y) - 1):
            value = at.exprs.op("mul", value, base)
        return at.tensor(value)
    if not at.compute.is_float and not (at.compute.is_int and type(y) is int and 0 <= y < 128):
        raise NotLowered("pow of integers")     # a negative exponent raises
    if at.compute.is_int:
        return at.tensor(at.exprs.op("pow", *at.args))
    if y == 0.5:
        return at.tensor(at.exprs.op("sqrt", base))
    if y == -0.5:
        return at.tensor(at.exprs.op("rsqrt", base))
    if y == -1:
        return at.tensor(at.exprs.op("div", at.element(1), base))
    if y == -2:
        return at.tensor(at.exprs.op("div", at.element(1), at.exprs.op("mul", base, base)))
    return at.tensor(at.exprs.op("pow", *at.args))


@lowers(aten.reciprocal.default)
def reciprocal(g: GraphLowering, x: LazyTensor) -> LazyTensor:
    at = Elements(g, (x,), INT_TO_FLOAT)
    return at.tensor(at.exprs.op("div", at.element(1), at.args[0]))


@lowers(aten.relu.default)
def relu(g: GraphLowering, x: LazyTensor) -> LazyTensor:
    at = Elements(g, (x,))
    return at.tensor(at.exprs.op("max", at.args[0], at.element(0)))


@lowers(aten.square.default)
def square(g: GraphLowering, x: LazyTensor) -> LazyTensor:
    return power(g, x, 2)


@lowers(aten.clamp.default, aten.clamp.Tensor)
def clamp(g: GraphLowering, x: LazyTensor, low: Any = None, high: Any = None) -> LazyTensor:
    bounds = [b for b in (low, high) if b is not None]
    at = Elements(g, (x, *bounds))
    value = at.args[0]
    if low is not None:
        value = at.exprs.op("max", value, at.args[1])
    if high is not None:
        value = at.exprs.op("min", value, at.args[-1])
    return at.tensor(value)


@lowers(aten.clamp_min.default, aten.clamp_min.Tensor)
def clamp_min(g: GraphLowering, x: LazyTensor, low: Any) -> LazyTensor:
    return clamp(g, x, low)


@lowers(aten.clamp_max.default, aten.clamp_max.Tensor)
def clamp_max(g: GraphLowering, x: LazyTensor, high: Any) -> LazyTensor:
    return clamp(g, x, None, high)


@lowers(aten.where.self, aten.where.ScalarSelf, aten.where.ScalarOther, aten.where.Scalar)
def where(g: GraphLowering, cond: LazyTensor, x: Any, y: Any) -> LazyTensor:
    at = Elements(g, (x, y))
    test = at.element(cond, DType.b1)
    yes, no = (at.element(v, at.result) for v in (x, y))
    return at.tensor(at.exprs.op("where", test, yes, no))


@lowers(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(g: GraphLowering, x: LazyTensor, mask: LazyTensor, value: Any) -> LazyTensor:
    at = Elements(g, (x,))
    test = at.element(mask, DType.b1)
    return at.tensor(at.exprs.op("where", test, at.element(value, at.result), at.element(x, at.result)))


def _logical(name: str) -> Callable[..., LazyTensor]:
    def lower(g: GraphLowering, *operands: LazyTensor) -> LazyTensor:
        at = Elements(g, operands, TO_BOOL)
        return at.tensor(at.exprs.op(name, *(at.element(o, DType.b1) for o in operands)))

    return lower


for _name, _op in (("logical_and", "and"), ("logical_or", "or"), ("logical_xor", "xor"), ("logical_not", "not")):
    lowers(getattr(aten, _name).default)(_logical(_op))


@lowers(aten._to_copy.default, prims.convert_element_type.default)
def convert(g: GraphLowering, x: LazyTensor, dtype: torch.dtype | None = None, **kwargs: Any) -> LazyTensor:
    example = g.node.meta["val"]
    if example.device != x.device:
        raise NotLowered("a copy between devices")
    result = supported(example.dtype)
    return x.with_value(g.exprs.cast(x.value, result))


@lowers(aten.clone.default, aten.alias.default, aten.detach.default, aten.lift_fresh_copy.default)
def same(g: GraphLowering, x: LazyTensor, **kwargs: Any) -> LazyTensor:
    return x.with_value(x.value)


# -- activations --------------------------------------------------------------------------------------
def activation(*targets: Any) -> Callable[..., Any]:
    """fn(at, x, …) of elements in the compute type; further arguments are Python numbers or strings."""

    def register(fn: Callable[..., Expr]) -> Callable[..., Expr]:
        @functools.wraps(fn)
        def lower(g: GraphLowering, x: LazyTensor, *args: Any, **kwargs: Any) -> LazyTensor:
            at = Elements(g, (x,))
            return at.tensor(fn(at, at.args[0], *args, **kwargs))

        lowers(*targets)(lower)
        return fn

    return register


@activation(aten.gelu.default)
def gelu(at: Elements, x: Expr, approximate: str = "none") -> Expr:
    op, number = at.exprs.op, at.element
    if approximate == "none":
        inner = op("erf", op("mul", x, number(math.sqrt(0.5))))
    else:
        cube = op("mul", op("mul", x, x), x)
        inner = op("tanh", op("mul", number(math.sqrt(2 / math.pi)), op("add", x, op("mul", number(0.044715), cube))))
    return op("mul", op("mul", number(0.5), x), op("add", number(1), inner))


@activation(aten.silu.default)
def silu(at: Elements, x: Expr) -> Expr:
    return at.exprs.op("div", x, at.exprs.op("add", at.element(1), at.exprs.op("exp", at.exprs.op("neg", x))))


@activation(aten.leaky_relu.default)
def leaky_relu(at: Elements, x: Expr, negative_slope: float = 0.01) -> Expr:
    return at.exprs.op("where", at.exprs.op("gt", x, at.element(0)), x, at.exprs.op("mul", x, at.element(negative_slope)))


@activation(aten.hardtanh.default)
def hardtanh(at: Elements, x: Expr, low: float = -1, high: float = 1) -> Expr:
    return at.exprs.op("min", at.exprs.op("max", x, at.element(low)), at.element(high))


@activation(aten.softplus.default)
def softplus(at: Elements, x: Expr, beta: float = 1, threshold: float = 20) -> Expr:
    op, number = at.exprs.op, at.element
    scaled = op("mul", x, number(beta))
    return op("where", op("gt", scaled, number(threshold)), x, op("div", op("log1p", op("exp", scaled)), number(beta)))


@activation(aten.elu.default)
def elu(at: Elements, x: Expr, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Expr:
    op, number = at.exprs.op, at.element
    low = op("mul", op("expm1", op("mul", x, number(input_scale))), number(alpha * scale))
    return op("where", op("gt", x, number(0)), op("mul", x, number(scale)), low)


# -- factories ------------------------------------------------------------------------------------------
@lowers(aten.full.default, aten.full_like.default, aten.zeros.default, aten.ones.default, aten.zeros_like.default, aten.ones_like.default,
        aten.scalar_tensor.default, aten.new_zeros.default, aten.new_ones.default, aten.new_full.default)
def full(g: GraphLowering, *args: Any, **kwargs: Any) -> LazyTensor:
    name = g.node.target._schema.name.split("::")[1]  # type: ignore[union-attr]
    value = args[0] if name == "scalar_tensor" else 0 if "zeros" in name else 1 if "ones" in name else args[2] if name == "new_full" else args[1]
    example = g.node.meta["val"]
    if example.device.type == "meta":
        raise NotLowered("a meta tensor")
    dtype = supported(example.dtype)
    expr = g.exprs.cast(g.exprs.index(value), dtype) if isinstance(value, sympy.Expr) else g.exprs.const(value, dtype)
    return LazyTensor(g.exprs, tuple(map(sympy_of, example.size())), dtype, example.device, expr)


def _steps(g: GraphLowering, start: Any, step: Any) -> LazyTensor:
    """start, start + step, … of integers."""
    example = g.node.meta["val"]
    dtype = supported(example.dtype)
    value = g.exprs.cast(g.exprs.index(sympy_of(start) + sympy_of(step) * variable(0)), dtype)
    return LazyTensor(g.exprs, tuple(map(sympy_of, example.size())), dtype, example.device, value)


@lowers(prims.iota.default)
def iota(g: GraphLowering, length: Any, *, start: Any, step: Any, **kwargs: Any) -> LazyTensor:
    return _steps(g, start, step)


@lowers(aten.arange.start_step, aten.arange.default, aten.arange.start)
def arange(g: GraphLowering, *args: Any, **kwargs: Any) -> LazyTensor:
    if any(isinstance(v, float) for v in args) or g.node.meta["val"].dtype.is_floating_point:
        raise NotLowered("arange of floats")
    return _steps(g, args[0] if len(args) > 1 else 0, args[2] if len(args) > 2 else 1)
