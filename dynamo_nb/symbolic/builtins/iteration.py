"""iter, next, zip, map, filter, enumerate, reversed, sum, min, max, any, all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.exc import ObservedException
from .. import protocol
from ..variables.base import VariableTracker, const
from ..variables.constant import FALSE, NONE, ConstantVariable, boolean
from ..variables.iterators import CallIteratorVariable, EnumerateVariable, FilterVariable, ListIteratorVariable, MapVariable, ZipVariable
from ..variables.sequences import RangeVariable
from . import handles

if TYPE_CHECKING:
    from ..interpreter import InstructionTranslatorBase as Tx


def _step(tx: Tx, vt: VariableTracker) -> VariableTracker:
    vt.step = tx.recorder.step
    return vt


@handles(iter)
def iter_(tx: Tx, value: VariableTracker, sentinel: VariableTracker | None = None) -> VariableTracker:
    if sentinel is not None:
        return _step(tx, CallIteratorVariable(value, sentinel))
    return _step(tx, protocol.iter_(tx, value))


@handles(next)
def next_(tx: Tx, iterator: VariableTracker, default: VariableTracker | None = None) -> VariableTracker:
    if default is None:
        return protocol.next_(tx, iterator)
    try:
        return protocol.next_(tx, iterator)
    except ObservedException as raised:
        if not issubclass(raised.value.python_type(), StopIteration):
            raise
        tx.exception_handled(raised)
        return default


@handles(zip)
def zip_(tx: Tx, *values: VariableTracker, strict: VariableTracker = FALSE) -> VariableTracker:
    return _step(tx, ZipVariable([protocol.iter_(tx, v) for v in values], protocol.truth(tx, strict)))


@handles(map)
def map_(tx: Tx, fn: VariableTracker, *values: VariableTracker) -> VariableTracker:
    return _step(tx, MapVariable(fn, [protocol.iter_(tx, v) for v in values]))


@handles(filter)
def filter_(tx: Tx, fn: VariableTracker, values: VariableTracker) -> VariableTracker:
    return _step(tx, FilterVariable(fn, protocol.iter_(tx, values)))


@handles(enumerate)
def enumerate_(tx: Tx, iterable: VariableTracker, start: VariableTracker = ConstantVariable(0)) -> VariableTracker:
    return _step(tx, EnumerateVariable(protocol.iter_(tx, iterable), start.realize()))


@handles(reversed)
def reversed_(tx: Tx, values: VariableTracker) -> VariableTracker:
    values = values.realize()
    result = protocol.special(tx, values, "__reversed__", [])
    if result is not None:
        return result
    if isinstance(values, RangeVariable):
        return protocol.iter_(tx, RangeVariable(values.value[::-1]))
    if hasattr(values, "known_items") and not protocol.is_python_override(values.python_type(), "__getitem__"):
        kind = type(reversed([])) if values.python_type() is list else reversed
        return _step(tx, ListIteratorVariable(list(reversed(protocol.unpack(tx, values))), origin=None, python_type=kind))
    text = const(values)
    if isinstance(text, str):
        return _step(tx, ListIteratorVariable([ConstantVariable(c) for c in reversed(text)], origin=None, python_type=reversed))
    length = tx.concrete_int(protocol.len_(tx, values))
    items = [protocol.getitem(tx, values, ConstantVariable(i)) for i in range(length - 1, -1, -1)]
    return _step(tx, ListIteratorVariable(items, origin=None, python_type=reversed))


@handles(sum)
def sum_(tx: Tx, values: VariableTracker, start: VariableTracker = ConstantVariable(0)) -> VariableTracker:
    if isinstance(const(start), (str, bytes)):
        raise tx.raise_(TypeError, "sum() can't sum strings [use ''.join(seq) instead]")
    total = start
    iterator = protocol.iter_(tx, values)
    while (item := protocol.next_or_none(tx, iterator)) is not None:
        total = protocol.binary(tx, "+", total, item)
        tx.count_work()
    return total


@handles(any)
def any_(tx: Tx, values: VariableTracker) -> VariableTracker:
    iterator = protocol.iter_(tx, values)
    while (item := protocol.next_or_none(tx, iterator)) is not None:
        if protocol.truth(tx, item):
            return boolean(True)
        tx.count_work()
    return boolean(False)


@handles(all)
def all_(tx: Tx, values: VariableTracker) -> VariableTracker:
    iterator = protocol.iter_(tx, values)
    while (item := protocol.next_or_none(tx, iterator)) is not None:
        if not protocol.truth(tx, item):
            return boolean(False)
        tx.count_work()
    return boolean(True)


def _extreme(tx: Tx, name: str, args: tuple[VariableTracker, ...], key: VariableTracker, default: VariableTracker | None) -> VariableTracker:
    op = ">" if name == "max" else "<"
    if len(args) == 1:
        iterator = protocol.iter_(tx, args[0])
        items = []
        while (item := protocol.next_or_none(tx, iterator)) is not None:
            items.append(item)
        if not items:
            if default is not None:
                return default
            raise tx.raise_(ValueError, f"{name}() arg is an empty sequence")
    else:
        items = list(args)
    best = items[0]
    best_key = _key(tx, key, best)
    for item in items[1:]:
        item_key = _key(tx, key, item)
        if _better(tx, name, op, item_key, best_key):
            best, best_key = item, item_key
    return best


def _key(tx: Tx, key: VariableTracker, item: VariableTracker) -> VariableTracker:
    return item if const(key) is None else key.realize().call_function(tx, [item], {})


def _better(tx: Tx, name: str, op: str, item: VariableTracker, best: VariableTracker) -> bool:
    return protocol.truth(tx, protocol.compare(tx, op, item, best))


@handles(max)
def max_(tx: Tx, *args: VariableTracker, key: VariableTracker = NONE, default: VariableTracker | None = None) -> VariableTracker | None:
    return _symbolic_extreme(tx, "max", args, key) or _extreme(tx, "max", args, key, default)


@handles(min)
def min_(tx: Tx, *args: VariableTracker, key: VariableTracker = NONE, default: VariableTracker | None = None) -> VariableTracker | None:
    return _symbolic_extreme(tx, "min", args, key) or _extreme(tx, "min", args, key, default)


def _symbolic_extreme(tx: Tx, name: str, args: tuple[VariableTracker, ...], key: VariableTracker) -> VariableTracker | None:
    """min and max of numbers that vary stay symbolic, without a guard on their order."""
    import torch

    from ..variables.numeric import SymNodeVariable, wrap_number

    if len(args) != 2 or const(key) is not None:
        return None
    values = [a.realize() for a in args]
    if not any(isinstance(v, SymNodeVariable) for v in values):
        return None
    plain = [v.value if isinstance(v, SymNodeVariable) else const(v) for v in values]
    if not all(isinstance(p, (int, torch.SymInt)) and not isinstance(p, bool) for p in plain):
        return None
    return wrap_number((torch.sym_max if name == "max" else torch.sym_min)(*plain))
