"""The generator's working state and its registries of productions.

In: a seed. Out: lines of source. Writers in `exprs`, `tensors`, `stmts_*` register themselves here with a weight and the
feature family they belong to; a program switches a random half of the families on (swarm testing). Used by `gen`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from .scope import Dim, Scopes, Ty, Var, tensor

_T = TypeVar("_T")

# Families a program may switch on. BREAKY ones normally need a graph break or a fallback.
FAMILIES = (
    "inplace", "views", "setitem", "list", "dict", "set", "tuple", "str", "closure", "nonlocal", "globals", "defaults",
    "varargs", "recursion", "generator", "comprehension", "class", "dunder", "property", "slots", "module", "loop", "while",
    "try", "raise", "with", "nograd", "functional", "identity", "dtype", "alias", "opt", "match", "shapeint", "walrus", "attr",
    "isinstance", "rng", "extrainput", "methodentry",
)  # fmt: skip
BREAKY = ("print", "opaque", "datadep", "item", "op_error")


@dataclass
class Production:
    """A registered writer: `write(g)` returns source text (expression) or whether it wrote a statement."""

    write: Callable[..., object]
    weight: float
    family: str
    leaf: bool = False


EXPRS: dict[str, list[Production]] = {}
STMTS: list[Production] = []


def expr(kind: str, weight: float = 1.0, family: str = "", leaf: bool = False) -> Callable[[_T], _T]:
    """Register an expression writer `(g, depth) -> str | None` for values of one kind; a leaf uses no other writer."""

    def register(write: _T) -> _T:
        EXPRS.setdefault(kind, []).append(Production(write, weight, family, leaf))  # type: ignore[arg-type]
        return write

    return register


def stmt(weight: float = 1.0, family: str = "") -> Callable[[_T], _T]:
    """Register a statement writer `(g) -> bool`; False means that nothing was written."""

    def register(write: _T) -> _T:
        STMTS.append(Production(write, weight, family))  # type: ignore[arg-type]
        return write

    return register


class Gen:
    """One program under construction."""

    def __init__(self, seed: int, attempt: int = 0) -> None:
        self.rng = random.Random(seed * 1_000_003 + attempt)
        self.lines: list[str] = []
        self.indent = 0
        self.scopes = Scopes()
        self.features: set[str] = set()
        self.families: set[str] = set()
        self.counter = 0
        self.budget = 0
        self.repeat = 1
        self.loops = 0
        self.blocks = 0
        self.backward = False
        self.may_raise = False
        self.fixed = 3
        self.args: dict[str, Ty] = {}

    # -- chance ---------------------------------------------------------------------------------------------------
    def chance(self, p: float) -> bool:
        """True with probability p."""
        return self.rng.random() < p

    def pick(self, items: Sequence[_T]) -> _T:
        """One item, uniformly."""
        return items[self.rng.randrange(len(items))]

    def weighted(self, prods: Sequence[Production]) -> Iterator[Production]:
        """The usable productions in a weighted random order."""
        left = [p for p in prods if not p.family or p.family in self.families]
        while left:
            chosen = self.rng.choices(left, [p.weight for p in left])[0]
            left.remove(chosen)
            yield chosen

    def on(self, family: str) -> bool:
        """Whether the family is switched on; notes it as a feature when it is."""
        if family in self.families:
            self.features.add(family)
            return True
        return False

    # -- text -----------------------------------------------------------------------------------------------------
    def fresh(self, stem: str) -> str:
        """A new name."""
        self.counter += 1
        return f"{stem}{self.counter}"

    def line(self, text: str) -> None:
        """Write lines at the current indentation."""
        for part in text.split("\n"):
            self.lines.append("    " * self.indent + part if part else "")

    @contextmanager
    def block(self, head: str, repeat: int = 1, function: bool = False) -> Iterator[None]:
        """An indented block with its own scope; `repeat` is how often it runs."""
        self.line(head)
        start = len(self.lines)
        self.scopes.push(function)
        self.indent += 1
        self.blocks += 1
        self.repeat *= repeat
        try:
            yield
            if len(self.lines) == start:
                self.line("pass")
        finally:
            self.repeat //= repeat
            self.blocks -= 1
            self.indent -= 1
            self.scopes.pop()

    # -- variables ------------------------------------------------------------------------------------------------
    def vars(self, kind: str, pred: Callable[[Var], bool] | None = None) -> list[Var]:
        """Readable variables of a kind."""
        return self.scopes.find(lambda v: v.ty.kind == kind and (pred is None or pred(v)))

    def some(self, kind: str, pred: Callable[[Var], bool] | None = None) -> Var | None:
        """A random readable variable of a kind, newest ones more often; None if there is none."""
        found = self.vars(kind, pred)
        if not found:
            return None
        if self.chance(0.4):
            found = found[-3:]
        return self.pick(found)

    def let(self, ty: Ty, text: str, inplace: bool = True, stem: str = "") -> Var:
        """Write `name = text` for a new variable or, sometimes, an old one of the same type."""
        old = [v for v in self.scopes.rebindable() if v.ty == ty and v.inplace == inplace]
        if old and self.chance(0.25) and not stem:
            var = self.pick(old)
        else:
            var = self.scopes.declare(Var(self.fresh(stem or ty.kind[0]), ty, inplace))
        self.line(f"{var.name} = {text}")
        return var

    # -- expressions ----------------------------------------------------------------------------------------------
    def expr(self, kind: str, depth: int = 2) -> str:
        """An expression of a Python kind."""
        prods = EXPRS[kind] if depth > 0 else [p for p in EXPRS[kind] if p.leaf]
        for prod in self.weighted(prods):
            text = prod.write(self, depth)
            if text is not None:
                if prod.family:
                    self.features.add(prod.family)
                return str(text)
        return {"int": "2", "float": "0.5", "bool": "True", "str": "'s'"}[kind]

    def value(self, ty: Ty, depth: int = 1) -> str:
        """An expression of any type the generator can make fresh."""
        if ty.kind == "tensor":
            return self.tensor_like(ty.shape, ty.dtype, depth)
        if ty.kind == "list":
            return "[" + ", ".join(self.value(ty.elems[0], depth) for _ in range(self.rng.randint(1, 3))) + "]"
        if ty.kind == "dict":
            return "{'a': " + self.value(ty.elems[0], depth) + ", 'b': " + self.value(ty.elems[0], depth) + "}"
        if ty.kind == "set":
            return "{" + ", ".join(self.expr("int", depth) for _ in range(self.rng.randint(1, 3))) + "}"
        if ty.kind == "tuple":
            return "(" + "".join(self.value(e, depth) + ", " for e in ty.elems) + ")"
        return self.expr(ty.kind, depth)

    def tensor_expr(self, depth: int = 2) -> tuple[str, Ty, bool]:
        """A tensor expression: text, type, and whether the result may be written to in place."""
        if depth > 0:
            for prod in self.weighted(EXPRS["tensor"]):
                made = prod.write(self, depth)
                if made is not None:
                    if prod.family:
                        self.features.add(prod.family)
                    return made  # type: ignore[return-value]
        var = self.some("tensor")
        if var is None:
            return f"torch.ones({self.fixed})", tensor((self.fixed,)), True
        return var.name, var.ty, var.inplace

    def tensor_like(self, shape: tuple[Dim, ...], dtype: str, depth: int = 1) -> str:
        """An expression whose tensor has this shape (or broadcasts into it) and dtype class."""
        found = self.vars("tensor", lambda v: v.ty.shape == shape and v.ty.dtype == dtype)
        if not found:
            found = self.vars("tensor", lambda v: v.ty.dtype == dtype and shape[len(shape) - len(v.ty.shape) :] == v.ty.shape
                              if len(v.ty.shape) <= len(shape) else False)  # fmt: skip
        if not found:
            return {"f": "torch.full((), 0.5)", "i": "torch.tensor(2)", "b": "torch.tensor(True)"}[dtype]
        name = self.pick(found).name
        if depth <= 0 or dtype != "f" or self.chance(0.5):
            return name
        scalar = self.expr(self.pick(["int", "float"]), depth - 1)
        return self.pick(["torch.sin({0})", "{0}.tanh()", "({0} * {1})", "({0} + {1})", "-{0}", "{0}.abs()", "torch.relu({0})",
                          "{0}.clone()", "({1} - {0})"]).format(name, scalar)  # fmt: skip

    def sized(self, dim: Dim) -> str | None:
        """An int expression for a dimension, read from some tensor in scope."""
        var = self.some("tensor", lambda v: dim in v.ty.shape)
        if var is None:
            return str(dim) if isinstance(dim, int) else None
        axis = var.ty.shape.index(dim)
        if axis == 0 and self.chance(0.3):
            return f"len({var.name})"
        return self.pick([f"{var.name}.shape[{axis}]", f"{var.name}.size({axis})"])

    # -- statements -----------------------------------------------------------------------------------------------
    def statements(self, count: int) -> None:
        """Write up to `count` statements, as far as the program's budget goes."""
        for _ in range(count):
            if self.budget <= 0:
                return
            self.statement()

    def statement(self) -> None:
        """Write one statement."""
        self.budget -= 1
        for prod in self.weighted(STMTS):
            if prod.write(self):
                if prod.family:
                    self.features.add(prod.family)
                return
