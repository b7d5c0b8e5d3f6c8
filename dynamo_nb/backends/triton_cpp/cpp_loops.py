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
from .cpp_folds import Fold, Ref, better, fold_of, same
from .ir import Check, DType, Kernel, Load, Op, Phase, Reduce, Store, walk

BLOCK = 4096          # elements of a part in one run of the vector loop
ROWS = 32             # rows of a part in a strip
STRIP = 256           # outer points of a strip
COPIES = 4            # vector accumulators of a cheap reduction
CHEAP = 8             # operations a point up to which the latency of one accumulator shows: several then
CHEAP_ROW = 24        # operations a point up to which loads and stores of a strip's accumulators show
WHOLE = 128           # a multiple of every round of lanes: no rest to take one by one
SEARCH = 256          # elements of a block whose extreme is found before its position


@dataclasses.dataclass
class Accumulator:
    reduce: Reduce
    fold: Fold
    name: str
    value: Value


def check_name(number: int) -> str:
    """The variable that holds the largest place a check has seen, as an unsigned number: those below 0 are the largest."""
    return f"e{number}"


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
        self.noted: list[str] = []
        for k, (s, v) in enumerate(zip(phase.statements, values, strict=True)):
            if isinstance(s, Reduce):
                self.accumulators.append(Accumulator(s, fold_of(s, kernel.buffers[s.buffer].dtype), f"a{number}_{k}", v))
            elif isinstance(s, Check):
                name = check_name(kernel.checks.index(s))
                self.noted.append(name)
                self.stores.append(f"{name} = {name} > (u64){v.text} ? {name} : (u64){v.text};")
            else:
                self.stores.append(self.store(s, v))

    def simd(self, clauses: str = "") -> str:
        return "#pragma omp simd" + clauses + "".join(f" reduction(max:{name})" for name in self.noted)

    def store(self, s: Store, value: Value) -> str:
        dtype = self.kernel.buffers[s.buffer].dtype
        if exprs.is_half(dtype) and s.value.dtype is DType.i16:
            return f"{self.memory.at(s.buffer, self.index(s.offset))} = (u16){value.text};"
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

    def part(self, a: Accumulator) -> Ref:
        where = f"[{self.memory.strip[0]}]" if self.memory.strip else ""
        return lambda suffix: f"{a.name}p{suffix}{where}"

    def total(self, a: Accumulator) -> Ref:
        where = f"[{self.memory.strip[0]}]" if self.memory.strip else ""
        return lambda suffix: f"{a.name}t{suffix}{where}"

    def steps(self, accumulators: list[Accumulator] | None = None) -> list[str]:
        """The innermost body: values, then stores and accumulation."""
        chosen = self.accumulators if accumulators is None else accumulators
        return self.body.lines[-1] + self.stores + [a.fold.step(self.part(a), a.value.text, self.position()) for a in chosen]

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
            return totals + self.parts(self.accumulators) + self.steps() + self.merges(self.accumulators) + self.results()
        outer = len(self.phase.loops) - 1
        return totals + self.opened(outer) + self.vector_loops() + ["}"] * outer + self.results()

    def parts(self, accumulators: list[Accumulator]) -> list[str]:
        return [f"{kind} {self.part(a)(suffix)} = {start};" for a in accumulators for suffix, kind, start in a.fold.part]

    def merges(self, accumulators: list[Accumulator]) -> list[str]:
        return [a.fold.merge(self.total(a), self.part(a)) for a in accumulators]

    def vector_loops(self) -> list[str]:
        """One loop for the stores and what OpenMP can join, one for every position of an extreme."""
        variable, size = self.phase.loops[-1]
        name, n = self.symbols[variable], self.index(size)
        most = int(size) if isinstance(size, sympy.Integer) else None
        joined = [a for a in self.accumulators if a.fold.operator is not None]
        out = self.joined_loop(joined, name, n, most) if joined or self.stores else []
        for a in self.accumulators:
            if a.fold.operator is None:
                out += self.position_loop(a, name, n)
        return out

    def joined_loop(self, joined: list[Accumulator], name: str, n: str, most: int | None) -> list[str]:
        blocked = any(a.fold.blocked for a in joined) and (most is None or most > BLOCK)
        begin, end = ("b", "e") if blocked else ("0", n)
        loop = self.parts(joined)
        if self.worth_lanes(joined, most):
            loop += self.lane_loop(joined, name, begin, end)
            begin = "r"
        if begin != "r" or most is None or most % WHOLE:
            loop += self.plain_loop(joined, name, begin, end)
        loop += self.merges(joined)
        if blocked:
            return [f"for (i64 b = 0; b < {n}; b += {BLOCK}) {{", f"const i64 e = b + {BLOCK} < {n} ? b + {BLOCK} : {n};", *loop, "}"]
        return ["{", *loop, "}"] if joined else loop

    def cost(self, accumulators: list[Accumulator]) -> int:
        roots = [s.value for s in self.phase.statements if isinstance(s, Store)] + [a.reduce.value for a in accumulators]
        return sum(exprs.cost(e) for e in walk(*roots) if isinstance(e, Op))

    def worth_lanes(self, joined: list[Accumulator], most: int | None) -> bool:
        """Whether the latency of one vector accumulator would show."""
        return bool(joined) and all(a.fold.lane_bytes for a in joined) and (most is None or most >= 64) and self.cost(joined) <= CHEAP

    def plain_loop(self, joined: list[Accumulator], name: str, begin: str, end: str) -> list[str]:
        clauses = "".join(f" reduction({a.fold.operator}:{self.part(a)('')})" for a in joined)
        return [self.simd(clauses), f"for (i64 {name} = {begin}; {name} < {end}; {name}++) {{", *self.steps(joined), "}"]

    def element_bytes(self, joined: list[Accumulator]) -> int:
        """Of the smallest elements in the loop: a vector of them has the most lanes."""
        roots = [a.reduce.value for a in joined] + [s.value for s in self.phase.statements if isinstance(s, Store)]
        sizes = [e.dtype.itemsize for e in walk(*roots) if isinstance(e, Load) or (isinstance(e, Op) and e.dtype.is_int)]
        sizes += [self.kernel.buffers[s.buffer].dtype.itemsize for s in self.phase.statements if isinstance(s, Store)]
        return min([*sizes, *(a.fold.lane_bytes for a in joined)])

    def lane_loop(self, joined: list[Accumulator], name: str, begin: str, end: str) -> list[str]:
        """Up to r, whole rounds: several vector accumulators, each taking the next vector of elements.

        The loop over lanes becomes vector code whose stores to w the compiler passes on to the accumulators: both are vectors of a register's size.
        """
        smallest = self.element_bytes(joined)
        pieces = {a.name: a.fold.lane_bytes // smallest for a in joined}
        copies = range(max(1, COPIES // max(sum(pieces.values()) - 1, 1)))
        out = [f"enum {{ lanes = VECTOR / {smallest}, round = lanes * {len(copies)} }};"]
        arrays, fills = [], []
        for a in joined:
            _, kind, start = a.fold.part[0]
            out += [f"typedef {kind} {a.name}v __attribute__((vector_size(VECTOR), may_alias));"]
            out += [f"{a.name}v {a.name}p{c}_{p} = {a.name}v{{}} + {start};" for c in copies for p in range(pieces[a.name])]
            arrays += [f"{kind} {a.name}w[lanes] __attribute__((aligned(VECTOR)));"]
            fills += [f"{a.name}w[l] = {a.fold.convert(a.value.text)};"]
        out += [f"i64 r = {begin};", f"for (; r + round <= {end}; r += round) {{"]
        for c in copies:
            joins = [a.fold.join(f"{a.name}p{c}_{p}", f"(({a.name}v *){a.name}w)[{p}]") for a in joined for p in range(pieces[a.name])]
            body = [f"const i64 {name} = r + {c} * lanes + l;", *self.body.lines[-1], *self.stores, *fills]
            out += ["{", *arrays, self.simd(), "for (i64 l = 0; l < lanes; l++) {", *body, "}", *joins, "}"]
        out += ["}"]
        for a in joined:
            parts = [f"{a.name}p{c}_{p}" for c in copies for p in range(pieces[a.name])]
            out += [a.fold.join(parts[0], other) for other in parts[1:]]
            out += [f"for (i64 l = 0; l < VECTOR / {a.fold.lane_bytes}; l++) {{", a.fold.join(self.part(a)(""), f"{parts[0]}[l]"), "}"]
        return out

    def position_loop(self, a: Accumulator, name: str, n: str) -> list[str]:
        """The extreme of a block in a vector loop; only where it displaces the best so far, its first position."""
        kind, source, total = a.reduce.kind, a.reduce.value.dtype, self.total(a)
        values = self.body.lines[-1]
        if source is DType.b1:
            return [f"for (i64 {name} = 0; {name} < {n}; {name}++) {{", *values, a.fold.step(total, a.value.text, self.position()), "}"]
        extreme = dataclasses.replace(a.reduce, kind=kind[3:])
        inner = Accumulator(extreme, fold_of(extreme, source), f"{a.name}m", a.value)
        best = self.part(inner)("")
        search = [
            f"for (i64 {name} = b; {name} < e; {name}++) {{", *values, f"if ({same(source, a.value.text, best)}) {{",
            f"{total('')} = {best}; {total('i')} = {self.position()};", "break;", "}", "}",
        ]
        stores, self.stores = self.stores, []
        block = [*self.parts([inner])]
        begin = "b"
        if self.worth_lanes([inner], None):
            block += self.lane_loop([inner], name, "b", "e")
            begin = "r"
        block += self.plain_loop([inner], name, begin, "e")
        self.stores = stores
        return [
            f"for (i64 b = 0; b < {n}; b += {SEARCH}) {{", f"const i64 e = b + {SEARCH} < {n} ? b + {SEARCH} : {n};", *block,
            f"if ({better(kind, source, best, total(''))}) {{", *search, "}", "}",
        ]

    # -- strips of outer points ----------------------------------------------------------------------------
    def across(self, lines: list[str]) -> list[str]:
        name = self.symbols[self.kernel.outer[-1][0]]
        return [self.simd(), f"for (i64 {name} = strip_begin; {name} < strip_end; {name}++) {{", *lines, "}"] if lines else []

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
        joinable = not self.stores and all(a.fold.operator is not None for a in self.accumulators)
        if joinable and self.cost(self.accumulators) <= CHEAP_ROW:
            copies = [line for c in range(4) for line in ("{", f"const i64 {name} = r + {c};", *head, *self.steps(), "}")]
            out = [f"for (; r + 4 <= {end}; r += 4) {{", *self.across(copies), "}", *out]
        return ["{", f"i64 r = {begin};", *out, "}"]
