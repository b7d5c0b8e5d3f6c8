"""Lowerings of views, joins and padding: changes of index, no arithmetic on the elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch

from .exprs import ZERO, floordiv, modulo
from .graph import GraphLowering, NotLowered, lowers
from .ir import DType, Expr
from .lower_pointwise import supported
from .tensors import LazyTensor, sympy_of, variable, variables

aten = torch.ops.aten


def example_sizes(g: GraphLowering) -> tuple[sympy.Expr, ...]:
    return tuple(map(sympy_of, g.node.meta["val"].size()))


@lowers(aten.permute.default)
def permute(g: GraphLowering, x: LazyTensor, dims: Sequence[int]) -> LazyTensor:
    return x.permute(dims)


@lowers(aten.transpose.int)
def transpose(g: GraphLowering, x: LazyTensor, a: int, b: int) -> LazyTensor:
    dims = list(range(x.ndim))
    if dims:
        dims[a], dims[b] = dims[b], dims[a]
    return x.permute(dims)


@lowers(aten.t.default)
def t(g: GraphLowering, x: LazyTensor) -> LazyTensor:
    return x.permute(list(range(x.ndim))[::-1])


@lowers(aten.expand.default)
def expand(g: GraphLowering, x: LazyTensor, sizes: Any, implicit: bool = False) -> LazyTensor:
    return x.expand(example_sizes(g))


@lowers(aten.view.default, aten._unsafe_view.default)
def view(g: GraphLowering, x: LazyTensor, *args: Any) -> LazyTensor:
    return x.view(example_sizes(g))


@lowers(aten.unsqueeze.default)
def unsqueeze(g: GraphLowering, x: LazyTensor, dim: int) -> LazyTensor:
    return x.unsqueeze(dim % (x.ndim + 1))


@lowers(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims)
def squeeze(g: GraphLowering, x: LazyTensor, dims: Any = None) -> LazyTensor:
    asked = range(x.ndim) if dims is None else [d % x.ndim for d in ([dims] if isinstance(dims, int) else dims)] if x.ndim else []
    return x.squeeze([d for d in asked if x.sizes[d] == 1])


def _start(value: Any, size: sympy.Expr) -> sympy.Expr:
    """A slice's start as eager takes it: negative from the end, clipped."""
    if value is None:
        return ZERO
    value, plain = sympy_of(value), isinstance(value, int)
    if plain and size.is_Integer:
        place = int(value) + int(size) if value < 0 else int(value)
        return sympy.Integer(min(max(place, 0), int(size)))
    if plain and value >= 0:
        return value
    if plain:
        return size + value
    return value


