"""Python's object protocol, modelled once (data model, language reference chapter 3).

Attribute lookup along the MRO with descriptors, calls, operators with reflected forms, comparison,
truth, length, iteration, containment and subscription. Trackers of C types answer through their
`native_*`, `binary`, `compare` and `call_method`; classes written in Python are followed into their
special methods. Called by the opcode handlers, by builtins and by trackers.
"""

from __future__ import annotations

import operator
import types
from typing import TYPE_CHECKING, Any

from ..core.exc import ObservedException, StepUnsupported
from ..core.reasons import UnsupportedOperation
from ..core.source import AttrSource, Source
from .variables.base import VariableTracker
from .variables.constant import ConstantVariable, boolean

if TYPE_CHECKING:
    from .interpreter import InstructionTranslatorBase as Tx

SLOT_TYPES = (types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType)
MISSING: Any = object()

# operator name -> (Python function, special method, reflected special method)
BINARY: dict[str, tuple[Any, str, str]] = {
    "+": (operator.add, "__add__", "__radd__"),
    "-": (operator.sub, "__sub__", "__rsub__"),
    "*": (operator.mul, "__mul__", "__rmul__"),
    "/": (operator.truediv, "__truediv__", "__rtruediv__"),
    "//": (operator.floordiv, "__floordiv__", "__rfloordiv__"),
    "%": (operator.mod, "__mod__", "__rmod__"),
    "**": (operator.pow, "__pow__", "__rpow__"),
    "@": (operator.matmul, "__matmul__", "__rmatmul__"),
    "<<": (operator.lshift, "__lshift__", "__rlshift__"),
    ">>": (operator.rshift, "__rshift__", "__rrshift__"),
    "&": (operator.and_, "__and__", "__rand__"),
    "|": (operator.or_, "__or__", "__ror__"),
    "^": (operator.xor, "__xor__", "__rxor__"),
    "divmod": (divmod, "__divmod__", "__rdivmod__"),
}
INPLACE: dict[str, tuple[Any, str]] = {
    f"{op}=": (getattr(operator, f"i{fn.__name__.rstrip('_')}"), f"__i{dunder[2:]}")
    for op, (fn, dunder, _) in BINARY.items()
    if op != "divmod"
}
COMPARE: dict[str, tuple[Any, str, str]] = {
    "<": (operator.lt, "__lt__", ">"),
    "<=": (operator.le, "__le__", ">="),
    "==": (operator.eq, "__eq__", "=="),
    "!=": (operator.ne, "__ne__", "!="),
    ">": (operator.gt, "__gt__", "<"),
    ">=": (operator.ge, "__ge__", "<="),
}
UNARY: dict[str, tuple[Any, str]] = {
    "-": (operator.neg, "__neg__"),
    "+": (operator.pos, "__pos__"),
    "~": (operator.invert, "__invert__"),
    "abs": (abs, "__abs__"),
}


# -- attribute lookup ---------------------------------------------------------------------------
def type_lookup(cls: type, name: str) -> Any:
    """The attribute as stored on the class or a base, unbound; MISSING if there is none."""
    for base in cls.__mro__:
        found = base.__dict__.get(name, MISSING)
        if found is not MISSING:
            return found
    return MISSING


def is_python_override(cls: type, name: str) -> bool:
    """Does a class written in Python define this special method?"""
    found = type_lookup(cls, name)
    return found is not MISSING and not isinstance(found, (*SLOT_TYPES, types.BuiltinFunctionType)) and found is not None


def class_attr_source(tx: Tx, obj: VariableTracker, cls: type, name: str) -> Source | None:
    base = tx.class_source(obj, cls)
    return None if base is None else AttrSource(base, name)


def getattr_(tx: Tx, obj: VariableTracker, name: str) -> VariableTracker:
    obj = obj.realize()
    special = getattr(obj, "special_getattr", None)
    if special is not None:
        return special(tx, name)
    cls = obj.python_type()
    getter = type_lookup(cls, "__getattribute__")
    if isinstance(getter, types.FunctionType):
        return _with_getattr_fallback(tx, obj, cls, name, lambda: call_class_attr(tx, obj, cls, "__getattribute__", getter, [ConstantVariable(name)]))
    return _with_getattr_fallback(tx, obj, cls, name, lambda: generic_getattr(tx, obj, name))


