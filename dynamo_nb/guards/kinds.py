"""The guard kinds over one value: each says in four forms what must hold.

`prepare(payload)` turns the tracer's payload into what the guard keeps (nothing of the user's stays
alive through it). `native(kept)` is the C++ leaf, `python(kept, expr)` a readable expression that
can be evaluated with `names(kept)`, `reason(kept, value, label)` says why it fails, None when it holds.
Kinds over several values are in relations.py, tensors in tensors.py, shapes in shapes.py.
"""

from __future__ import annotations

import operator
import types
from typing import Any, ClassVar

from .content import Held, Pattern, code_key, content_repr, describe, is_nan, key_pattern, pattern

registry: dict[str, Kind] = {}


class Kind:
    """Base of all kinds. `rank` orders the leaves of one node: types first, expensive ones last."""

    name: ClassVar[str]
    rank: ClassVar[int] = 50
    scope: ClassVar[str] = "value"  # "value": one source; "values": several; "state": none

    def prepare(self, payload: tuple[Any, ...]) -> Any:
        """What is kept of the payload. Raises TypeError or ValueError when the guard can't be made."""
        return payload

    def native(self, kept: Any) -> tuple[Any, ...]:
        raise NotImplementedError

    def native_of(self, kept: Any, payload: tuple[Any, ...]) -> tuple[Any, ...]:
        """The native form; the tracer's payload is still at hand."""
        return self.native(kept)

    def python(self, kept: Any, expr: str) -> str:
        raise NotImplementedError

    def text(self, kept: Any, expr: str) -> str:
        """The line of logs and reports."""
        return self.python(kept, expr)

    def names(self, kept: Any) -> dict[str, Any]:
        return {}

    def reason(self, kept: Any, value: Any, label: str) -> str | None:
        raise NotImplementedError


def guard_kind(*names: str) -> Any:
    """Class decorator: registers one instance of the kind under each name."""

    def register(cls: type[Kind]) -> type[Kind]:
        for name in names:
            kind = cls()
            kind.name = name  # type: ignore[misc]
            registry[name] = kind
        return cls

    return register


def find_kind(name: str) -> Kind:
    try:
        return registry[name]
    except KeyError:
        raise ValueError(f"unknown guard kind {name!r}; known: {', '.join(sorted(registry))}") from None


@guard_kind("TYPE_MATCH")
class TypeMatch(Kind):
    """payload (type): the exact type of the value."""

    rank = 0

    def prepare(self, payload: tuple[Any, ...]) -> Held:
        (kind,) = payload
        if not isinstance(kind, type):
            raise TypeError(f"TYPE_MATCH needs a class, got {describe(type(kind))}")
        return Held(kind)

    def native_of(self, kept: Held, payload: tuple[Any, ...]) -> tuple[Any, ...]:
        return ("type", payload[0])

    def python(self, kept: Held, expr: str) -> str:
        return f"is_type({expr}, {kept.text!r})"

    def text(self, kept: Held, expr: str) -> str:
        return f"type({expr}) is {kept.text}"

    def names(self, kept: Held) -> dict[str, Any]:
        return {"is_type": lambda value, text: kept.is_(type(value))}

    def reason(self, kept: Held, value: Any, label: str) -> str | None:
        return None if kept.is_(type(value)) else f"expected type of {label} to be {kept.text}, found {describe(type(value))}"


@guard_kind("ID_MATCH")
class IdMatch(Kind):
    """payload (object): the very same object. Only for objects that can be referenced weakly; void when it dies."""

    rank = 1

    def prepare(self, payload: tuple[Any, ...]) -> Held:
        return Held(payload[0])

    def native_of(self, kept: Held, payload: tuple[Any, ...]) -> tuple[Any, ...]:
        return ("id", payload[0])

    def python(self, kept: Held, expr: str) -> str:
        return f"is_object({expr}, {kept.text!r})"

    def text(self, kept: Held, expr: str) -> str:
        return f"{expr} is {kept.text}"

    def names(self, kept: Held) -> dict[str, Any]:
        return {"is_object": lambda value, text: kept.is_(value)}

    def reason(self, kept: Held, value: Any, label: str) -> str | None:
        return None if kept.is_(value) else f"{label} is another object: expected {kept.text}, found {describe(value)}"


