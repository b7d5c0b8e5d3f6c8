"""`ConstantVariable`: immutable values computed while tracing.

Numbers, strings, bytes, None, dtypes, devices, enum members, code objects, slices of constants and the
like. Operations on constants alone are executed for real, so their results and errors are Python's.
"""

from __future__ import annotations

import enum
import types
from typing import TYPE_CHECKING, Any

import torch

from .base import NOTHING, VariableTracker, const

if TYPE_CHECKING:
    from ..interpreter import InstructionTranslatorBase as Tx

CONSTANT_TYPES: tuple[type, ...] = (
    type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented),
    torch.dtype, torch.device, torch.layout, torch.memory_format, torch.qscheme, types.CodeType, torch.finfo, torch.iinfo,
)
EXACT = frozenset(CONSTANT_TYPES)


def is_constant_value(value: Any) -> bool:
    return type(value) in EXACT or isinstance(value, enum.Enum)


class ConstantVariable(VariableTracker):
    """An immutable value known while tracing."""

    def __init__(self, value: Any, source: Any = None) -> None:
        self.value = value
        self.source = source
        self.existing = False

    def python_type(self) -> type:
        return type(self.value)

    def is_python_constant(self) -> bool:
        return True

    def as_python_constant(self) -> Any:
        return self.value

    def native_getattr(self, tx: Tx, name: str) -> VariableTracker | None:
        try:
            value = getattr(self.value, name)
        except AttributeError:
            return None
        if isinstance(value, (types.BuiltinMethodType, types.MethodWrapperType, types.MethodType)):
            return None
        return tx.wrap(value)

    def call_method(self, tx: Tx, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        from .. import polyfills

        plain = [const(a) for a in args]
        named = {k: const(v) for k, v in kwargs.items()}
        if all(p is not NOTHING for p in plain) and all(v is not NOTHING for v in named.values()):
            return tx.fold(getattr(self.value, name), plain, named)
        replacement = polyfills.method(type(self.value), name)
        if replacement is not None:
            return tx.call_polyfill(replacement, [self, *args], kwargs)
        return super().call_method(tx, name, args, kwargs)

    def binary(self, tx: Tx, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        """Text with a number that varies, or a template with a container of operands."""
        from .. import protocol
        from ..builtins.strings import mod
        from .numeric import SymNodeVariable

        other = other.realize()
        if not isinstance(self.value, (str, bytes)):
            return None
        if op == "%" and not reflected and isinstance(self.value, str):
            return mod(tx, self, other)
        if isinstance(other, SymNodeVariable):
            theirs = other.specialize(tx)
            return protocol.binary(tx, op, theirs, self) if reflected else protocol.binary(tx, op, self, theirs)
        return None

    def native_bool(self, tx: Tx) -> bool | None:
        if isinstance(self.value, enum.Enum) and not isinstance(self.value, int):
            return None
        return bool(self.value)

    def native_len(self, tx: Tx) -> VariableTracker | None:
        if isinstance(self.value, (str, bytes)):
            return ConstantVariable(len(self.value))
        return None

    def native_iter(self, tx: Tx) -> VariableTracker | None:
        from .iterators import ListIteratorVariable

        if isinstance(self.value, (str, bytes)):
            return ListIteratorVariable([ConstantVariable(c) for c in self.value], python_type=type(iter(self.value)), origin=self)
        return None

    def native_contains(self, tx: Tx, item: VariableTracker) -> VariableTracker | None:
        value = const(item)
        if isinstance(self.value, (str, bytes)) and value is not NOTHING:
            return tx.fold(lambda: value in self.value, [], {})
        return None

    def native_getitem(self, tx: Tx, key: VariableTracker) -> VariableTracker | None:
        index = const(key)
        if isinstance(self.value, (str, bytes)) and index is not NOTHING:
            return tx.fold(lambda: self.value[index], [], {})
        return None

    def debug_repr(self) -> str:
        value = repr(self.value) if not isinstance(self.value, str) else repr(self.value)
        return f"ConstantVariable({type(self.value).__name__}: {value})"


NONE = ConstantVariable(None)
TRUE = ConstantVariable(True)
FALSE = ConstantVariable(False)
NOT_IMPLEMENTED = ConstantVariable(NotImplemented)


def boolean(value: bool) -> ConstantVariable:
    return TRUE if value else FALSE
