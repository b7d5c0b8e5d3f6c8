"""Modules, methods and functions written in C, super objects, stack markers, opaque values."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from ...core.exc import StepUnsupported
from ...core.reasons import BreakReason, UnsupportedOperation
from ...core.source import AttrSource
from .base import NOTHING, VariableTracker
from .constant import boolean

if TYPE_CHECKING:
    from ..interpreter import InstructionTranslatorBase as Tx


class NullVariable(VariableTracker):
    """The NULL that CPython pushes below a callable."""

    def python_type(self) -> type:
        raise NotImplementedError("NULL has no type")

    def debug_repr(self) -> str:
        return "NullVariable"


class PreviousExceptionVariable(VariableTracker):
    """What PUSH_EXC_INFO saves: the exception that was being handled before. handled: the new one."""

    def __init__(self, previous: VariableTracker, handled: VariableTracker) -> None:
        self.previous = previous
        self.handled = handled

    def python_type(self) -> type:
        return object


class NativeMethodVariable(VariableTracker):
    """A method of a C type bound to a tracker: `[].append`."""

    def __init__(self, receiver: VariableTracker, name: str, descriptor: Any) -> None:
        self.receiver = receiver
        self.name = name
        self.descriptor = descriptor

    def python_type(self) -> type:
        return types.BuiltinMethodType if isinstance(self.descriptor, types.MethodDescriptorType) else types.MethodWrapperType if isinstance(self.descriptor, types.WrapperDescriptorType) else types.MethodType

    def native_bool(self, tx: Tx) -> bool | None:
        return True

    def special_getattr(self, tx: Tx, name: str) -> VariableTracker:
        from ..protocol import generic_getattr

        if name == "__self__":
            return self.receiver
        if name in ("__name__", "__qualname__", "__doc__"):
            return tx.wrap(getattr(self.descriptor, name))
        return generic_getattr(tx, self, name)

    def call_function(self, tx: Tx, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        from .. import calls

        return calls.call_native_method(tx, self, args, kwargs)

    def compare(self, tx: Tx, op: str, other: VariableTracker) -> VariableTracker | None:
        other = other.realize()
        if isinstance(other, NativeMethodVariable) and op in ("==", "!="):
            return boolean((self.receiver is other.receiver and self.name == other.name) == (op == "=="))
        return None

    def debug_repr(self) -> str:
        return f"NativeMethodVariable({self.receiver!r}.{self.name})"


class PythonModuleVariable(VariableTracker):
    def __init__(self, value: types.ModuleType, source: Any = None) -> None:
        self.value = value
        self.source = source
        self.existing = True

    @property
    def hashable_value(self) -> Any:
        return self.value

    def python_type(self) -> type:
        return type(self.value)

    def special_getattr(self, tx: Tx, name: str) -> VariableTracker:
        written, found = tx.recorder.side_effects.load_attr(self, name)
        if written:
            if found is None:
                raise tx.raise_(AttributeError, f"module {self.value.__name__!r} has no attribute {name!r}", name=name)
            return found
        try:
            value = getattr(self.value, name)
        except AttributeError as err:
            raise tx.raise_(AttributeError, str(err), name=name) from None
        trusted = tx.trusted_global(self.value.__dict__, value)
        return tx.lazy(value, None if trusted or self.source is None else AttrSource(self.source, name))

    def instance_setattr(self, tx: Tx, name: str, value: VariableTracker | None) -> None:
        tx.recorder.side_effects.store_attr(self, name, value)

    def is_same_object(self, tx: Tx, other: VariableTracker) -> bool:
        return isinstance(other, PythonModuleVariable) and other.value is self.value


class SuperVariable(VariableTracker):
    """super(cls, obj)."""

    def __init__(self, start: type, receiver: VariableTracker, receiver_type: type, bound_to_class: bool) -> None:
        self.start = start
        self.receiver = receiver
        self.receiver_type = receiver_type
        self.bound_to_class = bound_to_class

    def python_type(self) -> type:
        return super

    def special_getattr(self, tx: Tx, name: str) -> VariableTracker:
        from ..protocol import descriptor_get

        mro = self.receiver_type.__mro__
        for base in mro[mro.index(self.start) + 1:]:
            if name in base.__dict__:
                attr = base.__dict__[name]
                owner = tx.wrap(base)
                if isinstance(attr, types.FunctionType):
                    from .functions import UserMethodVariable

                    fn = tx.wrap(attr, AttrSource(tx.class_value_source(base), name) if tx.class_value_source(base) else None)
                    return fn if self.bound_to_class else UserMethodVariable(fn, self.receiver)
                if name == "__new__" and isinstance(attr, (staticmethod, types.BuiltinFunctionType)):
                    return tx.wrap(attr.__func__ if isinstance(attr, staticmethod) else attr)
                if isinstance(attr, classmethod):
                    from .functions import UserMethodVariable

                    fn = tx.wrap(attr.__func__)
                    return UserMethodVariable(fn, self.receiver if self.bound_to_class else self.receiver.class_variable(tx))
                if isinstance(attr, (types.WrapperDescriptorType, types.MethodDescriptorType)) and not self.bound_to_class:
                    return SuperMethodVariable(self.receiver, name, attr)
                if isinstance(attr, property) and not self.bound_to_class:
                    getter = tx.wrap(attr.fget, None)
                    return getter.call_function(tx, [self.receiver], {})
                if isinstance(attr, types.ClassMethodDescriptorType):
                    raise self.unsupported(f"super().{name}, a class method implemented in C")
                return descriptor_get(tx, attr, name, None if self.bound_to_class else self.receiver, self.receiver_type, owner)
        raise tx.raise_(AttributeError, f"'super' object has no attribute {name!r}", name=name)


class SuperMethodVariable(NativeMethodVariable):
    """A C method reached through super(): the override in the subclass must not run."""


class OpaqueVariable(VariableTracker):
    """A value the tracer can hand on but not look into. reason: why any use breaks the graph."""

    def __init__(self, value: Any, source: Any, reason: BreakReason | None = None) -> None:
        self.value = value
        self.source = source
        self.existing = True
        self.reason = reason

    def python_type(self) -> type:
        return type(self.value)

    def special_getattr(self, tx: Tx, name: str) -> VariableTracker:
        raise StepUnsupported(self.reason or UnsupportedOperation(f"attribute {name!r} of {self.describe()}"))

    def call_function(self, tx: Tx, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        raise StepUnsupported(self.reason or UnsupportedOperation(f"calling {self.describe()}"))

    def _refuse(self, *methods: str) -> None:
        """Break where the type has a special method of its own: what it answers is not known here."""
        cls = type(self.value)
        if any(getattr(cls, m, None) is not getattr(object, m, None) for m in methods):
            raise StepUnsupported(self.reason or UnsupportedOperation(f"{methods[0]} of {self.describe()}"))

    def binary(self, tx: Tx, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        from ..protocol import BINARY

        self._refuse(*BINARY[op][1:])
        return None

    def compare(self, tx: Tx, op: str, other: VariableTracker) -> VariableTracker | None:
        from ..protocol import COMPARE

        self._refuse(COMPARE[op][1])
        return None

    def unary(self, tx: Tx, op: str) -> VariableTracker | None:
        from ..protocol import UNARY

        self._refuse(UNARY[op][1])
        return None

    def native_bool(self, tx: Tx) -> bool | None:
        self._refuse("__bool__")
        return None

    @property
    def hashable_value(self) -> Any:
        return NOTHING if type(self.value).__hash__ is None else self.value