@guard_kind("EQUALS_MATCH")
class EqualsMatch(Kind):
    """payload (value): equal content and equal types, recursively."""

    rank = 2

    def prepare(self, payload: tuple[Any, ...]) -> Pattern:
        return pattern(payload[0])

    def native_of(self, kept: Pattern, payload: tuple[Any, ...]) -> tuple[Any, ...]:
        return ("equals", payload[0])

    def python(self, kept: Pattern, expr: str) -> str:
        return f"equals({expr}, {kept.text!r})"

    def text(self, kept: Pattern, expr: str) -> str:
        return f"{expr} == {kept.text}"

    def names(self, kept: Pattern) -> dict[str, Any]:
        return {"equals": lambda value, text: kept.check(value)}

    def reason(self, kept: Pattern, value: Any, label: str) -> str | None:
        if kept.check(value):
            return None
        shown = content_repr(value)
        if shown == kept.text:
            shown += f" of type {describe(type(value))}"
        return f"{label} == {kept.text} no longer holds: it is {shown}"


@guard_kind("CONSTANT_MATCH", "BOOL_MATCH", "NONE_MATCH")
class ConstantMatch(IdMatch):
    """payload (None, True, False, Ellipsis or NotImplemented), by identity; other constants by content."""

    rank = 2

    def prepare(self, payload: tuple[Any, ...]) -> Any:
        return Held(payload[0]) if self._by_identity(payload[0]) else pattern(payload[0])

    @staticmethod
    def _by_identity(value: Any) -> bool:
        return value is None or value is True or value is False or value is ... or value is NotImplemented

    def native_of(self, kept: Any, payload: tuple[Any, ...]) -> tuple[Any, ...]:
        return ("id" if isinstance(kept, Held) else "equals", payload[0])

    def python(self, kept: Any, expr: str) -> str:
        return f"{expr} is {kept.text}" if isinstance(kept, Held) else f"equals({expr}, {kept.text!r})"

    def text(self, kept: Any, expr: str) -> str:
        return f"{expr} is {kept.text}" if isinstance(kept, Held) else f"{expr} == {kept.text}"

    def names(self, kept: Any) -> dict[str, Any]:
        return {} if isinstance(kept, Held) else {"equals": lambda value, text: kept.check(value)}

    def reason(self, kept: Any, value: Any, label: str) -> str | None:
        if isinstance(kept, Held):
            return None if kept.is_(value) else f"{label} is {kept.text} no longer holds: it is {content_repr(value)}"
        return find_kind("EQUALS_MATCH").reason(kept, value, label)


@guard_kind("HASATTR")
class HasAttr(Kind):
    """payload (name): the attribute can be read."""

    wanted = True

    def native(self, kept: Any) -> tuple[Any, ...]:
        return ("hasattr", kept[0], self.wanted)

    def python(self, kept: Any, expr: str) -> str:
        return f"{'' if self.wanted else 'not '}hasattr({expr}, {kept[0]!r})"

    def reason(self, kept: Any, value: Any, label: str) -> str | None:
        if hasattr(value, kept[0]) is self.wanted:
            return None
        return f"{label} has {'no' if self.wanted else 'an'} attribute {kept[0]!r} now"


@guard_kind("NO_HASATTR")
class NoHasAttr(HasAttr):
    """payload (name): reading the attribute raises AttributeError."""

    wanted = False

    def text(self, kept: Any, expr: str) -> str:
        return f"hasattr({expr}, {kept[0]!r}) == False"


