"""Methods of set and frozenset on symbolic contents."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .base import VariableTracker
from .constant import NONE, boolean
from .hashing import hash_key, one_lookup
from .list_methods import _invoke, dunder
from .mappings import SetVariable
from .sequences import ListVariable

if TYPE_CHECKING:
    from ..interpreter import InstructionTranslatorBase as Tx

OPERATIONS = {"union": "|", "intersection": "&", "difference": "-", "symmetric_difference": "^"}
UPDATES = {"update": "|", "intersection_update": "&", "difference_update": "-", "symmetric_difference_update": "^"}
TESTS = {"issubset": "<=", "issuperset": ">="}
MUTATING: dict[str, Callable[..., VariableTracker]] = {}


def _mutating(fn: Callable[..., VariableTracker]) -> Callable[..., VariableTracker]:
    MUTATING[fn.__name__.rstrip("_")] = fn
    return fn


def from_iterable(tx: Tx, values: VariableTracker, kind: type = set) -> SetVariable:
    from ..protocol import unpack

    values = values.realize()
    if isinstance(values, SetVariable):
        made = SetVariable(dict(values.items), kind, mirror=set(values.mirror))
        made.order_guard = values.order_guard
        return made
    items = {}
    mirror: set = set()
    for value in unpack(tx, values):
        key = hash_key(tx, value)
        with one_lookup(key):
            if key not in items:
                items[key] = value
                mirror.add(key)
    return SetVariable(items, kind, mirror=mirror)


def call(tx: Tx, me: SetVariable, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker | None:
    from ..protocol import unpack

    if name in OPERATIONS:
        result = SetVariable(dict(me.items), me.kind, mirror=set(me.mirror))
        for other in args:
            result = result.combine(OPERATIONS[name], from_iterable(tx, other))
        return result
    if name in UPDATES and me.mutable:
        for other in args:
            given = other.realize()
            operand: VariableTracker = from_iterable(tx, given) if isinstance(given, SetVariable) else ListVariable(unpack(tx, given))
            me.replace(tx, me.combine(UPDATES[name], from_iterable(tx, operand)), name, operand)
        return NONE
    if name in TESTS and len(args) == 1:
        return me.compare(tx, TESTS[name], from_iterable(tx, args[0]))
    if name == "isdisjoint" and len(args) == 1:
        return boolean(not me.mirror & from_iterable(tx, args[0]).mirror)
    if name == "copy" and not args:
        return SetVariable(dict(me.items), me.kind, mirror=set(me.mirror))
    if me.mutable and name in MUTATING:
        return _invoke(tx, MUTATING[name], me, name, args, kwargs)
    return dunder(tx, me, name, args)


@_mutating
def add(tx: Tx, me: SetVariable, value: VariableTracker) -> VariableTracker:
    key = hash_key(tx, value)
    with one_lookup(key):
        if key not in me.items:
            me.changed(tx, "add", True, [value])
            me.items[key] = value
            me.mirror.add(key)
    return NONE


def _taken(tx: Tx, me: SetVariable, value: VariableTracker) -> bool:
    key = hash_key(tx, value)
    with one_lookup(key):
        if key not in me.items:
            return False
        me.changed(tx, "discard", True, [value])
        del me.items[key]
        me.mirror.discard(key)
    return True


@_mutating
def discard(tx: Tx, me: SetVariable, value: VariableTracker) -> VariableTracker:
    _taken(tx, me, value)
    return NONE


@_mutating
def remove(tx: Tx, me: SetVariable, value: VariableTracker) -> VariableTracker:
    if not _taken(tx, me, value):
        raise tx.raise_from(KeyError, [value])
    return NONE


@_mutating
def pop(tx: Tx, me: SetVariable) -> VariableTracker:
    if not me.items:
        raise tx.raise_(KeyError, "pop from an empty set")
    me.known_items(tx)
    key = me.mirror.pop()
    me.changed(tx, "discard", True, [me.items[key]])
    return me.items.pop(key)


@_mutating
def clear(tx: Tx, me: SetVariable) -> VariableTracker:
    me.changed(tx, "clear", False, [])
    me.items.clear()
    me.mirror.clear()
    return NONE
