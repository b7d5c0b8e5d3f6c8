"""list, tuple, dict, set, frozenset, range, slice, deque, OrderedDict, defaultdict, namedtuple helpers, partial."""

from __future__ import annotations

import collections
import functools
from typing import TYPE_CHECKING

import torch

from .. import protocol
from ..variables.base import VariableTracker, const
from ..variables.constant import NONE, ConstantVariable
from ..variables.functions import PartialVariable
from ..variables.mappings import ConstDictVariable
from ..variables.sequences import DequeVariable, ListVariable, RangeVariable, SizeVariable, SliceVariable, TupleVariable
from ..variables.set_methods import from_iterable
from . import handles

if TYPE_CHECKING:
    from ..interpreter import InstructionTranslatorBase as Tx


def _step(tx: Tx, vt: VariableTracker) -> VariableTracker:
    vt.step = tx.recorder.step
    return vt


@handles(list)
def list_(tx: Tx, values: VariableTracker | None = None) -> VariableTracker:
    return _step(tx, ListVariable([] if values is None else protocol.unpack(tx, values)))


@handles(tuple)
def tuple_(tx: Tx, values: VariableTracker | None = None) -> VariableTracker:
    if values is None:
        return TupleVariable([])
    values = values.realize()
    if type(values) is TupleVariable:
        return values
    return _step(tx, TupleVariable(protocol.unpack(tx, values)))


@handles(torch.Size)
def size(tx: Tx, values: VariableTracker | None = None) -> VariableTracker:
    return SizeVariable([] if values is None else protocol.unpack(tx, values))


@handles(dict)
def dict_(tx: Tx, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    made = ConstDictVariable({})
    made.call_method(tx, "update", list(args), kwargs)
    return _step(tx, made)


@handles(collections.OrderedDict)
def ordered_dict(tx: Tx, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    made = ConstDictVariable({}, collections.OrderedDict)
    made.call_method(tx, "update", list(args), kwargs)
    return _step(tx, made)


@handles(collections.defaultdict)
def default_dict(tx: Tx, factory: VariableTracker = NONE, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    made = ConstDictVariable({}, collections.defaultdict, factory=factory)
    made.call_method(tx, "update", list(args), kwargs)
    return _step(tx, made)


@handles(set)
def set_(tx: Tx, values: VariableTracker | None = None) -> VariableTracker:
    return _step(tx, from_iterable(tx, values if values is not None else TupleVariable([])))


@handles(frozenset)
def frozenset_(tx: Tx, values: VariableTracker | None = None) -> VariableTracker:
    return _step(tx, from_iterable(tx, values if values is not None else TupleVariable([]), frozenset))


@handles(collections.deque)
def deque(tx: Tx, values: VariableTracker | None = None, maxlen: VariableTracker = NONE) -> VariableTracker:
    made = DequeVariable([], const(maxlen))
    if values is not None:
        made.call_method(tx, "extend", [values], {})
    return _step(tx, made)


@handles(range)
def range_(tx: Tx, *bounds: VariableTracker) -> VariableTracker:
    numbers = [tx.concrete_int(b) for b in bounds]
    return RangeVariable(tx.checked(lambda: range(*numbers)))


@handles(slice)
def slice_(tx: Tx, *parts: VariableTracker) -> VariableTracker:
    items = [p.realize() for p in parts]
    if len(items) == 1:
        items = [NONE, items[0]]
    return SliceVariable([*items, NONE][:3])


@handles(functools.partial)
def partial(tx: Tx, fn: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    inner = fn.realize()
    if isinstance(inner, PartialVariable) and inner not in tx.recorder.side_effects.attributes:
        return _step(tx, PartialVariable(inner.fn, [*inner.args, *args], {**inner.keywords, **kwargs}))
    return _step(tx, PartialVariable(fn, list(args), kwargs))


@handles(len)
def len_(tx: Tx, value: VariableTracker) -> VariableTracker:
    return protocol.len_(tx, value)


@handles(sorted)
def sorted_(tx: Tx, values: VariableTracker, *, key: VariableTracker = NONE, reverse: VariableTracker = ConstantVariable(False)) -> VariableTracker:
    from ..variables.list_methods import sorted_items

    return _step(tx, ListVariable(sorted_items(tx, protocol.unpack(tx, values), key, reverse)))


@handles(functools.cmp_to_key)
def cmp_to_key(tx: Tx, compare: VariableTracker) -> VariableTracker:
    from .. import polyfills

    return tx.call_polyfill(polyfills.functools_.make_cmp_key, [compare], {})


@handles(functools.reduce)
def reduce(tx: Tx, fn: VariableTracker, values: VariableTracker, *initial: VariableTracker) -> VariableTracker:
    from .. import polyfills

    return tx.call_polyfill(polyfills.functools_.reduce, [fn, values, *initial], {})


@handles(collections._count_elements)  # type: ignore[attr-defined]
def count_elements(tx: Tx, mapping: VariableTracker, values: VariableTracker) -> VariableTracker:
    from .. import polyfills

    return tx.call_polyfill(polyfills.collections_.count_elements, [mapping, values], {})