def _with_getattr_fallback(tx: Tx, obj: VariableTracker, cls: type, name: str, lookup: Any) -> VariableTracker:
    fallback = type_lookup(cls, "__getattr__")
    if not isinstance(fallback, types.FunctionType):
        return lookup()
    try:
        return lookup()
    except ObservedException as raised:
        if not issubclass(raised.value.python_type(), AttributeError):
            raise
        tx.exception_handled(raised)
    return call_getattr_hook(tx, obj, cls, name, fallback)


def call_getattr_hook(tx: Tx, obj: VariableTracker, cls: type, name: str, hook: Any) -> VariableTracker:
    modelled = getattr(obj, "modelled_getattr_hook", None)
    if modelled is not None:
        found = modelled(tx, name, hook)
        if found is not None:
            return found
    return call_class_attr(tx, obj, cls, "__getattr__", hook, [ConstantVariable(name)])


def generic_getattr(tx: Tx, obj: VariableTracker, name: str) -> VariableTracker:
    """object.__getattribute__: data descriptor, instance, then plain class attribute."""
    cls = obj.python_type()
    attr = type_lookup(cls, name)
    if attr is not MISSING and _is_data_descriptor(attr):
        return descriptor_get(tx, attr, name, obj, cls)
    found = instance_getattr(tx, obj, name)
    if found is not None:
        return found
    written = tx.recorder.side_effects.class_write(cls, name)
    if written is not None:
        return written
    if attr is not MISSING:
        return descriptor_get(tx, attr, name, obj, cls)
    if name == "__class__":
        return obj.class_variable(tx)
    raise tx.raise_(AttributeError, attribute_error_text(obj, name), name=name)


def attribute_error_text(obj: VariableTracker, name: str) -> str:
    return f"{obj.python_type().__name__!r} object has no attribute {name!r}"


def instance_getattr(tx: Tx, obj: VariableTracker, name: str) -> VariableTracker | None:
    reader = getattr(obj, "instance_getattr", None)
    return reader(tx, name) if reader is not None else None


def _is_data_descriptor(attr: Any) -> bool:
    kind = type(attr)
    return hasattr(kind, "__set__") or hasattr(kind, "__delete__")


def descriptor_get(tx: Tx, attr: Any, name: str, obj: VariableTracker | None, cls: type, owner: VariableTracker | None = None) -> VariableTracker:
    """`attr.__get__(obj, cls)` for a class attribute found under `name`; obj None: access on the class."""
    from .variables.functions import UserMethodVariable
    from .variables.misc import NativeMethodVariable

    holder = obj if obj is not None else owner
    assert holder is not None
    source = class_attr_source(tx, holder, cls, name) if obj is not None else (AttrSource(owner.source, name) if owner is not None and owner.source else None)
    if isinstance(attr, types.FunctionType):
        fn = tx.wrap(attr, source)
        return fn if obj is None else UserMethodVariable(fn, obj)
    if isinstance(attr, staticmethod):
        return tx.wrap(attr.__func__, source)
    if isinstance(attr, classmethod):
        fn = tx.wrap(attr.__func__, AttrSource(source, "__func__") if source and isinstance(attr.__func__, types.FunctionType) else None)
        return bind_method(tx, fn, owner if owner is not None else holder.class_variable(tx))
    if isinstance(attr, property):
        if obj is None:
            return tx.wrap(attr, source)
        if attr.fget is None:
            raise tx.raise_(AttributeError, f"property {name!r} of {cls.__name__!r} object has no getter")
        getter = tx.wrap(attr.fget, AttrSource(source, "fget") if source else None)
        return getter.call_function(tx, [obj], {})
    if isinstance(attr, types.ClassMethodDescriptorType):
        return NativeMethodVariable(owner if owner is not None else holder.class_variable(tx), name, attr)
    if isinstance(attr, SLOT_TYPES):
        if obj is None:
            return tx.wrap(attr)
        return NativeMethodVariable(obj, name, attr)
    if isinstance(attr, (types.GetSetDescriptorType, types.MemberDescriptorType)):
        return _native_descriptor(tx, attr, name, obj, cls)
    return _generic_descriptor(tx, attr, name, obj, cls, source, holder, owner)


def bind_method(tx: Tx, fn: VariableTracker, receiver: VariableTracker) -> VariableTracker:
    from .variables.functions import UserMethodVariable

    return UserMethodVariable(fn, receiver)


