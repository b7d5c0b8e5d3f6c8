"""Values of one kernel: expressions of the loop IR in, names of Triton variables out, one line each.

Every name has the axes it varies along: none, x (outer points), r (a phase's points) or both; shapes broadcast. Equal texts share a
name while it is in reach. A load knows how often its buffer has been written, and finds what the same tile wrote to the same offsets.
"""

from __future__ import annotations

from collections.abc import Callable

import sympy

from dynamo_nb.backends.triton_cpp import ir
from dynamo_nb.backends.triton_cpp.triton_index import CannotPrint, index_text
from dynamo_nb.backends.triton_cpp.triton_operations import constant_text, operation_text, widened

Axes = frozenset[str]
NONE: Axes = frozenset()
Conditions = tuple[str, ...]      # names of masks, each inside the one before


class Values:
    def __init__(self, kernel: ir.Kernel, line: Callable[[str], None], one: str) -> None:
        self.kernel, self.line, self.one = kernel, line, one
        self.known: dict[str, Axes] = {}                    # axes of every name
        self.masks: dict[str, str] = {}                     # axis -> name of its mask
        self.flat = ""                                      # the phase's flattened position
        self.symbols: dict[sympy.Symbol, str] = {}          # names, in INDEX
        self.scopes: list[dict[str, str]] = [{}]            # text -> name
        self.stored: list[dict[tuple[str, int, str], str]] = [{}]
        self.versions: dict[str, int] = {}
        self.done: dict[tuple[int, Conditions], str] = {}
        self.count = 0

    # -- names ------------------------------------------------------------------------------------------
    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def emit(self, text: str, axes: Axes, stem: str = "v") -> str:
        if text in self.known:
            return text
        for scope in self.scopes:
            if text in scope:
                return scope[text]
        name = self.fresh(stem)
        self.line(f"{name} = {text}")
        self.scopes[-1][text] = name
        self.known[name] = axes
        return name

    def push(self) -> None:
        self.scopes.append({})
        self.stored.append({})

    def pop(self) -> None:
        self.scopes.pop()
        self.stored.pop()

    def start_phase(self) -> None:
        self.done = {}

    def name_sizes(self) -> None:
        for s in self.kernel.sizes:
            self.symbols[s] = self.emit(f"size_{s}.to(INDEX)", NONE, "n")

    def size_text(self, size: sympy.Expr) -> str:
        return index_text(size, self.symbols)

    def name_loops(self, loops: ir.Loops, flat: str) -> None:
        """Loop variables from the flattened position."""
        axes = self.known[flat]
        if "r" in axes:
            self.flat = flat
        varying = [(v, n) for v, n in loops if n != 1]
        self.symbols.update({v: "0" for v, n in loops if n == 1})
        below = sympy.Integer(1)
        for i, (v, n) in reversed(list(enumerate(varying))):
            text = flat if below == 1 else f"{flat} // {self.size_text(below)}"
            if i > 0:
                text = f"({text}) % {self.size_text(n)}"
            self.symbols[v] = self.emit(text, axes, "x" if "x" in axes else "r")
            below = below * n

    def mask(self, axes: Axes, conditions: Conditions = ()) -> str:
        parts = [self.masks[a] for a in "xr" if a in axes]
        if len(parts) == 2:
            parts = [self.emit(" & ".join(parts), axes, "inside")]
        return " & ".join(parts + list(conditions[-1:]))

    # -- index expressions ----------------------------------------------------------------------------------
    def axes_of(self, expr: sympy.Expr, names: dict[sympy.Symbol, str]) -> Axes:
        return NONE.union(*(self.known.get(names[s], NONE) for s in expr.free_symbols if s in names))

    def offset(self, expr: sympy.Expr, indirect: tuple[tuple[sympy.Symbol, str], ...]) -> tuple[str, Axes]:
        names = dict(self.symbols)
        for symbol, value in indirect:
            names[symbol] = self.emit(f"{value}.to(INDEX)", self.known[value])
        axes, text = self.axes_of(expr, names), index_text(expr, names)
        if axes:
            return text, axes
        zero = self.emit(f"tl.full({self.one}, 0, INDEX)", NONE, "zero")
        return (zero if text == "0" else f"({zero} + {text})"), axes

    def index(self, expr: sympy.Expr) -> str:
        names = {}
        for s in sorted(expr.free_symbols, key=str):
            if s not in self.symbols:
                raise CannotPrint(f"the index symbol {s} is neither a loop variable nor a size of {self.kernel.name}; list it in Kernel.sizes")
            name = self.symbols[s]
            names[s] = f"size_{s}" if s in self.kernel.sizes else "0" if name == "0" else self.emit(f"{name}.to(tl.int64)", self.known[name])
        axes, text = self.axes_of(expr, names), index_text(expr, names)
        return self.emit(f"({text}).to(tl.int64)" if axes else f"tl.full({self.one}, 0, tl.int64) + {text}", axes)

    # -- expressions --------------------------------------------------------------------------------------
    def evaluate(self, root: ir.Expr, conditions: Conditions = ()) -> str:
        todo = [root]
        while todo:
            expr = todo[-1]
            needs = (expr.cond,) if isinstance(expr, ir.Select) else expr.args
            missing = [a for a in needs if self.find(a, conditions) is None]
            if self.find(expr, conditions) is None:
                if missing:
                    todo += reversed(missing)
                    continue
                self.done[id(expr), conditions] = self.compute(expr, conditions)
            todo.pop()
        return self.get(root, conditions)

    def find(self, expr: ir.Expr, conditions: Conditions) -> str | None:
        """Its name, if computed under these conditions or fewer."""
        for i in range(len(conditions) + 1):
            name = self.done.get((id(expr), conditions[:i]))
            if name is not None:
                return name
        return None

    def get(self, expr: ir.Expr, conditions: Conditions) -> str:
        name = self.find(expr, conditions)
        assert name is not None
        return name

    def compute(self, expr: ir.Expr, conditions: Conditions) -> str:
        if isinstance(expr, ir.Const):
            return self.emit(constant_text(expr.value, expr.dtype, self.one), NONE, "k")
        if isinstance(expr, ir.Index):
            return self.index(expr.expr)
        if isinstance(expr, ir.Load):
            return self.load(expr, conditions)
        if isinstance(expr, ir.Select):
            return self.select(expr, conditions)
        assert isinstance(expr, ir.Op)
        names = [self.get(a, conditions) for a in expr.operands]
        text = operation_text(expr.name, expr.dtype, names, [a.dtype for a in expr.operands])
        return self.emit(text, NONE.union(*(self.known[n] for n in names)))

    def select(self, expr: ir.Select, conditions: Conditions) -> str:
        cond = self.get(expr.cond, conditions)
        axes = self.known[cond].union(*(self.known[c] for c in conditions))
        sides = []
        for side, text in ((expr.yes, cond), (expr.no, f"~{cond}")):
            name = self.emit(" & ".join([*conditions[-1:], text]), axes)
            sides.append(self.evaluate(side, (*conditions, name)))
        return self.emit(f"tl.where({cond}, {sides[0]}, {sides[1]})", self.known[cond].union(*(self.known[s] for s in sides)))

    # -- memory -------------------------------------------------------------------------------------------
    def load(self, expr: ir.Load, conditions: Conditions) -> str:
        buffer = self.kernel.buffers[expr.buffer]
        if expr.dtype is not buffer.dtype:
            raise CannotPrint(f"a load of {expr.dtype.value} from {buffer}; load its own type and cast")
        offset, axes = self.offset(expr.offset, tuple((s, self.get(e, conditions)) for s, e in expr.indirect))
        version = self.versions.get(expr.buffer, 0)
        for scope in self.stored:
            if (expr.buffer, version, offset) in scope:
                return scope[expr.buffer, version, offset]
        if expr.buffer in self.kernel.local:
            raise CannotPrint(f"{expr.buffer}[{expr.offset}] of {self.kernel.name} is read before it is written; order the phases by their data")
        axes = axes.union(*(self.known[c] for c in conditions))
        mask = self.mask(axes, conditions)
        masked = f", mask={mask}, other=0" if mask else ""
        name = "".join(c if c.isalnum() else "_" for c in expr.buffer)
        # The comment keeps texts of different versions apart.
        text = widened(f"tl.load({name}_ptr + {offset}{masked})", expr.dtype)
        return self.emit(f"{text}  # after {version} writes" if version else text, axes, "a")

    def wrote(self, buffer: str, offset: str, value: str) -> None:
        if buffer in self.kernel.local:
            self.stored[-1][buffer, 0, offset] = value
            return
        self.versions[buffer] = version = self.versions.get(buffer, 0) + 1
        self.stored[-1][buffer, version, offset] = value
