"""torch's global modes while tracing: grad mode, autocast, default dtype and the like.

The trace really switches them, so that fake tensors behave; nodes switch them inside the graph, whose
last node switches back; the rewritten code sets what the frame leaves behind. `leave()` restores what
was before the trace.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .interpreter import InstructionTranslatorBase as Tx


@dataclasses.dataclass(frozen=True)
class Mode:
    """read() -> value; write(*key, value) sets it."""

    read: Callable[..., Any]
    write: Callable[..., Any]


MODES: dict[str, Mode] = {
    "grad": Mode(torch.is_grad_enabled, torch._C._set_grad_enabled),
    "autocast_enabled": Mode(torch.is_autocast_enabled, torch.set_autocast_enabled),
    "autocast_dtype": Mode(torch.get_autocast_dtype, torch.set_autocast_dtype),
    "autocast_cache": Mode(torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    "default_dtype": Mode(torch.get_default_dtype, torch._C._set_default_dtype),
}


class GlobalState:
    """What one trace did to the modes: mode -> (key, value before, value now)."""

    def __init__(self) -> None:
        self.before: dict[tuple[str, tuple[Any, ...]], Any] = {}
        self.now: dict[tuple[str, tuple[Any, ...]], Any] = {}

    def set(self, tx: Tx, name: str, value: Any, key: tuple[Any, ...] = ()) -> None:
        mode = MODES[name]
        if mode.read(*key) == value:
            return
        place = (name, key)
        self.before.setdefault(place, mode.read(*key))
        mode.write(*key, value)
        self.now[place] = value
        node = tx.recorder.create_node(tx, "call_function", mode.write, (*key, value), {})
        node.meta["impure"] = True
        node.meta["example_value"] = None

    def left_behind(self) -> list[tuple[Callable[..., Any], tuple[Any, ...]]]:
        """The calls that put the modes into the state the traced code left them in."""
        return [(MODES[name].write, (*key, value)) for (name, key), value in self.now.items() if self.before[(name, key)] != value]

    def restorers(self) -> list[tuple[Callable[..., Any], tuple[Any, ...]]]:
        """The calls that undo what `left_behind` does."""
        return [(MODES[name].write, (*key, self.before[(name, key)])) for (name, key), value in self.now.items() if self.before[(name, key)] != value]

    def entered_with(self) -> list[tuple[Callable[..., Any], tuple[Any, ...]]]:
        """The calls that put every mode the trace switched back to what it was before."""
        return [(MODES[name].write, (*key, value)) for (name, key), value in self.before.items()]

    def leave(self) -> None:
        for (name, key), value in self.before.items():
            MODES[name].write(*key, value)
