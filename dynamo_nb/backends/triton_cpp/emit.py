"""From groups to kernels: offsets instead of indices, local memory, loops that are one loop.

In: a `Group` of the schedule and which buffers others need. Out: an `ir.Kernel` for the printers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import sympy
from torch.utils._sympy.functions import FloorDiv, PythonMod

from .exprs import Exprs, Read, simplified
from .graph import CheckDefinition
from .ir import Buffer, Check, Expr, Index, Kernel, Load, Loops, Phase, Reduce, Statement, Store, loads, rewrite, walk
from .schedule import Group, Member, outer_variable, phase_variable
from .tensors import contiguous, product

LOCAL_LIMIT = 1 << 14       # elements of one outer point that stay on the stack
ZERO = sympy.Integer(0)


class Emitter:
    def __init__(self, exprs: Exprs, buffers: dict[str, Buffer], group: Group, name: str, needed: Callable[[str], bool]) -> None:
        self.exprs, self.buffers, self.group, self.name = exprs, dict(buffers), group, name
        self.outer: Loops = tuple((outer_variable(k), n) for k, n in enumerate(group.outer))
        self.needed = needed
        self.writers = {m.definition.buffer.name: (i, m) for i, phase in enumerate(group.phases) for m in phase.members}
        self.forwarded: dict[str, Expr] = {}
        self.sizes = dict(self.outer)
        self.local: dict[str, Buffer] = {}

    def kernel(self) -> Kernel:
        self._choose_local()
        values = [self._values(i, phase.members) for i, phase in enumerate(self.group.phases)]
        read = {e.buffer for row in values for v in row for e in loads(v)}
        phases = []
        for i, phase in enumerate(self.group.phases):
            loops = self._loops(i)
            made = [self._statement(m, v, loops) for m, v in zip(phase.members, values[i], strict=True) if self._is_stored(m, read)]
            if made:
                phases.append(Phase(loops, tuple(made)))
        if not phases:
            return self._finished(((), []))
        outer, phases = ordered(self.outer, phases)
        return self._finished(collapsed(outer, phases))

    def _loops(self, phase: int) -> Loops:
        return tuple((phase_variable(k), n) for k, n in enumerate(self.group.phases[phase].sizes))

    def _choose_local(self) -> None:
        for name, (i, member) in self.writers.items():
            sizes = () if member.definition.kind else self.group.phases[i].sizes
            count = product(sizes)
            if isinstance(member.definition, CheckDefinition):
                continue
            if not self.needed(name) and count.is_Integer and count <= LOCAL_LIMIT:
                b = member.definition.buffer
                self.local[name] = self.buffers[name] = Buffer(name, b.dtype, sizes, contiguous(sizes), "local", b.device)

    def _is_stored(self, member: Member, read: set[str]) -> bool:
        name = member.definition.buffer.name
        return self.needed(name) or name in read or isinstance(member.definition, CheckDefinition)

    # -- values ----------------------------------------------------------------------------------------
    def _values(self, phase: int, members: list[Member]) -> list[Expr]:
        """The members' expressions over the kernel's variables, reads turned into loads or earlier values of the phase."""
        ranges = {**self.sizes, **dict(self._loops(phase))}
        memo: dict[int, Expr] = {}
        placed = [self._placed(phase, m) for m in members]
        return [rewrite(value, lambda e: self._load(e, ranges), memo) for value in placed]

    def _placed(self, phase: int, member: Member) -> Expr:
        def resolved(read: Read) -> Expr | None:
            found = self.writers.get(read.buffer)
            if found is None or found[1].definition.buffer.kind == "input":     # what an input held before is in memory
                return None
            if found[0] == phase and not found[1].definition.kind and list(read.index) == found[1].index:
                return self.forwarded[read.buffer]
            return None

        value = self.exprs.at(member.definition.value, member.places, resolved)
        if not member.definition.kind:
            self.forwarded[member.definition.buffer.name] = value
        return value

    def _load(self, expr: Expr, ranges: dict[Any, Any]) -> Expr | None:
        if isinstance(expr, Read):
            return Load(expr.dtype, expr.buffer, self._offset(expr.buffer, list(expr.index), ranges), expr.indirect)
        if isinstance(expr, Index):
            return Index(expr.dtype, in_range(expr.expr, ranges))
        return None

    def _offset(self, name: str, index: list[sympy.Expr], ranges: dict[Any, Any]) -> sympy.Expr:
        buffer = self.buffers[name]
        if name in self.local:
            writer = self.writers[name][1]
            inner = [phase_variable(k) for k in range(len(buffer.sizes))]
            spots = [index[writer.index.index(v)] for v in inner]
            return in_range(sum((i * s for i, s in zip(spots, buffer.strides, strict=True)), ZERO), ranges)
        return in_range(sum((i * s for i, s in zip(index, buffer.strides, strict=True)), ZERO), ranges)

    def _statement(self, member: Member, value: Expr, loops: Loops) -> Statement:
        d = member.definition
        if isinstance(d, CheckDefinition):
            return Check(d.buffer.name, self.outer + loops, value, d.limit, d.error, d.wraps, d.origins)
        ranges = {**self.sizes, **dict(loops)}
        offset = self._offset(d.buffer.name, member.index, ranges)
        if d.kind:
            return Reduce(d.buffer.name, self.outer, loops, offset, d.kind, value, d.origins)
        return Store(d.buffer.name, self.outer + loops, offset, value, d.origins)

    def _finished(self, parts: tuple[Loops, list[Phase]]) -> Kernel:
        outer, phases = parts
        statements = [s for p in phases for s in p.statements]
        written = list(dict.fromkeys(s.buffer for s in statements if not isinstance(s, Check)))
        read = list(dict.fromkeys(e.buffer for s in statements for e in loads(s.value)))
        local = tuple(n for n in written if n in self.local)
        writes = tuple(n for n in written if n not in self.local)
        reads = tuple(n for n in read if n not in self.local and n not in writes)
        names = {*written, *read}
        own = {v for v, _ in outer} | {v for p in phases for v, _ in p.loops}
        used: set[sympy.Symbol] = set()
        for expr in _index_expressions(outer, phases):
            used |= expr.free_symbols
        indirect = {s for st in statements for e in walk(st.value) if isinstance(e, Load) for s, _ in e.indirect}
        sizes = tuple(sorted(used - own - indirect, key=str))
        return Kernel(self.name, outer, tuple(phases), reads, writes, sizes, {n: self.buffers[n] for n in names}, local)


def _index_expressions(outer: Loops, phases: list[Phase]) -> list[sympy.Expr]:
    found = [n for _, n in outer]
    for phase in phases:
        found += [n for _, n in phase.loops]
        for s in phase.statements:
            found += [s.offset, s.size] if isinstance(s, Check) else [s.offset]
            found += [e.offset if isinstance(e, Load) else e.expr for e in walk(s.value) if isinstance(e, (Load, Index))]
    return found


# -- index arithmetic --------------------------------------------------------------------------------------
def in_range(expr: sympy.Expr, ranges: dict[Any, Any]) -> sympy.Expr:
    """Simpler, knowing that every loop variable runs from 0 below its size."""
    expr = sympy.expand(expr)
    for _ in range(8):
        parts = [e for e in expr.atoms(FloorDiv, PythonMod) if not e.args[0].has(FloorDiv, PythonMod)]
        changes = {}
        for part in parts:
            new = _divided(part, ranges)
            if new is not None:
                changes[part] = new
        if not changes:
            break
        expr = sympy.expand(expr.xreplace(changes))
    return simplified(expr)


def _divided(expr: Any, ranges: dict[Any, Any]) -> sympy.Expr | None:
    """(a*n + rest) // n and % n where 0 <= rest < n."""
    value, n = expr.args
    whole, rest = ZERO, ZERO
    for term in sympy.Add.make_args(sympy.expand(value)):
        quotient = sympy.cancel(term / n)
        if quotient.is_polynomial() and sympy.denom(quotient) == 1 and all(c.is_Integer for c in quotient.as_coefficients_dict().values()):
            whole += quotient
        else:
            rest += term
    if below(rest, n, ranges):
        return whole if isinstance(expr, FloorDiv) else rest
    return None


