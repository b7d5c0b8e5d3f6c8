"""What calls of builtin functions, classes and C functions do in the trace: a table keyed by the callable.

`@handles(fn, …)` registers a handler `(tx, *args, **kwargs) -> tracker or None`; None means that the
handler does not apply and the general rules decide.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

HANDLERS: dict[int, Any] = {}
_KEEP: list[Any] = []


class Handler:
    """A handler with its signature, checked before every call."""

    __slots__ = ("call", "signature")

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call
        self.signature = inspect.signature(call)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(*args, **kwargs)


def handles(*callables: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(call: Callable[..., Any]) -> Callable[..., Any]:
        handler = Handler(call)
        for fn in callables:
            HANDLERS[id(fn)] = handler
            _KEEP.append(fn)
        return call

    return register


def handler_of(fn: Any) -> Handler | None:
    return HANDLERS.get(id(fn))


from . import (  # noqa: E402
    attributes,
    autograd,
    containers,
    iteration,
    itertools_,
    numbers,
    numpy_,  # noqa: E402, I001 - after torch_state: it extends torch.tensor's handler
    strings,
    torch_state,
    types_,
)

__all__ = ["attributes", "autograd", "containers", "handler_of", "handles", "iteration", "itertools_", "numbers", "numpy_", "strings", "torch_state", "types_"]
