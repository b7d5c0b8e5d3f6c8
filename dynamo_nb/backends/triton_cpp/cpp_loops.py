"""Loop nests of one kernel as C text, in one of two forms.

inner: one outer point at a time; each phase's innermost loop is the vector loop, reductions keep lanes of partial
results. outer: strips of the last outer variable; phase loops outside, the strip innermost and the vector loop,
accumulators and local buffers arrays over the strip (reductions over rows, whose loads are contiguous along the columns).
In: a `Kernel`, the form, names of variables and pointers. Out: lines of C for one outer point or one strip.
"""

from __future__ import annotations

import dataclasses

import sympy

from . import cpp_exprs as exprs
from .cpp_body import Body, Memory, Value
from .cpp_folds import Fold, Ref, fold_of
from .ir import Kernel, Op, Phase, Reduce, Store, walk

BLOCK = 4096          # elements of a part in one run of the vector loop
ROWS = 32             # rows of a part in a strip
STRIP = 256           # outer points of a strip
COPIES = 4            # accumulators of a cheap reduction, each over its share of a block
CHEAP = 24            # operations a point up to which the latency of one accumulator shows: several then


@dataclasses.dataclass
class Accumulator:
    reduce: Reduce
    fold: Fold
    name: str
    value: Value


def nest(kernel: Kernel, memory: Memory, symbols: dict[sympy.Symbol, str]) -> list[str]:
    """All phases, for the point (inner form) or the strip [strip_begin, strip_end) (outer form) of the outer variables."""
    return [line for number, phase in enumerate(kernel.phases) for line in _Nest(kernel, memory, symbols, phase, number).lines()]