def below(expr: sympy.Expr, bound: sympy.Expr, ranges: dict[Any, Any]) -> bool:
    """Is 0 <= expr < bound for sure? expr: a sum of loop variables with nonnegative coefficients."""
    top = ZERO
    for term in sympy.Add.make_args(expr):
        coefficient, factor = term.as_coeff_Mul()
        if coefficient < 0:
            return False
        if factor == 1:
            top += coefficient
        elif factor in ranges:
            top += coefficient * (ranges[factor] - 1)
        else:
            return False
    return (bound - top).is_positive is True or sympy.expand(bound - top - 1) == 0


def ordered(outer: Loops, phases: list[Phase]) -> tuple[Loops, list[Phase]]:
    """Outer loops in the order of memory: by how far the first store moves, largest step outermost."""
    stored = [s for s in phases[0].statements if isinstance(s, Store)]
    steps = [stored[0].offset.coeff(v) if stored else ZERO for v, _ in outer]
    if len(outer) < 2 or any(p.loops for p in phases) or not all(s.is_Integer for s in steps):
        return outer, phases
    order = sorted(range(len(outer)), key=lambda k: -abs(int(steps[k])))
    if order == list(range(len(outer))):
        return outer, phases
    outer = tuple(outer[k] for k in order)
    renewed = [Phase((), tuple(dataclasses.replace(s, loops=outer) for s in p.statements)) for p in phases]
    return outer, renewed