@guard_kind("SEQUENCE_LENGTH")
class SequenceLength(Kind):
    """payload (length, type or None): the length of a list, tuple or deque, and its exact type where given."""

    rank = 3

    def prepare(self, payload: tuple[Any, ...]) -> tuple[int, Held | None]:
        length, kind = (*payload, None)[:2]
        return length, None if kind is None else Held(kind)

    def native_of(self, kept: Any, payload: tuple[Any, ...]) -> tuple[Any, ...]:
        return ("length", kept[0], (*payload, None)[1])

    def python(self, kept: Any, expr: str) -> str:
        length = f"length({expr}) == {kept[0]}"
        return length if kept[1] is None else f"is_type({expr}, {kept[1].text!r}) and {length}"

    def text(self, kept: Any, expr: str) -> str:
        return f"len({expr}) == {kept[0]}" + ("" if kept[1] is None else f", type {kept[1].text}")

    def names(self, kept: Any) -> dict[str, Any]:
        return {"is_type": lambda value, text: kept[1].is_(type(value)), "length": raw_length}

    def reason(self, kept: Any, value: Any, label: str) -> str | None:
        if kept[1] is not None and not kept[1].is_(type(value)):
            return f"expected type of {label} to be {kept[1].text}, found {describe(type(value))}"
        length = raw_length(value)
        return None if length == kept[0] else f"len({label}) == {kept[0]} no longer holds: it is {length}"


@guard_kind("DICT_LENGTH")
class DictLength(SequenceLength):
    """payload (length): the number of items of a dict or set."""


def raw_length(value: Any) -> int:
    """Length as the native leaf takes it: past any overridden `__len__` of built-in containers."""
    containers: tuple[Any, ...] = (tuple, list, dict, set, frozenset)
    for kind in containers:
        if isinstance(value, kind):
            return kind.__len__(value)
    return len(value)


def raw_keys(value: Any) -> list[Any]:
    from collections import OrderedDict

    return list(OrderedDict.keys(value) if isinstance(value, OrderedDict) else dict.keys(value))


@guard_kind("DICT_KEYS")
class DictKeys(Kind):
    """payload (keys, in order): exactly these keys; constants by content, others by identity."""

    rank = 3

    def prepare(self, payload: tuple[Any, ...]) -> list[Pattern]:
        return [key_pattern(key) for key in payload[0]]

    def native_of(self, kept: Any, payload: tuple[Any, ...]) -> tuple[Any, ...]:
        return ("dict_keys", tuple(payload[0]))

    def python(self, kept: Any, expr: str) -> str:
        return f"keys_are({expr}, {self._shown(kept)!r})"

    def text(self, kept: Any, expr: str) -> str:
        return f"list({expr}.keys()) == [{self._shown(kept)}]"

    @staticmethod
    def _shown(kept: Any) -> str:
        return ", ".join(p.text for p in kept)

    def names(self, kept: Any) -> dict[str, Any]:
        return {"keys_are": lambda value, text: self._holds(kept, value)}

    @staticmethod
    def _holds(kept: Any, value: Any) -> bool:
        if not isinstance(value, dict):
            return False
        keys = raw_keys(value)
        return len(keys) == len(kept) and all(p.check(key) for p, key in zip(kept, keys, strict=True))

    def reason(self, kept: Any, value: Any, label: str) -> str | None:
        if self._holds(kept, value):
            return None
        found = content_repr(raw_keys(value)) if isinstance(value, dict) else f"a {describe(type(value))}"
        return f"keys of {label} changed: expected [{self._shown(kept)}], found {found}"


@guard_kind("DICT_CONTAINS")
class DictContains(Kind):
    """payload (key, wanted): whether a dict (or set) has the key."""

    def prepare(self, payload: tuple[Any, ...]) -> Any:
        key, wanted = payload
        return key, bool(wanted), content_repr(key)

    def native(self, kept: Any) -> tuple[Any, ...]:
        return ("contains", kept[0], kept[1])

    def python(self, kept: Any, expr: str) -> str:
        return f"contains({expr}, {kept[2]!r}) is {kept[1]}"

    def text(self, kept: Any, expr: str) -> str:
        return f"{kept[2]} {'in' if kept[1] else 'not in'} {expr}"

    def names(self, kept: Any) -> dict[str, Any]:
        return {"contains": lambda value, text: self._contains(kept[0], value)}

    @staticmethod
    def _contains(key: Any, value: Any) -> bool | None:
        for kind in (dict, set, frozenset, types.MappingProxyType):
            if isinstance(value, kind):
                return kind.__contains__(value, key)  # type: ignore[operator]
        return None

    def reason(self, kept: Any, value: Any, label: str) -> str | None:
        found = self._contains(kept[0], value)
        if found is kept[1]:
            return None
        if found is None:
            return f"{label} is no dict or set but a {describe(type(value))}"
        return f"{label} {'lost' if kept[1] else 'now has'} the key {kept[2]}"


