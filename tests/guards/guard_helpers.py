"""Small trees for tests: assumptions on locals, built in strict mode."""

from __future__ import annotations

from typing import Any

from dynamo_nb import guards
from dynamo_nb.core.source import Assumption, LocalSource, Source


def assume(source: Source | None, kind: str, *payload: Any) -> Assumption:
    return Assumption(source, kind, payload, "user.py", 7)


def tree(*assumptions: Assumption, args: tuple[str, ...] = ("v", "w", "u"), free: tuple[str, ...] = ()) -> guards.GuardManagerWrapper:
    return guards.build(assumptions, args, free)


def on(kind: str, *payload: Any) -> guards.GuardManagerWrapper:
    """A tree of one guard on the local v."""
    return tree(assume(LocalSource("v"), kind, *payload))


def check(wrapper: guards.GuardManagerWrapper, *values: Any, space: dict[str, Any] | None = None, closure: Any = None) -> bool:
    """The tree's answer for flat locals; strict mode compares it with the Python forms."""
    padded = (*values, *[None] * (len(wrapper.arg_names) - len(values)))
    space = {} if space is None else space
    ok = wrapper.check_flat(padded, space, closure=closure)
    assert ok is (wrapper.reason(padded, space, closure=closure) == "")
    return ok
