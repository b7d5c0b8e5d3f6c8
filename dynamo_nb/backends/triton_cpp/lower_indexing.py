"""Lowerings of reading by tensors: index, gather, index_select, embedding.

Every index is checked by a step of its own, over all of the index tensor and whatever part of the result is used, and clamped
where it is read: a bad one raises, and reads no wild memory before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch

from .emit import below
from .exprs import Read
from .graph import EXPENSIVE, GraphLowering, NotLowered, lowers
from .ir import Const, DType, Expr, Index, Op, walk
from .lower_reductions import cast
from .lower_views import example_sizes
from .tensors import LazyTensor, product, variable, variables

aten = torch.ops.aten
OUT_OF_BOUNDS = "index {index} is out of bounds for dimension %d with size {size}"
OUT_OF_RANGE = ("IndexError", "index out of range in self")


class Indices:
    """One index tensor: its values as places in a dimension of `size`."""

    def __init__(self, g: GraphLowering, x: LazyTensor, tensor: LazyTensor, size: sympy.Expr, wraps: bool) -> None:
        if tensor.dtype not in (DType.i64, DType.i32):
            raise NotLowered(f"an index of type {tensor.dtype.value}")
        if tensor.device != x.device:
            raise NotLowered("an index on another device")
        self.g, self.size, self.wraps = g, size, wraps
        self.certain = _in_bounds(tensor, size)
        parts = list(walk(tensor.value))
        if not self.certain and not any(isinstance(e, Read) for e in parts) or any(isinstance(e, Op) and e.name in EXPENSIVE for e in parts):
            tensor = g.realized(tensor)     # a check is a kernel that reads
        value = cast(tensor, DType.i64)
        self.places = value if self.certain or not wraps else value.with_value(self._wrapped(value.value))

    def _wrapped(self, value: Expr) -> Expr:
        exprs = self.g.exprs
        return exprs.op("where", exprs.op("lt", value, exprs.const(0, DType.i64)), exprs.op("add", value, exprs.index(self.size)), value)

    def check(self, error: tuple[str, str], anything: Expr) -> None:
        """anything: whether the result has elements; eager looks at no index where it has none."""
        if not self.certain:
            exprs = self.g.exprs
            value = exprs.op("where", anything, self.places.value, exprs.const(0, DType.i64))
            self.g.check(self.places.with_value(value), self.size, error, self.wraps)

    def at(self, sizes: Sequence[sympy.Expr], first: int) -> Expr:
        """The place for a point of the result, whose dimensions from `first` on have the index tensor's sizes, broadcast to these."""
        exprs, spread = self.g.exprs, self.places.expand(tuple(sizes))
        place = spread.at([variable(first + k) for k in range(len(sizes))])
        if self.certain:
            return place
        zero = exprs.const(0, DType.i64)
        inside = exprs.op("and", exprs.op("ge", place, zero), exprs.op("lt", place, exprs.index(self.size)))
        return exprs.op("where", inside, place, zero)


def _in_bounds(tensor: LazyTensor, size: sympy.Expr) -> bool:
    """Are all values in [0, size) for sure? As those of arange are, and remainders."""
    value = tensor.value
    if isinstance(value, Op) and value.name == "mod" and isinstance(value.operands[1], Const):
        divisor = value.operands[1].value
        return bool(divisor > 0 and (size - divisor).is_nonnegative)
    if isinstance(value, Const):
        return bool(value.value >= 0 and (size - value.value).is_positive)
    return isinstance(value, Index) and below(value.expr, size, dict(zip(variables(tensor.ndim), tensor.sizes, strict=True)))


def _source(g: GraphLowering, x: LazyTensor) -> LazyTensor:
    """x as it can be read at any place: computed into memory first where recomputing its elements might cost more."""
    operations = [e.name for e in walk(x.value) if isinstance(e, Op)]
    more = (product(x.sizes) - product(example_sizes(g))).is_nonnegative is not True
    if len(operations) > 16 or more and (len(operations) > 4 or not EXPENSIVE.isdisjoint(operations)):
        return g.realized(x)
    return x


def _read(g: GraphLowering, x: LazyTensor, index: Sequence[sympy.Expr | Expr], indexed: Sequence[sympy.Expr]) -> LazyTensor:
    """The elements of x at the index; indexed: sizes of the dimensions read at computed places, of which nothing is read where one is 0."""
    exprs, value = g.exprs, x.at_computed(index)
    for size in indexed:
        if size.is_positive is not True:
            present = exprs.op("gt", exprs.index(size), exprs.const(0, DType.i64))
            value = exprs.select(present, value, exprs.const(0, x.dtype))
    return LazyTensor(exprs, example_sizes(g), x.dtype, x.device, value)


