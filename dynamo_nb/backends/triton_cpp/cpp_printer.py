"""Kernels of the loop IR as one headerless C++ translation unit.

`print_unit(kernels)` gives a `Unit`: its source defines, for every kernel,
`extern "C" void NAME(void *const *p, const int64_t *s, int64_t begin, int64_t end)`. p: the data pointers of
kernel.reads, then of kernel.writes, then, if there are kernel.checks, one to three integers for each (failed, index, size);
s: the values of kernel.sizes. The call computes the outer points [begin, end) of [0, count); any cut of [0, count) into
such runs, on any threads, computes the kernel.
"""

from __future__ import annotations

import dataclasses
import math
import re

import sympy

from . import cpp_exprs as exprs
from . import cpp_math
from .cpp_bits import moved_as_bits
from .cpp_body import OPAQUE, Memory
from .cpp_loops import STRIP, check_name, nest
from .cpp_tiles import ACROSS, FIRST, TILE, Tiled, blocks, outer_but, tiled
from .ir import Kernel, Load, Loops, Op, Reduce, loads, walk

GRAIN = 2**18         # cheap element operations that are worth a thread
ON_STACK = 2**16      # bytes
ARGUMENTS = "void *const *p, const i64 *s, i64 begin, i64 end"


@dataclasses.dataclass(frozen=True)
class Launch:
    """How to run a kernel. count: outer points; work: cheap operations a point; grain: points worth a thread; all over kernel.sizes."""

    name: str
    count: sympy.Expr
    work: sympy.Expr
    grain: sympy.Expr
    bytes_moved: sympy.Expr
    form: str            # "inner" or "outer": which loops are vector loops; "tiled": outer points by the tile


@dataclasses.dataclass(frozen=True)
class Unit:
    """code: the functions, without what they use of the math library."""

    code: str
    kernels: dict[str, Launch]

    @property
    def source(self) -> str:
        return cpp_math.library(self.code) + self.code

    def extended(self, functions: str) -> Unit:
        """With further functions, which may use the library's."""
        return dataclasses.replace(self, code=f"{self.code}\n{functions}")


def print_unit(kernels: list[Kernel]) -> Unit:
    texts: list[str] = []
    launches: dict[str, Launch] = {}
    known: dict[str, str] = {}
    for kernel in kernels:
        kernel = moved_as_bits(kernel)
        tiles = tiled(kernel)
        form = form_of(kernel) if tiles is None else "tiled"
        text = _Function(kernel, form).text() if tiles is None else _TiledFunction(tiles).text()
        first = known.setdefault(_anonymous(text, kernel.name), kernel.name)
        texts.append(text if first == kernel.name else f'extern "C" __attribute__((alias("{first}"))) void {kernel.name}({ARGUMENTS});\n')
        launches[kernel.name] = _launch(kernel, form) if tiles is None else _tiled_launch(kernel, tiles)
    return Unit("\n".join(texts), launches)


def _anonymous(text: str, name: str) -> str:
    """The function without what names it and its variables: layers that repeat are compiled once."""
    return re.sub(r"\b([psv]\d+)_\w+", r"\1", text.replace(f" {name}(", " (", 1))


# -- choosing the vector loops ---------------------------------------------------------------------------
def form_of(kernel: Kernel) -> str:
    if not kernel.outer:
        return "inner"
    if not any(phase.loops for phase in kernel.phases):
        return "outer"
    last = kernel.outer[-1][0]
    inner = outer = 0
    for phase in kernel.phases:
        for load in loads(*(s.value for s in phase.statements)):
            if load.buffer not in kernel.local:
                varies = not phase.loops or bool(load.offset.free_symbols & {v for v, _ in phase.loops})    # else it is read once, before the loops
                outer += varies and _stride_is_1(load, last)
                inner += bool(phase.loops) and _stride_is_1(load, phase.loops[-1][0])
    return "outer" if outer > inner else "inner"


def _stride_is_1(load: Load, variable: sympy.Symbol) -> bool:
    return variable in load.offset.free_symbols and sympy.expand(load.offset.subs(variable, variable + 1) - load.offset) == 1


# -- sizes of work ---------------------------------------------------------------------------------------
def _product(loops: Loops) -> sympy.Expr:
    return math.prod((n for _, n in loops), start=sympy.Integer(1))


