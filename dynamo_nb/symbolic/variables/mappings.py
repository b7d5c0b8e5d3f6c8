"""Dicts and their views, sets and frozen sets."""

from __future__ import annotations

import collections
import types
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from ...core.exc import StepUnsupported
from ...core.reasons import UnsupportedOperation
from .base import VariableTracker, const
from .constant import NONE, ConstantVariable, boolean
from .hashing import effectful, hash_key, is_ordered, one_lookup

if TYPE_CHECKING:
    from ..interpreter import InstructionTranslatorBase as Tx


class ConstDictVariable(VariableTracker):
    """items: hash key -> (key tracker, value tracker), in insertion order. kind: dict, OrderedDict, defaultdict."""

    mutable = True

    def __init__(self, items: dict[Hashable, tuple[VariableTracker, VariableTracker]], kind: type = dict, source: Any = None, factory: VariableTracker = NONE) -> None:
        self.items = items
        self.kind = kind
        self.source = source
        self.factory = factory
        self.owner: VariableTracker = self

    def python_type(self) -> type:
        return self.kind

    def is_python_constant(self) -> bool:
        return all(k.is_python_constant() and v.is_python_constant() for k, v in self.items.values())

    def as_python_constant(self) -> Any:
        plain = {k.as_python_constant(): v.as_python_constant() for k, v in self.items.values()}
        if self.kind is collections.defaultdict:
            return collections.defaultdict(self.factory.as_python_constant(), plain)
        return self.kind(plain)

    def is_graph_argument(self) -> bool:
        from .tensor import is_graph_argument

        return all(isinstance(const(k), (str, int)) and is_graph_argument(v) for k, v in self.items.values())

    def as_graph_argument(self, tx: Tx) -> tuple[Any, Any]:
        pairs = {k.as_python_constant(): v.realize().as_graph_argument(tx) for k, v in self.items.values()}
        return {k: p[0] for k, p in pairs.items()}, {k: p[1] for k, p in pairs.items()}

    def known_items(self, tx: Tx) -> list[VariableTracker]:
        return [k for k, _ in self.items.values()]

    def native_bool(self, tx: Tx) -> bool | None:
        return bool(self.items)

    def native_len(self, tx: Tx) -> VariableTracker | None:
        return ConstantVariable(len(self.items))

    def native_iter(self, tx: Tx) -> VariableTracker | None:
        return DictViewVariable(self, "keys").native_iter(tx)

    def native_contains(self, tx: Tx, item: VariableTracker) -> VariableTracker | None:
        return boolean(hash_key(tx, item) in self.items)

    def native_getattr(self, tx: Tx, name: str) -> VariableTracker | None:
        return self.factory if name == "default_factory" and self.kind is collections.defaultdict else None

    def lookup(self, tx: Tx, key: VariableTracker) -> VariableTracker | None:
        found = self.items.get(hash_key(tx, key))
        return None if found is None else found[1]

    def native_getitem(self, tx: Tx, key: VariableTracker) -> VariableTracker | None:
        found = self.lookup(tx, key)
        if found is not None:
            return found
        return self.missing(tx, key)

    def missing(self, tx: Tx, key: VariableTracker) -> VariableTracker:
        from ..protocol import is_python_override, special

        if is_python_override(self.owner.python_type(), "__missing__"):
            result = special(tx, self.owner, "__missing__", [key])
            assert result is not None
            return result
        if self.kind is collections.defaultdict and const(self.factory) is not None:
            value = self.factory.realize().call_function(tx, [], {})
            self.store(tx, key, value)
            return value
        raise tx.raise_from(KeyError, [key])

    def store(self, tx: Tx, key: VariableTracker, value: VariableTracker) -> None:
        self.store_hashed(tx, hash_key(tx, key), key, value)

    def store_hashed(self, tx: Tx, hashed: Hashable, key: VariableTracker, value: VariableTracker) -> None:
        with one_lookup(hashed):
            old = self.items.get(hashed)
            self.before_change(tx, hashed)
            self.items[hashed] = (key if old is None else old[0], value)

    def before_change(self, tx: Tx, hashed: Hashable) -> None:
        if self.owner.existing and effectful([hashed]):
            raise self.unsupported("changing a dict under a key whose __hash__ or __eq__ has side effects")
        tx.recorder.side_effects.mutate(self)

    def take(self, tx: Tx, hashed: Hashable) -> VariableTracker | None:
        """Remove and return the value under a key; None if it is not there."""
        with one_lookup(hashed):
            if hashed not in self.items:
                return None
            self.before_change(tx, hashed)
            return self.items.pop(hashed)[1]

    def native_setitem(self, tx: Tx, key: VariableTracker, value: VariableTracker) -> bool:
        self.store(tx, key, value)
        return True

    def native_delitem(self, tx: Tx, key: VariableTracker) -> bool:
        if self.take(tx, hash_key(tx, key)) is None:
            raise tx.raise_from(KeyError, [key])
        return True

    def made(self) -> ConstDictVariable:
        return ConstDictVariable(dict(self.items), self.kind, factory=self.factory)

    def binary(self, tx: Tx, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        theirs = as_dict(other)
        if op != "|" or theirs is None:
            return None
        first, second = (theirs, self) if reflected else (self, theirs)
        merged = first.made()
        for key, (k, v) in second.items.items():
            old = merged.items.get(key)
            merged.items[key] = (k if old is None else old[0], v)
        return merged

    def inplace(self, tx: Tx, op: str, other: VariableTracker) -> VariableTracker | None:
        if op != "|=":
            return None
        self.call_method(tx, "update", [other], {})
        return self.owner

    def compare(self, tx: Tx, op: str, other: VariableTracker) -> VariableTracker | None:
        from .. import protocol

        theirs = as_dict(other)
        if theirs is None or op not in ("==", "!="):
            return None
        same = len(self.items) == len(theirs.items)
        if same and self.kind is theirs.kind is collections.OrderedDict:
            same = list(self.items) == list(theirs.items)
        if same:
            for key, (_, value) in self.items.items():
                entry = theirs.items.get(key)
                if entry is None or not (entry[1].realize() is value.realize() or protocol.truth(tx, protocol.compare(tx, "==", value, entry[1]))):
                    same = False
                    break
        return boolean(same == (op == "=="))

    def call_method(self, tx: Tx, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        from . import dict_methods

        return dict_methods.call(tx, self, name, args, kwargs) or super().call_method(tx, name, args, kwargs)

    def debug_repr(self) -> str:
        return f"ConstDictVariable({self.kind.__name__})"


def as_dict(vt: VariableTracker) -> ConstDictVariable | None:
    vt = vt.realize()
    if isinstance(vt, ConstDictVariable):
        return vt
    storage = getattr(vt, "storage", None)
    return storage if isinstance(storage, ConstDictVariable) else None


VIEW_TYPES: dict[str, type] = {"keys": type({}.keys()), "values": type({}.values()), "items": type({}.items())}


class DictViewVariable(VariableTracker):
    """A live view of a dict; which: keys, values or items."""

    def __init__(self, base: ConstDictVariable, which: str) -> None:
        self.base = base
        self.which = which

    def python_type(self) -> type:
        if self.base.kind is collections.OrderedDict:
            return {"keys": type(collections.OrderedDict().keys()), "values": type(collections.OrderedDict().values()), "items": type(collections.OrderedDict().items())}[self.which]
        return VIEW_TYPES[self.which]

    def known_items(self, tx: Tx) -> list[VariableTracker]:
        from .sequences import TupleVariable

        pairs = self.base.items.values()
        if self.which == "items":
            return [TupleVariable([k, v]) for k, v in pairs]
        return [k if self.which == "keys" else v for k, v in pairs]

    def native_len(self, tx: Tx) -> VariableTracker | None:
        return ConstantVariable(len(self.base.items))

    def native_bool(self, tx: Tx) -> bool | None:
        return bool(self.base.items)

    def native_iter(self, tx: Tx) -> VariableTracker | None:
        from .iterators import DictIteratorVariable

        return DictIteratorVariable(self)

    def native_contains(self, tx: Tx, item: VariableTracker) -> VariableTracker | None:
        return boolean(hash_key(tx, item) in self.base.items) if self.which == "keys" else None

    def as_set(self, tx: Tx) -> SetVariable:
        return SetVariable({hash_key(tx, v): v for v in self.known_items(tx)})

    def binary(self, tx: Tx, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        from ..protocol import unpack

        if self.which == "values" or op not in ("&", "|", "-", "^"):
            return None
        theirs = SetVariable({hash_key(tx, v): v for v in unpack(tx, other)})
        left, right = (theirs, self.as_set(tx)) if reflected else (self.as_set(tx), theirs)
        return left.binary(tx, op, right, False)

    def compare(self, tx: Tx, op: str, other: VariableTracker) -> VariableTracker | None:
        other = other.realize()
        if self.which == "values":
            return None
        if isinstance(other, DictViewVariable) and other.which != "values":
            other = other.as_set(tx)
        return self.as_set(tx).compare(tx, op, other)

    def call_method(self, tx: Tx, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        from .iterators import ListIteratorVariable
        from .list_methods import dunder

        if name == "isdisjoint":
            return self.as_set(tx).call_method(tx, name, args, kwargs)
        if name == "__reversed__":
            return ListIteratorVariable(list(reversed(self.known_items(tx))), origin=None)
        return dunder(tx, self, name, args) or super().call_method(tx, name, args, kwargs)


class SetVariable(VariableTracker):
    """items: hash key -> tracker. mirror: a real set of the keys, which iterates in Python's order."""

    mutable = True

    def __init__(self, items: dict[Hashable, VariableTracker], kind: type = set, source: Any = None, mirror: Any = None) -> None:
        self.items = items
        self.kind = kind
        self.source = source
        self.mutable = kind is set
        self.mirror: set[Any] = set(items) if mirror is None else mirror
        self.order_guard: Callable[[Tx], None] | None = None
        self.calls: list[tuple[str, bool, list[VariableTracker]]] = []      # what changed it: method, one item or many, items

    def python_type(self) -> type:
        return self.kind

    def is_python_constant(self) -> bool:
        return all(v.is_python_constant() for v in self.items.values())

    def as_python_constant(self) -> Any:
        return self.kind(v.as_python_constant() for v in self.items.values())

    def known_items(self, tx: Tx) -> list[VariableTracker]:
        if len(self.items) > 1:
            if not all(is_ordered(k) for k in self.items):
                raise StepUnsupported(UnsupportedOperation("iteration over a set whose order depends on object addresses"))
            if self.order_guard is not None:
                self.order_guard(tx)
        return [self.items[k] for k in self.mirror]

    def native_bool(self, tx: Tx) -> bool | None:
        return bool(self.items)

    def native_len(self, tx: Tx) -> VariableTracker | None:
        return ConstantVariable(len(self.items))

    def native_iter(self, tx: Tx) -> VariableTracker | None:
        from .iterators import ListIteratorVariable

        return ListIteratorVariable(list(self.known_items(tx)), origin=None, python_type=type(iter(set())))

    def native_contains(self, tx: Tx, item: VariableTracker) -> VariableTracker | None:
        return boolean(hash_key(tx, item) in self.items)

    def _other(self, other: VariableTracker) -> SetVariable | None:
        other = other.realize()
        if isinstance(other, SetVariable):
            return other
        storage = getattr(other, "storage", None)
        return storage if isinstance(storage, SetVariable) else None

    def combine(self, op: str, theirs: SetVariable) -> SetVariable:
        names = {"&": set.__and__, "|": set.__or__, "-": set.__sub__, "^": set.__xor__}
        mirror = names[op](self.mirror, theirs.mirror)
        return SetVariable({k: self.items.get(k) or theirs.items[k] for k in mirror}, self.kind, mirror=mirror)

    def binary(self, tx: Tx, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        theirs = self._other(other)
        if theirs is None or op not in ("&", "|", "-", "^") or reflected:
            return None
        return self.combine(op, theirs)

    def inplace(self, tx: Tx, op: str, other: VariableTracker) -> VariableTracker | None:
        theirs = self._other(other)
        if not self.mutable or theirs is None or op not in ("&=", "|=", "-=", "^="):
            return None
        self.replace(tx, self.combine(op[0], theirs), {"&=": "intersection_update", "|=": "update", "-=": "difference_update", "^=": "symmetric_difference_update"}[op], SetVariable(dict(theirs.items), mirror=set(theirs.mirror)))
        return self

    def changed(self, tx: Tx, method: str, single: bool, items: list[VariableTracker]) -> None:
        """Record the call that changes the set: iteration order depends on how it came to its contents."""
        if self.existing and (effectful(self.items) or any(effectful([hash_key(tx, item)]) for item in items if single and method in ("add", "discard"))):
            raise self.unsupported("changing a set of keys whose __hash__ or __eq__ has side effects")
        tx.recorder.side_effects.mutate(self)
        self.calls.append((method, single, items))

    def replace(self, tx: Tx, new: SetVariable, method: str, operand: VariableTracker) -> None:
        """operand: what the method is called with when the change is repeated; nothing else may hold it."""
        self.changed(tx, method, True, [operand])
        self.items, self.mirror = new.items, new.mirror

    def compare(self, tx: Tx, op: str, other: VariableTracker) -> VariableTracker | None:
        from ..protocol import COMPARE

        theirs = self._other(other)
        if theirs is None:
            return None
        return boolean(COMPARE[op][0](self.mirror, theirs.mirror))

    def is_same_object(self, tx: Tx, other: VariableTracker) -> bool:
        if self.source is not None and other.source is not None:
            tx.assume_distinct(self, other)
        return False

    def call_method(self, tx: Tx, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        from . import set_methods

        return set_methods.call(tx, self, name, args, kwargs) or super().call_method(tx, name, args, kwargs)


class MappingProxyVariable(VariableTracker):
    """types.MappingProxyType over a traced dict."""

    def __init__(self, base: ConstDictVariable, source: Any = None) -> None:
        self.base = base
        self.source = source

    def python_type(self) -> type:
        return types.MappingProxyType

    def native_len(self, tx: Tx) -> VariableTracker | None:
        return self.base.native_len(tx)

    def native_iter(self, tx: Tx) -> VariableTracker | None:
        return self.base.native_iter(tx)

    def native_contains(self, tx: Tx, item: VariableTracker) -> VariableTracker | None:
        return self.base.native_contains(tx, item)

    def native_getitem(self, tx: Tx, key: VariableTracker) -> VariableTracker | None:
        return self.base.native_getitem(tx, key)

    def native_bool(self, tx: Tx) -> bool | None:
        return self.base.native_bool(tx)

    def call_method(self, tx: Tx, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        if name in ("get", "keys", "values", "items", "copy", "__len__", "__iter__", "__contains__", "__getitem__"):
            return self.base.call_method(tx, name, args, kwargs)
        return super().call_method(tx, name, args, kwargs)
