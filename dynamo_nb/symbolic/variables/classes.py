"""Classes: attribute access with metaclass rules, and making instances."""

from __future__ import annotations

import enum
import types
from typing import TYPE_CHECKING, Any

import torch

from ...core.exc import StepUnsupported
from ...core.reasons import UnsupportedOperation
from ...core.source import AttrSource
from ...cpython.classes import is_python_class
from .base import NOTHING, VariableTracker, const
from .constant import ConstantVariable

if TYPE_CHECKING:
    from ..interpreter import InstructionTranslatorBase as Tx


class UserDefinedClassVariable(VariableTracker):
    """A class object, builtin or written in Python."""

    def __init__(self, value: type, source: Any = None) -> None:
        self.value = value
        self.source = source
        self.existing = True

    @property
    def hashable_value(self) -> Any:
        return self.value

    def python_type(self) -> type:
        return type(self.value)

    def native_bool(self, tx: Tx) -> bool | None:
        return True

    def is_graph_argument(self) -> bool:
        return False

    # -- attributes -----------------------------------------------------------------------------
    def special_getattr(self, tx: Tx, name: str) -> VariableTracker:
        from ..protocol import MISSING, _is_data_descriptor, descriptor_get, type_lookup

        meta = type(self.value)
        meta_attr = type_lookup(meta, name)
        written = tx.recorder.side_effects.class_write(self.value, name)
        if written is not None:
            return written
        if name in ("__name__", "__qualname__", "__module__", "__doc__", "__mro__", "__bases__", "__base__", "__dict__", "__annotations__"):
            return self._type_field(tx, name)
        if meta_attr is not MISSING and _is_data_descriptor(meta_attr) and meta is not type and not isinstance(meta_attr, types.GetSetDescriptorType):
            return self._meta_attr(tx, meta_attr, name)
        attr = type_lookup(self.value, name)
        if attr is not MISSING:
            if isinstance(self.value, enum.EnumMeta) and isinstance(attr, enum.Enum):
                return ConstantVariable(attr)
            return descriptor_get(tx, attr, name, None, self.value, self)
        if isinstance(self.value, enum.EnumMeta) and name in self.value.__members__:
            return ConstantVariable(self.value.__members__[name])
        if meta_attr is not MISSING:
            return self._meta_attr(tx, meta_attr, name)
        raise tx.raise_(AttributeError, f"type object {self.value.__name__!r} has no attribute {name!r}", name=name)

    def _meta_attr(self, tx: Tx, attr: Any, name: str) -> VariableTracker:
        from ..protocol import descriptor_get

        return descriptor_get(tx, attr, name, self, type(self.value))

    def _type_field(self, tx: Tx, name: str) -> VariableTracker:
        from .sequences import TupleVariable

        value = getattr(self.value, name)
        if name in ("__mro__", "__bases__"):
            return TupleVariable([tx.wrap(c) for c in value])
        if name == "__dict__":
            raise StepUnsupported(UnsupportedOperation("the namespace of a class"))
        if name == "__annotations__":
            return tx.lazy(value, AttrSource(self.source, name) if self.source else None)
        return tx.wrap(value)

    def instance_setattr(self, tx: Tx, name: str, value: VariableTracker | None) -> None:
        from ..protocol import type_lookup

        if not is_python_class(self.value):
            raise self.unsupported(f"assignment to an attribute of {self.value.__name__}")
        if name.startswith("__") and name.endswith("__"):
            raise self.unsupported(f"assignment to {self.value.__name__}.{name}")
        if value is None:
            raise self.unsupported(f"deleting an attribute of {self.value.__name__}")
        if hasattr(value.python_type(), "__get__") or hasattr(type(type_lookup(self.value, name)), "__get__"):
            raise self.unsupported(f"assignment of or over a descriptor on {self.value.__name__}")
        tx.recorder.side_effects.store_attr(self, name, value)

    # -- behaviour ------------------------------------------------------------------------------
    def call_function(self, tx: Tx, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        from .. import instances

        return instances.call_class(tx, self, args, kwargs)

    def is_same_object(self, tx: Tx, other: VariableTracker) -> bool:
        return isinstance(other, UserDefinedClassVariable) and other.value is self.value

    def compare(self, tx: Tx, op: str, other: VariableTracker) -> VariableTracker | None:
        other = other.realize()
        if op in ("==", "!=") and isinstance(other, UserDefinedClassVariable):      # others may know more: np.dtype == np.float32
            return ConstantVariable((other.value is self.value) == (op == "=="))
        return None

    def binary(self, tx: Tx, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        theirs = getattr(other.realize(), "value", NOTHING)
        if op == "|" and theirs is not NOTHING and not reflected:
            return tx.wrap(self.value | theirs)
        return None

    def native_iter(self, tx: Tx) -> VariableTracker | None:
        from .iterators import ListIteratorVariable

        if isinstance(self.value, enum.EnumMeta):
            return ListIteratorVariable([ConstantVariable(m) for m in self.value], origin=None)
        return None

    def native_len(self, tx: Tx) -> VariableTracker | None:
        return ConstantVariable(len(self.value)) if isinstance(self.value, enum.EnumMeta) else None

    @property
    def native_specials(self) -> bool:
        return isinstance(self.value, enum.EnumMeta)

    def native_contains(self, tx: Tx, item: VariableTracker) -> VariableTracker | None:
        value = const(item)
        if isinstance(self.value, enum.EnumMeta) and value is not NOTHING:
            return tx.fold(lambda: value in self.value, [], {})
        return None

    def native_getitem(self, tx: Tx, key: VariableTracker) -> VariableTracker | None:
        if isinstance(self.value, enum.EnumMeta):
            name = const(key)
            return tx.fold(lambda: self.value[name], [], {})
        if hasattr(self.value, "__class_getitem__"):
            value = const(key)
            value = getattr(key.realize(), "value", value) if value is NOTHING else value
            if value is not NOTHING:
                return tx.wrap(self.value[value])
        return None

    def call_method(self, tx: Tx, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        from .. import instances

        result = instances.class_method(tx, self, name, args, kwargs)
        return result if result is not None else super().call_method(tx, name, args, kwargs)

    def debug_repr(self) -> str:
        return f"UserDefinedClassVariable({self.value.__name__})"


def is_module_class(cls: type) -> bool:
    return issubclass(cls, torch.nn.Module)
