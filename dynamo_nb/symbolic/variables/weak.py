"""Weak references and functools.lru_cache wrappers."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from ...core.exc import StepUnsupported
from ...core.reasons import UnsupportedOperation
from .base import VariableTracker
from .hashing import hash_key

if TYPE_CHECKING:
    from ..interpreter import InstructionTranslatorBase as Tx


class WeakRefVariable(VariableTracker):
    """weakref.ref of a referent the trace keeps alive."""

    def __init__(self, referent: VariableTracker, source: Any = None) -> None:
        self.referent = referent
        self.source = source

    def python_type(self) -> type:
        return weakref.ReferenceType

    def call_function(self, tx: Tx, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return self.referent


class CachedFunctionVariable(VariableTracker):
    """A functools.lru_cache wrapper: followed into the function it wraps.

    Equal calls in one trace give one result. A body with effects of its own must run once per cache
    entry, so it breaks the graph instead.
    """

    def __init__(self, value: Any, source: Any, wrapped: VariableTracker) -> None:
        self.value = value
        self.source = source
        self.wrapped = wrapped
        self.existing = True
        self.results: dict[Any, VariableTracker] = {}

    def python_type(self) -> type:
        return type(self.value)

    def special_getattr(self, tx: Tx, name: str) -> VariableTracker:
        from ..protocol import getattr_

        if name == "__wrapped__":
            return self.wrapped
        if name in ("cache_info", "cache_clear", "cache_parameters"):
            raise StepUnsupported(UnsupportedOperation(f"{name}() of a cached function"))
        return getattr_(tx, self.wrapped, name)

    def bind(self, tx: Tx, obj: VariableTracker) -> VariableTracker:
        from .functions import UserMethodVariable

        return UserMethodVariable(self, obj)

    def call_function(self, tx: Tx, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        key = (tuple(hash_key(tx, a) for a in args), tuple((k, hash_key(tx, v)) for k, v in kwargs.items()))
        if key in self.results:
            return self.results[key]
        effects = len(tx.recorder.side_effects.log)
        result = self.wrapped.call_function(tx, args, kwargs)
        if len(tx.recorder.side_effects.log) != effects or not result.is_python_constant() or result.realize().mutable:
            raise StepUnsupported(UnsupportedOperation(f"the cached function {getattr(self.value, '__name__', '')} has effects or returns an object"))
        self.results[key] = result
        return result
