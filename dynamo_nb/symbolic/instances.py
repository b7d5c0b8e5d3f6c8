"""Making instances: type.__call__, `__new__` and `__init__` of builtin and user classes; object's methods."""

from __future__ import annotations

import collections
import enum
import functools
import types
from typing import TYPE_CHECKING, Any

import torch

from ..core.exc import StepUnsupported
from ..core.reasons import UnsupportedOperation
from ..cpython.classes import is_python_class
from . import protocol
from .variables.base import NOTHING, VariableTracker, const
from .variables.constant import NONE, NOT_IMPLEMENTED, boolean
from .variables.exceptions import ExceptionVariable
from .variables.mappings import ConstDictVariable, SetVariable
from .variables.sequences import DequeVariable, ListVariable, NamedTupleVariable, TupleVariable
from .variables.user_defined import MISSING, UserDefinedObjectVariable

if TYPE_CHECKING:
    from .interpreter import InstructionTranslatorBase as Tx
    from .variables.classes import UserDefinedClassVariable

STORAGE: dict[type, Any] = {
    list: lambda: ListVariable([]),
    dict: lambda: ConstDictVariable({}),
    collections.OrderedDict: lambda: ConstDictVariable({}, collections.OrderedDict),
    collections.defaultdict: lambda: ConstDictVariable({}, collections.defaultdict),
    set: lambda: SetVariable({}),
    collections.deque: lambda: DequeVariable([]),
}
REFUSED = (torch.Tensor, torch.optim.Optimizer, torch.autograd.Function)