@guard_kind("SET_CONTENTS")
class SetContents(Kind):
    """payload (frozenset): exactly these members; constants by content, others by identity."""

    rank = 3

    def prepare(self, payload: tuple[Any, ...]) -> list[Pattern]:
        return [key_pattern(member) for member in payload[0]]

    def native_of(self, kept: Any, payload: tuple[Any, ...]) -> tuple[Any, ...]:
        return ("set_contents", tuple(payload[0]))

    def python(self, kept: Any, expr: str) -> str:
        return f"members_are({expr}, {self._shown(kept)!r})"

    def text(self, kept: Any, expr: str) -> str:
        return f"{expr} == {{{self._shown(kept)}}}"

    @staticmethod
    def _shown(kept: Any) -> str:
        return ", ".join(sorted(p.text for p in kept))

    def names(self, kept: Any) -> dict[str, Any]:
        return {"members_are": lambda value, text: self._holds(kept, value)}

    @staticmethod
    def _holds(kept: Any, value: Any) -> bool:
        containers: tuple[Any, ...] = (set, frozenset)
        for kind in containers:
            if isinstance(value, kind):
                members = list(kind.__iter__(value))
                return len(members) == len(kept) and all(any(p.check(m) for m in members) for p in kept)
        return False

    def reason(self, kept: Any, value: Any, label: str) -> str | None:
        if self._holds(kept, value):
            return None
        return f"members of {label} changed: expected {{{self._shown(kept)}}}, found {content_repr(value)}"


@guard_kind("CLASS_ATTR_ABSENT")
class ClassAttrAbsent(Kind):
    """payload (name): no class of the value's type has it in its namespace."""

    def native(self, kept: Any) -> tuple[Any, ...]:
        return ("class_attr_absent", kept[0])

    def python(self, kept: Any, expr: str) -> str:
        return f"not any({kept[0]!r} in vars(c) for c in type({expr}).__mro__)"

    def reason(self, kept: Any, value: Any, label: str) -> str | None:
        for cls in type(value).__mro__:
            if kept[0] in vars(cls):
                return f"class {describe(cls)} of {label} now has {kept[0]!r}"
        return None


@guard_kind("FUNCTION_MATCH", "CODE_MATCH")
class FunctionMatch(Kind):
    """payload (code): the function's code (or the code object itself) is the same program."""

    def prepare(self, payload: tuple[Any, ...]) -> Any:
        (code,) = payload
        code = getattr(code, "__code__", code)
        if not isinstance(code, types.CodeType):
            raise TypeError(f"FUNCTION_MATCH needs a code object, got {describe(type(code))}")
        return code_key(code), f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"

    def native(self, kept: Any) -> tuple[Any, ...]:
        return ("function", (kept[0], code_key))

    def python(self, kept: Any, expr: str) -> str:
        return f"same_code({expr}, {kept[1]!r})"

    def text(self, kept: Any, expr: str) -> str:
        return f"code of {expr} is {kept[1]}"

    def names(self, kept: Any) -> dict[str, Any]:
        return {"same_code": lambda value, text: self._holds(kept, value)}

    @staticmethod
    def _holds(kept: Any, value: Any) -> bool:
        code = value.__code__ if isinstance(value, types.FunctionType) else value
        return isinstance(code, types.CodeType) and code_key(code) == kept[0]

    def reason(self, kept: Any, value: Any, label: str) -> str | None:
        return None if self._holds(kept, value) else f"{label} is other code now: expected {kept[1]}, found {describe(value)}"


@guard_kind("WEAKREF_ALIVE")
class WeakrefAlive(Kind):
    """no payload: the weak reference still has its referent."""

    def native(self, kept: Any) -> tuple[Any, ...]:
        return ("weakref_alive",)

    def python(self, kept: Any, expr: str) -> str:
        return f"{expr}() is not None"

    def reason(self, kept: Any, value: Any, label: str) -> str | None:
        return None if value() is not None else f"what {label} referred to is gone"


