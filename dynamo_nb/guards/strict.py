"""Strict mode: at every check, the readable Python form and the failure reasons must agree with the native tree.

It finds a guard whose three forms say different things. Switched on per tree (`attach`) or for all
trees built from now on (`enabled`), as the tests do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .accessors import Scope
from .explain import Reader, Unreadable, evaluate

if TYPE_CHECKING:
    from .manager import GuardManagerWrapper

_on = False


class GuardFormsDisagree(AssertionError):
    """The native, readable and failure-reason forms of some guard differ: a bug in a guard kind."""


class RetraceDiffers(AssertionError):
    """An entry's guards hold for a call whose own trace would be another program: a guard is missing or wrong."""


def is_on() -> bool:
    return _on


def set_on(on: bool) -> bool:
    """Switches strict mode for trees built from now on; returns what it was."""
    global _on
    before, _on = _on, on
    return before


@contextlib.contextmanager
def enabled(on: bool = True) -> Iterator[None]:
    before = set_on(on)
    try:
        yield
    finally:
        set_on(before)


def verdict(wrapper: GuardManagerWrapper, scope: Scope) -> bool:
    """Outcome by the Python forms; raises when a guard's Python form and its reason disagree."""
    reader, outcome = Reader(scope), True
    for guard in wrapper.guards:
        try:
            values = reader.of(guard)
        except Unreadable:
            return False
        holds = evaluate(guard, values)
        try:
            reason = guard.reason(values)
        except Exception as error:
            reason = f"raised {error!r}"
        if holds != (reason is None):
            raise GuardFormsDisagree(f"{guard.text()}: Python form says {holds}, failure reason says {reason!r}")
        outcome = outcome and holds
    return outcome


def attach(wrapper: GuardManagerWrapper) -> None:
    """Compares the forms at every check of this tree."""

    def observer(ok: bool, values: Any, globals: Any, builtins: Any, closure: Any) -> None:
        expected = verdict(wrapper, wrapper.scope(values, globals or {}, builtins or {}, closure))
        if expected != ok:
            failing = wrapper.reason(values, globals or {}, builtins or {}, closure) or "none"
            raise GuardFormsDisagree(f"native tree says {ok}, Python forms say {expected}; failing guard: {failing}\n{wrapper}")

    wrapper.observe(observer)
