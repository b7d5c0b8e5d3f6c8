"""The values of one phase as C statements, sorted by the loop they belong to.

In: a phase's expressions and the loop level of every variable. Out: `lines[level]`, single-assignment statements that
stand at the head of that loop (0: at the outer point; the last: the innermost loop), and the names of the values.
Loop-invariant values thus leave the inner loops. Everything is computed unconditionally except loads: a load that only
one side of a `Select` needs is made under that side's condition (a masked load to the compiler), so loops stay
straight-line code; no operation can trap on the zeros that stand for what wasn't loaded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import sympy

from . import cpp_exprs as exprs
from .ir import Const, DType, Expr, Index, Load, Loops, Op, Select, walk

# A 0 that the compiler doesn't know. GCC (12.2 at least) takes a bool, as 0 or -1, for the offset of a vector load where a bool made an integer is the
# index; it doesn't look through an "or".
OPAQUE = "opaque"
Path = tuple[tuple[Expr, bool], ...]      # conditions and the sides taken, outermost first


@dataclasses.dataclass(frozen=True)
class Value:
    text: str
    level: int


class Memory:
    """Where buffers stand: C lvalues. local ones hold register types; strip: the index within a strip of outer points, if there are strips."""

    def __init__(self, pointers: dict[str, str], local: frozenset[str], strip: tuple[str, int] | None) -> None:
        self.pointers = pointers
        self.local = local
        self.strip = strip
        self.clamped: set[str] = set()     # buffers read at offset 0 where a condition fails: must not be empty

    def at(self, buffer: str, offset: str) -> str:
        if buffer in self.local and self.strip is not None:
            position, width = self.strip
            return f"{self.pointers[buffer]}[{offset} * {width} + {position}]"
        return f"{self.pointers[buffer]}[{offset}]"

    def element(self, buffer: str, dtype: DType) -> str:
        return exprs.register_type(dtype) if buffer in self.local and exprs.is_half(dtype) else exprs.memory_type(dtype)

    def read(self, buffer: str, dtype: DType, text: str) -> str:
        if buffer in self.local and exprs.is_half(dtype):
            return text
        return exprs.from_memory(dtype, text)

    def write(self, buffer: str, dtype: DType, text: str) -> str:
        if buffer in self.local and exprs.is_half(dtype):
            return text
        return exprs.to_memory(dtype, text)


class Body:
    """levels: loop variable -> level; loops: the loops of levels 1, 2, …, whose sizes may be 0."""

    def __init__(self, memory: Memory, symbols: dict[sympy.Symbol, str], levels: dict[sympy.Symbol, int], loops: Loops, depth: int) -> None:
        self.memory = memory
        self.symbols = symbols
        self.levels = levels
        self.loops = loops
        self.depth = depth
        self.lines: list[list[str]] = [[] for _ in range(depth + 1)]
        self.values: dict[tuple[int, Path], Value] = {}
        self.loaded: dict[tuple[object, ...], Value] = {}
        self.conditions: dict[Path, Value] = {(): Value("", 0)}
        self.loading: set[int] = set()
        self.certain: set[int] = set()
        self.kept: list[Expr] = []
        self.count = 0

    # -- driving ----------------------------------------------------------------------------------------
    def compute(self, roots: list[Expr]) -> list[Value]:
        self.kept += roots
        for e in walk(*roots):
            if isinstance(e, Load) or any(id(a) in self.loading for a in e.args):
                self.loading.add(id(e))
        order = list(_unconditional(roots))
        self.certain |= {id(e) for e in order}
        for e in order:
            self.emit(e, ())
        return [self.emit(e, ()) for e in roots]

    def emit(self, expr: Expr, path: Path) -> Value:
        if id(expr) not in self.loading or id(expr) in self.certain:
            path = ()
        for end in range(len(path) + 1):
            found = self.values.get((id(expr), path[:end]))
            if found is not None:
                return found
        value = self.values[id(expr), path] = self.print(expr, path)
        return value

    def print(self, expr: Expr, path: Path) -> Value:
        if isinstance(expr, Const):
            return Value(exprs.constant(expr), 0)
        if isinstance(expr, Index):
            text, level = self.index(expr.expr)
            return self.assign(DType.i64, text, level)
        if isinstance(expr, Load):
            return self.load(expr, path)
        if isinstance(expr, Select):
            return self.select(expr, path)
        assert isinstance(expr, Op), expr
        operands = [self.emit(a, path) for a in expr.operands]
        return self.assign(expr.dtype, exprs.operation(expr, [o.text for o in operands]), max(o.level for o in operands))

    def select(self, expr: Select, path: Path) -> Value:
        """A chain of selects on the `no` side (a concatenation of many parts) is walked, not recursed into."""
        chain: list[tuple[Select, Path, Value, Value]] = []
        last: Expr = expr
        while isinstance(last, Select) and (last is expr or (id(last) in self.loading and id(last) not in self.certain)):
            cond = self.side(last.cond, path)
            chain.append((last, path, cond, self.side(last.yes, (*path, (last.cond, True)))))
            path = (*path, (last.cond, False))
            last = last.no
        value = self.side(last, path)
        for select, where, cond, yes in reversed(chain):
            value = self.assign(select.dtype, f"({cond.text} ? {yes.text} : {value.text})", max(cond.level, yes.level, value.level))
            self.values[id(select), where] = value
        return value

    def side(self, root: Expr, path: Path) -> Value:
        for e in _unconditional([root]):
            self.emit(e, path)
        return self.emit(root, path)

    def assign(self, dtype: DType, text: str, level: int) -> Value:
        name = f"t{self.count}"
        self.count += 1
        self.lines[level].append(f"const {exprs.register_type(dtype)} {name} = {text};")
        return Value(name, level)

    # -- leaves -----------------------------------------------------------------------------------------
    def index(self, expr: sympy.Expr, indirect: dict[sympy.Symbol, Value] | None = None) -> tuple[str, int]:
        indirect = indirect or {}
        names = {**self.symbols, **{s: v.text for s, v in indirect.items()}}
        text = exprs.IndexPrinter(names, self.levels.keys())(expr)
        level = max((indirect[s].level if s in indirect else self.levels.get(s, 0) for s in expr.free_symbols), default=0)
        return text, level

    def condition(self, path: Path) -> Value:
        """The conjunction of a path's conditions, as the name of a bool."""
        if path not in self.conditions:
            before = self.condition(path[:-1])
            cond, which = path[-1]
            value = self.emit(cond, path[:-1])
            text = value.text if which else f"!{value.text}"
            level = max(before.level, value.level)
            self.conditions[path] = self.assign(DType.b1, f"{before.text} & {text}" if before.text else text, level)
        return self.conditions[path]

    def load(self, load: Load, path: Path) -> Value:
        indirect = {s: self.emit(e, path) for s, e in load.indirect}
        offset, level = self.index(load.offset, {s: Value(f"({v.text} | {OPAQUE})", v.level) for s, v in indirect.items()})
        if load.buffer in self.memory.local and self.memory.strip is not None:
            level = self.depth
        condition = self.condition(path)
        level = max(level, condition.level)
        key = (load.buffer, load.dtype, offset, condition.text)
        if key not in self.loaded:
            self.loaded[key] = self.assign(load.dtype, self.memory.read(load.buffer, load.dtype, self.masked(load, offset, condition.text, level)), level)
        return self.loaded[key]

    def masked(self, load: Load, offset: str, condition: str, level: int) -> str:
        guards = [condition] if condition else []
        if level < self.depth:
            guards += [f"{exprs.IndexPrinter(self.symbols)(n)} > 0" for _, n in self.loops[level:] if not n.is_positive]
        if not guards:
            return self.memory.at(load.buffer, offset)
        test = " && ".join(guards)
        if load.dtype.itemsize < 4 and level == self.depth and load.buffer not in self.memory.local:
            self.memory.clamped.add(load.buffer)     # there are no masked vector loads of small elements
            chosen = f"({test} ? {offset} : 0ll)"
            return self.memory.at(load.buffer, f"({chosen} | {OPAQUE})" if load.offset.is_Integer else chosen)
        return f"({test} ? {self.memory.at(load.buffer, offset)} : ({self.memory.element(load.buffer, load.dtype)})0)"


def _unconditional(roots: list[Expr]) -> Iterator[Expr]:
    """What is evaluated for certain with the roots: everything but the sides of selects, operands first."""
    return walk(*roots, operands=lambda expr: (expr.cond,) if isinstance(expr, Select) else expr.args)
