"""getattr, setattr, hasattr, delattr, vars, dir, globals, locals, property and friends; operator's getters."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from ...core.exc import ObservedException, StepUnsupported
from ...core.reasons import UnsupportedOperation
from .. import protocol
from ..variables.base import VariableTracker, const
from ..variables.constant import NONE, ConstantVariable, boolean
from ..variables.mappings import ConstDictVariable
from . import handles

if TYPE_CHECKING:
    from ..interpreter import InstructionTranslatorBase as Tx


def _name(tx: Tx, vt: VariableTracker) -> str:
    name = const(vt)
    if not isinstance(name, str):
        raise tx.raise_(TypeError, "attribute name must be string, not " + repr(vt.realize().python_type().__name__))
    return name


@handles(getattr)
def getattr_(tx: Tx, obj: VariableTracker, name: VariableTracker, default: VariableTracker | None = None) -> VariableTracker:
    text = _name(tx, name)
    if default is None:
        return protocol.getattr_(tx, obj, text)
    try:
        return protocol.getattr_(tx, obj, text)
    except ObservedException as raised:
        if not issubclass(raised.value.python_type(), AttributeError):
            raise
        tx.exception_handled(raised)
        return default


@handles(hasattr)
def hasattr_(tx: Tx, obj: VariableTracker, name: VariableTracker) -> VariableTracker:
    return boolean(protocol.hasattr_(tx, obj, _name(tx, name)))


@handles(setattr)
def setattr_(tx: Tx, obj: VariableTracker, name: VariableTracker, value: VariableTracker) -> VariableTracker:
    protocol.setattr_(tx, obj, _name(tx, name), value)
    return NONE


@handles(delattr)
def delattr_(tx: Tx, obj: VariableTracker, name: VariableTracker) -> VariableTracker:
    protocol.delattr_(tx, obj, _name(tx, name))
    return NONE


@handles(object.__setattr__)
def object_setattr(tx: Tx, obj: VariableTracker, name: VariableTracker, value: VariableTracker) -> VariableTracker:
    protocol.generic_setattr(tx, obj.realize(), _name(tx, name), value)
    return NONE


@handles(object.__delattr__)
def object_delattr(tx: Tx, obj: VariableTracker, name: VariableTracker) -> VariableTracker:
    protocol.generic_setattr(tx, obj.realize(), _name(tx, name), None)
    return NONE


@handles(object.__getattribute__)
def object_getattribute(tx: Tx, obj: VariableTracker, name: VariableTracker) -> VariableTracker:
    return protocol.generic_getattr(tx, obj.realize(), _name(tx, name))


@handles(object.__new__)
def object_new(tx: Tx, cls: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    from ..instances import native_new

    return native_new(tx, cls.realize(), [], {})  # type: ignore[arg-type]


@handles(object.__init__)
def object_init(tx: Tx, obj: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    return NONE


@handles(tuple.__new__)
def tuple_new(tx: Tx, cls: VariableTracker, items: VariableTracker | None = None) -> VariableTracker:
    from ..instances import new_tuple

    return new_tuple(tx, cls.realize().value, [] if items is None else protocol.unpack(tx, items))  # type: ignore[attr-defined]


@handles(list.__new__, dict.__new__, set.__new__)
def container_new(tx: Tx, cls: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker | None:
    from ..instances import native_new

    return native_new(tx, cls.realize(), [], {})  # type: ignore[arg-type]


@handles(BaseException.__new__, Exception.__new__)
def exception_new(tx: Tx, cls: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    from ..instances import native_new

    return native_new(tx, cls.realize(), list(args), {})  # type: ignore[arg-type]


@handles(vars)
def vars_(tx: Tx, obj: VariableTracker | None = None) -> VariableTracker:
    if obj is None:
        return locals_(tx)
    return protocol.getattr_(tx, obj, "__dict__")


@handles(locals)
def locals_(tx: Tx) -> VariableTracker:
    """A snapshot of the frame's bound locals, in CPython's order."""
    items: dict[str, tuple[VariableTracker, VariableTracker]] = {}
    for name in (*tx.code.co_varnames, *tx.code.co_cellvars, *tx.code.co_freevars):
        value = tx.locals.get(name)
        if value is None and name in tx.cells:
            value = tx.cells[name].load(tx)
        if value is not None:
            items[name] = (ConstantVariable(name), value)
    return ConstDictVariable(items)  # type: ignore[arg-type]


@handles(globals)
def globals_(tx: Tx) -> VariableTracker:
    raise StepUnsupported(UnsupportedOperation("globals()"))


@handles(operator.attrgetter)
def attrgetter(tx: Tx, *names: VariableTracker) -> VariableTracker:
    from .. import polyfills

    return tx.call_polyfill(polyfills.operator_.make_attrgetter, list(names), {})


@handles(operator.itemgetter)
def itemgetter(tx: Tx, *keys: VariableTracker) -> VariableTracker:
    from .. import polyfills

    return tx.call_polyfill(polyfills.operator_.make_itemgetter, list(keys), {})


@handles(operator.methodcaller)
def methodcaller(tx: Tx, name: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    from .. import polyfills

    return tx.call_polyfill(polyfills.operator_.make_methodcaller, [name, *args], kwargs)