class _Nest:
    def __init__(self, kernel: Kernel, memory: Memory, symbols: dict[sympy.Symbol, str], phase: Phase, number: int) -> None:
        self.kernel, self.memory, self.symbols, self.phase = kernel, memory, symbols, phase
        self.strip = memory.strip is not None
        levels = {v: 0 for v, _ in kernel.outer}
        levels |= {v: k for k, (v, _) in enumerate(phase.loops, 1)}
        depth = len(phase.loops)
        if self.strip:
            depth += 1
            levels[kernel.outer[-1][0]] = depth
        self.index = exprs.IndexPrinter(symbols, levels.keys())
        self.body = Body(memory, symbols, levels, phase.loops, depth)
        values = self.body.compute([s.value for s in phase.statements])
        self.accumulators: list[Accumulator] = []
        self.stores: list[str] = []
        for k, (s, v) in enumerate(zip(phase.statements, values, strict=True)):
            if isinstance(s, Reduce):
                self.accumulators.append(Accumulator(s, fold_of(s, kernel.buffers[s.buffer].dtype), f"a{number}_{k}", v))
            else:
                self.stores.append(self.store(s, v))

    def store(self, s: Store, value: Value) -> str:
        dtype = self.kernel.buffers[s.buffer].dtype
        text = exprs.cast(s.value.dtype, dtype, value.text)
        return f"{self.memory.at(s.buffer, self.index(s.offset))} = {self.memory.write(s.buffer, dtype, text)};"

    def lines(self) -> list[str]:
        return ["{", *(self.strip_lines() if self.strip else self.point_lines()), "}"]

    # -- pieces ------------------------------------------------------------------------------------------
    def position(self) -> str:
        """The flat position in the inner box."""
        text = "0ll"
        for v, n in self.phase.loops:
            text = f"({text} * {self.index(n)} + {self.symbols[v]})"
        return text

    def results(self) -> list[str]:
        out = []
        for a in self.accumulators:
            dtype = self.kernel.buffers[a.reduce.buffer].dtype
            text = a.fold.result(self.total(a))
            out.append(f"{self.memory.at(a.reduce.buffer, self.index(a.reduce.offset))} = {self.memory.write(a.reduce.buffer, dtype, text)};")
        return out

    def part(self, a: Accumulator, copy: int = 0) -> Ref:
        where = f"[{self.memory.strip[0]}]" if self.memory.strip else f"_{copy}"
        return lambda suffix: f"{a.name}p{suffix}{where}"

    def total(self, a: Accumulator) -> Ref:
        where = f"[{self.memory.strip[0]}]" if self.memory.strip else ""
        return lambda suffix: f"{a.name}t{suffix}{where}"

    def steps(self, copy: int = 0) -> list[str]:
        """The innermost body: values, then stores and accumulation."""
        return self.body.lines[-1] + self.stores + [a.fold.step(self.part(a, copy), a.value.text, self.position()) for a in self.accumulators]

    def opened(self, loops: int) -> list[str]:
        """Heads of the outer phase loops with what is invariant below them."""
        out = list(self.body.lines[0])
        for k, (v, n) in enumerate(self.phase.loops[:loops], 1):
            name = self.symbols[v]
            out += [f"for (i64 {name} = 0; {name} < {self.index(n)}; {name}++) {{", *self.body.lines[k]]
        return out

    # -- one outer point -----------------------------------------------------------------------------------
    def point_lines(self) -> list[str]:
        totals = [f"{kind} {a.name}t{suffix} = {start};" for a in self.accumulators for suffix, kind, start in a.fold.total]
        if not self.phase.loops:
            merges = [a.fold.merge(self.total(a), self.part(a)) for a in self.accumulators]
            return totals + self.parts(1) + self.steps() + merges + self.results()
        outer = len(self.phase.loops) - 1
        return totals + self.opened(outer) + self.vector_loop() + ["}"] * outer + self.results()

    def parts(self, copies: int) -> list[str]:
        return [
            f"{kind} {self.part(a, c)(suffix)} = {start};" for a in self.accumulators for c in range(copies) for suffix, kind, start in a.fold.part
        ]

    def vector_loop(self) -> list[str]:
        variable, size = self.phase.loops[-1]
        name, n = self.symbols[variable], self.index(size)
        most = int(size) if isinstance(size, sympy.Integer) else None
        merges = [a.fold.merge(self.total(a), self.part(a)) for a in self.accumulators]
        blocked = any(a.fold.blocked for a in self.accumulators) and (most is None or most > BLOCK)
        begin, end = ("b", "e") if blocked else ("0", n)
        loop = self.parts(1) + self.plain_loop(name, begin, end)
        if self.worth_copies(most):
            loop = self.copied_loop(name, begin, end)
        loop += merges
        if blocked:
            return [f"for (i64 b = 0; b < {n}; b += {BLOCK}) {{", f"const i64 e = b + {BLOCK} < {n} ? b + {BLOCK} : {n};", *loop, "}"]
        return ["{", *loop, "}"] if self.accumulators else loop

    def worth_copies(self, most: int | None) -> bool:
        """Whether several accumulators pay: few operations a point, enough points, nothing but joinable folds."""
        if self.stores or not self.accumulators or any(a.fold.operator is None for a in self.accumulators) or (most is not None and most < 64):
            return False
        return sum(exprs.cost(e) for e in walk(*(a.reduce.value for a in self.accumulators)) if isinstance(e, Op)) <= CHEAP

    def pragma(self, copies: int = 1) -> list[str]:
        if any(a.fold.operator is None for a in self.accumulators):
            return []
        clauses = [f" reduction({a.fold.operator}:{', '.join(self.part(a, c)('') for c in range(copies))})" for a in self.accumulators]
        return [f"#pragma omp simd{''.join(clauses)}"]

    def plain_loop(self, name: str, begin: str, end: str) -> list[str]:
        return [*self.pragma(), f"for (i64 {name} = {begin}; {name} < {end}; {name}++) {{", *self.steps(), "}"]

    def copied_loop(self, name: str, begin: str, end: str) -> list[str]:
        """Equal shares of the range side by side, then the rest."""
        copies = [line for c in range(COPIES) for line in ("{", f"const i64 {name} = k + {c} * share;", *self.steps(c), "}")]
        joins = [a.fold.join(self.part(a, 0), self.part(a, c)) for a in self.accumulators for c in range(1, COPIES)]
        return [
            *self.parts(COPIES), f"const i64 share = ({end} - {begin}) / {8 * COPIES} * 8;",
            *self.pragma(COPIES), f"for (i64 k = {begin}; k < {begin} + share; k++) {{", *copies, "}", *joins,
            *self.plain_loop(name, f"{begin} + {COPIES} * share", end),
        ]

    # -- strips of outer points ----------------------------------------------------------------------------
    def across(self, lines: list[str]) -> list[str]:
        name = self.symbols[self.kernel.outer[-1][0]]
        return ["#pragma omp simd", f"for (i64 {name} = strip_begin; {name} < strip_end; {name}++) {{", *lines, "}"] if lines else []

    def strip_lines(self) -> list[str]:
        if not self.phase.loops and not self.accumulators:
            return self.body.lines[0] + self.across(self.steps())
        stages = [("t", a, f) for a in self.accumulators for f in a.fold.total] + [("p", a, f) for a in self.accumulators for f in a.fold.part]
        arrays = [f"{kind} {a.name}{stage}{suffix}[{STRIP}];" for stage, a, (suffix, kind, _) in stages]
        totals = [f"{self.total(a)(suffix)} = {start};" for a in self.accumulators for suffix, _, start in a.fold.total]
        parts = [f"{self.part(a)(suffix)} = {start};" for a in self.accumulators for suffix, _, start in a.fold.part]
        merges = [a.fold.merge(self.total(a), self.part(a)) for a in self.accumulators]
        if not self.phase.loops:
            return arrays + self.body.lines[0] + self.across(totals + parts + self.steps() + merges + self.results())
        outer = len(self.phase.loops) - 1
        return [*arrays, *self.across(totals), *self.opened(outer), *self.rows(parts, merges), *["}"] * outer, *self.across(self.results())]

    def rows(self, parts: list[str], merges: list[str]) -> list[str]:
        variable, size = self.phase.loops[-1]
        name, n = self.symbols[variable], self.index(size)
        if any(a.fold.blocked for a in self.accumulators):
            return [
                f"for (i64 b = 0; b < {n}; b += {ROWS}) {{", f"const i64 e = b + {ROWS} < {n} ? b + {ROWS} : {n};", *self.across(parts),
                *self.row_loop(name, "b", "e"), *self.across(merges), "}",
            ]
        return [*self.across(parts), *self.row_loop(name, "0", n), *self.across(merges)]

    def row_loop(self, name: str, begin: str, end: str) -> list[str]:
        """Four rows at once where that saves loads and stores of accumulators."""
        head = self.body.lines[len(self.phase.loops)]
        out = [f"for (; r < {end}; r++) {{", f"const i64 {name} = r;", *head, *self.across(self.steps()), "}"]
        if self.worth_copies(None):
            copies = [line for c in range(4) for line in ("{", f"const i64 {name} = r + {c};", *head, *self.steps(), "}")]
            out = [f"for (; r + 4 <= {end}; r += 4) {{", *self.across(copies), "}", *out]
        return ["{", f"i64 r = {begin};", *out, "}"]