def collapsed(outer: Loops, phases: list[Phase]) -> tuple[Loops, list[Phase]]:
    """Neighbouring loops that walk through memory as one become one loop."""
    at = len(outer) - 2
    while at >= 0:
        if _as_one(outer[at], outer[at + 1], [s for p in phases for s in p.statements]):
            (a, n), (b, m) = outer[at], outer[at + 1]
            outer = (*outer[:at], (b, n * m), *outer[at + 2:])
            phases = [_without(a, phase.loops, phase.statements, outer) for phase in phases]
        at -= 1
    return outer, [_collapsed_phase(p, outer) for p in phases]


def _collapsed_phase(phase: Phase, outer: Loops) -> Phase:
    at = len(phase.loops) - 2
    while at >= 0:
        (a, n), (b, m) = phase.loops[at], phase.loops[at + 1]
        if _as_one((a, n), (b, m), list(phase.statements)):
            phase = _without(a, (*phase.loops[:at], (b, n * m), *phase.loops[at + 2:]), phase.statements, outer)
        at -= 1
    return phase


def _as_one(first: tuple[Any, Any], second: tuple[Any, Any], statements: list[Statement]) -> bool:
    """Does every offset move by size(second) * step(second) when `first` moves by one?"""
    (a, _), (b, n) = first, second
    places: list[sympy.Expr] = []
    for s in statements:
        places.append(s.offset)
        for e in walk(s.value):
            if isinstance(e, Index) and e.expr.free_symbols & {a, b}:
                return False
            if isinstance(e, Load):
                places.append(e.offset)
    return all(_moves_as_one(place, a, b, n) for place in places)


def _moves_as_one(place: sympy.Expr, a: Any, b: Any, n: sympy.Expr) -> bool:
    if not place.free_symbols & {a, b}:
        return True
    step_a, step_b = place.coeff(a), place.coeff(b)
    rest = sympy.expand(place - step_a * a - step_b * b)
    return not (rest.free_symbols | step_a.free_symbols | step_b.free_symbols) & {a, b} and sympy.expand(step_a - n * step_b) == 0


def _without(variable: Any, loops: Loops, statements: tuple[Statement, ...], outer: Loops) -> Phase:
    """The statements after `variable` was taken over by its neighbour, inside these loops."""
    swap = {variable: ZERO}
    memo: dict[int, Expr] = {}

    def moved(expr: Expr) -> Expr | None:
        if isinstance(expr, Load) and variable in expr.offset.free_symbols:
            return Load(expr.dtype, expr.buffer, expr.offset.xreplace(swap), expr.indirect)
        return None

    out: list[Statement] = []
    for s in statements:
        value, offset = rewrite(s.value, moved, memo), s.offset.xreplace(swap)
        if isinstance(s, Reduce):
            out.append(dataclasses.replace(s, loops=outer, inner=loops, offset=offset, value=value))
        else:
            out.append(dataclasses.replace(s, loops=outer + loops, offset=offset, value=value))
    return Phase(loops, tuple(out))
