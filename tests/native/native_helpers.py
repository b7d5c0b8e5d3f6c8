"""Converters for tests of the native part: they hand back the code itself, so compiled must equal eager."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from dynamo_nb import native

VARIADIC = 0x04 | 0x08


def flat_code(code: types.CodeType) -> types.CodeType:
    """The code taking all its arguments as plain positional ones, as an entry's code does."""
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    return code.replace(co_argcount=count, co_posonlyargcount=0, co_kwonlyargcount=0, co_flags=code.co_flags & ~VARIADIC)


class Echo:
    """A region whose converter compiles every function to itself, and counts."""

    def __init__(
        self, only: Callable[[types.CodeType], bool] | None = None, target: Callable[[types.CodeType], types.CodeType] = flat_code
    ) -> None:
        self.converted: list[str] = []
        self.calls: list[tuple[Any, ...]] = []
        self.only = only or (lambda code: "/tests/native/test_" in code.co_filename)
        self.target = target
        self.guards: Callable[[], native.RootGuardManager] = native.RootGuardManager
        self.region = native.Region(self.convert, "echo")

    def convert(self, code: types.CodeType, *rest: Any) -> native.CacheEntry | None:
        if not self.only(code):
            native.set_action(code, native.SKIP)
            return None
        self.converted.append(code.co_name)
        self.calls.append((code, *rest))
        entry = native.CacheEntry(self.target(code), self.guards(), self.region)
        native.insert_entry(code, entry)
        return entry

    def compile(self, fn: Any) -> native.CompiledFunction:
        return native.CompiledFunction(fn, self.region)

    def __enter__(self) -> Echo:
        self.region.enter()
        return self

    def __exit__(self, *exc: object) -> None:
        self.region.exit()


def outcome(call: Callable[[], Any]) -> tuple[str, Any]:
    """What a call does: its result, or its exception's type and text."""
    try:
        return ("returned", call())
    except BaseException as error:
        return (type(error).__name__, str(error))