def _native_descriptor(tx: Tx, attr: Any, name: str, obj: VariableTracker | None, cls: type) -> VariableTracker:
    if obj is None:
        return tx.wrap(attr)
    found = instance_getattr(tx, obj, name) if isinstance(attr, types.MemberDescriptorType) else None
    if found is None:
        found = obj.native_getattr(tx, name)
    if found is None and name == "__class__":
        found = obj.class_variable(tx)
    if found is None:
        if isinstance(attr, types.MemberDescriptorType) and tx.is_slot(cls, attr):
            raise tx.raise_(AttributeError, name if False else attribute_error_text(obj, name), name=name)
        raise StepUnsupported(UnsupportedOperation(f"attribute {name!r} of {obj.describe()}"))
    return found


def _generic_descriptor(tx: Tx, attr: Any, name: str, obj: VariableTracker | None, cls: type, source: Any, holder: VariableTracker, owner: VariableTracker | None) -> VariableTracker:
    """A descriptor whose type is none of Python's own, or a plain value."""
    getter = type_lookup(type(attr), "__get__")
    if getter is MISSING:
        if obj is not None and obj.existing and obj.source is not None and not tx.recorder.side_effects.load_attr(obj, name)[0]:
            return tx.lazy(attr, AttrSource(obj.source, name))
        return tx.wrap(attr, source)
    from .variables.functions import UserFunctionVariable, UserMethodVariable

    special = tx.descriptor_polyfill(attr, name, obj, cls, source)
    if special is not None:
        return special
    # the raw descriptor itself: reached through the namespace of the class that holds it
    me = tx.wrap(attr, tx.raw_class_attr_source(holder, cls, name))
    if isinstance(getter, types.FunctionType):
        instance = obj if obj is not None else ConstantVariable(None)
        fn = tx.wrap(getter, class_attr_source(tx, me, type(attr), "__get__"))
        return fn.call_function(tx, [me, instance, owner or holder.class_variable(tx)], {})
    if isinstance(me, UserFunctionVariable):      # a compiled function stored on a class
        return me if obj is None else UserMethodVariable(me, obj)
    binder = getattr(me, "bind", None)
    if binder is not None and obj is not None:
        return binder(tx, obj)
    if obj is None or isinstance(attr, type):
        return me
    raise StepUnsupported(UnsupportedOperation(f"descriptor {type(attr).__name__} of attribute {name!r}"))


def call_class_attr(tx: Tx, obj: VariableTracker, cls: type, name: str, attr: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker] | None = None) -> VariableTracker:
    """Call a special method found on the class, bound to obj."""
    bound = descriptor_get(tx, attr, name, obj, cls)
    return bound.call_function(tx, args, kwargs or {})


def has_special(obj: VariableTracker, name: str) -> bool:
    return type_lookup(obj.python_type(), name) not in (MISSING, None)


def special(tx: Tx, obj: VariableTracker, name: str, args: list[VariableTracker]) -> VariableTracker | None:
    """Call `type(obj).name(obj, *args)` if a Python class defines it; None otherwise."""
    cls = obj.python_type()
    if getattr(obj, "native_specials", False):
        return None
    attr = type_lookup(cls, name)
    if attr is MISSING or attr is None or isinstance(attr, (*SLOT_TYPES, types.BuiltinFunctionType)):
        return None
    return call_class_attr(tx, obj, cls, name, attr, args)


def hasattr_(tx: Tx, obj: VariableTracker, name: str) -> bool:
    try:
        getattr_(tx, obj, name)
    except ObservedException as raised:
        if not issubclass(raised.value.python_type(), AttributeError):
            raise
        tx.exception_handled(raised)
        return False
    return True


def setattr_(tx: Tx, obj: VariableTracker, name: str, value: VariableTracker) -> None:
    obj = obj.realize()
    special_set = getattr(obj, "special_setattr", None)
    if special_set is not None:
        special_set(tx, name, value)
        return
    cls = obj.python_type()
    setter = type_lookup(cls, "__setattr__")
    if isinstance(setter, types.FunctionType):
        call_class_attr(tx, obj, cls, "__setattr__", setter, [ConstantVariable(name), value])
        return
    generic_setattr(tx, obj, name, value)


def generic_setattr(tx: Tx, obj: VariableTracker, name: str, value: VariableTracker | None) -> None:
    """object.__setattr__ / object.__delattr__ (value None)."""
    cls = obj.python_type()
    attr = type_lookup(cls, name)
    if attr is not MISSING and _is_data_descriptor(attr) and not isinstance(attr, types.MemberDescriptorType):
        _descriptor_set(tx, obj, cls, name, attr, value)
        return
    writer = getattr(obj, "instance_setattr", None)
    if writer is None:
        raise obj.unsupported(f"setting attribute {name!r} of {obj.describe()}")
    writer(tx, name, value)


