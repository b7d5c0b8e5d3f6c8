"""Errors and control-flow signals.

Errors derive from `DynamoError` and reach the user; signals derive from `Signal` and never leave a
compile: they unwind the symbolic interpreter to whoever can act on them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .reasons import BreakReason


class DynamoError(RuntimeError):
    """Base of the errors this package raises on its own account."""


class InternalError(DynamoError):
    """The compiler failed; the original code runs instead unless strict mode is on."""


class Unsupported(DynamoError):
    """fullgraph=True met code that breaks the graph. `.reason` says which kind."""

    def __init__(self, message: str, reason: BreakReason | None = None) -> None:
        super().__init__(message)
        self.reason = reason


class TorchRuntimeError(DynamoError):
    """An operation failed on fake tensors where eager's own error could not be shown instead."""


class BackendCompilerFailed(DynamoError):
    """The backend raised while compiling a graph. `.inner_exception` is what it raised."""

    def __init__(self, backend: Any, inner: BaseException, where: str = "") -> None:
        self.backend_name = backend if isinstance(backend, str) else getattr(backend, "__name__", repr(backend))
        self.inner_exception = inner
        super().__init__(f"backend={self.backend_name!r} raised:\n{type(inner).__name__}: {inner}{where}")


class InvalidBackend(DynamoError):
    """An unknown backend name; the message lists the known ones."""


class ResetRequired(DynamoError):
    """The compiled state no longer fits the request; call reset() first."""


class FailOnRecompileLimitHit(DynamoError):
    """The recompile limit was reached with fail_on_recompile_limit_hit or fullgraph=True."""


class UserError(DynamoError):
    """The program asks for something contradictory, such as a broken mark_dynamic promise."""


class ConstraintViolationError(UserError):
    """A dimension marked dynamic was specialised."""


class Signal(Exception):
    """Base of control-flow signals inside the compiler."""


class StepUnsupported(Signal):
    """The current instruction cannot be captured; the nearest frame that can be cut breaks there."""

    def __init__(self, reason: BreakReason, *, after: bool = False) -> None:
        super().__init__(str(reason))
        self.reason = reason
        self.after = after


class RestartAnalysis(Signal):
    """Trace the frame again, this time breaking before global step `step`."""

    def __init__(self, step: int, reason: BreakReason, path: tuple[Any, ...]) -> None:
        super().__init__(str(reason))
        self.step = step
        self.reason = reason
        self.path = path


class SkipFrame(Signal):
    """The frame is better run as plain Python. `permanent`: also in later calls."""

    def __init__(self, why: str, *, permanent: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.permanent = permanent


class ReturnValueOp(Signal):
    """A traced frame returned."""


class YieldValueOp(Signal):
    """A traced generator yielded."""


class ObservedException(Signal):
    """User code raises inside the trace; `value` is the symbolic exception."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value
