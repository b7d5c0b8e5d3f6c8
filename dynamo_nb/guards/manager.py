"""The guards of one cache entry: native tree and readable forms side by side.

In: `build(assumptions, arg_names, free_names, scope)` after a trace. Out: a GuardManagerWrapper whose
`.root` goes into the CacheEntry. Used by convert, logs, reports and recompile messages.
"""

from __future__ import annotations

import builtins as python_builtins
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..core.records import GuardRecord
from ..core.source import Assumption, Source
from . import explain, strict
from .accessors import Scope, resolve
from .builder import Guard, GuardBuilder, GuardBuildError
from .content import describe


class GuardManagerWrapper:
    """A guard tree. `guards` stand in tree order; nothing in it keeps the user's objects alive."""

    def __init__(self, builder: GuardBuilder, function: str = "") -> None:
        self.root = builder.root
        self.arg_names = builder.names.args
        self.free_names = builder.names.free
        self.guards: list[Guard] = explain.in_tree_order(builder.guards)
        self.function = function
        self.types: dict[str, str] = {}
        self._observers: list[Callable[..., None]] = []

    def observe(self, fn: Callable[..., None]) -> None:
        """Call fn(ok, values, globals, builtins, closure) after every check; what it raises reaches the caller."""
        self._observers.append(fn)

        def all_of_them(*seen: Any) -> None:
            for observer in self._observers:
                observer(*seen)

        self.root.set_observer(all_of_them)

    def scope(
        self, values: Mapping[str, Any] | tuple[Any, ...], globals: Mapping[str, Any], builtins: Any = None, closure: Any = None
    ) -> Scope:
        """The scope of a call; `values` are locals by name or the unit's flat tuple."""
        space = vars(python_builtins) if builtins is None else builtins
        if isinstance(values, tuple):
            return Scope.of_flat(self.arg_names, self.free_names, values, globals, space, closure)
        return Scope(values, globals, space if isinstance(space, Mapping) else vars(space))

    def check(self, locals: dict[str, Any], globals: dict[str, Any] | None = None) -> bool:
        """Whether all guards hold for these locals (free variables by their contents); globals: by default the caller's."""
        return self.root.check(locals, sys._getframe(1).f_globals if globals is None else globals)

    def check_flat(self, values: tuple[Any, ...], globals: dict[str, Any], builtins: Any = None, closure: Any = None) -> bool:
        """The same for a unit's flat locals, as the driver checks."""
        return self.root.check_flat(values, globals, vars(python_builtins) if builtins is None else builtins, closure)

    def reason(
        self, values: Mapping[str, Any] | tuple[Any, ...], globals: Mapping[str, Any], builtins: Any = None, closure: Any = None
    ) -> str:
        """The first failing guard in words, '' when all hold."""
        return next((why for _, why in explain.failures(self, self.scope(values, globals, builtins, closure))), "")

    def reasons(
        self, values: Mapping[str, Any] | tuple[Any, ...], globals: Mapping[str, Any], builtins: Any = None, closure: Any = None
    ) -> list[str]:
        """All failing guards in words."""
        return [why for _, why in explain.failures(self, self.scope(values, globals, builtins, closure))]

    def python(self) -> str:
        """The guards as a readable Python function."""
        return explain.python_text(self)

    def records(self) -> list[GuardRecord]:
        return explain.records(self)

    def latency_us(
        self, values: tuple[Any, ...], globals: dict[str, Any], builtins: Any = None, closure: Any = None, rounds: int = 10
    ) -> float:
        """Microseconds one check takes, the best of `rounds`."""
        best = float("inf")
        for _ in range(rounds):
            start = time.perf_counter()
            self.check_flat(values, globals, builtins, closure)
            best = min(best, time.perf_counter() - start)
        return best * 1e6

    def __str__(self) -> str:
        return explain.tree_text(self)

    def __repr__(self) -> str:
        return f"<GuardManagerWrapper of {len(self.guards)} guards>"


def _value_types(wrapper: GuardManagerWrapper, scope: Scope) -> dict[str, str]:
    """Type texts of every node's value at trace time, for the tree print."""
    found: dict[str, str] = {}
    reader = explain.Reader(scope)
    todo: list[Source] = [source.plain for guard in wrapper.guards for source in guard.sources]
    while todo:
        source = todo.pop()
        if source.name in found:
            continue
        try:
            found[source.name] = f"<class '{describe(type(reader.value(source)))}'>"
        except explain.Unreadable:
            found[source.name] = ""
        if source.parent is not None:
            todo.append(source.parent.plain)
    return found


def build(
    assumptions: Iterable[Assumption],
    arg_names: Iterable[str],
    free_names: Iterable[str] = (),
    scope: Scope | None = None,
    function: str = "",
) -> GuardManagerWrapper:
    """The guards of a finished trace.

    arg_names: the code's bound locals in flat order; free_names: its co_freevars. With `scope`, the
    values at frame entry, the tree prints types. torch's global state is taken as it is now.
    GuardBuildError names an assumption that can't be guarded.
    """
    builder = GuardBuilder(tuple(arg_names), tuple(free_names))
    builder.add_all(assumptions)
    wrapper = GuardManagerWrapper(builder, function)
    if scope is not None:
        wrapper.types = _value_types(wrapper, scope)
    if strict.is_on():
        strict.attach(wrapper)
    return wrapper


__all__ = ["GuardBuildError", "GuardBuilder", "GuardManagerWrapper", "build", "resolve"]
