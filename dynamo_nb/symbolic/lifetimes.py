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
    """The values of one resumed frame whose end can be seen."""

    def __init__(self) -> None:
        self.values: list[LazyVariableTracker] = []

    def add(self, value: Any, vt: VariableTracker) -> None:
        if isinstance(vt, LazyVariableTracker) and ends_visibly(value):
            self.values.append(vt)

    def find(self, vt: VariableTracker | None) -> LazyVariableTracker | None:
        return next((own for own in self.values if vt is own or vt is own.inner), None) if vt is not None else None

    def dropping(self, tx: Tx, vt: VariableTracker | None) -> None:
        """Called before the root frame lets go of one reference; breaks the graph if it is the last."""
        own = self.find(vt)
        if own is None or tx.depth:
            return
        held = [*tx.start_stack, *tx.locals.values(), *(cell.load(tx) for cell in tx.cells.values())]
        if sum(self.find(other) is own for other in held) == 1:
            tx.recorder.assume(tx, own.source, "TYPE_MATCH", own.peek_type())
            raise StepUnsupported(UnsupportedOperation(f"the end of a {own.peek_type().__name__}, which can be seen"))
