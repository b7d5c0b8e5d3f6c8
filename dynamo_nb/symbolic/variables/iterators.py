"""Iterators: over sequences, ranges and dicts, the builtin adaptors, itertools' infinite ones, generators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .base import VariableTracker
from .constant import ConstantVariable

if TYPE_CHECKING:
    from ..interpreter import InstructionTranslatorBase as Tx
    from .mappings import DictViewVariable
    from .sequences import SequenceVariable


class IteratorVariable(VariableTracker):
    mutable = True

    def native_iter(self, tx: Tx) -> VariableTracker | None:
        return self

    def stop(self, tx: Tx) -> Any:
        raise tx.raise_(StopIteration)

    def call_method(self, tx: Tx, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        if name == "__next__":
            result = self.native_next(tx)
            assert result is not None
            return result
        if name == "__iter__":
            return self
        return super().call_method(tx, name, args, kwargs)

    def advance(self, tx: Tx) -> None:
        tx.recorder.side_effects.mutate(self)


class ListIteratorVariable(IteratorVariable):
    """Over a fixed list of items, or over a live list (`origin`) when items is None."""

    def __init__(self, items: list[VariableTracker] | None, origin: SequenceVariable | Any, python_type: type = type(iter([])), index: int = 0) -> None:
        self._items = items
        self.origin = origin
        self.index = index
        self._type = python_type
        self.exhausted = False

    @property
    def items(self) -> list[VariableTracker]:
        return self.origin.items if self._items is None else self._items

    def python_type(self) -> type:
        return self._type

    def native_next(self, tx: Tx) -> VariableTracker | None:
        items = self.items
        if self.exhausted or self.index >= len(items):
            self.advance(tx)
            self.exhausted = True
            self.stop(tx)
        self.advance(tx)
        self.index += 1
        return items[self.index - 1]

    def remaining(self) -> list[VariableTracker]:
        return [] if self.exhausted else self.items[self.index:]

    def call_method(self, tx: Tx, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        if name == "__length_hint__":
            return ConstantVariable(len(self.remaining()))
        return super().call_method(tx, name, args, kwargs)


class SequenceIteratorVariable(IteratorVariable):
    """Old-style iteration through __getitem__ until IndexError."""

    def __init__(self, sequence: VariableTracker) -> None:
        self.sequence = sequence
        self.index = 0

    def python_type(self) -> type:
        class Sequence:
            def __getitem__(self, i: int) -> int:
                raise IndexError

        return type(iter(Sequence()))

    def native_next(self, tx: Tx) -> VariableTracker | None:
        from ...core.exc import ObservedException
        from ..protocol import getitem

        try:
            value = getitem(tx, self.sequence, ConstantVariable(self.index))
        except ObservedException as raised:
            if not issubclass(raised.value.python_type(), (IndexError, StopIteration)):
                raise
            tx.exception_handled(raised)
            self.stop(tx)
            raise AssertionError from None
        self.advance(tx)
        self.index += 1
        return value


class RangeIteratorVariable(IteratorVariable):
    def __init__(self, value: range) -> None:
        self.value = value

    def python_type(self) -> type:
        return type(iter(range(0)))

    def native_next(self, tx: Tx) -> VariableTracker | None:
        self.advance(tx)
        if not self.value:
            self.stop(tx)
        first = self.value[0]
        self.value = self.value[1:]
        return ConstantVariable(first)

    def call_method(self, tx: Tx, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        if name == "__length_hint__":
            return ConstantVariable(len(self.value))
        return super().call_method(tx, name, args, kwargs)


class DictIteratorVariable(IteratorVariable):
    """Over a live dict view; a change of size while iterating is an error as in Python."""

    def __init__(self, view: DictViewVariable) -> None:
        self.view = view
        self.size = len(view.base.items)
        self.index = 0

    def python_type(self) -> type:
        return type(iter({}.keys() if self.view.which == "keys" else {}.values() if self.view.which == "values" else {}.items()))

    def native_next(self, tx: Tx) -> VariableTracker | None:
        if self.size == -1:
            self.stop(tx)
        if len(self.view.base.items) != self.size:
            raise tx.raise_(RuntimeError, "dictionary changed size during iteration")
        self.advance(tx)
        items = self.view.known_items(tx)
        if self.index >= len(items):
            self.size = -1
            self.stop(tx)
        self.index += 1
        return items[self.index - 1]

    def remaining(self, tx: Tx) -> list[VariableTracker]:
        return [] if self.size == -1 else self.view.known_items(tx)[self.index:]


class ZipVariable(IteratorVariable):
    def __init__(self, iterators: list[VariableTracker], strict: bool = False) -> None:
        self.iterators = iterators
        self.strict = strict

    def python_type(self) -> type:
        return zip

    def native_next(self, tx: Tx) -> VariableTracker | None:
        from ..protocol import next_or_none
        from .sequences import TupleVariable

        if not self.iterators:
            self.stop(tx)
        out = []
        for i, iterator in enumerate(self.iterators):
            item = next_or_none(tx, iterator)
            if item is None:
                if self.strict:
                    self._check_strict(tx, i)
                self.stop(tx)
            out.append(item)
        return TupleVariable(out)  # type: ignore[arg-type]

    def _check_strict(self, tx: Tx, ended: int) -> None:
        from ..protocol import next_or_none

        def plural(n: int) -> str:
            return "argument 1" if n == 1 else f"arguments 1-{n}"

        if ended:
            raise tx.raise_(ValueError, f"zip() argument {ended + 1} is shorter than {plural(ended)}")
        for i, iterator in enumerate(self.iterators[1:], start=1):
            if next_or_none(tx, iterator) is not None:
                raise tx.raise_(ValueError, f"zip() argument {i + 1} is longer than {plural(i)}")


class MapVariable(IteratorVariable):
    def __init__(self, function: VariableTracker, iterators: list[VariableTracker]) -> None:
        self.function = function
        self.iterators = iterators

    def python_type(self) -> type:
        return map

    def native_next(self, tx: Tx) -> VariableTracker | None:
        from ..protocol import next_or_none

        args = []
        for iterator in self.iterators:
            item = next_or_none(tx, iterator)
            if item is None:
                self.stop(tx)
            args.append(item)
        return self.function.realize().call_function(tx, args, {})  # type: ignore[arg-type]


class FilterVariable(IteratorVariable):
    def __init__(self, function: VariableTracker, iterator: VariableTracker) -> None:
        self.function = function
        self.iterator = iterator

    def python_type(self) -> type:
        return filter

    def native_next(self, tx: Tx) -> VariableTracker | None:
        from ..protocol import next_or_none, truth
        from .base import const

        while True:
            item = next_or_none(tx, self.iterator)
            if item is None:
                self.stop(tx)
            assert item is not None
            keep = item if const(self.function) is None else self.function.realize().call_function(tx, [item], {})
            if truth(tx, keep):
                return item


class EnumerateVariable(IteratorVariable):
    def __init__(self, iterator: VariableTracker, count: VariableTracker) -> None:
        self.iterator = iterator
        self.count = count

    def python_type(self) -> type:
        return enumerate

    def native_next(self, tx: Tx) -> VariableTracker | None:
        from ..protocol import binary, next_or_none
        from .sequences import TupleVariable

        item = next_or_none(tx, self.iterator)
        if item is None:
            self.stop(tx)
        assert item is not None
        self.advance(tx)
        count = self.count
        self.count = binary(tx, "+", count, ConstantVariable(1))
        return TupleVariable([count, item])


class CallIteratorVariable(IteratorVariable):
    """iter(callable, sentinel)."""

    def __init__(self, function: VariableTracker, sentinel: VariableTracker) -> None:
        self.function = function
        self.sentinel = sentinel
        self.done = False

    def python_type(self) -> type:
        return type(iter(int, 1))

    def native_next(self, tx: Tx) -> VariableTracker | None:
        from ..protocol import compare, truth

        if self.done:
            self.stop(tx)
        value = self.function.realize().call_function(tx, [], {})
        if truth(tx, compare(tx, "==", value, self.sentinel)):
            self.done = True
            self.stop(tx)
        return value


class GeneratorVariable(IteratorVariable):
    """A generator made in the trace: a suspended inlined frame (PEP 342 protocol)."""

    def __init__(self, frame: Any, name: str) -> None:
        self.frame = frame
        self.name = name
        self.started = False
        self.finished = False

    def python_type(self) -> type:
        import types

        return types.GeneratorType

    def native_next(self, tx: Tx) -> VariableTracker | None:
        return self.resume(tx, ConstantVariable(None))

    def resume(self, tx: Tx, value: VariableTracker, throw: VariableTracker | None = None) -> VariableTracker:
        from ..inline import resume_generator

        self.advance(tx)
        return resume_generator(tx, self, value, throw)

    def call_method(self, tx: Tx, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        from ..inline import close_generator

        if name == "send":
            return self.resume(tx, args[0])
        if name == "throw":
            return self.resume(tx, ConstantVariable(None), tx.exception_argument(args))
        if name == "close":
            self.advance(tx)
            return close_generator(tx, self)
        return super().call_method(tx, name, args, kwargs)
