"""isinstance, issubclass, type, super, callable, id and hash."""

from __future__ import annotations

import functools
import inspect
import types
from typing import TYPE_CHECKING, Any

import torch

from ...core.exc import StepUnsupported
from ...core.reasons import UnsupportedOperation
from .. import protocol
from ..variables.base import NOTHING, VariableTracker, const
from ..variables.classes import UserDefinedClassVariable
from ..variables.constant import ConstantVariable, boolean
from ..variables.functions import UserFunctionVariable, UserMethodVariable
from ..variables.misc import SuperVariable
from ..variables.tensor import TensorVariable
from . import handles

if TYPE_CHECKING:
    from ..interpreter import InstructionTranslatorBase as Tx


def class_spec(tx: Tx, spec: VariableTracker) -> Any:
    """The classinfo operand as a real class, union or nested tuple of classes."""
    spec = spec.realize()
    items = getattr(spec, "items", None)
    if isinstance(items, list):
        return tuple(class_spec(tx, i) for i in items)
    value = getattr(spec, "value", NOTHING)
    if isinstance(value, (type, types.UnionType)) or hasattr(type(value), "__instancecheck__"):
        return value
    raise StepUnsupported(UnsupportedOperation(f"isinstance() with a {spec.describe()}"))


def isinstance_of(tx: Tx, obj: VariableTracker, spec: Any) -> bool:
    if isinstance(spec, tuple):
        return any(isinstance_of(tx, obj, s) for s in spec)
    if isinstance(spec, types.UnionType):
        return any(isinstance_of(tx, obj, s) for s in spec.__args__)
    cls = obj.python_type()
    if isinstance(obj, TensorVariable):
        return _tensor_isinstance(obj, cls, spec)
    if not isinstance(spec, type):
        return bool(tx.checked(lambda: isinstance(_instance(obj, cls), spec)))
    check = protocol.type_lookup(type(spec), "__instancecheck__")
    if isinstance(check, types.FunctionType) and not _known_check(check):
        meta = tx.wrap(spec)
        return protocol.truth(tx, tx.wrap(check).call_function(tx, [meta, obj], {}))
    return bool(tx.checked(lambda: issubclass(cls, spec)))


def _known_check(check: types.FunctionType) -> bool:
    return check.__module__ in ("abc", "typing", "torch.nn.parameter", "torch", "enum", "_py_abc")


def _tensor_isinstance(obj: TensorVariable, cls: type, spec: Any) -> bool:
    if spec in (torch.nn.Parameter, torch.nn.Buffer):
        return issubclass(cls, spec)
    if isinstance(spec, type) and type(spec).__name__ == "tensortype":
        return torch.empty(0, dtype=obj.fake.dtype).type() == f"{spec.__module__}.{spec.__name__}"
    return issubclass(cls, spec) if isinstance(spec, type) else False


def _instance(obj: VariableTracker, cls: type) -> Any:
    value = const(obj)
    return value if value is not NOTHING else cls.__new__(cls)


@handles(isinstance)
def isinstance_(tx: Tx, obj: VariableTracker, spec: VariableTracker) -> VariableTracker:
    return boolean(isinstance_of(tx, obj.realize(), class_spec(tx, spec)))


@handles(issubclass)
def issubclass_(tx: Tx, cls: VariableTracker, spec: VariableTracker) -> VariableTracker:
    value = getattr(cls.realize(), "value", NOTHING)
    wanted = class_spec(tx, spec)
    return tx.fold(issubclass, [value, wanted], {})


@handles(type)
def type_(tx: Tx, obj: VariableTracker) -> VariableTracker:
    return type_of(tx, obj.realize())


def type_of(tx: Tx, obj: VariableTracker) -> VariableTracker:
    return obj.class_variable(tx)


