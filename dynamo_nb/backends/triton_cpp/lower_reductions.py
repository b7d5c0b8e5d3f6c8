"""Lowerings of reductions and what is built of them: means, variances, softmax and the norms.

A fold goes into a buffer of its compute type (f32 for half types, as eager accumulates); what follows reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch

from .exprs import ONE, ZERO, Exprs, Read, floordiv
from .graph import GraphLowering, NotLowered, lowers
from .ir import DType, Expr, walk
from .lower_pointwise import supported
from .tensors import LazyTensor, from_buffer, product, variable

aten = torch.ops.aten
prims = torch.ops.prims
Dims = Sequence[int] | int | None
PARTED = ("sum", "prod", "max", "min", "any", "all")
MANY = 1 << 18      # elements from which one number is folded in parts
PART = 1 << 15      # at most so many elements a part, where a single dimension is cut


def dims_of(x: LazyTensor, dims: Dims) -> list[int]:
    """Reduced dimensions, ascending; none or an empty list mean all."""
    if dims is None or (isinstance(dims, Sequence) and not dims):
        return list(range(x.ndim))
    return sorted(d % x.ndim for d in ([dims] if isinstance(dims, int) else dims)) if x.ndim else []


def fold(g: GraphLowering, x: LazyTensor, dims: list[int], kind: str, dtype: DType, keepdim: bool) -> LazyTensor:
    """Fold the dimensions away, in `dtype`; with keepdim they stay with size 1."""
    if all(x.sizes[d] == 1 for d in dims):
        one = x.with_value(g.exprs.const(0, DType.i64)) if kind in ("argmax", "argmin") else cast(x, dtype)
        if kind == "sum" and not dtype.is_int and dtype is not DType.b1:
            one = zipped("add", one, 0.0)       # a sum begins with 0.0: -0.0 becomes 0.0
        return one if keepdim else one.squeeze(dims)
    kept = [d for d in range(x.ndim) if d not in dims]
    if kind in PARTED and all(x.sizes[d] == 1 for d in kept):
        parts = in_parts(g, x, [d for d in dims if x.sizes[d] != 1])
        if parts is not None:
            whole, first, rest = parts
            total = fold(g, fold(g, whole, rest, kind, dtype, True), [first], kind, dtype, True)
            return total.of((ONE,) * (x.ndim if keepdim else len(kept)), [sympy.Integer(0)] * total.ndim)
    index: list[sympy.Expr] = [sympy.Integer(0)] * x.ndim
    for place, d in enumerate((*kept, *dims)):
        index[d] = variable(place)
    value = g.exprs.cast(x.at(index), dtype) if kind not in ("argmax", "argmin") else x.at(index)
    buffer = g.temporary(tuple(x.sizes[d] for d in kept), DType.i64 if kind in ("argmax", "argmin") else dtype, x.device)
    g.define(buffer, value, kind, tuple(x.sizes[d] for d in dims))
    out = from_buffer(g.exprs, buffer)
    if keepdim:
        for d in dims:
            out = out.unsqueeze(d)
    return out


def in_parts(g: GraphLowering, x: LazyTensor, dims: list[int]) -> tuple[LazyTensor, int, list[int]] | None:
    """Where everything is folded into one number: the tensor, which dimension tells parts for several threads apart, and the others.

    None where there is too little for that, or sizes that don't divide.
    """
    total = product([x.sizes[d] for d in dims])
    if not total.is_Integer or total < MANY:
        return None
    if len(dims) > 1:
        first = max(dims, key=lambda d: (_stride(g, x, d), -d))
        return (x, first, [d for d in dims if d != first]) if 8 <= x.sizes[first] <= total // 64 else None
    length = next((n for n in range(PART, PART // 32, -1) if total % n == 0), None)
    if length is None:
        return None
    index = [variable(0) * length + variable(1) if d == dims[0] else sympy.Integer(0) for d in range(x.ndim)]
    return x.of((total // length, sympy.Integer(length)), index), 0, [1]


def _stride(g: GraphLowering, x: LazyTensor, dim: int) -> int:
    """How far apart in memory neighbours in a dimension are, in what is read; 0 where that isn't known."""
    found = [0]
    for read in walk(x.value):
        if isinstance(read, Read):
            for index, stride in zip(read.index, g.buffers[read.buffer].strides, strict=True):
                step = index.coeff(variable(dim)) * stride
                found.append(int(step) if step.is_Integer else 0)
    return max(found)


def compute_type(dtype: DType) -> DType:
    return DType.f32 if dtype in (DType.f16, DType.bf16) else dtype


def cast(x: LazyTensor, dtype: DType) -> LazyTensor:
    return x if x.dtype is dtype else x.with_value(x.exprs.cast(x.value, dtype))


