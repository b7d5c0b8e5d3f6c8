"""Errors that users of torch._dynamo know, by the same names."""

from .core.exc import (
    BackendCompilerFailed,
    ConstraintViolationError,
    DynamoError,
    FailOnRecompileLimitHit,
    InternalError,
    InvalidBackend,
    ObservedException,
    ResetRequired,
    SkipFrame,
    StepUnsupported,
    TorchRuntimeError,
    Unsupported,
    UserError,
)

InternalTorchDynamoError = InternalError
TorchDynamoException = DynamoError
RecompileError = UserError

__all__ = [
    "BackendCompilerFailed", "ConstraintViolationError", "DynamoError", "FailOnRecompileLimitHit", "InternalError", "InternalTorchDynamoError",
    "InvalidBackend", "ObservedException", "RecompileError", "ResetRequired", "SkipFrame", "StepUnsupported", "TorchDynamoException",
    "TorchRuntimeError", "Unsupported", "UserError",
]