@handles(callable)
def callable_(tx: Tx, obj: VariableTracker) -> VariableTracker:
    obj = obj.realize()
    if isinstance(obj, UserDefinedClassVariable):
        return boolean(True)
    return boolean(protocol.type_lookup(obj.python_type(), "__call__") not in (protocol.MISSING, None))


@handles(super)
def super_(tx: Tx, cls: VariableTracker | None = None, obj: VariableTracker | None = None) -> VariableTracker:
    if cls is None:
        cls, obj = _implicit(tx)
    if obj is None:
        raise StepUnsupported(UnsupportedOperation("unbound super()"))
    start, receiver = cls.realize(), obj.realize()
    assert isinstance(start, UserDefinedClassVariable)
    if isinstance(receiver, UserDefinedClassVariable) and issubclass(receiver.value, start.value):
        return SuperVariable(start.value, receiver, receiver.value, True)
    if not issubclass(receiver.python_type(), start.value):
        raise tx.raise_(TypeError, "super(type, obj): obj must be an instance or subtype of type")
    return SuperVariable(start.value, receiver, receiver.python_type(), False)


def _implicit(tx: Tx) -> tuple[VariableTracker, VariableTracker]:
    cell = tx.cells.get("__class__")
    cls = cell.load(tx) if cell is not None else None
    first = tx.code.co_varnames[0] if tx.code.co_argcount else None
    obj = tx.locals.get(first) if first else None
    if obj is None and first in tx.cells:
        obj = tx.cells[first].load(tx)
    if cls is None or obj is None:
        raise StepUnsupported(UnsupportedOperation("super() without its class or first argument"))
    return cls, obj


@handles(id)
def id_(tx: Tx, obj: VariableTracker) -> VariableTracker:
    obj = obj.realize()
    if isinstance(obj, UserDefinedClassVariable) or type(obj).__name__ in ("PythonModuleVariable", "UserFunctionVariable"):
        return ConstantVariable(id(getattr(obj, "value", obj)))
    value = getattr(obj, "value", None)
    if obj.existing and obj.source is not None and value is not None and not obj.is_python_constant() and tx.weakly_referenced(value):
        tx.recorder.assume(tx, obj.source, "ID_MATCH", value)
        return ConstantVariable(id(value))
    raise StepUnsupported(UnsupportedOperation(f"id() of a {obj.describe()}"))


@handles(hash)
def hash_(tx: Tx, obj: VariableTracker) -> VariableTracker | None:
    obj = obj.realize()
    value = const(obj)
    if value is not NOTHING:
        return tx.fold(hash, [value], {})
    return protocol.special(tx, obj, "__hash__", [])


@handles(torch.finfo, torch.iinfo)
def number_info(tx: Tx, dtype: VariableTracker | None = None) -> VariableTracker | None:
    value = None if dtype is None else const(dtype)
    if value is NOTHING or (value is None and dtype is not None):
        return None
    kind = torch.finfo if value is None or value.is_floating_point or value.is_complex else torch.iinfo
    return tx.fold(kind, [] if value is None else [value], {})


@handles(object)
def object_(tx: Tx) -> VariableTracker:
    return tx.new_instance(object, None)


@handles(inspect.signature)
def signature(tx: Tx, fn: VariableTracker) -> VariableTracker | None:
    """The signature of a function from outside; its code and defaults are guarded where it was looked up."""
    fn = fn.realize()
    if isinstance(fn, UserMethodVariable) and isinstance(fn.fn.realize(), UserFunctionVariable):
        return tx.fold(lambda: inspect.signature(types.MethodType(fn.fn.realize().fn, object())), [], {})  # type: ignore[attr-defined]
    value = getattr(fn, "value", NOTHING)
    return tx.fold(inspect.signature, [value], {}) if value is not NOTHING and callable(value) else None


@handles(functools.singledispatch)
def singledispatch(tx: Tx, fn: VariableTracker) -> VariableTracker:
    raise StepUnsupported(UnsupportedOperation("functools.singledispatch inside the compiled function"))
