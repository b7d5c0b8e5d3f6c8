"""Kernels that read along another dimension than they write, as transposes do, in tiles.

The vector loop runs along what is written, so such a read would touch a cache line for one element and, with sizes that are powers of
two, throw it out before the next is wanted. A tile of TILE by TILE elements is first copied to the stack along the read's own
contiguous dimension, then read from there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import sympy

from .exprs import floordiv
from .ir import Buffer, Expr, Kernel, Load, Loops, Select, Store, loads, rewrite, walk

TILE = 32
LEAST = 16      # elements in both dimensions from which tiles are worth it
FIRST, ACROSS = sympy.Symbol("tile_first", integer=True), sympy.Symbol("tile_across", integer=True)     # where the tile begins, in both


@dataclasses.dataclass(frozen=True)
class Tiled:
    """kernel: reads tiles where it read across; across: the other dimension's place among the outer loops; copies: tile -> the load it holds."""

    kernel: Kernel
    across: int
    copies: dict[str, Load]

    @property
    def count(self) -> sympy.Expr:
        """Tiles in all."""
        out: sympy.Expr = sympy.Integer(1)
        for k, (_, n) in enumerate(self.kernel.outer):
            out *= blocks(n) if k in (self.across, len(self.kernel.outer) - 1) else n
        return out


def blocks(size: sympy.Expr) -> sympy.Expr:
    return floordiv(size + (TILE - 1), sympy.Integer(TILE))


def tiled(kernel: Kernel) -> Tiled | None:
    """The kernel in tiles; None where it reads along what it writes, or isn't a plain elementwise one."""
    if len(kernel.phases) != 1 or kernel.phases[0].loops or kernel.local or len(kernel.outer) < 2:
        return None
    statements = kernel.phases[0].statements
    if not all(isinstance(s, Store) for s in statements) or not _large(kernel.outer[-1][1]):
        return None
    last = kernel.outer[-1][0]
    values = [s.value for s in statements]
    certain = {id(e) for e in walk(*values, operands=lambda e: (e.cond,) if isinstance(e, Select) else e.args)}
    found = [e for e in loads(*values) if id(e) in certain and not e.indirect and e.buffer not in kernel.writes and step(e, last) not in (0, 1)]
    across = [k for k, (v, n) in enumerate(kernel.outer[:-1]) if _large(n) and any(step(e, v) == 1 for e in found)]
    if not across:
        return None
    chosen = max(across, key=lambda k: sum(step(e, kernel.outer[k][0]) == 1 for e in found))
    return _rewritten(kernel, chosen, [e for e in found if step(e, kernel.outer[chosen][0]) == 1])


def step(load: Load, variable: sympy.Symbol) -> sympy.Expr:
    """How far apart in memory neighbours along a variable are."""
    if variable not in load.offset.free_symbols:
        return sympy.Integer(0)
    return sympy.expand(load.offset.subs(variable, variable + 1) - load.offset)


def _large(size: sympy.Expr) -> bool:
    return not size.is_Integer or size >= LEAST


def _rewritten(kernel: Kernel, across: int, found: list[Load]) -> Tiled:
    last, other = kernel.outer[-1][0], kernel.outer[across][0]
    names: dict[tuple[str, sympy.Expr], str] = {}
    copies: dict[str, Load] = {}
    for load in found:
        name = names.setdefault((load.buffer, load.offset), f"tile{len(names)}")
        copies.setdefault(name, load)
    place = (last - FIRST) * TILE + other - ACROSS
    wanted = {id(load) for load in found}
    memo: dict[int, Expr] = {}

    def from_tile(expr: Expr) -> Expr | None:
        if id(expr) not in wanted or not isinstance(expr, Load):
            return None
        return Load(expr.dtype, names[expr.buffer, expr.offset], place)

    phase = kernel.phases[0]
    made = tuple(dataclasses.replace(s, value=rewrite(s.value, from_tile, memo)) for s in phase.statements)
    size = (sympy.Integer(TILE * TILE),)
    tiles = {n: Buffer(n, kernel.buffers[e.buffer].dtype, size, (sympy.Integer(1),), "tile", kernel.buffers[e.buffer].device) for n, e in copies.items()}
    phases = (dataclasses.replace(phase, statements=made),)
    return Tiled(dataclasses.replace(kernel, phases=phases, buffers={**kernel.buffers, **tiles}), across, copies)


def outer_but(loops: Loops, *left_out: int) -> Iterator[tuple[int, tuple[sympy.Symbol, sympy.Expr]]]:
    return ((k, loop) for k, loop in enumerate(loops) if k not in left_out)