def call_class(tx: Tx, cls: UserDefinedClassVariable, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    from . import builtins as table
    from . import calls

    value = cls.value
    handler = table.handler_of(value)
    if handler is not None:
        result = calls.invoke_handler(tx, handler, value, args, kwargs)
        if result is not None:
            return result
    meta_call = protocol.type_lookup(type(value), "__call__")
    if isinstance(value, enum.EnumMeta):
        return _call_enum(tx, value, args, kwargs)
    if isinstance(meta_call, types.FunctionType):
        return protocol.call_class_attr(tx, cls, type(value), "__call__", meta_call, args, kwargs)
    if issubclass(value, REFUSED):
        raise StepUnsupported(UnsupportedOperation(f"making a {value.__name__} inside the compiled function"))
    return construct(tx, cls, args, kwargs)


def _call_enum(tx: Tx, value: type, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    plain = [const(a) for a in args]
    if len(args) == 1 and not kwargs and NOTHING not in plain:
        return tx.fold(value, plain, {})
    raise StepUnsupported(UnsupportedOperation(f"calling the enum {value.__name__} with these operands"))


def construct(tx: Tx, cls: UserDefinedClassVariable, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    """type.__call__: __new__, then __init__ if the result is an instance."""
    value = cls.value
    new = protocol.type_lookup(value, "__new__")
    function = new.__func__ if isinstance(new, staticmethod) else new
    if isinstance(function, types.FunctionType):
        fn = protocol.getattr_(tx, cls, "__new__")
        obj = fn.call_function(tx, [cls, *args], kwargs).realize()
    else:
        obj = native_new(tx, cls, args, kwargs)
    if issubclass(obj.python_type(), value):
        init = protocol.type_lookup(obj.python_type(), "__init__")
        if isinstance(init, types.FunctionType):
            result = protocol.call_class_attr(tx, obj, obj.python_type(), "__init__", init, args, kwargs)
            if const(result) is not None:
                raise tx.raise_(TypeError, f"__init__() should return None, not {result.python_type().__name__!r}")
        elif getattr(obj, "storage", None) is not None and not isinstance(function, types.FunctionType) and init is not object.__init__:
            native_init(tx, obj, args, kwargs)
    return obj


def native_new(tx: Tx, cls: UserDefinedClassVariable, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    """A new instance of a class whose __new__ is inherited from C."""
    value = cls.value
    if protocol.type_lookup(value, "__del__") is not protocol.MISSING:
        raise cls.unsupported(f"making a {value.__name__}, whose end runs its __del__")
    if issubclass(value, BaseException):
        if value.__new__ not in (BaseException.__new__, Exception.__new__) and not _plain_exception(value):
            raise cls.unsupported(f"making a {value.__name__}")
        made = ExceptionVariable(value, list(args))
        made.step = tx.recorder.step
        return made
    base = _native_base(value)
    if base is object:
        if value.__flags__ & (1 << 20):
            raise tx.call_failed_text(f"{value.__name__} is abstract")
        if (args or kwargs) and protocol.type_lookup(value, "__init__") is object.__init__:
            raise tx.raise_(TypeError, f"{value.__name__}() takes no arguments")
        storage = None
    elif base is tuple:
        items = protocol.unpack(tx, args[0]) if args else []
        return new_tuple(tx, value, items)
    elif base in STORAGE:
        storage = STORAGE[base]()
    elif base in (int, float, str, bytes, complex):
        plain = [const(a) for a in args]
        if NOTHING in plain or kwargs:
            raise cls.unsupported(f"making a {value.__name__} from these operands")
        raise cls.unsupported(f"making a {value.__name__}, a subclass of {base.__name__}")
    else:
        raise cls.unsupported(f"making a {value.__name__}, whose base {base.__name__} is implemented in C")
    made_object = tx.new_instance(value, storage)
    made_object.step = tx.recorder.step
    return made_object


def _plain_exception(value: type) -> bool:
    return all(b.__module__ == "builtins" or "__new__" not in b.__dict__ for b in value.__mro__)


def new_tuple(tx: Tx, value: type, items: list[VariableTracker]) -> VariableTracker:
    if value is tuple:
        return TupleVariable(items)
    if value is torch.Size:
        from .variables.sequences import SizeVariable

        return SizeVariable(items)
    storage = NamedTupleVariable(items, value)
    if value.__dictoffset__ == 0:
        return storage
    obj = UserDefinedObjectVariable(MISSING, value, None, storage)
    obj.step = tx.recorder.step
    return obj


def _native_base(value: type) -> type:
    """The nearest base implemented in C that decides the layout."""
    for base in value.__mro__:
        if not is_python_class(base) or base in STORAGE:
            return base
    return object


def native_init(tx: Tx, obj: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> None:
    """list.__init__, dict.__init__, … on a new instance of a subclass."""
    storage = obj.storage  # type: ignore[attr-defined]
    if isinstance(storage, ConstDictVariable):
        if storage.kind is collections.defaultdict and args:
            storage.factory = args[0]
            args = args[1:]
        for name, method in (("update", protocol.type_lookup(obj.python_type(), "update")),):
            del name, method
        storage.call_method(tx, "update", args, kwargs)
    elif isinstance(storage, DequeVariable):
        limit = args[1] if len(args) > 1 else kwargs.get("maxlen", NONE)
        storage.maxlen = const(limit)
        if args:
            storage.call_method(tx, "extend", args[:1], {})
    elif isinstance(storage, ListVariable) and args:
        storage.call_method(tx, "extend", args, {})
    elif isinstance(storage, SetVariable) and args:
        storage.call_method(tx, "update", args, {})


# -- methods of object ------------------------------------------------------------------------------
def object_method(tx: Tx, obj: VariableTracker, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker | None:
    """C methods every object has: called on instances of user classes."""
    if name in ("__setattr__", "__delattr__"):
        protocol.generic_setattr(tx, obj, args[0].as_python_constant(), args[1] if name == "__setattr__" else None)
        return NONE
    if name == "__getattribute__":
        return protocol.generic_getattr(tx, obj, args[0].as_python_constant())
    if name == "__init__":
        if getattr(obj, "storage", None) is not None:
            native_init(tx, obj, args, kwargs)
        return NONE
    if name == "__init_subclass__":
        return NONE
    storage = getattr(obj, "storage", None)
    if name in ("__eq__", "__ne__") and len(args) == 1 and storage is None:
        if protocol.is_same(tx, obj, args[0]):
            return boolean(name == "__eq__")
        if name == "__ne__":
            equal = protocol.special(tx, obj, "__eq__", args)
            if equal is not None and const(equal) is not NotImplemented:
                return boolean(not protocol.truth(tx, equal))
        return NOT_IMPLEMENTED
    if name in ("__lt__", "__le__", "__gt__", "__ge__") and storage is None:
        return NOT_IMPLEMENTED
    if name in ("__str__", "__format__"):
        return protocol.special(tx, obj, "__repr__", [])
    return None


def class_method(tx: Tx, cls: UserDefinedClassVariable, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker | None:
    """C methods called on a class object: type's own and unbound ones."""
    if name == "__call__":
        return construct(tx, cls, args, kwargs)
    if name in ("mro", "__subclasses__", "__instancecheck__", "__subclasscheck__", "__prepare__"):
        if name == "mro":
            return ListVariable([tx.wrap(c) for c in cls.value.__mro__])
        if name == "__instancecheck__":
            from .builtins.types_ import isinstance_of

            return boolean(isinstance_of(tx, args[0].realize(), cls.value))
        if name == "__subclasses__":
            return ListVariable([tx.wrap(c) for c in cls.value.__subclasses__()])
        raise cls.unsupported(f"{cls.value.__name__}.{name}()")
    if name in ("__setattr__", "__delattr__"):
        cls.instance_setattr(tx, args[0].as_python_constant(), args[1] if name == "__setattr__" else None)
        return NONE
    if name == "fromkeys" and issubclass(cls.value, dict):
        made = call_class(tx, cls, [], {}).realize()
        fill = args[1] if len(args) > 1 else NONE
        for key in protocol.unpack(tx, args[0]):
            protocol.setitem(tx, made, key, fill)
        return made
    if name in ("fromhex", "maketrans", "from_bytes"):
        plain = [const(a) for a in args]
        named = {k: const(v) for k, v in kwargs.items()}
        if NOTHING not in plain and NOTHING not in named.values():
            return tx.fold(getattr(cls.value, name), plain, named)
    if name in ("__or__", "__ror__"):
        return cls.binary(tx, "|", args[0], name == "__ror__")
    return None


@functools.lru_cache(maxsize=256)
def exception_layout(value: type) -> bool:
    return issubclass(value, BaseException)
