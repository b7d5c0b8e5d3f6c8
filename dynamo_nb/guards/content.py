"""Comparison of values by content, type-strictly, in Python; the native leaf does the same in C++.

`pattern(value)` is made when a guard is built and keeps no object of the user's alive: classes are
held weakly, everything else is copied. `matches(pattern, value)` is used by failure reasons and
strict mode. `code_key` says when two code objects are the same program.
"""

from __future__ import annotations

import enum
import math
import struct
import types
import weakref
from collections.abc import Callable, Hashable
from typing import Any

import numpy
import torch

DESCRIPTORS = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)
SINGLETONS = (torch.dtype, torch.layout, torch.memory_format, torch.qscheme)


class Held:
    """An object compared by identity, held weakly where it can die, with a text for people."""

    __slots__ = ("_get", "text")

    def __init__(self, value: Any) -> None:
        self.text = describe(value)
        heap_type = isinstance(value, type) and bool(value.__flags__ & (1 << 9))
        if _is_singleton(value) or (isinstance(value, type) and not heap_type):
            self._get: Callable[[], Any] = lambda: value
        else:
            self._get = weakref.ref(value)

    def is_(self, value: Any) -> bool:
        mine = self._get()
        return mine is value and (value is not None or self.text == "None")

    def get(self) -> Any:
        return self._get()


def _is_singleton(value: Any) -> bool:
    return value is None or isinstance(value, (bool, *SINGLETONS)) or value is ... or value is NotImplemented


def describe(value: Any) -> str:
    """A short text that names an object: a class by module and name, others by type and address."""
    if isinstance(value, type):
        return value.__qualname__ if value.__module__ == "builtins" else f"{value.__module__}.{value.__qualname__}"
    if _is_singleton(value):
        return repr(value)
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    kind = describe(type(value))
    return f"<{kind} {name}>" if isinstance(name, str) else f"<{kind} at 0x{id(value):x}>"


class Pattern:
    """What a value must be: `check(value) -> bool`, and the text shown for it."""

    __slots__ = ("check", "text")

    def __init__(self, check: Callable[[Any], bool], text: str) -> None:
        self.check = check
        self.text = text


def _bits(value: complex) -> bytes:
    return struct.pack("<dd", value.real, value.imag)


def _all_of(patterns: list[Pattern], values: Any) -> bool:
    items = list(values)
    return len(items) == len(patterns) and all(p.check(v) for p, v in zip(patterns, items, strict=True))


def _fields(value: Any, names: tuple[str, ...], text: str) -> Pattern:
    kind, parts = Held(type(value)), [(name, pattern(getattr(value, name))) for name in names]
    return Pattern(lambda v: kind.is_(type(v)) and all(p.check(getattr(v, name)) for name, p in parts), text)


def _sequence(value: Any) -> Pattern:
    kind, parts = Held(type(value)), [pattern(v) for v in value]
    inner = ", ".join(p.text for p in parts)
    base = tuple if isinstance(value, tuple) else list
    text = f"[{inner}]" if base is list else f"({inner}{',' if len(parts) == 1 else ''})"
    if type(value) is not base:
        text = f"{type(value).__name__}({text})"
    return Pattern(lambda v: kind.is_(type(v)) and _all_of(parts, base.__iter__(v)), text)


def _set(value: Any) -> Pattern:
    kind, parts = type(value), [pattern(v) for v in value]
    text = f"{kind.__name__}({{{', '.join(sorted(p.text for p in parts))}}})" if parts else f"{kind.__name__}()"
    return Pattern(lambda v: type(v) is kind and len(v) == len(parts) and all(any(p.check(item) for item in v) for p in parts), text)


def pattern(value: Any) -> Pattern:
    """The pattern of a value. TypeError when the value has no content that can be compared."""
    kind = type(value)
    if _is_singleton(value) or isinstance(value, type):
        held = Held(value)
        return Pattern(held.is_, held.text)
    if kind is float or kind is complex:
        bits = _bits(value)
        return Pattern(lambda v: type(v) is kind and _bits(v) == bits, repr(value))
    if kind in (int, str, bytes, torch.device) or isinstance(value, numpy.dtype):
        return Pattern(lambda v: type(v) is kind and v == value, repr(value))
    if kind is slice or kind is range:
        return _fields(value, ("start", "stop", "step"), repr(value))
    if kind in DESCRIPTORS:
        return _fields(value, ("__objclass__", "__name__"), describe(value))
    if kind is types.MethodWrapperType:
        return _fields(value, ("__self__", "__name__"), describe(value))
    if isinstance(value, numpy.number | numpy.bool_):
        memory = value.tobytes()
        return Pattern(lambda v: type(v) is kind and v.tobytes() == memory, repr(value))
    if isinstance(value, enum.Enum):
        return _fields(value, ("_value_",), f"{kind.__qualname__}.{value.name}")
    if isinstance(value, tuple) or kind is list:
        return _sequence(value)
    if kind is set or kind is frozenset:
        return _set(value)
    raise TypeError(f"a {describe(kind)} can't be guarded by content")


def key_pattern(value: Any) -> Pattern:
    """As `pattern`, but by identity where there is no content: for dict keys and set members."""
    try:
        return pattern(value)
    except TypeError:
        held = Held(value)
        return Pattern(held.is_, held.text)


def matches(wanted: Pattern, value: Any) -> bool:
    return wanted.check(value)


def content_repr(value: Any, limit: int = 200) -> str:
    """repr for messages; never raises and never longer than `limit`."""
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{describe(type(value))} whose repr raised {type(error).__name__}>"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _const_key(value: Any) -> Hashable:
    if isinstance(value, types.CodeType):
        return code_key(value)
    if isinstance(value, (tuple, frozenset)):
        items = [_const_key(v) for v in value]
        return (type(value).__name__, tuple(items) if isinstance(value, tuple) else frozenset(items))
    if isinstance(value, (float, complex)):
        return (type(value).__name__, _bits(value))
    return (type(value).__name__, value)


def code_key(code: types.CodeType) -> Hashable:
    """Plain data that is equal for two code objects exactly when they compute the same thing.

    Names of files and line numbers don't count; constants do, recursively and by type.
    """
    return (
        code.co_name,
        code.co_code,
        tuple(_const_key(c) for c in code.co_consts),
        code.co_names,
        code.co_varnames,
        code.co_cellvars,
        code.co_freevars,
        code.co_flags,
        (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_nlocals),
        code.co_exceptiontable,
    )


def is_nan(value: Any) -> bool:
    return type(value) is float and math.isnan(value)