def zipped(name: str, a: LazyTensor, b: LazyTensor | float, dtype: DType | None = None) -> LazyTensor:
    """An operation on a and b, broadcast; of one type."""
    sizes = a.sizes
    if isinstance(b, LazyTensor):
        rank = max(a.ndim, b.ndim)
        left, right = (ONE,) * (rank - a.ndim) + a.sizes, (ONE,) * (rank - b.ndim) + b.sizes
        sizes = tuple(n if m == 1 else m for m, n in zip(left, right, strict=True))
    first = a.expand(sizes)
    other = b.expand(sizes).value if isinstance(b, LazyTensor) else a.exprs.const(b, a.dtype)
    return LazyTensor(a.exprs, sizes, dtype or a.dtype, a.device, a.exprs.op(name, first.value, other))


def mapped(name: str, a: LazyTensor) -> LazyTensor:
    return a.with_value(a.exprs.op(name, a.value))


def count(exprs: Exprs, x: LazyTensor, dims: list[int], dtype: DType) -> Expr:
    """How many elements are folded, as a number of the type."""
    return exprs.cast(exprs.index(product([x.sizes[d] for d in dims])), dtype)


def divided(x: LazyTensor, by: Expr) -> LazyTensor:
    return x.with_value(x.exprs.op("div", x.value, by))