def _launch(kernel: Kernel, form: str) -> Launch:
    work: sympy.Expr = sympy.Integer(0)
    for phase in kernel.phases:
        values = list(walk(*(s.value for s in phase.statements)))
        each = sum(exprs.cost(e) if isinstance(e, Op) else isinstance(e, Load) for e in values) + len(phase.statements)
        work += each * _product(phase.loops)
    work = sympy.Max(1, work)
    grain = sympy.Max(1, sympy.floor(GRAIN / work))
    moved = sympy.Integer(0)
    for name in (*kernel.reads, *kernel.writes):
        b = kernel.buffers[name]
        moved += b.dtype.itemsize * math.prod((n for n, stride in zip(b.sizes, b.strides, strict=True) if stride != 0), start=sympy.Integer(1))
    return Launch(kernel.name, _product(kernel.outer), work, grain, moved, form)


def _tiled_launch(kernel: Kernel, tiles: Tiled) -> Launch:
    one = _launch(kernel, "tiled")
    work = one.work * TILE * TILE
    return dataclasses.replace(one, count=tiles.count, work=work, grain=sympy.Max(1, sympy.floor(GRAIN / work)))


# -- one function ------------------------------------------------------------------------------------------
def _name(prefix: str, number: int, name: object) -> str:
    return f"{prefix}{number}_{re.sub(r'[^0-9A-Za-z_]', '_', str(name))}"


class _Function:
    def __init__(self, kernel: Kernel, form: str) -> None:
        self.kernel, self.form = kernel, form
        self.symbols: dict[sympy.Symbol, str] = {s: _name("s", k, s) for k, s in enumerate(kernel.sizes)}
        variables = [v for v, _ in kernel.outer] + [v for phase in kernel.phases for v, _ in phase.loops]
        self.symbols |= {v: _name("v", k, v) for k, v in enumerate(dict.fromkeys(variables))}
        pointers = {b: _name("p", k, b) for k, b in enumerate((*kernel.reads, *kernel.writes, *kernel.local))}
        strip = (f"({self.symbols[kernel.outer[-1][0]]} - strip_begin)", STRIP) if form == "outer" else None
        self.memory = Memory(pointers, frozenset(kernel.local), strip)
        self.index = exprs.IndexPrinter(self.symbols)
        self.freed: list[str] = []

    def text(self) -> str:
        body = self.runs(nest(self.kernel, self.memory, self.symbols))
        head = [f'extern "C" void {self.kernel.name}({ARGUMENTS}) {{', "if (begin >= end) return;"]
        head += [f"const i64 {self.symbols[s]} = s[{k}];" for k, s in enumerate(self.kernel.sizes)]
        head += [f"u64 {check_name(k)} = 0;" for k in range(len(self.kernel.checks))]
        if any(OPAQUE in line for line in body):
            head += [f"i64 {OPAQUE} = 0;", f'__asm__("" : "+r"({OPAQUE}));']
        lines = head + self.pointers() + self.locals() + body + self.notes() + [f"__builtin_free({name});" for name in self.freed] + ["}"]
        return "\n".join(_indented(lines)) + "\n"

    def pointers(self) -> list[str]:
        out = []
        for k, name in enumerate((*self.kernel.reads, *self.kernel.writes)):
            buffer = self.kernel.buffers[name]
            kind = exprs.memory_type(buffer.dtype)
            const = "const " if name in self.kernel.reads else ""
            source = f"({const}{kind} *)p[{k}]"
            if name in self.memory.clamped:
                numel = math.prod(buffer.sizes, start=sympy.Integer(1))
                if not numel.is_positive:
                    out.append(f"static {const}u64 nothing{k} = 0;")
                    source = f"{self.index(numel)} > 0 ? {source} : ({const}{kind} *)&nothing{k}"
            out.append(f"{const}{kind} *__restrict const {self.memory.pointers[name]} = {source};")
        return out

    def locals(self) -> list[str]:
        out = []
        for name in self.kernel.local:
            buffer = self.kernel.buffers[name]
            kind = self.memory.element(name, buffer.dtype)
            numel = math.prod(buffer.sizes, start=sympy.Integer(1)) * (STRIP if self.form == "outer" else 1)
            text = self.memory.pointers[name]
            if numel.is_Integer and int(numel) * 8 <= ON_STACK:
                out.append(f"{kind} {text}[{max(1, int(numel))}] __attribute__((aligned(64)));")
            else:
                out += [f"{kind} *__restrict const {text} = ({kind} *)__builtin_malloc(sizeof({kind}) * {self.index(numel)} + 64);"]
                out += [f"if (!{text}) __builtin_trap();"]
                self.freed.append(text)
        return out

    def notes(self) -> list[str]:
        """What the checks saw. 0, a check's start, stands for no point at all where a phase's loops are empty."""
        out, place = [], len(self.kernel.reads) + len(self.kernel.writes)
        for k, check in enumerate(self.kernel.checks):
            size, points = check.size, _product(check.loops[len(self.kernel.outer):])
            seen = "" if size.is_positive or points.is_positive else f"if ({self.index(points)} > 0) "
            out.append(f"{seen}note((i64 *)p[{place}] + {3 * k}, {check_name(k)}, {self.index(size)}, {'true' if check.wraps else 'false'});")
        return out

    # -- runs of outer points ----------------------------------------------------------------------------
    def runs(self, nest_lines: list[str]) -> list[str]:
        outer = self.kernel.outer
        if not outer:
            return nest_lines
        names = [self.symbols[v] for v, _ in outer]
        sizes = [self.index(n) for _, n in outer]
        out = ["i64 at = begin;"]
        for k in reversed(range(1, len(outer))):
            out += [f"i64 c{k} = at % {sizes[k]}; at /= {sizes[k]};"]
        out += ["i64 c0 = at;"]
        last = len(outer) - 1
        carry = [f"if (c{k} >= {sizes[k]}) {{ c{k} = 0; c{k - 1}++; }}" for k in reversed(range(1, len(outer)))]
        fixed = [f"const i64 {n} = c{k};" for k, n in enumerate(names)]
        if self.form == "inner":
            return [*out, "for (i64 q = begin; q < end; q++) {", *fixed, *nest_lines, f"c{last}++;", *carry, "}"]
        inside = ["const i64 strip_begin = row_begin, strip_end = row_end;", *nest_lines]
        if len(self.kernel.phases) > 1 or self.kernel.local or any(p.loops or isinstance(s, Reduce) for p in self.kernel.phases for s in p.statements):
            inside = [
                f"for (i64 strip_begin = row_begin; strip_begin < row_end; strip_begin += {STRIP}) {{",
                f"const i64 strip_end = strip_begin + {STRIP} < row_end ? strip_begin + {STRIP} : row_end;", *nest_lines, "}",
            ]
        return [
            *out, "for (i64 q = begin; q < end;) {", *fixed[:-1], f"const i64 row_begin = c{last};",
            f"const i64 row_end = row_begin + (end - q) < {sizes[last]} ? row_begin + (end - q) : {sizes[last]};",
            *inside, f"q += row_end - row_begin; c{last} = row_end;", *carry, "}",
        ]


