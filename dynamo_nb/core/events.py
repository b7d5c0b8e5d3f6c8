"""One stream of what happened; logs, counters, explain, reports and widgets subscribe to it.

An event is a kind and a record. Kinds: `compile_start`, `stage` (a stage of a running compile ended),
`compile_end`, `recompile`, `break`, `skip`, `limit` (recompile limit reached), `run_failed` (a graph
raised at run time and the original bytecode took over), `generated` (a code generator is done with an ATen graph:
`generated.Generated`; a backward graph's comes with the first backward()), `reset`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

Listener = Callable[[str, Any], None]
_listeners: list[Listener] = []


def subscribe(listener: Listener) -> Callable[[], None]:
    """Call `listener(kind, record)` for every event from now on; returns the function that ends it."""
    _listeners.append(listener)

    def cancel() -> None:
        with contextlib.suppress(ValueError):
            _listeners.remove(listener)

    return cancel


def emit(kind: str, record: Any) -> None:
    for listener in tuple(_listeners):
        listener(kind, record)


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    cancel = subscribe(listener)
    try:
        yield
    finally:
        cancel()