@guard_kind("FLOAT_IS_NAN")
class FloatIsNan(Kind):
    """no payload: the value is a float NaN."""

    def native(self, kept: Any) -> tuple[Any, ...]:
        return ("nan",)

    def python(self, kept: Any, expr: str) -> str:
        return f"is_nan({expr})"

    def names(self, kept: Any) -> dict[str, Any]:
        return {"is_nan": is_nan}

    def reason(self, kept: Any, value: Any, label: str) -> str | None:
        return None if is_nan(value) else f"{label} is no longer a NaN but {content_repr(value)}"


@guard_kind("TUPLE_ITERATOR_LEN")
class TupleIteratorLen(Kind):
    """payload (n): a tuple iterator with n items left."""

    def native(self, kept: Any) -> tuple[Any, ...]:
        return ("tuple_iterator", kept[0])

    def python(self, kept: Any, expr: str) -> str:
        return f"type({expr}) is tuple_iterator and {expr}.__length_hint__() == {kept[0]}"

    def names(self, kept: Any) -> dict[str, Any]:
        return {"tuple_iterator": type(iter(()))}

    def reason(self, kept: Any, value: Any, label: str) -> str | None:
        if type(value) is not type(iter(())):
            return f"{label} is no tuple iterator but a {describe(type(value))}"
        left = operator.length_hint(value)
        return None if left == kept[0] else f"{label} has {left} items left, expected {kept[0]}"


RANGE_ITERATORS = (type(iter(range(1))), type(iter(range(1 << 70))))


def range_state(iterator: Any) -> tuple[Any, Any] | None:
    """(range, position) of a range iterator; None for anything else."""
    if type(iterator) not in RANGE_ITERATORS:
        return None
    parts = iterator.__reduce__()
    return parts[1][0], parts[2] if len(parts) > 2 else None


@guard_kind("RANGE_ITERATOR_MATCH")
class RangeIteratorMatch(Kind):
    """payload (iterator): a range iterator at the same place of the same range."""

    def prepare(self, payload: tuple[Any, ...]) -> Pattern:
        state = range_state(payload[0])
        if state is None:
            raise TypeError(f"RANGE_ITERATOR_MATCH needs a range iterator, got {describe(type(payload[0]))}")
        return pattern(state)

    def native_of(self, kept: Any, payload: tuple[Any, ...]) -> tuple[Any, ...]:
        return ("range_iterator", payload[0])

    def python(self, kept: Any, expr: str) -> str:
        return f"range_iterator_is({expr}, {kept.text!r})"

    def names(self, kept: Any) -> dict[str, Any]:
        return {"range_iterator_is": lambda value, text: kept.check(range_state(value))}

    def reason(self, kept: Any, value: Any, label: str) -> str | None:
        return None if kept.check(range_state(value)) else f"{label} stands elsewhere: expected {kept.text}, found {range_state(value)}"


@guard_kind("DYNAMIC_INDICES")
class DynamicIndices(Kind):
    """payload (frozenset of dims): dims marked dynamic on the tensor are among these."""

    def prepare(self, payload: tuple[Any, ...]) -> frozenset[int]:
        return frozenset(payload[0])

    def native(self, kept: Any) -> tuple[Any, ...]:
        return ("dynamic_indices", kept)

    def python(self, kept: Any, expr: str) -> str:
        return f"set(getattr({expr}, '_dynamo_dynamic_indices', ())) <= {set(kept) or '{*()}'}"

    def reason(self, kept: Any, value: Any, label: str) -> str | None:
        marked = set(getattr(value, "_dynamo_dynamic_indices", ()))
        return None if marked <= kept else f"{label} has other dims marked dynamic: {sorted(marked)}, compiled for {sorted(kept)}"


@guard_kind("CALLBACK")
class Callback(Kind):
    """payload (callable, text): the last resort, a Python predicate over the value. Owned by the guard."""

    rank = 90

    def native(self, kept: Any) -> tuple[Any, ...]:
        return ("callback", kept[0])

    def python(self, kept: Any, expr: str) -> str:
        return f"callback({expr})"

    def text(self, kept: Any, expr: str) -> str:
        return f"{kept[1]} ({expr})"

    def names(self, kept: Any) -> dict[str, Any]:
        return {"callback": kept[0]}

    def reason(self, kept: Any, value: Any, label: str) -> str | None:
        return None if kept[0](value) else f"{kept[1]} no longer holds for {label}"
