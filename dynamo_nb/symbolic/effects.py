"""`SideEffects`: changes to objects that outlive the trace, to be replayed after the graph.

Containers carry their new contents themselves; this table knows which existing ones changed, which
attributes, cells and globals were written, and in which order objects were first touched. Every
change bumps the recorder's version, so that an instruction that changed nothing can break in place.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from ..core.source import Source
from .variables.base import VariableTracker

if TYPE_CHECKING:
    from .recorder import Recorder


@dataclasses.dataclass
class GlobalWrite:
    """A global variable written: `holder` is the source of a function's globals, None for the frame's own."""

    name: str
    holder: Source | None
    value: VariableTracker | None      # None: deleted


@dataclasses.dataclass
class DeferredCall:
    """A call that runs after the graph in program order, such as a registered logging function."""

    function: VariableTracker
    args: list[VariableTracker]
    kwargs: dict[str, VariableTracker]


class SideEffects:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.readded: set[tuple[VariableTracker, str]] = set()
        self.attributes: dict[VariableTracker, dict[str, VariableTracker | None]] = {}
        self.containers: dict[VariableTracker, None] = {}
        self.cells: dict[VariableTracker, VariableTracker | None] = {}
        self.globals: dict[tuple[int, str], GlobalWrite] = {}
        self.deferred: list[DeferredCall] = []
        self.log: list[tuple[str, Any]] = []

    # -- writes -------------------------------------------------------------------------------
    def _note(self, kind: str, key: Any) -> None:
        self.recorder.changed()
        self.log.append((kind, key))

    def store_attr(self, obj: VariableTracker, name: str, value: VariableTracker | None) -> None:
        """value None: the attribute was deleted."""
        table = self.attributes.setdefault(obj, {})
        if name in table and table[name] is None and value is not None:
            del table[name]
            self.readded.add((obj, name))
        table[name] = value
        self._note("attr", obj)

    def class_write(self, cls: type, name: str) -> VariableTracker | None:
        """The value assigned in the trace to an attribute of cls or of the base that would be found first."""
        if not any(type(o).__name__ == "UserDefinedClassVariable" for o in self.attributes):
            return None
        written = {o.value: table for o, table in self.attributes.items() if type(o).__name__ == "UserDefinedClassVariable"}  # type: ignore[attr-defined]
        for base in cls.__mro__:
            if base in written and name in written[base]:
                return written[base][name]
            if name in base.__dict__:
                return None
        return None

    def load_attr(self, obj: VariableTracker, name: str) -> tuple[bool, VariableTracker | None]:
        """(was it written here, its value or None if deleted)."""
        table = self.attributes.get(obj)
        if table is None or name not in table:
            return False, None
        return True, table[name]

    def mutate(self, container: VariableTracker) -> None:
        """Called before a container changes."""
        if container.existing:
            self.containers.setdefault(container)
        self._note("container", container)

    def store_cell(self, cell: VariableTracker, value: VariableTracker | None) -> None:
        self.cells[cell] = value
        self._note("cell", cell)

    def store_global(self, globals_id: int, name: str, holder: Source | None, value: VariableTracker | None) -> None:
        key = (globals_id, name)
        self.globals.pop(key, None)
        self.globals[key] = GlobalWrite(name, holder, value)
        self._note("global", key)

    def load_global(self, globals_id: int, name: str) -> tuple[bool, VariableTracker | None]:
        written = self.globals.get((globals_id, name))
        return (False, None) if written is None else (True, written.value)

    def defer_call(self, function: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> None:
        self.deferred.append(DeferredCall(function, args, kwargs))
        self._note("call", None)

    # -- reads --------------------------------------------------------------------------------
    def is_empty(self) -> bool:
        existing = any(obj.existing for obj in (*self.attributes, *self.cells))
        return not (existing or self.containers or self.globals or self.deferred)

    def mutated_objects(self) -> list[VariableTracker]:
        """Existing objects that were written, each once, in the order of their first write."""
        seen: dict[VariableTracker, None] = {}
        for kind, key in self.log:
            if kind in ("attr", "container", "cell") and key.existing:
                seen.setdefault(key)
        return list(seen)

    def describe(self) -> list[str]:
        """One readable line per replayed effect."""
        lines = []
        for obj, table in self.attributes.items():
            if obj.existing:
                lines += [f"{obj.source}.{name} = ..." if value is not None else f"del {obj.source}.{name}" for name, value in table.items()]
        lines += [f"{c.source}[:] = ..." for c in self.containers]
        lines += [f"{c.source} := ..." for c in self.cells if c.existing]
        lines += [f"global {w.name} = ..." for w in self.globals.values()]
        lines += ["deferred call" for _ in self.deferred]
        return lines