def _descriptor_set(tx: Tx, obj: VariableTracker, cls: type, name: str, attr: Any, value: VariableTracker | None) -> None:
    source = class_attr_source(tx, obj, cls, name)
    if isinstance(attr, property):
        which = "fset" if value is not None else "fdel"
        fn = getattr(attr, which)
        if fn is None:
            raise tx.raise_(AttributeError, f"property {name!r} of {cls.__name__!r} object has no {'setter' if value is not None else 'deleter'}")
        tx.wrap(fn, AttrSource(source, which) if source else None).call_function(tx, [obj, *([value] if value is not None else [])], {})
        return
    method = "__set__" if value is not None else "__delete__"
    setter = type_lookup(type(attr), method)
    if isinstance(setter, types.FunctionType):
        me = tx.wrap(attr, tx.raw_class_attr_source(obj, cls, name))
        fn = tx.wrap(setter, class_attr_source(tx, me, type(attr), method))
        fn.call_function(tx, [me, obj, *([value] if value is not None else [])], {})
        return
    native = getattr(obj, "native_setattr", None)
    if native is not None and native(tx, name, value):
        return
    raise obj.unsupported(f"setting attribute {name!r} of {obj.describe()}")


def delattr_(tx: Tx, obj: VariableTracker, name: str) -> None:
    obj = obj.realize()
    cls = obj.python_type()
    deleter = type_lookup(cls, "__delattr__")
    if isinstance(deleter, types.FunctionType):
        call_class_attr(tx, obj, cls, "__delattr__", deleter, [ConstantVariable(name)])
        return
    generic_setattr(tx, obj, name, None)


