"""Tensors that are not in memory yet, and views of them as changes of index.

A `LazyTensor` is an expression of its index variables. Views never move data: they replace the variables.
Sizes are sympy expressions; reads of real buffers are lazy tensors too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import sympy
import torch

from .exprs import ONE, ZERO, Exprs, floordiv, modulo
from .ir import Buffer, DType, Expr

Sizes = tuple[sympy.Expr, ...]


def variable(i: int) -> sympy.Symbol:
    """The i-th index variable; the same object everywhere, so that equal expressions are found."""
    return sympy.Symbol(f"d{i}", integer=True, nonnegative=True)


def variables(n: int) -> tuple[sympy.Symbol, ...]:
    return tuple(variable(i) for i in range(n))


def sympy_of(value: Any) -> sympy.Expr:
    """A size, stride or scalar integer as a sympy expression."""
    if isinstance(value, torch.SymInt):
        return value.node.expr
    return sympy.Integer(value) if isinstance(value, int) else value


def product(sizes: Sequence[sympy.Expr]) -> sympy.Expr:
    out: sympy.Expr = ONE
    for s in sizes:
        out = out * s
    return out


def contiguous(sizes: Sizes) -> Sizes:
    return tuple(product(sizes[i + 1:]) for i in range(len(sizes)))


@dataclasses.dataclass(frozen=True, eq=False)
class LazyTensor:
    """value: an expression of variables(len(sizes)). buffer: where it is in memory, if it is just that buffer."""

    exprs: Exprs
    sizes: Sizes
    dtype: DType
    device: torch.device
    value: Expr
    buffer: Buffer | None = None

    @property
    def ndim(self) -> int:
        return len(self.sizes)

    def at(self, index: Sequence[sympy.Expr]) -> Expr:
        return self.exprs.at(self.value, {v: i for v, i in zip(variables(self.ndim), index, strict=True) if v is not i})

    def of(self, sizes: Sizes, index: Sequence[sympy.Expr]) -> LazyTensor:
        """The tensor of these sizes whose element d0, d1, … is this one's element at `index`, expressions of them."""
        return LazyTensor(self.exprs, tuple(sizes), self.dtype, self.device, self.at(index))

    def at_computed(self, index: Sequence[sympy.Expr | Expr]) -> Expr:
        """The element at an index some of whose parts are i64 values; those must be in bounds."""
        computed = {self.exprs.symbol_of(i): i for i in index if isinstance(i, Expr)}
        places = [self.exprs.symbol_of(i) if isinstance(i, Expr) else i for i in index]
        return self.exprs.at(self.value, dict(zip(variables(self.ndim), places, strict=True)), computed=computed)

    def with_value(self, value: Expr) -> LazyTensor:
        return LazyTensor(self.exprs, self.sizes, value.dtype, self.device, value)

    # -- views ------------------------------------------------------------------------------------
    def permute(self, dims: Sequence[int]) -> LazyTensor:
        index: list[Any] = [None] * self.ndim
        for new, old in enumerate(dims):
            index[old % self.ndim] = variable(new)
        return self.of(tuple(self.sizes[d] for d in dims), index)

    def expand(self, sizes: Sizes) -> LazyTensor:
        """Broadcast to more or larger dimensions."""
        extra = len(sizes) - self.ndim
        index = [ZERO if mine == 1 and wanted != 1 else variable(extra + i) for i, (mine, wanted) in enumerate(zip(self.sizes, sizes[extra:], strict=True))]
        if not extra and sizes == self.sizes:
            return self
        return self.of(sizes, index)

    def select(self, dim: int, at: sympy.Expr) -> LazyTensor:
        index: list[sympy.Expr] = [*variables(self.ndim - 1)]
        index.insert(dim, at)
        return self.of(self.sizes[:dim] + self.sizes[dim + 1:], index)

    def slice(self, dim: int, start: sympy.Expr, step: int, size: sympy.Expr) -> LazyTensor:
        index: list[sympy.Expr] = [*variables(self.ndim)]
        index[dim] = start + step * index[dim]
        return self.of((*self.sizes[:dim], size, *self.sizes[dim + 1:]), index)

    def unsqueeze(self, dim: int) -> LazyTensor:
        index = [v for i, v in enumerate(variables(self.ndim + 1)) if i != dim]
        return self.of((*self.sizes[:dim], ONE, *self.sizes[dim:]), index)

    def squeeze(self, dims: Sequence[int]) -> LazyTensor:
        """Without these dimensions, which have size 1."""
        kept = [i for i in range(self.ndim) if i not in dims]
        index: list[sympy.Expr] = [ZERO] * self.ndim
        for new, old in enumerate(kept):
            index[old] = variable(new)
        return self.of(tuple(self.sizes[i] for i in kept), index)

    def view(self, sizes: Sizes) -> LazyTensor:
        """The same elements in row-major order under other sizes."""
        if sizes == self.sizes:
            return self
        index: list[sympy.Expr] = []
        for old, new, first in _groups(self.sizes, sizes):
            flat: sympy.Expr = ZERO
            for i, stride in enumerate(contiguous(new)):
                flat = flat + variable(first + i) * stride
            index += _digits(flat, old)
        return self.of(sizes, index)

    def flip(self, dims: Sequence[int]) -> LazyTensor:
        index = [self.sizes[i] - 1 - v if i in dims else v for i, v in enumerate(variables(self.ndim))]
        return self.of(self.sizes, index)


def _digits(flat: sympy.Expr, sizes: Sizes) -> list[sympy.Expr]:
    """The row-major index of a flat position."""
    out = []
    for i, stride in enumerate(contiguous(sizes)):
        digit = floordiv(flat, stride)
        out.append(ZERO if sizes[i] == 1 else digit if i == 0 else modulo(digit, sizes[i]))
    return out


def _groups(old: Sizes, new: Sizes) -> list[tuple[Sizes, Sizes, int]]:
    """Runs of dimensions with equal products: (old sizes, new sizes, position of the first new one)."""
    groups, i, j = [], 0, 0
    while i < len(old) or j < len(new):
        a, b, start = i, j, (i, j)
        left, right = ONE, ONE
        while True:
            if left == right and (a, b) != start:
                break
            if a == len(old) and b == len(new):
                break
            if b == len(new) or (a < len(old) and _smaller(left, right, old[a])):
                left, a = left * old[a], a + 1
            else:
                right, b = right * new[b], b + 1
        groups.append((old[i:a], new[j:b], j))
        i, j = a, b
    return groups


def _smaller(left: sympy.Expr, right: sympy.Expr, size: sympy.Expr) -> bool:
    if left == right:
        return True
    difference = right - left
    return bool(difference.is_positive) or (difference.is_positive is None and not left.has(size))


def from_buffer(exprs: Exprs, buffer: Buffer) -> LazyTensor:
    value = exprs.read(buffer.dtype, buffer.name, variables(len(buffer.sizes)))
    return LazyTensor(exprs, buffer.sizes, buffer.dtype, buffer.device, value, buffer)
