"""Methods of dict, OrderedDict and defaultdict on symbolic contents."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import TYPE_CHECKING

from .base import VariableTracker, const
from .constant import NONE, TRUE, ConstantVariable
from .hashing import hash_key, one_lookup
from .list_methods import _invoke, _register, dunder
from .mappings import ConstDictVariable, DictViewVariable, as_dict
from .sequences import TupleVariable

if TYPE_CHECKING:
    from ..interpreter import InstructionTranslatorBase as Tx

DICT: dict[str, Callable[..., VariableTracker]] = {}
ORDERED: dict[str, Callable[..., VariableTracker]] = {}


def call(tx: Tx, me: ConstDictVariable, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker | None:
    if name in ("keys", "values", "items") and not args and not kwargs:
        return DictViewVariable(me, name)
    if name == "update":
        return update(tx, me, *args, **kwargs)
    if name == "__init__":
        return update(tx, me, *args, **kwargs)
    fn = (ORDERED.get(name) if me.kind is collections.OrderedDict else None) or DICT.get(name)
    if fn is None:
        return dunder(tx, me, name, args)
    return _invoke(tx, fn, me, name, args, kwargs)


def update(tx: Tx, me: ConstDictVariable, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    from .. import protocol

    if len(args) > 1:
        raise tx.raise_(TypeError, f"update expected at most 1 argument, got {len(args)}")
    if args:
        other = args[0].realize()
        theirs = as_dict(other)
        if theirs is not None and not protocol.is_python_override(other.python_type(), "__iter__"):
            for hashed, (key, value) in list(theirs.items.items()):
                me.store_hashed(tx, hashed, key, value)
        elif protocol.type_lookup(other.python_type(), "keys") is not protocol.MISSING:
            for key in protocol.unpack(tx, protocol.getattr_(tx, other, "keys").call_function(tx, [], {})):
                me.store(tx, key, protocol.getitem(tx, other, key))
        else:
            for pair in protocol.unpack(tx, other):
                key, value = protocol.unpack_exactly(tx, pair, 2)
                me.store(tx, key, value)
    for name, value in kwargs.items():
        me.store(tx, ConstantVariable(name), value)
    return NONE


@_register(DICT)
def get(tx: Tx, me: ConstDictVariable, key: VariableTracker, default: VariableTracker = NONE) -> VariableTracker:
    return me.lookup(tx, key) or default


@_register(DICT)
def setdefault(tx: Tx, me: ConstDictVariable, key: VariableTracker, default: VariableTracker = NONE) -> VariableTracker:
    hashed = hash_key(tx, key)
    with one_lookup(hashed):
        found = me.items.get(hashed)
        if found is None:
            me.before_change(tx, hashed)
            me.items[hashed] = (key, default)
            return default
    return found[1]


@_register(DICT)
def pop(tx: Tx, me: ConstDictVariable, key: VariableTracker, default: VariableTracker | None = None) -> VariableTracker:
    found = me.take(tx, hash_key(tx, key))
    if found is not None:
        return found
    if default is None:
        raise tx.raise_from(KeyError, [key])
    return default


@_register(DICT)
def popitem(tx: Tx, me: ConstDictVariable, last: VariableTracker = TRUE) -> VariableTracker:
    if not me.items:
        raise tx.raise_(KeyError, "popitem(): dictionary is empty" if me.kind is dict else "dictionary is empty")
    key = next(reversed(me.items)) if const(last) else next(iter(me.items))
    tx.recorder.side_effects.mutate(me)
    return TupleVariable(list(me.items.pop(key)))


@_register(DICT)
def clear(tx: Tx, me: ConstDictVariable) -> VariableTracker:
    tx.recorder.side_effects.mutate(me)
    me.items.clear()
    return NONE


@_register(DICT)
def copy(tx: Tx, me: ConstDictVariable) -> VariableTracker:
    return me.made()


@_register(DICT)
def __copy__(tx: Tx, me: ConstDictVariable) -> VariableTracker:
    return me.made()


@_register(DICT)
def __reversed__(tx: Tx, me: ConstDictVariable) -> VariableTracker:
    from .iterators import ListIteratorVariable

    return ListIteratorVariable(list(reversed([k for k, _ in me.items.values()])), origin=None)


@_register(DICT)
def __missing__(tx: Tx, me: ConstDictVariable, key: VariableTracker) -> VariableTracker:
    return me.missing(tx, key)


for _name in ("__copy__", "__reversed__", "__missing__"):
    DICT[_name] = globals()[_name]


@_register(ORDERED)
def move_to_end(tx: Tx, me: ConstDictVariable, key: VariableTracker, last: VariableTracker = TRUE) -> VariableTracker:
    hashed = hash_key(tx, key)
    if hashed not in me.items:
        raise tx.raise_from(KeyError, [key])
    tx.recorder.side_effects.mutate(me)
    entry = me.items.pop(hashed)
    if const(last):
        me.items[hashed] = entry
    else:
        rest = dict(me.items)
        me.items.clear()
        me.items[hashed] = entry
        me.items.update(rest)
    return NONE
