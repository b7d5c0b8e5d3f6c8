"""Static types and scopes the generator uses to write programs that mostly do not raise.

In: declarations made by the statement writers. Out: variables of a wanted type. Used by `gen` and the writer modules.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

Dim = str | int


@dataclass(frozen=True)
class Ty:
    """A type: `kind` is tensor, int, float, bool, str, list, tuple, dict, set, obj, module, fn, opt."""

    kind: str
    elems: tuple[Ty, ...] = ()
    dtype: str = ""
    shape: tuple[Dim, ...] = ()
    name: str = ""


INT, FLOAT, BOOL, STR = Ty("int"), Ty("float"), Ty("bool"), Ty("str")
PY_SCALARS = (INT, FLOAT, BOOL, STR)


def tensor(shape: tuple[Dim, ...], dtype: str = "f") -> Ty:
    """A tensor type; dims are ints or names of sizes that vary between calls."""
    return Ty("tensor", dtype=dtype, shape=shape)


def list_of(elem: Ty) -> Ty:
    """A never-empty list with elements of one type."""
    return Ty("list", (elem,))


def dict_of(value: Ty) -> Ty:
    """A dict with str keys that always has the keys "a" and "b"."""
    return Ty("dict", (value,))


@dataclass
class Var:
    """A variable in scope. `inplace`: its tensor may be written to; `rebind`: the name may be assigned."""

    name: str
    ty: Ty
    inplace: bool = True
    rebind: bool = True


@dataclass
class Scope:
    """One block's variables; `function` starts a new Python function, whose outer names can't be rebound."""

    function: bool = False
    vars: dict[str, Var] = field(default_factory=dict)


class Scopes:
    """A stack of block scopes."""

    def __init__(self) -> None:
        self.stack: list[Scope] = [Scope(function=True)]

    def push(self, function: bool = False) -> None:
        """Open a block."""
        self.stack.append(Scope(function))

    def pop(self) -> None:
        """Close the innermost block; its variables are gone."""
        self.stack.pop()

    def declare(self, var: Var) -> Var:
        """Add a variable to the innermost block."""
        self.stack[-1].vars[var.name] = var
        return var

    def visible(self) -> dict[str, Var]:
        """All variables that can be read here, inner ones last."""
        out: dict[str, Var] = {}
        for scope in self.stack:
            out.update(scope.vars)
        return out

    def rebindable(self) -> list[Var]:
        """Variables that can be assigned here without nonlocal."""
        out: list[Var] = []
        for scope in reversed(self.stack):
            out.extend(v for v in scope.vars.values() if v.rebind)
            if scope.function:
                break
        return out

    def find(self, pred: Callable[[Var], bool]) -> list[Var]:
        """Readable variables for which `pred` holds."""
        return [v for v in self.visible().values() if pred(v)]
