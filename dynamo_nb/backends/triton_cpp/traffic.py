"""How many bytes a kernel must move: every element it reads and every element it writes, once.

In: a kernel. Out: (read, written), sympy expressions over the graph's size symbols. What a kernel reads back of its own
results is not counted, and a part of a buffer counts as that part: caches are taken to be perfect, so no kernel can do with less.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import sympy

from .ir import Buffer, Index, Kernel, Load, Loops, Reduce, Statement, loads, walk

Access = tuple[sympy.Expr, sympy.Expr]      # (offset, how many different values it may take)


def traffic(kernel: Kernel) -> tuple[sympy.Expr, sympy.Expr]:
    read: dict[str, set[Access]] = {}
    written: dict[str, set[Access]] = {}
    for phase in kernel.phases:
        loops = kernel.outer + phase.loops
        for statement in phase.statements:
            written.setdefault(statement.buffer, set()).add(_store(statement, kernel.outer))
            for load in loads(statement.value):
                read.setdefault(load.buffer, set()).add((load.offset, _count(_symbols(load), loops)))
    updated = [n for n in kernel.writes if n in read and kernel.buffers[n].kind != "made"]     # what it held before counts, what is read back doesn't
    return _bytes(kernel, (*kernel.reads, *updated), read), _bytes(kernel, kernel.writes, written)


def _bytes(kernel: Kernel, names: Iterable[str], accesses: dict[str, set[Access]]) -> sympy.Expr:
    total: sympy.Expr = sympy.Integer(0)
    for name in names:
        buffer = kernel.buffers[name]
        total += buffer.dtype.itemsize * _touched(buffer, sum((count for _, count in accesses[name]), sympy.Integer(0)))
    return sympy.expand(total)


def _touched(buffer: Buffer, count: sympy.Expr) -> sympy.Expr:
    """Not more than the buffer has."""
    whole = math.prod((n for n, stride in zip(buffer.sizes, buffer.strides, strict=True) if stride != 0), start=sympy.Integer(1))
    if sympy.expand(whole - count) == 0:
        return whole
    return sympy.Min(whole, count)


def _store(statement: Statement, outer: Loops) -> Access:
    loops = outer if isinstance(statement, Reduce) else statement.loops
    return statement.offset, _count(statement.offset.free_symbols, loops)


def _symbols(load: Load) -> set[sympy.Basic]:
    """What its place depends on, through index tensors too."""
    found = set(load.offset.free_symbols)
    for _, index in load.indirect:
        for expr in walk(index):
            found |= expr.offset.free_symbols if isinstance(expr, Load) else expr.expr.free_symbols if isinstance(expr, Index) else set()
    return found


def _count(symbols: Iterable[sympy.Basic], loops: Loops) -> sympy.Expr:
    wanted = set(symbols)
    return math.prod((n for v, n in loops if v in wanted), start=sympy.Integer(1))
