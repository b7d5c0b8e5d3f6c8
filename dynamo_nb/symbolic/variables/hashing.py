"""Keys of traced dicts and sets: what stands for a tracker inside the tracer's own hash tables.

Constants stand for themselves, so 1, 1.0 and True are one key as in Python; objects that hash by
identity are stood for by their tracker; tuples by tuples. Classes with their own `__hash__` in Python
are keyed through the traced `__hash__` and `__eq__`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .base import NOTHING, VariableTracker, const
from .constant import ConstantVariable

if TYPE_CHECKING:
    from ..interpreter import InstructionTranslatorBase as Tx


class IdentityKey:
    """Hashes and compares as the object behind the tracker does by default."""

    __slots__ = ("vt",)

    def __init__(self, vt: VariableTracker) -> None:
        self.vt = vt

    def __hash__(self) -> int:
        return id(self.vt)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdentityKey) and other.vt is self.vt


class TracedKey:
    """An object whose class defines __hash__ in Python. effectful: its __hash__ or __eq__ has side effects."""

    __slots__ = ("effectful", "hash", "known", "tx", "vt")

    def __init__(self, tx: Tx, vt: VariableTracker, value: int, effectful: bool) -> None:
        self.tx = tx
        self.vt = vt
        self.hash = value
        self.effectful = effectful
        self.known: dict[int, bool] | None = None      # what a lookup under way has compared already

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        from ..protocol import compare, truth

        theirs = other.vt if isinstance(other, (TracedKey, IdentityKey)) else ConstantVariable(other)
        if theirs is self.vt:
            return True
        known = other.known if isinstance(other, TracedKey) else None
        if known is not None and id(self) in known:
            return known[id(self)]
        before = marks(self.tx)
        same = truth(self.tx, compare(self.tx, "==", self.vt, theirs))
        if before != marks(self.tx):
            self.effectful = True
            if isinstance(other, TracedKey):
                other.effectful = True
        if known is not None:
            known[id(self)] = same
        return same


def marks(tx: Tx) -> tuple[int, int]:
    return tx.recorder.effects, len(tx.recorder.graph.nodes)


def _traced_keys(key: Hashable) -> Iterator[TracedKey]:
    if isinstance(key, TracedKey):
        yield key
    elif isinstance(key, tuple):
        for part in key:
            yield from _traced_keys(part)


def effectful(keys: Iterable[Hashable]) -> bool:
    """Would rebuilding a dict or set with these keys repeat side effects?"""
    return any(traced.effectful for key in keys for traced in _traced_keys(key))


@contextlib.contextmanager
def one_lookup(key: Hashable) -> Iterator[None]:
    """The tracer's tables are asked more than once where Python asks once: each comparison is traced only once."""
    traced = list(_traced_keys(key))
    for part in traced:
        part.known = {}
    try:
        yield
    finally:
        for part in traced:
            part.known = None


def hash_key(tx: Tx, vt: VariableTracker) -> Hashable:
    from ..protocol import is_python_override, special, type_lookup
    from .numeric import SymNodeVariable
    from .sequences import TupleVariable
    from .tensor import TensorVariable

    vt = vt.realize()
    if isinstance(vt, SymNodeVariable):
        vt = vt.specialize(tx)
    value = const(vt)
    if value is not NOTHING:
        try:
            hash(value)
        except TypeError as err:
            raise tx.raise_(TypeError, *err.args) from None
        return value
    if isinstance(vt, TensorVariable):
        return IdentityKey(vt)
    if isinstance(vt, TupleVariable):
        return tuple(hash_key(tx, item) for item in vt.items)
    real = getattr(vt, "hashable_value", NOTHING)
    if real is not NOTHING:
        return real
    cls = vt.python_type()
    if type_lookup(cls, "__hash__") is None:
        raise tx.raise_(TypeError, f"unhashable type: {cls.__name__!r}")
    if is_python_override(cls, "__hash__"):
        before = marks(tx)
        result = special(tx, vt, "__hash__", [])
        number = const(result) if result is not None else NOTHING
        if isinstance(number, int):
            return TracedKey(tx, vt, number, before != marks(tx))
        raise vt.unsupported(f"hash of {vt.describe()}")
    return IdentityKey(vt)


def is_ordered(key: Any) -> bool:
    """Does iteration order of a set of such keys depend on values alone, not on addresses?"""
    if isinstance(key, (IdentityKey, TracedKey)):
        return False
    if isinstance(key, tuple):
        return all(is_ordered(k) for k in key)
    return isinstance(key, (int, float, str, bytes, bool, complex))
