"""Descriptors of the standard library whose C or locking code is replaced: cached_property and partialmethod."""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any

from ...core.source import AttrSource
from ..variables.base import VariableTracker

if TYPE_CHECKING:
    from ..interpreter import InstructionTranslatorBase as Tx


def get(tx: Tx, attr: Any, name: str, obj: VariableTracker | None, cls: type, source: Any) -> VariableTracker | None:
    if obj is None:
        return None
    if isinstance(attr, functools.cached_property):
        return _cached_property(tx, attr, obj, source)
    if isinstance(attr, functools.partialmethod):
        fn = tx.wrap(attr.func).call_function
        return _Bound(lambda args, kwargs: fn(tx, [obj, *[tx.wrap(a) for a in attr.args], *args], {**{k: tx.wrap(v) for k, v in attr.keywords.items()}, **kwargs}))
    if isinstance(attr, types.DynamicClassAttribute) and obj.is_python_constant():
        value = obj.as_python_constant()
        return tx.wrap(tx.checked(lambda: getattr(value, name)))
    if type(attr).__name__ == "_tuplegetter":
        index = attr.__reduce__()[1][0]
        holder = getattr(obj, "storage", None) or obj
        return holder.items[index]
    return None


def _cached_property(tx: Tx, attr: Any, obj: VariableTracker, source: Any) -> VariableTracker:
    """Compute once, then store under the property's name in the instance."""
    getter = tx.wrap(attr.func, AttrSource(source, "func") if source else None)
    value = getter.call_function(tx, [obj], {})
    obj.instance_setattr(tx, attr.attrname, value)  # type: ignore[attr-defined]
    return value


class _Bound(VariableTracker):
    """A callable made on the fly; it never outlives the call."""

    def __init__(self, call: Any) -> None:
        self.call = call

    def python_type(self) -> type:
        return functools.partial

    def call_function(self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return self.call(args, kwargs)
