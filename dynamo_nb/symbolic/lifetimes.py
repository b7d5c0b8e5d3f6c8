"""Objects whose end can be seen (finalizers, open generators, files): when a frame drops one is part of what it does.

A resumed frame owns what it was handed over: nobody else holds it any more. Such a value stays in the frame
as long as in eager Python, and an instruction that drops it is run by the original code, in its place among
the other effects. Arguments of a frame called from outside are held by its caller.
"""

from __future__ import annotations

import _io
import types
import weakref
from typing import TYPE_CHECKING, Any

import torch

from ..core.exc import StepUnsupported
from ..core.reasons import UnsupportedOperation
from ..cpython.classes import is_python_class
from .variables.base import LazyVariableTracker, VariableTracker

if TYPE_CHECKING:
    from .interpreter import InstructionTranslatorBase as Tx
    from .recorder import Recorder

SILENT = frozenset({type(None), bool, int, float, complex, str, bytes, tuple, list, dict, set, range, slice, torch.Tensor, torch.nn.Parameter})
HELD_BY_CACHES = (torch.nn.Module, torch.Tensor, type, types.FunctionType)


def ends_visibly(value: Any) -> bool:
    """Can user code, or the world outside, notice that this object is gone? Runs nothing of the user's."""
    cls = type(value)
    if cls in SILENT:
        return False
    if cls is types.GeneratorType:
        return value.gi_frame is not None and bool(value.gi_code.co_exceptiontable)
    bases = type.__dict__["__mro__"].__get__(cls)
    if _io._IOBase in bases or any("__del__" in vars(base) for base in bases):
        return True
    return is_python_class(cls) and not any(base in bases for base in HELD_BY_CACHES) and weakref.getweakrefcount(value) > 0


class Owned:
    """The values handed over to a resumed frame, and whether their end can be seen."""

    def __init__(self) -> None:
        self.given: dict[LazyVariableTracker, bool] = {}

    def add(self, value: Any, vt: VariableTracker) -> None:
        if isinstance(vt, LazyVariableTracker):
            self.given[vt] = ends_visibly(value)

    def find(self, vt: VariableTracker | None) -> LazyVariableTracker | None:
        return next((own for own in self.given if vt is own or vt is own.inner), None) if vt is not None else None

    def dropping(self, tx: Tx, vt: VariableTracker | None) -> None:
        """Called before the root frame lets go of one reference; breaks the graph if it is the last of a value that matters."""
        own = self.find(vt)
        if own is None or tx.depth:
            return
        held = [*tx.start_stack, *tx.locals.values(), *(cell.load(tx) for cell in tx.cells.values())]
        if sum(self.find(other) is own for other in held) == 1 and not self.ends_silently(tx.recorder, own):
            raise StepUnsupported(UnsupportedOperation(f"the end of a {own.peek_type().__name__}, which can be seen"))

    def ends_silently(self, recorder: Recorder, own: LazyVariableTracker) -> bool:
        """May it be dropped early? At the next call another type may stand here, looked at by nobody: that is guarded."""
        if not own.is_realized:
            recorder.assume(None, own.source, "TYPE_MATCH", own.peek_type())
        return not self.given[own]

    def kept(self, recorder: Recorder, dead: dict[str, VariableTracker]) -> set[str]:
        """Which of a frame's variables that are never read again must stay alive at a break."""
        owned = {name: own for name, value in dead.items() if (own := self.find(value)) is not None}
        return {name for name, own in owned.items() if not self.ends_silently(recorder, own)}