class _TiledFunction(_Function):
    """Counts tiles instead of outer points; see `cpp_tiles`."""

    def __init__(self, tiles: Tiled) -> None:
        super().__init__(tiles.kernel, "outer")
        self.tiles = tiles
        self.symbols |= {FIRST: "strip_begin", ACROSS: "across_begin"}
        self.memory.pointers.update((name, name) for name in tiles.copies)

    def runs(self, nest_lines: list[str]) -> list[str]:
        outer, other = self.kernel.outer, self.tiles.across
        last = len(outer) - 1
        out = ["for (i64 q = begin; q < end; q++) {", "i64 at = q;", *self.block("strip", outer[last][1]), *self.block("across", outer[other][1])]
        for _, (v, n) in reversed(list(outer_but(outer, other, last))):
            out += [f"const i64 {self.symbols[v]} = at % {self.index(n)}; at /= {self.index(n)};"]
        turn = f"for (i64 {self.symbols[outer[other][0]]} = across_begin; {self.symbols[outer[other][0]]} < across_end; {self.symbols[outer[other][0]]}++) {{"
        return [*out, *self.copies(turn), turn, *nest_lines, "}", "}"]

    def block(self, name: str, size: sympy.Expr) -> list[str]:
        n, count = self.index(size), self.index(blocks(size))
        return [
            f"const i64 {name}_begin = at % {count} * {TILE}; at /= {count};",
            f"const i64 {name}_end = {name}_begin + {TILE} < {n} ? {name}_begin + {TILE} : {n};",
        ]

    def copies(self, turn: str) -> list[str]:
        along = self.symbols[self.kernel.outer[-1][0]]
        across = self.symbols[self.kernel.outer[self.tiles.across][0]]
        out = []
        for name, load in self.tiles.copies.items():
            kind = exprs.memory_type(self.kernel.buffers[load.buffer].dtype)
            source = f"{self.memory.pointers[load.buffer]}[{self.index(load.offset)}]"
            out += [
                f"{kind} {name}[{TILE * TILE}] __attribute__((aligned(64)));", f"for (i64 {along} = strip_begin; {along} < strip_end; {along}++) {{",
                "#pragma omp simd", turn, f"{name}[({along} - strip_begin) * {TILE} + {across} - across_begin] = {source};", "}", "}",
            ]
        return out


def _indented(lines: list[str]) -> list[str]:
    out, depth = [], 0
    for line in lines:
        if line.startswith("}"):
            depth -= 1
        out.append(line if line.startswith("#") else "    " * depth + line)
        if line.endswith("{"):
            depth += 1
    return out