# -- calls ----------------------------------------------------------------------------------------
def call_object(tx: Tx, obj: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    cls = obj.python_type()
    attr = type_lookup(cls, "__call__")
    if attr is MISSING:
        raise tx.raise_(TypeError, f"{cls.__name__!r} object is not callable")
    if isinstance(attr, SLOT_TYPES):
        raise obj.unsupported(f"calling {obj.describe()}")
    return call_class_attr(tx, obj, cls, "__call__", attr, args, kwargs)


# -- operators ------------------------------------------------------------------------------------
def _is_not_implemented(value: VariableTracker | None) -> bool:
    return value is None or (isinstance(value, ConstantVariable) and value.value is NotImplemented)


def _slot(tx: Tx, obj: VariableTracker, other: VariableTracker, op: str, dunder: str, reflected: bool) -> VariableTracker | None:
    result = special(tx, obj, dunder, [other])
    if result is None:
        result = obj.binary(tx, op, other, reflected)
    return None if _is_not_implemented(result) else result


def binary(tx: Tx, op: str, left: VariableTracker, right: VariableTracker) -> VariableTracker:
    left, right = left.realize(), right.realize()
    fn, dunder, rdunder = BINARY[op]
    if type(left) is ConstantVariable and type(right) is ConstantVariable:
        return tx.fold(fn, [left.value, right.value], {})
    if left.is_python_constant() and right.is_python_constant() and not left.mutable and not right.mutable:
        return tx.fold(fn, [left.as_python_constant(), right.as_python_constant()], {})
    left_type, right_type = left.python_type(), right.python_type()
    order = [(left, right, dunder, False), (right, left, rdunder, True)]
    if right_type is not left_type and issubclass(right_type, left_type) and type_lookup(right_type, rdunder) is not type_lookup(left_type, rdunder):
        order.reverse()
    for obj, other, name, reflected in order:
        result = _slot(tx, obj, other, op, name, reflected)
        if result is not None:
            return result
    symbol = "** or pow()" if op == "**" else "divmod()" if op == "divmod" else op
    raise tx.raise_(TypeError, f"unsupported operand type(s) for {symbol}: {left_type.__name__!r} and {right_type.__name__!r}")


def inplace(tx: Tx, op: str, left: VariableTracker, right: VariableTracker) -> VariableTracker:
    """`left op= right`; op carries the '='."""
    left, right = left.realize(), right.realize()
    result = special(tx, left, INPLACE[op][1], [right])
    if _is_not_implemented(result):
        native = getattr(left, "inplace", None)
        result = native(tx, op, right) if native is not None else None
    if not _is_not_implemented(result):
        assert result is not None
        return result
    return binary(tx, op[:-1], left, right)


def unary(tx: Tx, op: str, value: VariableTracker) -> VariableTracker:
    value = value.realize()
    fn, dunder = UNARY[op]
    if type(value) is ConstantVariable:
        return tx.fold(fn, [value.value], {})
    result = special(tx, value, dunder, [])
    if result is None:
        result = value.unary(tx, op)
    if result is None:
        what = "abs()" if op == "abs" else f"unary {op}"
        raise tx.raise_(TypeError, f"bad operand type for {what}: {value.python_type().__name__!r}")
    return result


def compare(tx: Tx, op: str, left: VariableTracker, right: VariableTracker) -> VariableTracker:
    left, right = left.realize(), right.realize()
    fn, dunder, swapped = COMPARE[op]
    if type(left) is ConstantVariable and type(right) is ConstantVariable:
        return tx.fold(fn, [left.value, right.value], {})
    left_type, right_type = left.python_type(), right.python_type()
    order = [(left, right, dunder, op), (right, left, COMPARE[swapped][1], swapped)]
    if right_type is not left_type and issubclass(right_type, left_type):
        order.reverse()
    for obj, other, name, symbol in order:
        result = _compare_slot(tx, obj, other, name, symbol)
        if not _is_not_implemented(result):
            assert result is not None
            return result
    if op in ("==", "!="):
        return boolean(is_same(tx, left, right) == (op == "=="))
    raise tx.raise_(TypeError, f"{op!r} not supported between instances of {left_type.__name__!r} and {right_type.__name__!r}")


def _compare_slot(tx: Tx, obj: VariableTracker, other: VariableTracker, dunder: str, op: str) -> VariableTracker | None:
    result = special(tx, obj, dunder, [other])
    if result is not None:
        return result
    if op == "!=" and is_python_override(obj.python_type(), "__eq__") and not is_python_override(obj.python_type(), "__ne__"):
        equal = special(tx, obj, "__eq__", [other])
        if equal is not None:
            return equal if _is_not_implemented(equal) else boolean(not truth(tx, equal))
    return obj.compare(tx, op, other)


def is_same(tx: Tx, left: VariableTracker, right: VariableTracker) -> bool:
    """`left is right`, recording what the answer rests on."""
    left, right = left.realize(), right.realize()
    if left is right:
        return True
    if type(left) is ConstantVariable and type(right) is ConstantVariable:
        return _same_constant(tx, left, right)
    if left.python_type() is not right.python_type():
        return False
    if type(left) is ConstantVariable:
        left, right = right, left
    same = getattr(left, "is_same_object", None)
    if same is not None:
        return same(tx, right)
    if left.existing and right.existing and left.source is not None and right.source is not None:
        tx.assume_distinct(left, right)
    return False


def _same_constant(tx: Tx, left: ConstantVariable, right: ConstantVariable) -> bool:
    a, b = left.value, right.value
    if a is b:
        return True
    if type(a) is not type(b) or a != b:
        return False
    # equal but distinct numbers and strings: eager's answer depends on interning
    raise StepUnsupported(UnsupportedOperation(f"`is` between equal constants {a!r}"))


def truth(tx: Tx, value: VariableTracker) -> bool:
    value = value.realize()
    if type(value) is ConstantVariable and not is_python_override(type(value.value), "__bool__"):
        return bool(value.value)
    result = special(tx, value, "__bool__", [])
    if result is not None:
        if result.python_type() is not bool:
            raise tx.raise_(TypeError, f"__bool__ should return bool, returned {result.python_type().__name__}")
        return truth(tx, result)
    native = value.native_bool(tx)
    if native is not None:
        return native
    if type_lookup(value.python_type(), "__len__") is not MISSING:
        return truth(tx, compare(tx, "!=", len_(tx, value), ConstantVariable(0)))
    return True


def len_(tx: Tx, value: VariableTracker) -> VariableTracker:
    value = value.realize()
    result = special(tx, value, "__len__", [])
    if result is None:
        result = value.native_len(tx)
    if result is None:
        if type_lookup(value.python_type(), "__len__") is MISSING:
            raise tx.raise_(TypeError, f"object of type {value.python_type().__name__!r} has no len()")
        raise value.unsupported(f"len() of {value.describe()}")
    return result


def contains(tx: Tx, container: VariableTracker, item: VariableTracker) -> bool:
    container = container.realize()
    result = special(tx, container, "__contains__", [item])
    if result is None:
        result = container.native_contains(tx, item)
    if result is not None:
        return truth(tx, result)
    iterator = iter_(tx, container)
    while True:
        value = next_or_none(tx, iterator)
        if value is None:
            return False
        if is_same(tx, value, item) or truth(tx, compare(tx, "==", value, item)):
            return True


def getitem(tx: Tx, obj: VariableTracker, key: VariableTracker) -> VariableTracker:
    obj = obj.realize()
    result = special(tx, obj, "__getitem__", [key])
    if result is None:
        result = obj.native_getitem(tx, key)
    if result is None:
        if type_lookup(obj.python_type(), "__getitem__") is MISSING:
            raise tx.raise_(TypeError, f"{obj.python_type().__name__!r} object is not subscriptable")
        raise obj.unsupported(f"subscript of {obj.describe()}")
    return result


def setitem(tx: Tx, obj: VariableTracker, key: VariableTracker, value: VariableTracker) -> None:
    obj = obj.realize()
    if special(tx, obj, "__setitem__", [key, value]) is not None:
        return
    if not obj.native_setitem(tx, key, value):
        if type_lookup(obj.python_type(), "__setitem__") is MISSING:
            raise tx.raise_(TypeError, f"{obj.python_type().__name__!r} object does not support item assignment")
        raise obj.unsupported(f"item assignment on {obj.describe()}")


def delitem(tx: Tx, obj: VariableTracker, key: VariableTracker) -> None:
    obj = obj.realize()
    if special(tx, obj, "__delitem__", [key]) is not None:
        return
    if not obj.native_delitem(tx, key):
        if type_lookup(obj.python_type(), "__delitem__") is MISSING:
            raise tx.raise_(TypeError, f"{obj.python_type().__name__!r} object doesn't support item deletion")
        raise obj.unsupported(f"item deletion on {obj.describe()}")


# -- iteration ------------------------------------------------------------------------------------
def iter_(tx: Tx, value: VariableTracker) -> VariableTracker:
    from .variables.iterators import SequenceIteratorVariable

    value = value.realize()
    result = special(tx, value, "__iter__", [])
    if result is None:
        result = value.native_iter(tx)
    if result is not None:
        return result
    cls = value.python_type()
    if is_python_override(cls, "__getitem__") and type_lookup(cls, "__iter__") is MISSING:
        return SequenceIteratorVariable(value)
    if type_lookup(cls, "__iter__") in (MISSING, None):
        raise tx.raise_(TypeError, f"{cls.__name__!r} object is not iterable")
    raise value.unsupported(f"iteration over {value.describe()}")


def next_(tx: Tx, iterator: VariableTracker) -> VariableTracker:
    """The next item; raises ObservedException(StopIteration) at the end."""
    iterator = iterator.realize()
    result = special(tx, iterator, "__next__", [])
    if result is None:
        result = iterator.native_next(tx)
    if result is None:
        if type_lookup(iterator.python_type(), "__next__") is MISSING:
            raise tx.raise_(TypeError, f"{iterator.python_type().__name__!r} object is not an iterator")
        raise iterator.unsupported(f"next() of {iterator.describe()}")
    return result


def next_or_none(tx: Tx, iterator: VariableTracker) -> VariableTracker | None:
    try:
        return next_(tx, iterator)
    except ObservedException as raised:
        if not issubclass(raised.value.python_type(), StopIteration):
            raise
        tx.exception_handled(raised)
        return None


def unpack(tx: Tx, iterable: VariableTracker) -> list[VariableTracker]:
    """Every item, in order; consumes an iterator."""
    iterable = iterable.realize()
    items = getattr(iterable, "known_items", None)
    if items is not None and not is_python_override(iterable.python_type(), "__iter__"):
        known = items(tx)
        if known is not None:
            return list(known)
    iterator = iter_(tx, iterable)
    out: list[VariableTracker] = []
    while (item := next_or_none(tx, iterator)) is not None:
        out.append(item)
        tx.count_work()
    return out


def unpack_exactly(tx: Tx, iterable: VariableTracker, count: int) -> list[VariableTracker]:
    items = unpack(tx, iterable)
    if len(items) < count:
        raise tx.raise_(ValueError, f"not enough values to unpack (expected {count}, got {len(items)})")
    if len(items) > count:
        raise tx.raise_(ValueError, f"too many values to unpack (expected {count})")
    return items
