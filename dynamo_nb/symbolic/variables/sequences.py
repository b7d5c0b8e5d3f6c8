"""Lists, tuples, torch.Size, named tuples, ranges, slices and deques."""

from __future__ import annotations

import collections
import operator
from typing import TYPE_CHECKING, Any

import torch

from ...core.exc import StepUnsupported
from ...core.reasons import UnsupportedOperation
from .base import NOTHING, VariableTracker, const
from .constant import NONE, ConstantVariable, boolean

if TYPE_CHECKING:
    from ..interpreter import InstructionTranslatorBase as Tx


class SequenceVariable(VariableTracker):
    """items: trackers in order, possibly lazy."""

    kind: type = list

    def __init__(self, items: list[VariableTracker], source: Any = None) -> None:
        self.items = items
        self.source = source

    def python_type(self) -> type:
        return self.kind

    def is_python_constant(self) -> bool:
        return all(item.is_python_constant() for item in self.items)

    def as_python_constant(self) -> Any:
        return self.kind(item.as_python_constant() for item in self.items)

    def known_items(self, tx: Tx) -> list[VariableTracker]:
        return self.items

    def is_graph_argument(self) -> bool:
        from .tensor import is_graph_argument

        return all(is_graph_argument(i) for i in self.items)

    def as_graph_argument(self, tx: Tx) -> tuple[Any, Any]:
        pairs = [i.realize().as_graph_argument(tx) for i in self.items]
        return self.kind(p[0] for p in pairs), self.kind(p[1] for p in pairs)

    def native_bool(self, tx: Tx) -> bool | None:
        return bool(self.items)

    def native_len(self, tx: Tx) -> VariableTracker | None:
        return ConstantVariable(len(self.items))

    def native_iter(self, tx: Tx) -> VariableTracker | None:
        from .iterators import ListIteratorVariable

        if self.mutable:
            return ListIteratorVariable(None, origin=self, python_type=type(iter(())) if self.kind is tuple else type(iter([])))
        return ListIteratorVariable(list(self.items), origin=self, python_type=type(iter(())))

    def native_contains(self, tx: Tx, item: VariableTracker) -> VariableTracker | None:
        from ..protocol import compare, is_same, truth

        for mine in self.items:
            if mine.realize() is item.realize():
                return ConstantVariable(True)
            a, b = const(mine), const(item)
            if a is not NOTHING and b is not NOTHING:
                if a is b or a == b:
                    return ConstantVariable(True)
                continue
            if is_same(tx, mine, item) or truth(tx, compare(tx, "==", mine, item)):
                return ConstantVariable(True)
        return ConstantVariable(False)

    def _index(self, tx: Tx, key: VariableTracker) -> int | slice:
        key = key.realize()
        if isinstance(key, SliceVariable):
            return slice(*(tx.optional_int(part) for part in key.items))
        if not tx.has_index(key):
            raise tx.raise_(TypeError, f"{self.kind.__name__} indices must be integers or slices, not {key.python_type().__name__}")
        return tx.concrete_int(key)

    def native_getitem(self, tx: Tx, key: VariableTracker) -> VariableTracker | None:
        index = self._index(tx, key)
        if isinstance(index, slice):
            return self.made(tx.checked(lambda: self.items[index]))
        try:
            return self.items[index]
        except IndexError:
            raise tx.raise_(IndexError, f"{self.kind.__name__} index out of range") from None

    def made(self, items: list[VariableTracker]) -> SequenceVariable:
        """A new sequence of the same C type."""
        return type(self)(items)

    def binary(self, tx: Tx, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        other = other.realize()
        if op == "+" and isinstance(other, SequenceVariable) and issubclass(other.kind, self.base_kind()) and not reflected:
            return self.made([*self.items, *other.items])
        if op == "*" and tx.has_index(other):
            return self.made(self.items * tx.concrete_int(other))
        return None

    def base_kind(self) -> type:
        return tuple if issubclass(self.kind, tuple) else list

    def compare(self, tx: Tx, op: str, other: VariableTracker) -> VariableTracker | None:
        from .. import protocol

        other = other.realize()
        if not isinstance(other, SequenceVariable) or other.base_kind() is not self.base_kind():
            return None
        if op in ("==", "!=") and len(self.items) != len(other.items):
            return boolean(op == "!=")
        for mine, theirs in zip(self.items, other.items, strict=False):
            if mine.realize() is theirs.realize() or protocol.truth(tx, protocol.compare(tx, "==", mine, theirs)):
                continue
            return boolean(op == "!=") if op in ("==", "!=") else protocol.compare(tx, op, mine, theirs)
        return boolean(protocol.COMPARE[op][0](len(self.items), len(other.items)))

    def call_method(self, tx: Tx, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        from . import list_methods

        return list_methods.call(tx, self, name, args, kwargs) or super().call_method(tx, name, args, kwargs)

    def debug_repr(self) -> str:
        return f"{type(self).__name__}(length={len(self.items)})"


class ListVariable(SequenceVariable):
    mutable = True
    kind = list

    def native_setitem(self, tx: Tx, key: VariableTracker, value: VariableTracker) -> bool:
        from ..protocol import unpack

        index = self._index(tx, key)
        if isinstance(index, slice):
            values = unpack(tx, value)
            tx.recorder.side_effects.mutate(self)
            tx.checked(lambda: operator.setitem(self.items, index, values))
            return True
        if not -len(self.items) <= index < len(self.items):
            raise tx.raise_(IndexError, "list assignment index out of range")
        tx.recorder.side_effects.mutate(self)
        self.items[index] = value
        return True

    def native_delitem(self, tx: Tx, key: VariableTracker) -> bool:
        index = self._index(tx, key)
        if isinstance(index, int) and not -len(self.items) <= index < len(self.items):
            raise tx.raise_(IndexError, "list assignment index out of range")
        tx.recorder.side_effects.mutate(self)
        del self.items[index]
        return True

    def inplace(self, tx: Tx, op: str, other: VariableTracker) -> VariableTracker | None:
        from ..protocol import unpack

        if op == "+=":
            values = unpack(tx, other)
            tx.recorder.side_effects.mutate(self)
            self.items.extend(values)
            return self
        if op == "*=" and tx.has_index(other):
            count = tx.concrete_int(other)
            tx.recorder.side_effects.mutate(self)
            self.items[:] = self.items * count
            return self
        return None


class TupleVariable(SequenceVariable):
    kind = tuple

    def is_same_object(self, tx: Tx, other: VariableTracker) -> bool:
        if not self.items and isinstance(other, TupleVariable) and not other.items:
            return True
        if self.source is not None and other.source is not None:
            tx.assume_distinct(self, other)
            return False
        if self.is_python_constant() and other.is_python_constant():
            raise StepUnsupported(UnsupportedOperation("`is` between tuples"))
        return False


class SizeVariable(TupleVariable):
    """torch.Size."""

    kind = torch.Size

    def as_python_constant(self) -> Any:
        return torch.Size([item.as_python_constant() for item in self.items])

    def as_graph_argument(self, tx: Tx) -> tuple[Any, Any]:
        pairs = [i.realize().as_graph_argument(tx) for i in self.items]
        if all(isinstance(p[0], int) for p in pairs):
            size = torch.Size([p[0] for p in pairs])
            return size, size
        return tuple(p[0] for p in pairs), tuple(p[1] for p in pairs)

    def made(self, items: list[VariableTracker]) -> SequenceVariable:
        return SizeVariable(items)

    def call_method(self, tx: Tx, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        from ..protocol import binary

        if name == "numel" and not args:
            total: VariableTracker = ConstantVariable(1)
            for item in self.items:
                total = binary(tx, "*", total, item)
            return total
        return super().call_method(tx, name, args, kwargs)

    def binary(self, tx: Tx, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        other = other.realize()
        if op == "+" and isinstance(other, TupleVariable):
            left, right = (other, self) if reflected else (self, other)
            return SizeVariable([*left.items, *right.items])
        return super().binary(tx, op, other, reflected)


class NamedTupleVariable(TupleVariable):
    """An instance of a tuple subclass without state of its own (collections.namedtuple, typing.NamedTuple)."""

    def __init__(self, items: list[VariableTracker], kind: type, source: Any = None) -> None:
        super().__init__(items, source)
        self.kind = kind

    def as_python_constant(self) -> Any:
        return tuple.__new__(self.kind, [item.as_python_constant() for item in self.items])

    def as_graph_argument(self, tx: Tx) -> tuple[Any, Any]:
        pairs = [i.realize().as_graph_argument(tx) for i in self.items]
        return tuple.__new__(self.kind, [p[0] for p in pairs]), tuple.__new__(self.kind, [p[1] for p in pairs])

    def is_same_object(self, tx: Tx, other: VariableTracker) -> bool:
        return False

    def made(self, items: list[VariableTracker]) -> SequenceVariable:
        return TupleVariable(items)

    def instance_getattr(self, tx: Tx, name: str) -> VariableTracker | None:
        fields = getattr(self.kind, "_fields", ())
        return self.items[fields.index(name)] if name in fields else None

    def descriptor_value(self, name: str) -> VariableTracker | None:
        fields = getattr(self.kind, "_fields", ())
        return self.items[fields.index(name)] if name in fields else None


class StructSequenceVariable(NamedTupleVariable):
    """torch.return_types.* and other C struct sequences."""

    def as_python_constant(self) -> Any:
        return self.kind([item.as_python_constant() for item in self.items])

    def as_graph_argument(self, tx: Tx) -> tuple[Any, Any]:
        pairs = [i.realize().as_graph_argument(tx) for i in self.items]
        return tuple(p[0] for p in pairs), tuple(p[1] for p in pairs)

    def _position(self, name: str) -> int | None:
        fields = [n for n in self.kind.__dict__ if not n.startswith("_") and n not in ("n_fields", "n_sequence_fields", "n_unnamed_fields")]
        return fields.index(name) if name in fields else None

    def native_getattr(self, tx: Tx, name: str) -> VariableTracker | None:
        position = self._position(name)
        return None if position is None else self.items[position]

    instance_getattr = native_getattr


class SliceVariable(SequenceVariable):
    """items: start, stop, step."""

    kind = slice

    def as_python_constant(self) -> Any:
        return slice(*(i.as_python_constant() for i in self.items))

    def as_graph_argument(self, tx: Tx) -> tuple[Any, Any]:
        pairs = [i.realize().as_graph_argument(tx) for i in self.items]
        return slice(*(p[0] for p in pairs)), slice(*(p[1] for p in pairs))

    def native_bool(self, tx: Tx) -> bool | None:
        return True

    def native_len(self, tx: Tx) -> VariableTracker | None:
        return None

    def native_iter(self, tx: Tx) -> VariableTracker | None:
        return None

    known_items = None  # type: ignore[assignment]

    def native_getattr(self, tx: Tx, name: str) -> VariableTracker | None:
        names = ("start", "stop", "step")
        return self.items[names.index(name)] if name in names else None

    def base_kind(self) -> type:
        return slice

    def call_method(self, tx: Tx, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        if name == "indices" and len(args) == 1:
            plain = slice(*(tx.optional_int(part) for part in self.items))
            return tx.wrap(tx.checked(lambda: plain.indices(tx.concrete_int(args[0]))))
        return VariableTracker.call_method(self, tx, name, args, kwargs)


class RangeVariable(VariableTracker):
    """value: a concrete range; sizes that vary are specialised when the range is made."""

    def __init__(self, value: range, source: Any = None) -> None:
        self.value = value
        self.source = source

    def python_type(self) -> type:
        return range

    def is_python_constant(self) -> bool:
        return True

    def as_python_constant(self) -> Any:
        return self.value

    def native_bool(self, tx: Tx) -> bool | None:
        return bool(self.value)

    def native_len(self, tx: Tx) -> VariableTracker | None:
        return tx.fold(len, [self.value], {})

    def native_iter(self, tx: Tx) -> VariableTracker | None:
        from .iterators import RangeIteratorVariable

        return RangeIteratorVariable(self.value)

    def native_getitem(self, tx: Tx, key: VariableTracker) -> VariableTracker | None:
        key = key.realize()
        index: Any = slice(*(tx.optional_int(p) for p in key.items)) if isinstance(key, SliceVariable) else tx.concrete_int(key)
        return tx.fold(lambda: self.value[index], [], {})

    def native_contains(self, tx: Tx, item: VariableTracker) -> VariableTracker | None:
        value = const(item)
        return None if value is NOTHING else tx.fold(lambda: value in self.value, [], {})

    def native_getattr(self, tx: Tx, name: str) -> VariableTracker | None:
        return ConstantVariable(getattr(self.value, name)) if name in ("start", "stop", "step") else None

    def compare(self, tx: Tx, op: str, other: VariableTracker) -> VariableTracker | None:
        other = other.realize()
        if isinstance(other, RangeVariable) and op in ("==", "!="):
            return boolean((self.value == other.value) == (op == "=="))
        return None

    def call_method(self, tx: Tx, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        plain = [const(a) for a in args]
        if name in ("index", "count", "__reversed__") and NOTHING not in plain:
            return tx.fold(getattr(self.value, name), plain, {})
        return super().call_method(tx, name, args, kwargs)


class DequeVariable(ListVariable):
    """collections.deque; maxlen bounds it from the other end."""

    kind = collections.deque

    def __init__(self, items: list[VariableTracker], maxlen: int | None = None, source: Any = None) -> None:
        super().__init__(items, source)
        self.maxlen = maxlen

    def as_python_constant(self) -> Any:
        return collections.deque((i.as_python_constant() for i in self.items), self.maxlen)

    def is_graph_argument(self) -> bool:
        return False

    def base_kind(self) -> type:
        return collections.deque

    def made(self, items: list[VariableTracker]) -> SequenceVariable:
        return DequeVariable(items, self.maxlen)

    def native_iter(self, tx: Tx) -> VariableTracker | None:
        from .iterators import ListIteratorVariable

        return ListIteratorVariable(list(self.items), origin=None, python_type=type(iter(collections.deque())))

    def native_getattr(self, tx: Tx, name: str) -> VariableTracker | None:
        return ConstantVariable(self.maxlen) if name == "maxlen" else None

    def native_getitem(self, tx: Tx, key: VariableTracker) -> VariableTracker | None:
        if not tx.has_index(key.realize()):
            raise tx.raise_(TypeError, f"sequence index must be integer, not '{key.python_type().__name__}'")
        index = tx.concrete_int(key)
        if not -len(self.items) <= index < len(self.items):
            raise tx.raise_(IndexError, "deque index out of range")
        return self.items[index]

    def trim(self, left: bool) -> None:
        if self.maxlen is not None and len(self.items) > self.maxlen:
            extra = len(self.items) - self.maxlen
            if left:
                del self.items[len(self.items) - extra:]
            else:
                del self.items[:extra]

    def inplace(self, tx: Tx, op: str, other: VariableTracker) -> VariableTracker | None:
        result = super().inplace(tx, op, other)
        self.trim(left=False)
        return result

    def call_method(self, tx: Tx, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        from . import list_methods

        return list_methods.call_deque(tx, self, name, args, kwargs) or VariableTracker.call_method(self, tx, name, args, kwargs)


__all__ = ["NONE", "DequeVariable", "ListVariable", "NamedTupleVariable", "RangeVariable", "SequenceVariable", "SizeVariable", "SliceVariable", "StructSequenceVariable", "TupleVariable"]