@lowers(aten.slice.Tensor)
def slice_(g: GraphLowering, x: LazyTensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> LazyTensor:
    dim %= x.ndim
    begin = _start(start, x.sizes[dim])
    if not (begin.is_Integer and x.sizes[dim].is_Integer) and begin != 0 and not isinstance(start, int):
        raise NotLowered("a slice from a symbolic start")
    return x.slice(dim, begin, step, example_sizes(g)[dim])


@lowers(aten.select.int)
def select(g: GraphLowering, x: LazyTensor, dim: int, index: Any) -> LazyTensor:
    dim %= x.ndim
    place = sympy_of(index)
    if not isinstance(index, int):
        raise NotLowered("a select at a symbolic index")
    return x.select(dim, place + x.sizes[dim] if index < 0 else place)


@lowers(aten.split.Tensor, aten.split_with_sizes.default, aten.unbind.int)
def split(g: GraphLowering, x: LazyTensor, pieces: Any = 0, dim: int = 0) -> tuple[LazyTensor, ...]:
    if g.node.target is aten.unbind.int:
        dim = pieces % x.ndim
        return tuple(x.select(dim, sympy.Integer(i)) for i in range(len(g.node.meta["val"])))
    dim %= x.ndim
    out, start = [], ZERO
    for example in g.node.meta["val"]:
        size = sympy_of(example.size(dim))
        out.append(x.slice(dim, start, 1, size))
        start = start + size
    return tuple(out)


@lowers(aten.flip.default)
def flip(g: GraphLowering, x: LazyTensor, dims: Sequence[int]) -> LazyTensor:
    return x.flip([d % x.ndim for d in dims]) if x.ndim else x


@lowers(aten.repeat.default)
def repeat(g: GraphLowering, x: LazyTensor, repeats: Sequence[Any]) -> LazyTensor:
    extra = len(repeats) - x.ndim
    index = [modulo(variable(extra + i), n) if repeats[extra + i] != 1 else variable(extra + i) for i, n in enumerate(x.sizes)]
    return x.of(example_sizes(g), index)


@lowers(aten.diagonal.default)
def diagonal(g: GraphLowering, x: LazyTensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> LazyTensor:
    a, b = dim1 % x.ndim, dim2 % x.ndim
    sizes = example_sizes(g)
    along = variable(len(sizes) - 1)
    rest = iter(variables(len(sizes) - 1))
    index = [along + max(-offset, 0) if d == a else along + max(offset, 0) if d == b else next(rest) for d in range(x.ndim)]
    return x.of(sizes, index)


@lowers(aten.slice_scatter.default)
def slice_scatter(g: GraphLowering, x: LazyTensor, source: LazyTensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> LazyTensor:
    """x with the source where the slice is."""
    dim %= x.ndim
    begin, length = _start(start, x.sizes[dim]), source.sizes[dim]
    if not (begin.is_Integer and x.sizes[dim].is_Integer) and begin != 0:
        raise NotLowered("a slice from a symbolic start")
    exprs, here = g.exprs, variable(dim)
    away = here - begin
    place = exprs.index(away)
    inside = exprs.const(True, DType.b1) if begin == 0 else exprs.op("ge", place, exprs.const(0, DType.i64))
    if begin + length * step != x.sizes[dim]:
        inside = exprs.op("and", inside, exprs.op("lt", place, exprs.index(length * step)))
    if step != 1:
        inside = exprs.op("and", inside, exprs.op("eq", exprs.index(modulo(away, sympy.Integer(step))), exprs.const(0, DType.i64)))
    index: list[sympy.Expr] = [*variables(x.ndim)]
    index[dim] = floordiv(away, sympy.Integer(step))
    sizes = (*x.sizes[:dim], length, *x.sizes[dim + 1:])
    return x.with_value(exprs.select(inside, exprs.cast(source.expand(sizes).at(index), x.dtype), x.value))


@lowers(aten.select_scatter.default)
def select_scatter(g: GraphLowering, x: LazyTensor, source: LazyTensor, dim: int, index: Any) -> LazyTensor:
    """x with the source at one place of a dimension."""
    dim %= x.ndim
    exprs, plain = g.exprs, sympy_of(index)
    place, from_end = exprs.index(plain), exprs.index(plain + x.sizes[dim])
    if not isinstance(index, int):
        place = exprs.select(exprs.op("lt", place, exprs.const(0, DType.i64)), from_end, place)
    elif index < 0:
        place = from_end
    here = exprs.op("eq", exprs.index(variable(dim)), place)
    rest = [v for i, v in enumerate(variables(x.ndim)) if i != dim]
    value = exprs.cast(source.expand((*x.sizes[:dim], *x.sizes[dim + 1:])).at(rest), x.dtype)
    return x.with_value(exprs.select(here, value, x.value))


@lowers(aten.copy.default)
def copy(g: GraphLowering, x: LazyTensor, source: LazyTensor, non_blocking: bool = False) -> LazyTensor:
    if x.device != source.device:
        raise NotLowered("a copy between devices")
    return x.with_value(g.exprs.cast(source.expand(x.sizes).value, x.dtype))


# -- joining --------------------------------------------------------------------------------------------
@lowers(aten.cat.default)
def cat(g: GraphLowering, tensors: Sequence[LazyTensor], dim: int = 0) -> LazyTensor:
    sizes = example_sizes(g)
    parts = [x for x in tensors if not (x.ndim == 1 and x.sizes[0] == 0 and len(sizes) != 1)]
    if len(parts) > 16:
        raise NotLowered("cat of many tensors")
    dim %= max(len(sizes), 1)
    result = supported(g.node.meta["val"].dtype)
    here = variable(dim)
    ends, starts, at = [], [], ZERO
    for part in parts:
        starts.append(at)
        at = at + part.sizes[dim]
        ends.append(at)
    value = _part(g, parts[-1], dim, starts[-1], result)
    for part, start, end in reversed(list(zip(parts[:-1], starts, ends, strict=False))):
        inside = g.exprs.op("lt", g.exprs.index(here), g.exprs.index(end))
        value = g.exprs.select(inside, _part(g, part, dim, start, result), value)
    return LazyTensor(g.exprs, sizes, result, parts[0].device, value)


def _part(g: GraphLowering, part: LazyTensor, dim: int, start: sympy.Expr, dtype: DType) -> Expr:
    index: list[sympy.Expr] = [*variables(part.ndim)]
    index[dim] = index[dim] - start
    return g.exprs.cast(part.at(index), dtype)


@lowers(aten.stack.default)
def stack(g: GraphLowering, tensors: Sequence[LazyTensor], dim: int = 0) -> LazyTensor:
    dim %= tensors[0].ndim + 1
    return cat(g, [x.unsqueeze(dim) for x in tensors], dim)


@lowers(aten.constant_pad_nd.default)
def constant_pad_nd(g: GraphLowering, x: LazyTensor, pad: Sequence[Any], value: Any = 0) -> LazyTensor:
    index: list[sympy.Expr] = [*variables(x.ndim)]
    inside = g.exprs.const(True, DType.b1)
    for i in range(len(pad) // 2):
        dim = x.ndim - 1 - i
        before, after = sympy_of(pad[2 * i]), sympy_of(pad[2 * i + 1])
        index[dim] = index[dim] - before
        place = g.exprs.index(index[dim])
        if before != 0 and not (before.is_Integer and before < 0):
            inside = g.exprs.op("and", inside, g.exprs.op("ge", place, g.exprs.const(0, DType.i64)))
        if after != 0 and not (after.is_Integer and after < 0):
            inside = g.exprs.op("and", inside, g.exprs.op("lt", place, g.exprs.index(x.sizes[dim])))
    filling = g.exprs.const(value, x.dtype)
    return LazyTensor(g.exprs, example_sizes(g), x.dtype, x.device, g.exprs.select(inside, x.at(index), filling))

