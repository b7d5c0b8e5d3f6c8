"""What the code after the graph needs: values in an order in which they can be built, graph outputs, sources.

In: the trackers of the stack, the locals and the effects. Out: a `Reach` that `output_graph` emits from.
"""

from __future__ import annotations

from typing import Any

from ..core.source import Source
from ..symbolic.variables.base import LazyVariableTracker, VariableTracker
from ..symbolic.variables.constant import ConstantVariable
from ..symbolic.variables.mappings import ConstDictVariable
from ..symbolic.variables.misc import NullVariable
from ..symbolic.variables.numeric import SymNodeVariable
from ..symbolic.variables.sequences import ListVariable
from ..symbolic.variables.tensor import TensorVariable
from .codegen import CHILDREN, cannot_rebuild, is_known_object, loads_from_source, settle, table_lookup
from .reconstruct import fill_children

VISITING, DONE = 1, 2


class Reach:
    def __init__(self, side_effects: Any) -> None:
        self.side_effects = side_effects
        self.order: list[VariableTracker] = []
        self.outputs: dict[VariableTracker, None] = {}
        self.sources: dict[Source, None] = {}
        self.state: dict[VariableTracker, int] = {}
        self.pending: list[VariableTracker] = []

    def add(self, vt: VariableTracker) -> None:
        self._visit(vt)
        while self.pending:
            made = self.pending.pop(0)
            for child in fill_children(made):
                self._visit(child)
            for value in self.side_effects.attributes.get(made, {}).values():
                if value is not None:
                    self._visit(value)

    def _visit(self, vt: VariableTracker) -> None:
        vt = settle(vt)
        if isinstance(vt, (NullVariable, ConstantVariable)):
            if isinstance(vt, ConstantVariable):
                vt.deferred = False  # type: ignore[attr-defined]
            return
        if isinstance(vt, LazyVariableTracker) or loads_from_source(vt):
            assert vt.source is not None
            self.sources.setdefault(vt.source)
            return
        if is_known_object(vt):
            return
        if isinstance(vt, (TensorVariable, SymNodeVariable)):
            if vt not in self.outputs:
                self.outputs[vt] = None
                if vt in self.side_effects.attributes:
                    self.pending.append(vt)
            return
        self._visit_new(vt)

    def _visit_new(self, vt: VariableTracker) -> None:
        state = self.state.get(vt)
        if state == DONE:
            return
        if state == VISITING:
            if not isinstance(vt, (ListVariable, ConstDictVariable)):
                raise cannot_rebuild(vt)
            vt.deferred = True  # type: ignore[union-attr]
            return
        children = table_lookup(CHILDREN, vt)
        if children is None:
            raise cannot_rebuild(vt)
        self.state[vt] = VISITING
        vt.deferred = False  # type: ignore[attr-defined]
        for child in children(vt):
            self._visit(child)
        self.state[vt] = DONE
        self.order.append(vt)
        self.pending.append(vt)
