"""The compilers the fuzzer can test, imported only when asked for.

In: a name. Out: a `Subject`: compile, reset, and counts of graphs and breaks. Used by `runner`, `batch` and the CLI.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass
class Capture:
    """What the backend saw: tensor ops of each graph handed to it."""

    graphs: list[int] = field(default_factory=list)

    def backend(self, gm: Any, example_inputs: list[Any], **_: Any) -> Callable[..., Any]:
        """Counts and runs the graph as it is."""
        self.graphs.append(sum(node.op.startswith("call") for node in gm.graph.nodes))
        return gm.forward


@dataclass
class Subject:
    """A compiler under test. `adds_names`: it is known to add dunder names to the user's globals."""

    name: str
    compile: Callable[[Callable[..., Any], Capture], Callable[..., Any]]
    reset: Callable[[], None]
    breaks: Callable[[], dict[str, int]]
    adds_names: bool = False


def _torch(strict: str) -> Subject:
    import torch._dynamo as dynamo

    dynamo.config.suppress_errors = False

    def compile_fn(fn: Callable[..., Any], capture: Capture) -> Callable[..., Any]:
        return torch.compile(fn, backend=capture.backend)

    return Subject("torch", compile_fn, dynamo.reset, lambda: dict(dynamo.utils.counters["graph_break"]), adds_names=True)


def _dynamo_nb(strict: str) -> Subject:
    import dynamo_nb

    os.environ["DYNAMO_NB_RAISE_INTERNAL"] = "1"
    dynamo_nb.config.strict = strict  # type: ignore[attr-defined]

    def compile_fn(fn: Callable[..., Any], capture: Capture) -> Callable[..., Any]:
        return dynamo_nb.compile(fn, backend=capture.backend)

    return Subject("dynamo_nb", compile_fn, dynamo_nb.reset, lambda: dict(dynamo_nb.utils.counters["graph_break"]))


def _plain(strict: str) -> Subject:
    return Subject("plain", lambda fn, capture: fn, lambda: None, dict)


SUBJECTS: dict[str, Callable[[str], Subject]] = {"plain": _plain, "torch": _torch, "dynamo_nb": _dynamo_nb}


def load(name: str, strict: str = "") -> Subject:
    """Import a subject; unknown names list the known ones."""
    if name not in SUBJECTS:
        raise ValueError(f"unknown subject {name!r}; choose one of {', '.join(SUBJECTS)}")
    subject = SUBJECTS[name](strict)
    with torch.no_grad():
        subject.compile(_warm, Capture())(torch.ones(2))
    subject.reset()
    return subject


def _warm(x: torch.Tensor) -> torch.Tensor:
    """Compiled once before the first fork, so that children share what the first compile imports."""
    return x + 1
