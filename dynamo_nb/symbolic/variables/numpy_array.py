"""NumPy arrays: not captured yet; the value is handed on and its use breaks the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.exc import StepUnsupported
from ...core.reasons import UnsupportedOperation
from .base import VariableTracker
from .misc import OpaqueVariable

if TYPE_CHECKING:
    from ..builder import VariableBuilder
    from ..interpreter import InstructionTranslatorBase as Tx


def from_tensor(tx: Tx, x: Any, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    raise StepUnsupported(UnsupportedOperation("Tensor.numpy()"))


def wrap_input(builder: VariableBuilder, value: Any) -> VariableTracker:
    builder.guard("TYPE_MATCH", type(value))
    return OpaqueVariable(value, builder.source, UnsupportedOperation(f"a NumPy {type(value).__name__}"))
