"""Backends that count and record, for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.fx

from .api.marks import disable
from .backends.registry import lookup_backend
from .utils import same


def _operations(gm: torch.fx.GraphModule) -> int:
    return sum(node.op.startswith("call_") for node in gm.graph.nodes)


class CompileCounter:
    """frame_count: graphs seen; op_count: their operations. Runs graphs as they are."""

    def __init__(self) -> None:
        self.frame_count: int = 0
        self.op_count: int = 0

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        self.frame_count += 1
        self.op_count += _operations(gm)
        return gm.forward

    def clear(self) -> None:
        self.frame_count = self.op_count = 0


class CompileCounterWithBackend(CompileCounter):
    """The same in front of a named backend; `graphs` keeps the captured graphs."""

    def __init__(self, backend: str) -> None:
        super().__init__()
        self.backend = backend
        self.graphs: list[torch.fx.GraphModule] = []

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        super().__call__(gm, example_inputs)
        self.graphs.append(gm)
        return lookup_backend(self.backend)(gm, example_inputs)

    def clear(self) -> None:
        super().clear()
        self.graphs = []


class EagerAndRecordGraphs:
    """Keeps every graph and runs it as it is."""

    def __init__(self) -> None:
        self.graphs: list[torch.fx.GraphModule] = []

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        self.graphs.append(gm)
        return gm.forward


@disable
def unsupported(a: Any, b: Any) -> Any:
    """Breaks the graph; gives back its second argument."""
    return a if a is b else b


__all__ = ["CompileCounter", "CompileCounterWithBackend", "EagerAndRecordGraphs", "same", "unsupported"]
