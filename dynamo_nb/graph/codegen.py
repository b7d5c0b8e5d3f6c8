"""`PyCodegen`: writes the bytecode that rebuilds traced values (chapter 12.38).

In: trackers. Out: instructions of one code object. A value is loaded from where it came, taken from
the graph's outputs, or built anew; what is needed more than once, or may be part of a cycle, is kept in
a temporary. How a class of tracker is built is a table entry in `reconstruct`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from ..core.exc import RestartAnalysis, SkipFrame
from ..core.reasons import CannotReconstruct
from ..core.source import LocalSource, Source, TensorPropertySource
from ..cpython.instruction import ExceptionEntry, Instruction, call_function, create, load_const
from ..symbolic.variables.base import NOTHING, LazyVariableTracker, VariableTracker
from ..symbolic.variables.constant import ConstantVariable
from ..symbolic.variables.misc import NullVariable
from ..symbolic.variables.numeric import SymNodeVariable
from . import sources

Emit = Callable[["PyCodegen", Any], None]
BUILDERS: dict[type, Emit] = {}
CHILDREN: dict[type, Callable[[Any], list[VariableTracker]]] = {}
FILLERS: dict[type, Emit] = {}


def builds(*classes: type, children: Callable[[Any], list[VariableTracker]], fill: Emit | None = None) -> Callable[[Emit], Emit]:
    """Register how trackers of these classes are built. children: the trackers it needs first.

    fill: run after all objects exist; what it needs is listed by `children` of the filling stage.
    """

    def register(emit: Emit) -> Emit:
        for cls in classes:
            BUILDERS[cls] = emit
            CHILDREN[cls] = children
            if fill is not None:
                FILLERS[cls] = fill
        return emit

    return register


def table_lookup(table: dict[type, Any], vt: VariableTracker) -> Any:
    for cls in type(vt).__mro__:
        if cls in table:
            return table[cls]
    return None


class PyCodegen:
    """Instructions of one code object. env: trackers that already stand in a local variable."""

    def __init__(self, positions: Any, cell_names: frozenset[str] = frozenset()) -> None:
        self.instructions: list[Instruction] = []
        self.exceptions: list[ExceptionEntry] = []
        self.positions = positions
        self.env: dict[VariableTracker, str] = {}
        self.source_env: dict[Source, str] = {}
        self.cell_names = cell_names
        self.names = itertools.count()
        self.in_root = True

    # -- instructions -----------------------------------------------------------------------------
    def emit(self, opname: str, arg: Any = None, **kwargs: Any) -> Instruction:
        made = create(opname, arg, positions=self.positions, **kwargs)
        self.instructions.append(made)
        return made

    def extend(self, instructions: list[Instruction]) -> None:
        for inst in instructions:
            if inst.positions is None:
                inst.positions = self.positions
        self.instructions.extend(instructions)

    def load_const(self, value: Any) -> None:
        self.extend(load_const(value))

    def call(self, nargs: int) -> None:
        """Call what lies below nargs arguments; the callable was pushed with `push_callable`."""
        self.extend(call_function(nargs, False))

    def push_callable(self, fn: Any) -> None:
        self.emit("PUSH_NULL")
        self.load_const(fn)

    def temp(self) -> str:
        return f"___t{next(self.names)}"

    def store_temp(self) -> str:
        name = self.temp()
        self.emit("STORE_FAST", argval=name)
        return name

    def load_fast(self, name: str) -> None:
        self.emit("LOAD_FAST", argval=name)

    def nop(self) -> Instruction:
        return self.emit("NOP")

    # -- values -----------------------------------------------------------------------------------
    def load(self, vt: VariableTracker) -> None:
        """Push the value; builds it if it stands nowhere yet."""
        vt = settle(vt)
        if isinstance(vt, NullVariable):
            self.emit("PUSH_NULL")
        elif vt in self.env:
            self.load_fast(self.env[vt])
        elif isinstance(vt, LazyVariableTracker):
            self.load_source(vt.source)
        elif isinstance(vt, ConstantVariable):
            self.load_const(vt.value)
        elif loads_from_source(vt):
            self.load_source(vt.source)
        elif is_known_object(vt):
            self.load_const(vt.value)  # type: ignore[attr-defined]
        else:
            self.build(vt)

    def build(self, vt: VariableTracker) -> None:
        emit = table_lookup(BUILDERS, vt)
        if emit is None:
            raise cannot_rebuild(vt)
        emit(self, vt)

    def load_many(self, values: list[VariableTracker]) -> None:
        for value in values:
            self.load(value)

    def load_source(self, source: Source | None) -> None:
        assert source is not None
        known = self.source_env.get(source)
        if known is not None:
            self.load_fast(known)
            return
        sources.emit(self, source)

    def is_plain_local(self, source: Source | None) -> bool:
        return type(source) is LocalSource and source.local_name not in self.cell_names


def settle(vt: VariableTracker) -> VariableTracker:
    """The tracker behind a realised lazy one."""
    if isinstance(vt, LazyVariableTracker) and vt.is_realized:
        return vt.realize()
    return vt


def loads_from_source(vt: VariableTracker) -> bool:
    """Is the value an object from outside that its source still names when the graph has run?"""
    return vt.source is not None and (vt.existing or getattr(vt, "is_sourced_number", False)) and not isinstance(vt.source, TensorPropertySource)


def is_known_object(vt: VariableTracker) -> bool:
    """An object from outside that no expression of the frame names, such as a module's private helper."""
    return vt.existing and vt.source is None and getattr(vt, "local_name", None) is None and getattr(vt, "value", NOTHING) is not NOTHING and not isinstance(vt, SymNodeVariable)


def cannot_rebuild(vt: VariableTracker) -> Exception:
    reason = CannotReconstruct(f"a {vt.describe()} ({type(vt).__name__}) made in the trace")
    if vt.step:
        return RestartAnalysis(vt.step, reason, None)
    return SkipFrame(str(reason))
