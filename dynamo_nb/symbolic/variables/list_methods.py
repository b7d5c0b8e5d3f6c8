"""Methods of list, tuple and deque on symbolic contents."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...cpython.classes import is_python_class
from .base import NOTHING, VariableTracker, const
from .constant import NONE, ConstantVariable
from .sequences import DequeVariable, ListVariable, SequenceVariable

if TYPE_CHECKING:
    from ..interpreter import InstructionTranslatorBase as Tx

Method = Callable[..., VariableTracker]
SHARED: dict[str, Method] = {}
LIST: dict[str, Method] = {}
DEQUE: dict[str, Method] = {}


def _register(table: dict[str, Method]) -> Callable[[Method], Method]:
    def register(fn: Method) -> Method:
        table[fn.__name__.rstrip("_").removeprefix("deque_")] = fn
        return fn

    return register


def call(tx: Tx, me: SequenceVariable, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker | None:
    fn = SHARED.get(name) or (LIST.get(name) if me.mutable else None)
    if fn is None:
        return dunder(tx, me, name, args)
    return _invoke(tx, fn, me, name, args, kwargs)


def call_deque(tx: Tx, me: DequeVariable, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker | None:
    fn = DEQUE.get(name) or SHARED.get(name) or LIST.get(name)
    if fn is None:
        return dunder(tx, me, name, args)
    return _invoke(tx, fn, me, name, args, kwargs)


def _invoke(tx: Tx, fn: Method, me: VariableTracker, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    import inspect

    try:
        inspect.signature(fn).bind(tx, me, *args, **kwargs)
    except TypeError:
        raise _wrong_call(tx, me, name, len(args), kwargs) from None
    return fn(tx, me, *args, **kwargs)


def _wrong_call(tx: Tx, me: VariableTracker, name: str, count: int, kwargs: dict[str, VariableTracker]) -> Exception:
    """The error Python itself has for a call with so many arguments, found out on an empty object of the type."""
    kind = next(base for base in me.python_type().__mro__ if base.__module__ in ("builtins", "collections") and not is_python_class(base))
    try:
        getattr(kind, name)(kind(), *[None] * count, **dict.fromkeys(kwargs))
    except TypeError as err:
        return tx.raise_(TypeError, *err.args)
    except Exception:
        pass
    return me.unsupported(f"{kind.__name__}.{name}() called this way")


def dunder(tx: Tx, me: VariableTracker, name: str, args: list[VariableTracker]) -> VariableTracker | None:
    """Special methods called by name."""
    from .. import protocol
    from .constant import NOT_IMPLEMENTED, boolean

    for table in (protocol.BINARY, protocol.COMPARE):
        for op, entry in table.items():
            if entry[1] == name and len(args) == 1:
                result = me.binary(tx, op, args[0].realize(), False) if table is protocol.BINARY else me.compare(tx, op, args[0].realize())
                return NOT_IMPLEMENTED if result is None else result
            if table is protocol.BINARY and entry[2] == name and len(args) == 1:
                return me.binary(tx, op, args[0].realize(), True) or NOT_IMPLEMENTED
    for op, (_, method_name) in protocol.INPLACE.items():
        if method_name == name and len(args) == 1:
            native = getattr(me, "inplace", None)
            return (native(tx, op, args[0].realize()) if native else None) or NOT_IMPLEMENTED
    simple: dict[str, Callable[[], Any]] = {
        "__len__": lambda: me.native_len(tx),
        "__iter__": lambda: me.native_iter(tx),
        "__next__": lambda: me.native_next(tx),
        "__getitem__": lambda: me.native_getitem(tx, args[0]),
        "__contains__": lambda: me.native_contains(tx, args[0]),
        "__bool__": lambda: boolean(bool(me.native_bool(tx))),
        "__setitem__": lambda: NONE if me.native_setitem(tx, args[0], args[1]) else None,
        "__delitem__": lambda: NONE if me.native_delitem(tx, args[0]) else None,
        "__init_subclass__": lambda: NONE,
    }
    return simple[name]() if name in simple else None


@_register(SHARED)
def index(tx: Tx, me: SequenceVariable, value: VariableTracker, start: VariableTracker = ConstantVariable(0), stop: VariableTracker | None = None) -> VariableTracker:
    from ..protocol import compare, is_same, truth

    items = me.items
    lo, hi, _ = slice(tx.concrete_int(start), None if stop is None else tx.concrete_int(stop)).indices(len(items))
    for i in range(lo, hi):
        if is_same(tx, items[i], value) or truth(tx, compare(tx, "==", items[i], value)):
            return ConstantVariable(i)
    shown = const(value)
    text = f"{shown!r} is not in list" if me.mutable and shown is not NOTHING else "tuple.index(x): x not in tuple" if not me.mutable else "value is not in list"
    raise tx.raise_(ValueError, text)


@_register(SHARED)
def count(tx: Tx, me: SequenceVariable, value: VariableTracker) -> VariableTracker:
    from ..protocol import compare, is_same, truth

    return ConstantVariable(sum(1 for item in list(me.items) if is_same(tx, item, value) or truth(tx, compare(tx, "==", item, value))))


@_register(LIST)
def append(tx: Tx, me: ListVariable, value: VariableTracker) -> VariableTracker:
    tx.recorder.side_effects.mutate(me)
    me.items.append(value)
    if isinstance(me, DequeVariable):
        me.trim(left=False)
    return NONE


@_register(LIST)
def extend(tx: Tx, me: ListVariable, values: VariableTracker) -> VariableTracker:
    from ..protocol import iter_, next_or_none

    values = values.realize()
    if values is me:
        new = list(me.items)
        tx.recorder.side_effects.mutate(me)
        me.items.extend(new)
        return NONE
    iterator = iter_(tx, values)
    tx.recorder.side_effects.mutate(me)
    while (item := next_or_none(tx, iterator)) is not None:
        me.items.append(item)
        if isinstance(me, DequeVariable):
            me.trim(left=False)
        tx.count_work()
    return NONE


@_register(LIST)
def insert(tx: Tx, me: ListVariable, at: VariableTracker, value: VariableTracker) -> VariableTracker:
    position = tx.concrete_int(at)
    tx.recorder.side_effects.mutate(me)
    me.items.insert(position, value)
    return NONE


@_register(LIST)
def pop(tx: Tx, me: ListVariable, at: VariableTracker = ConstantVariable(-1)) -> VariableTracker:
    position = tx.concrete_int(at)
    if not me.items:
        raise tx.raise_(IndexError, "pop from an empty deque" if isinstance(me, DequeVariable) else "pop from empty list")
    if not -len(me.items) <= position < len(me.items):
        raise tx.raise_(IndexError, "pop index out of range")
    tx.recorder.side_effects.mutate(me)
    return me.items.pop(position)


@_register(LIST)
def remove(tx: Tx, me: ListVariable, value: VariableTracker) -> VariableTracker:
    from ..protocol import compare, is_same, truth

    for i, item in enumerate(me.items):
        if is_same(tx, item, value) or truth(tx, compare(tx, "==", item, value)):
            tx.recorder.side_effects.mutate(me)
            del me.items[i]
            return NONE
    raise tx.raise_(ValueError, "list.remove(x): x not in list")


@_register(LIST)
def clear(tx: Tx, me: ListVariable) -> VariableTracker:
    tx.recorder.side_effects.mutate(me)
    me.items.clear()
    return NONE


@_register(LIST)
def reverse(tx: Tx, me: ListVariable) -> VariableTracker:
    tx.recorder.side_effects.mutate(me)
    me.items.reverse()
    return NONE


@_register(LIST)
def copy(tx: Tx, me: ListVariable) -> VariableTracker:
    return me.made(list(me.items))


@_register(SHARED)
def __reversed__(tx: Tx, me: SequenceVariable) -> VariableTracker:
    from .iterators import ListIteratorVariable

    return ListIteratorVariable(list(reversed(me.items)), origin=None, python_type=type(reversed([])) if me.kind is list else reversed)


SHARED["__reversed__"] = __reversed__


@_register(LIST)
def sort(tx: Tx, me: ListVariable, *, key: VariableTracker = NONE, reverse: VariableTracker = ConstantVariable(False)) -> VariableTracker:
    ordered = list(me.items)
    tx.recorder.side_effects.mutate(me)
    me.items[:] = []      # CPython empties the list while it sorts
    try:
        ordered = sorted_items(tx, ordered, key, reverse)
        if me.items:
            raise tx.raise_(ValueError, "list modified during sort")
    finally:
        me.items[:] = ordered
    return NONE


def sorted_items(tx: Tx, items: list[VariableTracker], key: VariableTracker, backwards: VariableTracker) -> list[VariableTracker]:
    """The items as list.sort orders them: stable, by `<` of the keys alone."""
    import functools

    from ..protocol import compare, truth

    keys = items if const(key) is None else [key.realize().call_function(tx, [item], {}) for item in items]
    down = truth(tx, backwards)
    plain = [const(k) for k in keys]
    if all(p is not NOTHING for p in plain):
        order = tx.checked(lambda: sorted(range(len(items)), key=lambda i: plain[i], reverse=down))
    else:
        def less(i: int, j: int) -> int:
            return -1 if truth(tx, compare(tx, "<", keys[i], keys[j])) else 1 if truth(tx, compare(tx, "<", keys[j], keys[i])) else 0

        order = sorted(range(len(items)), key=functools.cmp_to_key(less), reverse=down)
    return [items[i] for i in order]


@_register(DEQUE)
def appendleft(tx: Tx, me: DequeVariable, value: VariableTracker) -> VariableTracker:
    tx.recorder.side_effects.mutate(me)
    me.items.insert(0, value)
    me.trim(left=True)
    return NONE


@_register(DEQUE)
def extendleft(tx: Tx, me: DequeVariable, values: VariableTracker) -> VariableTracker:
    from ..protocol import unpack

    for item in unpack(tx, values):
        appendleft(tx, me, item)
    return NONE


@_register(DEQUE)
def popleft(tx: Tx, me: DequeVariable) -> VariableTracker:
    if not me.items:
        raise tx.raise_(IndexError, "pop from an empty deque")
    tx.recorder.side_effects.mutate(me)
    return me.items.pop(0)


@_register(DEQUE)
def deque_pop(tx: Tx, me: DequeVariable) -> VariableTracker:
    return pop(tx, me)


@_register(DEQUE)
def rotate(tx: Tx, me: DequeVariable, by: VariableTracker = ConstantVariable(1)) -> VariableTracker:
    count_ = tx.concrete_int(by)
    tx.recorder.side_effects.mutate(me)
    if me.items:
        shift = count_ % len(me.items)
        me.items[:] = me.items[-shift:] + me.items[:-shift] if shift else me.items
    return NONE
