"""The scheduler: which definitions share a kernel, in which phase, and what never goes to memory.

In: a `LoweredGraph`. Out: `Step`s in order: `Group`s (to be emitted as kernels), ATen calls and views. A definition
joins the latest group where everything it reads is ready and where what it reads of that group was written at its
own outer point. Every decision leaves a line in `Schedule.decisions`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import sympy

from .exprs import Read
from .graph import AtenCall, CheckDefinition, Definition, LoweredGraph, ViewOf, buffers_in
from .ir import walk
from .tensors import product, variable

MAX_MEMBERS, MAX_BUFFERS = 40, 24
ROW_LIMIT = 1 << 14        # elements that one outer point may loop over where nothing runs in parallel
Sizes = tuple[sympy.Expr, ...]


def outer_variable(k: int) -> sympy.Symbol:
    return sympy.Symbol(f"i{k}", integer=True, nonnegative=True)


def phase_variable(k: int) -> sympy.Symbol:
    return sympy.Symbol(f"j{k}", integer=True, nonnegative=True)


@dataclasses.dataclass
class Member:
    """A definition inside a group: what stands for each of its variables, 0 for dimensions of size 1."""

    definition: Definition
    places: dict[sympy.Symbol, sympy.Expr]

    @property
    def index(self) -> list[sympy.Expr]:
        """Where it writes in its buffer."""
        return [self.places[variable(d)] for d in range(len(self.definition.sizes))]


@dataclasses.dataclass
class PhaseGroup:
    sizes: Sizes
    members: list[Member]


@dataclasses.dataclass
class Group:
    outer: Sizes
    phases: list[PhaseGroup]

    def members(self) -> Iterator[Member]:
        for phase in self.phases:
            yield from phase.members

    def copy(self) -> Group:
        return Group(self.outer, [PhaseGroup(p.sizes, [Member(m.definition, dict(m.places)) for m in p.members]) for p in self.phases])

    def writer(self, buffer: str) -> tuple[int, Member] | None:
        for i, phase in enumerate(self.phases):
            for member in phase.members:
                if member.definition.buffer.name == buffer:
                    return i, member
        return None

    def in_place(self) -> bool:
        """Does it change an input?"""
        return any(m.definition.buffer.kind == "input" for m in self.members())

    def names(self) -> set[str]:
        return {name for m in self.members() for name in (m.definition.buffer.name, *reads(m.definition))}


@dataclasses.dataclass
class Schedule:
    steps: list[Group | AtenCall | ViewOf]
    last_use: dict[str, int]            # buffer -> last step that needs it, len(steps) for outputs
    decisions: list[str]


def reads(definition: Definition) -> list[str]:
    return list(dict.fromkeys(e.buffer for e in walk(definition.value) if isinstance(e, Read)))


def read_nodes(definition: Definition) -> list[Read]:
    return [e for e in walk(definition.value) if isinstance(e, Read)]


def dims(definition: Definition) -> tuple[list[tuple[sympy.Symbol, sympy.Expr]], list[tuple[sympy.Symbol, sympy.Expr]]]:
    """Variables and sizes other than 1: of the outer dimensions, of the folded ones."""
    kept = len(definition.sizes)
    outer = [(variable(d), n) for d, n in enumerate(definition.sizes) if n != 1]
    return outer, [(variable(kept + d), n) for d, n in enumerate(definition.inner) if n != 1]


class Scheduler:
    def __init__(self, graph: LoweredGraph) -> None:
        self.graph = graph
        self.steps: list[Group | AtenCall | ViewOf] = []
        self.ready: dict[str, int] = {}         # buffer -> the step after which its contents are there
        self.written = -1                       # the last step that changed memory in place: nothing behind it moves before it
        self.decisions: list[str] = []

    def run(self) -> Schedule:
        for step in self.graph.steps:
            if isinstance(step, Definition):
                self._place(step)
                continue
            self.steps.append(step)
            for buffer in changed_by(step):
                self.ready[buffer] = len(self.steps) - 1
            if isinstance(step, AtenCall) and step.written():
                self.written = len(self.steps) - 1
        return Schedule(self.steps, last_uses(self.steps, self.graph), self.decisions)

    def _place(self, definition: Definition) -> None:
        first = max((self.ready.get(name, -1) for name in reads(definition)), default=-1)
        first = max(first, self.written)
        if definition.buffer.kind == "input":
            self._write(definition)
            return
        for at in range(len(self.steps) - 1, max(first, 0) - 1, -1):
            group = self.steps[at]
            if isinstance(group, Group) and not group.in_place() and self._join(group, definition, at == first):
                self.ready[definition.buffer.name] = at
                self.decisions.append(f"{definition.buffer.name} ({', '.join(definition.origins)}): into the kernel of step {at}")
                return
        self.steps.append(_started(definition))
        self.ready[definition.buffer.name] = len(self.steps) - 1
        self.decisions.append(f"{definition.buffer.name} ({', '.join(definition.origins)}): starts the kernel of step {len(self.steps) - 1}")

    def _write(self, definition: Definition) -> None:
        """A definition that changes an input comes last; into the last kernel only where that reads no other element of it before."""
        last, depends, name = self.steps[-1] if self.steps else None, False, definition.buffer.name
        if isinstance(last, Group):
            trial = last.copy()
            depends = any(trial.writer(read) is not None for read in reads(definition))
            if self._join(trial, definition, depends) and _changes_safely(trial, self.graph.base):
                self.steps[-1] = trial
                self.ready[name] = self.written = len(self.steps) - 1
                self.decisions.append(f"{name} ({', '.join(definition.origins)}): changed in place by the kernel of step {len(self.steps) - 1}")
                return
        self.steps.append(_started(definition))
        self.ready[name] = self.written = len(self.steps) - 1
        self.decisions.append(f"{name} ({', '.join(definition.origins)}): changed in place, starts the kernel of step {self.written}")

    def _join(self, group: Group, definition: Definition, depends: bool) -> bool:
        names = group.names()
        if sum(len(p.members) for p in group.phases) >= MAX_MEMBERS or len(names | set(reads(definition))) > MAX_BUFFERS:
            return False
        if definition.buffer.device != next(group.members()).definition.buffer.device:
            return False
        if not depends:
            if isinstance(definition, CheckDefinition) or all(isinstance(m.definition, CheckDefinition) for m in group.members()):
                return self._with_checks(group, definition)
            return bool(names & set(reads(definition))) and self._beside(group, definition)
        return self._behind(group, definition)

    # -- a definition that reads what the group writes ---------------------------------------------------
    def _behind(self, group: Group, definition: Definition) -> bool:
        places = _outer_places(group, definition)
        if places is None:
            return False
        outer, inner = dims(definition)
        if any(v in places for v, _ in inner):
            if not _demote(group, {places[v] for v, _ in outer if v in places}):
                return False
            places = _outer_places(group, definition)
            assert places is not None
        if len(set(places.values())) != len(group.outer) or len(places) != len(group.outer):
            return False
        rest = [(v, n) for v, n in outer if v not in places]
        if definition.kind and rest or any(v in places for v, _ in inner):
            return False
        loops = inner or rest
        sizes = tuple(n for _, n in loops)
        if not group.outer and not _short(sizes):
            return False
        for k, (v, _) in enumerate(loops):
            places[v] = phase_variable(k)
        member = _member(definition, places)
        at = _first_phase(group, member, sizes)
        if at is None:
            return False
        if at == len(group.phases):
            group.phases.append(PhaseGroup(sizes, []))
        group.phases[at].members.append(member)
        return True

    # -- a definition that only shares inputs --------------------------------------------------------------
    def _beside(self, group: Group, definition: Definition) -> bool:
        outer, inner = dims(definition)
        if tuple(n for _, n in outer) != group.outer or len(group.phases) != 1 or tuple(n for _, n in inner) != group.phases[0].sizes:
            return False
        if bool(definition.kind) != bool(group.phases[0].members[0].definition.kind):
            return False
        places = {v: outer_variable(k) for k, (v, _) in enumerate(outer)} | {v: phase_variable(k) for k, (v, _) in enumerate(inner)}
        group.phases[0].members.append(_member(definition, places))
        return True

    def _with_checks(self, group: Group, definition: Definition) -> bool:
        """Checks go with anything that has their outer points: a phase costs less than a kernel."""
        outer, inner = dims(definition)
        if tuple(n for _, n in outer) != group.outer:
            return False
        places = {v: outer_variable(k) for k, (v, _) in enumerate(outer)} | {v: phase_variable(k) for k, (v, _) in enumerate(inner)}
        sizes = tuple(n for _, n in inner)
        phase = next((p for p in group.phases if p.sizes == sizes), None)
        if phase is None:
            phase = PhaseGroup(sizes, [])
            group.phases.append(phase)
        phase.members.append(_member(definition, places))
        return True


def _changes_safely(group: Group, base: dict[str, str]) -> bool:
    """Inputs that the group changes: changed in the last phase, read before it only at the outer point, in it only at the very element."""
    last = len(group.phases) - 1
    members = [(at, m) for at, phase in enumerate(group.phases) for m in phase.members]
    changed = {m.definition.buffer.name: m for _, m in members if m.definition.buffer.kind == "input"}
    for at, member in members:
        definition = member.definition
        if isinstance(definition, CheckDefinition):
            return False        # a check that fails must find nothing changed
        if at < last and (not definition.kind or definition.buffer.name in changed):
            return False        # values of earlier phases may be computed anew in later ones
        for read in read_nodes(definition):
            if _root(read.buffer, base) in changed and not (read.buffer in changed and _reads_own(group, member, read, changed[read.buffer], at == last)):
                return False
    return True


def _reads_own(group: Group, member: Member, read: Read, writer: Member, element: bool) -> bool:
    """Does the member read only what the writer replaces at the same outer point (element: in the same turn of the phase's loops)?"""
    outer = _outer_variables(group)
    pairs = [(_placed(i, member.places), w) for i, w in zip(read.index, writer.index, strict=True)]
    return not read.indirect and all(here == w for here, w in pairs if element or w in outer)


def _root(name: str, base: dict[str, str]) -> str:
    while name in base:
        name = base[name]
    return name


def _started(definition: Definition) -> Group:
    outer, inner = dims(definition)
    places = {v: outer_variable(k) for k, (v, _) in enumerate(outer)} | {v: phase_variable(k) for k, (v, _) in enumerate(inner)}
    return Group(tuple(n for _, n in outer), [PhaseGroup(tuple(n for _, n in inner), [_member(definition, places)])])


def _member(definition: Definition, places: dict[sympy.Symbol, sympy.Expr]) -> Member:
    total = len(definition.sizes) + len(definition.inner)
    return Member(definition, {variable(d): places.get(variable(d), sympy.Integer(0)) for d in range(total)})


def _outer_places(group: Group, definition: Definition) -> dict[sympy.Symbol, sympy.Expr] | None:
    """Which of the definition's variables must be which outer variable, by what it reads of the group; None if they can't."""
    sizes = {v: n for part in dims(definition) for v, n in part}
    places: dict[sympy.Symbol, sympy.Expr] = {}
    for read in read_nodes(definition):
        found = group.writer(read.buffer)
        if found is None:
            continue
        for mine, theirs in zip(read.index, found[1].index, strict=True):
            if theirs not in _outer_variables(group):
                continue
            if mine not in sizes or sizes[mine] != group.outer[_outer_variables(group).index(theirs)] or places.get(mine, theirs) != theirs:
                return None
            places[mine] = theirs
        if read.indirect:
            return None
    return places if len(set(places.values())) == len(places) else None


def _outer_variables(group: Group) -> list[sympy.Symbol]:
    return [outer_variable(k) for k in range(len(group.outer))]


def _short(sizes: Sizes) -> bool:
    count = product(sizes)
    return bool(count.is_Integer) and count <= ROW_LIMIT


def _demote(group: Group, keep: set[Any]) -> bool:
    """Turn outer variables that are folded later into phase loops; only where nothing is folded yet."""
    if any(phase.sizes or m.definition.kind for phase in group.phases for m in phase.members):
        return False
    variables_ = _outer_variables(group)
    kept = [v for v in variables_ if v in keep]
    moved = [v for v in variables_ if v not in keep]
    if not kept and not _short(group.outer):
        return False
    names = {v: outer_variable(k) for k, v in enumerate(kept)} | {v: phase_variable(k) for k, v in enumerate(moved)}
    sizes = dict(zip(variables_, group.outer, strict=True))
    for member in group.members():
        member.places = {d: names.get(p, p) for d, p in member.places.items()}
    group.outer = tuple(sizes[v] for v in kept)
    group.phases = [PhaseGroup(tuple(sizes[v] for v in moved), list(group.members()))]
    return True


def _first_phase(group: Group, member: Member, sizes: Sizes) -> int | None:
    """The earliest phase with these loops where the member's reads are ready; one past the last to open one."""
    least = 0
    for read in read_nodes(member.definition):
        found = group.writer(read.buffer)
        if found is None:
            continue
        at, writer = found
        here = [_placed(i, member.places) for i in read.index]
        forwarded = not writer.definition.kind and group.phases[at].sizes == sizes and here == writer.index
        least = max(least, at if forwarded else at + 1)
    for at in range(least, len(group.phases)):
        if group.phases[at].sizes == sizes:
            return at
    return len(group.phases)


def _placed(index: sympy.Expr, places: dict[sympy.Symbol, sympy.Expr]) -> sympy.Expr:
    return places.get(index, index) if index.is_Symbol else index.xreplace(places)


# -- uses -----------------------------------------------------------------------------------------------
def changed_by(step: Any) -> Iterable[str]:
    """Buffers whose contents are new after the step."""
    if isinstance(step, ViewOf):
        return [step.buffer.name]
    if isinstance(step, AtenCall):
        return [b.name for b in (*buffers_in(step.outs), *step.written())]
    return [m.definition.buffer.name for m in step.members()]


def used_by(step: Any) -> Iterable[str]:
    if isinstance(step, ViewOf):
        return [step.base.name]
    if isinstance(step, AtenCall):
        return [b.name for b in (*buffers_in(step.args), *buffers_in(tuple(step.kwargs.values())))]
    return [name for m in step.members() for name in reads(m.definition)]


def last_uses(steps: list[Any], graph: LoweredGraph) -> dict[str, int]:
    last = {name: at for at, step in enumerate(steps) for name in (*changed_by(step), *used_by(step))}
    last.update({b.name: len(steps) for b in buffers_in(tuple(graph.outputs))})
    last.update({m.definition.buffer.name: len(steps) for s in steps if isinstance(s, Group) for m in s.members() if m.definition.buffer.kind == "input"})
    return last