# -- operators ------------------------------------------------------------------------------------------
@lowers(aten.sum.default, aten.sum.dim_IntList, aten.prod.default, aten.prod.dim_int)
def sum_(g: GraphLowering, x: LazyTensor, dims: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> LazyTensor:
    result = supported(g.node.meta["val"].dtype)
    kind = "sum" if "sum" in str(g.node.target) else "prod"
    return cast(fold(g, cast(x, compute_type(result)), dims_of(x, dims), kind, compute_type(result), keepdim), result)


@lowers(aten.mean.default, aten.mean.dim)
def mean(g: GraphLowering, x: LazyTensor, dims: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> LazyTensor:
    result = supported(g.node.meta["val"].dtype)
    return cast(_mean(g, cast(x, compute_type(result)), dims_of(x, dims), keepdim), result)


def _mean(g: GraphLowering, x: LazyTensor, dims: list[int], keepdim: bool) -> LazyTensor:
    total = fold(g, x, dims, "sum", x.dtype, keepdim)
    return divided(total, count(g.exprs, x, dims, x.dtype))


@lowers(aten.amax.default, aten.amin.default)
def amax(g: GraphLowering, x: LazyTensor, dims: Dims = (), keepdim: bool = False) -> LazyTensor:
    kind = "max" if "amax" in str(g.node.target) else "min"
    folded = dims_of(x, dims)
    _not_empty(x, folded)
    if x.dtype is DType.b1:
        kind = "any" if kind == "max" else "all"
    return fold(g, x, folded, kind, x.dtype, keepdim)


@lowers(aten.max.default, aten.min.default)
def max_(g: GraphLowering, x: LazyTensor) -> LazyTensor:
    _not_empty(x, list(range(x.ndim)))
    return fold(g, x, list(range(x.ndim)), "max" if "max" in str(g.node.target) else "min", x.dtype, False) if x.dtype is not DType.b1 else _refuse()


def _refuse() -> LazyTensor:
    raise NotLowered("an extreme of bools")


@lowers(aten.max.dim, aten.min.dim)
def max_dim(g: GraphLowering, x: LazyTensor, dim: int, keepdim: bool = False) -> tuple[LazyTensor, LazyTensor]:
    kind, dims = ("max" if "max" in str(g.node.target) else "min"), dims_of(x, dim)
    _not_empty(x, dims)
    if x.dtype is DType.b1:
        _refuse()
    return fold(g, x, dims, kind, x.dtype, keepdim), fold(g, x, dims, f"arg{kind}", x.dtype, keepdim)


@lowers(aten.argmax.default, aten.argmin.default)
def argmax(g: GraphLowering, x: LazyTensor, dim: int | None = None, keepdim: bool = False) -> LazyTensor:
    dims = dims_of(x, dim)
    _not_empty(x, dims)
    return fold(g, x, dims, "argmax" if "argmax" in str(g.node.target) else "argmin", x.dtype, keepdim)


def _not_empty(x: LazyTensor, dims: list[int]) -> None:
    """Eager raises for the extreme of nothing: sizes that may be 0 are left to it."""
    if any(x.sizes[d].is_positive is not True for d in dims):
        raise NotLowered("a fold over what may be empty")


@lowers(aten.any.default, aten.any.dim, aten.any.dims, aten.all.default, aten.all.dim, aten.all.dims)
def any_(g: GraphLowering, x: LazyTensor, dims: Dims = None, keepdim: bool = False) -> LazyTensor:
    result = supported(g.node.meta["val"].dtype)
    return cast(fold(g, cast(x, DType.b1), dims_of(x, dims), "any" if ".any" in str(g.node.target) else "all", DType.b1, keepdim), result)


@lowers(aten.logsumexp.default)
def logsumexp(g: GraphLowering, x: LazyTensor, dims: Dims, keepdim: bool = False) -> LazyTensor:
    result = supported(g.node.meta["val"].dtype)
    if not x.dtype.is_float:
        raise NotLowered("logsumexp of integers")
    folded = dims_of(x, dims)
    _not_empty(x, folded)
    values = cast(x, compute_type(result))
    top = fold(g, values, folded, "max", values.dtype, True)
    finite = top.with_value(g.exprs.op("where", g.exprs.op("isinf", top.value), g.exprs.const(0, top.dtype), top.value))
    total = fold(g, mapped("exp", zipped("sub", values, finite)), folded, "sum", values.dtype, True)
    out = zipped("add", mapped("log", total), finite)
    return cast(out if keepdim else out.squeeze(folded), result)


# -- variance ---------------------------------------------------------------------------------------------
def moments(g: GraphLowering, x: LazyTensor, dims: list[int], correction: float) -> tuple[LazyTensor, LazyTensor]:
    """Variance and mean with the folded dimensions kept; two passes: the mean, then the squares of what is left."""
    middle = g.realized(_mean(g, x, dims, True))
    left = zipped("sub", x, middle)
    squares = fold(g, zipped("mul", left, left), dims, "sum", x.dtype, True)
    exprs = g.exprs
    n = exprs.op("sub", count(exprs, x, dims, x.dtype), exprs.const(correction, x.dtype))
    return divided(squares, exprs.op("max", n, exprs.const(0, x.dtype))), middle


@lowers(aten.var_mean.correction, aten.var.correction, aten.var.dim, aten.std.correction, prims.var.default)
def var_mean(g: GraphLowering, x: LazyTensor, dims: Dims = None, *args: Any, correction: float | None = 1, keepdim: bool = False, **kwargs: Any) -> Any:
    name = str(g.node.target)
    if args or "prims" in name or not x.dtype.is_float:
        raise NotLowered("this form of var")
    folded = dims_of(x, dims)
    variance, middle = moments(g, cast(x, compute_type(x.dtype)), folded, 1 if correction is None else correction)
    if not keepdim:
        variance, middle = variance.squeeze(folded), middle.squeeze(folded)
    if "std" in name:
        return cast(mapped("sqrt", variance), x.dtype)
    return (cast(variance, x.dtype), cast(middle, x.dtype)) if "var_mean" in name else cast(variance, x.dtype)


# -- softmax ----------------------------------------------------------------------------------------------
@lowers(aten._softmax.default, aten._log_softmax.default, aten._safe_softmax.default)
def softmax(g: GraphLowering, x: LazyTensor, dim: int, half_to_float: Any = False) -> LazyTensor:
    name, result = str(g.node.target), supported(g.node.meta["val"].dtype)
    if "safe" in name or not x.dtype.is_float or x.ndim == 0:
        raise NotLowered("this form of softmax")
    dims = [dim % x.ndim]
    _not_empty(x, dims)
    values = cast(x, compute_type(result))
    top = fold(g, values, dims, "max", values.dtype, True)
    left = zipped("sub", values, top)
    if "log" in name:
        total = fold(g, mapped("exp", left), dims, "sum", values.dtype, True)
        return cast(zipped("sub", left, mapped("log", total)), result)
    powers = g.realized(mapped("exp", left))
    return cast(zipped("div", powers, fold(g, powers, dims, "sum", values.dtype, True)), result)


# -- norms ------------------------------------------------------------------------------------------------
def _normalized(g: GraphLowering, x: LazyTensor, dims: list[int], eps: float) -> tuple[LazyTensor, LazyTensor, LazyTensor, LazyTensor]:
    """x moved and scaled to mean 0 and variance 1 over the dimensions; the mean, 1 / sqrt(variance + eps), the variance."""
    variance, middle = moments(g, x, dims, 0)
    scale = g.realized(mapped("rsqrt", zipped("add", variance, eps)))
    return zipped("mul", zipped("sub", x, middle), scale), middle, scale, variance


def _affine(x: LazyTensor, weight: LazyTensor | None, bias: LazyTensor | None) -> LazyTensor:
    if weight is not None:
        x = zipped("mul", x, weight)
    return x if bias is None else zipped("add", x, bias)


def _parameter(p: LazyTensor | None, dtype: DType) -> LazyTensor | None:
    return None if p is None else cast(p, dtype)


def _one_type(x: LazyTensor, *parameters: LazyTensor | None) -> None:
    if any(p is not None and p.dtype is not x.dtype for p in parameters):
        raise NotLowered("a norm with parameters of another type")


@lowers(aten.native_layer_norm.default)
def native_layer_norm(g: GraphLowering, x: LazyTensor, shape: Sequence[Any], weight: Any, bias: Any, eps: float) -> tuple[LazyTensor, ...]:
    dims = list(range(x.ndim - len(shape), x.ndim))
    _one_type(x, weight, bias)
    work = compute_type(x.dtype)
    out, middle, scale, _ = _normalized(g, cast(x, work), dims, eps)
    out = _affine(out, _parameter(weight, work), _parameter(bias, work))
    _, mean_example, scale_example = g.node.meta["val"]
    return cast(out, x.dtype), cast(middle, supported(mean_example.dtype)), cast(scale, supported(scale_example.dtype))


def _channels(x: LazyTensor | None, like: LazyTensor) -> LazyTensor | None:
    """A value a channel, over a tensor with the channels in its second dimension."""
    return x.view((ONE, x.sizes[0], *(ONE for _ in range(like.ndim - 2)))) if x is not None else None


def _batch_norm_types(x: LazyTensor, *parameters: LazyTensor | None) -> None:
    _one_type(x, *parameters)
    if x.dtype in (DType.f16, DType.bf16) or x.ndim < 2:
        raise NotLowered("batch_norm of half types")


@lowers(aten._native_batch_norm_legit_functional.default)
def native_batch_norm(
    g: GraphLowering, x: LazyTensor, weight: Any, bias: Any, running_mean: LazyTensor, running_var: LazyTensor, training: bool, momentum: float, eps: float,
) -> tuple[LazyTensor, ...]:
    _batch_norm_types(x, weight, bias, running_mean, running_var)
    if not training:
        raise NotLowered("batch_norm by running statistics")
    dims = [d for d in range(x.ndim) if d != 1]
    out, middle, scale, variance = _normalized(g, x, dims, eps)
    out = _affine(out, _channels(weight, x), _channels(bias, x))
    exprs, n = g.exprs, count(g.exprs, x, dims, x.dtype)
    unbiased = exprs.op("div", n, exprs.op("sub", n, exprs.const(1, x.dtype)))
    flat_mean, flat_var = middle.squeeze(dims), variance.squeeze(dims)
    new_var = flat_var.with_value(exprs.op("mul", flat_var.value, unbiased))
    return out, flat_mean, scale.squeeze(dims), _moved(running_mean, flat_mean, momentum), _moved(running_var, new_var, momentum)


@lowers(aten._native_batch_norm_legit_no_training.default)
def batch_norm_no_training(
    g: GraphLowering, x: LazyTensor, weight: Any, bias: Any, running_mean: LazyTensor, running_var: LazyTensor, momentum: float, eps: float,
) -> tuple[LazyTensor, ...]:
    """One scale and one shift a channel, as eager computes them; nothing is saved."""
    _batch_norm_types(x, weight, bias, running_mean, running_var)
    scale = zipped("div", running_var.with_value(g.exprs.const(1, x.dtype)), mapped("sqrt", zipped("add", running_var, eps)))
    if weight is not None:
        scale = zipped("mul", scale, weight)
    shift = mapped("neg", zipped("mul", running_mean, scale))
    if bias is not None:
        shift = zipped("add", bias, shift)
    out = _affine(x, _channels(scale, x), _channels(shift, x))
    nothing = [LazyTensor(g.exprs, (ZERO,), x.dtype, x.device, g.exprs.const(0, x.dtype)) for _ in range(2)]
    return out, *nothing


@lowers(aten.native_group_norm.default)
def native_group_norm(g: GraphLowering, x: LazyTensor, weight: Any, bias: Any, n: Any, c: Any, hw: Any, groups: int, eps: float) -> tuple[LazyTensor, ...]:
    _one_type(x, weight, bias)
    rows, per_group = x.sizes[0], floordiv(x.sizes[1], sympy.Integer(groups))
    work = compute_type(x.dtype)
    values = cast(x, work).view((rows, sympy.Integer(groups), per_group * product(x.sizes[2:])))
    _not_empty(values, [2])
    out, middle, scale, _ = _normalized(g, values, [2], eps)
    out = _affine(out.view(x.sizes), *(_parameter(_channels(p, x), work) for p in (weight, bias)))
    _, mean_example, scale_example = g.node.meta["val"]
    return cast(out, x.dtype), cast(middle.squeeze([2]), supported(mean_example.dtype)), cast(scale.squeeze([2]), supported(scale_example.dtype))


def _moved(old: LazyTensor, new: LazyTensor, momentum: float) -> LazyTensor:
    return zipped("add", zipped("mul", new, momentum), zipped("mul", old, 1 - momentum))