def _known_positive(sizes: Sequence[sympy.Expr]) -> bool:
    return all(n.is_positive is True for n in sizes)


@lowers(aten.index.Tensor, aten._unsafe_index.Tensor)
def index(g: GraphLowering, x: LazyTensor, indices: Sequence[LazyTensor | None]) -> LazyTensor:
    """Dimensions with an index tensor give way to the tensors' broadcast dimensions: in their place if adjacent, else in front."""
    given = [(d, t) for d, t in enumerate(indices) if t is not None]
    dims, x, sizes = [d for d, _ in given], _source(g, x), example_sizes(g)
    if len(given) > 1 and not _known_positive([n for d, t in given for n in (*t.sizes, x.sizes[d])]):
        raise NotLowered("several index tensors, one of which may be empty")
    rank = max(t.ndim for _, t in given)
    first = dims[0] if dims == list(range(dims[0], dims[0] + len(dims))) else 0
    parts = [Indices(g, x, t, x.sizes[d], wraps=True) for d, t in given]
    for k, part in enumerate(parts):
        part.check(("IndexError", OUT_OF_BOUNDS % k), _anything(g, x, dims))
    computed = {d: part.at(sizes[first:first + rank], first) for d, part in zip(dims, parts, strict=True)}
    rest = iter([variable(d) for d in range(len(sizes)) if not first <= d < first + rank])
    place = [computed[d] if d in computed else next(rest) for d in range(x.ndim)]
    return _read(g, x, place, [x.sizes[d] for d in dims])


def _anything(g: GraphLowering, x: LazyTensor, dims: Sequence[int]) -> Expr:
    rest = [n for d, n in enumerate(x.sizes) if d not in dims]
    if _known_positive(rest):
        return g.exprs.const(True, DType.b1)
    count = product(rest)
    return g.exprs.const(False, DType.b1) if count == 0 else g.exprs.op("gt", g.exprs.index(count), g.exprs.const(0, DType.i64))


@lowers(aten.gather.default)
def gather(g: GraphLowering, x: LazyTensor, dim: int, index: LazyTensor, sparse_grad: bool = False) -> LazyTensor:
    """Element by element, at the index's own place but for one dimension."""
    if x.ndim == 0 or index.ndim != x.ndim:
        raise NotLowered("gather from or by a number")
    dim, x = dim % x.ndim, _source(g, x)
    part = Indices(g, x, index, x.sizes[dim], wraps=False)
    part.check(("RuntimeError", OUT_OF_BOUNDS % dim), g.exprs.const(True, DType.b1))
    place: list[sympy.Expr | Expr] = [*variables(x.ndim)]
    place[dim] = part.at(index.sizes, 0)
    return _read(g, x, place, [x.sizes[dim]])


@lowers(aten.index_select.default)
def index_select(g: GraphLowering, x: LazyTensor, dim: int, index: LazyTensor) -> LazyTensor:
    if x.ndim == 0 or index.ndim != 1:
        raise NotLowered("index_select from or by a number")
    dim %= x.ndim
    return _selected(g, x, dim, index, OUT_OF_RANGE if dim == 0 else ("RuntimeError", "INDICES element is out of DATA bounds, id={index} axis_dim={size}"))


@lowers(aten.embedding.default)
def embedding(g: GraphLowering, weight: LazyTensor, indices: LazyTensor, padding_idx: Any = -1, scale: Any = False, sparse: Any = False) -> LazyTensor:
    return _selected(g, weight, 0, indices, OUT_OF_RANGE)


def _selected(g: GraphLowering, x: LazyTensor, dim: int, index: LazyTensor, error: tuple[str, str]) -> LazyTensor:
    """x with one dimension read at the index, whose dimensions take its place."""
    if x.sizes[dim].is_positive is not True:
        raise NotLowered("a selection from what may be empty")
    x = _source(g, x)
    part = Indices(g, x, index, x.sizes[dim], wraps=False)
    part.check(error, g.exprs.const(True, DType.b1))
    before, after = variables(dim), [variable(index.ndim + d) for d in range(dim, x.ndim - 1)]
    return _read(g, x, [*before, part.at(index.sizes, dim), *after], [])
