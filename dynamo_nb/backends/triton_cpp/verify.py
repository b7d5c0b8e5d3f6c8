"""`options={"verify": True}`: every call of a graph also runs through ATen, whose results are the ones returned.

Where the kernels' differ beyond their types' tolerances, the graph is compiled again up to each of its nodes, and a warning names the first
one that differs, with the user's line. For finding faults: each call costs more than both together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.fx
from torch.testing import assert_close

from ...core import events
from ...core.generated import NodeFate, short_place
from ...core.logs import ALWAYS
from ..aot import boxed
from .graph import NotLowered

Run = Callable[[list[Any]], Any]


class Verified:
    """A boxed callable. gm: the graph as AOTAutograd made it; again: compiles a part of it anew."""

    _boxed_call = True

    def __init__(self, run: Run, gm: torch.fx.GraphModule, nodes: tuple[NodeFate, ...], again: Callable[[torch.fx.GraphModule], Run]) -> None:
        self.run, self.gm, self.nodes, self.again = run, gm, nodes, again
        self.found: str | None = None

    def __call__(self, args: list[Any]) -> Any:
        values = list(args)
        args.clear()
        mine, before = [twin(v) for v in values], [twin(v) for v in values]
        state = torch.get_rng_state()
        failed: Exception | None = None
        try:
            got = self.run(list(mine))
        except Exception as error:
            failed = error
        torch.set_rng_state(state)
        want = self.gm.forward(*values)
        if failed is not None:
            self._tell(f"the kernels raise {type(failed).__name__}: {failed}, ATen doesn't")
        elif difference([*want, *values], [*got, *mine]) is not None:
            self._tell(self._first(before, state))
        return want

    def _first(self, before: list[Any], state: torch.Tensor) -> str:
        """Which node's value is the first that differs."""
        for node in [n for n in self.gm.graph.nodes if n.op == "call_function" and isinstance(n.meta.get("val"), torch.Tensor)]:
            part = up_to(self.gm, node)
            (want,) = self._value(boxed(part.forward), before, state)
            try:
                again = self.again(part)
            except NotLowered:      # what only goes to ATen can't differ
                continue
            (got,) = self._value(again, before, state)
            text = difference([want], [got])
            if text is not None:
                places = {n.name: short_place(n.location) for n in self.nodes}
                return f"{node.name} ({node.target}{', ' + places[node.name] if places.get(node.name) else ''}) is the first node that differs: {text}"
        return "the results differ, but no single node does when the graph ends at it: please report this"

    def _value(self, run: Run, before: list[Any], state: torch.Tensor) -> Any:
        torch.set_rng_state(state)
        return run([twin(v) for v in before])

    def _tell(self, text: str) -> None:
        if self.found != text:
            self.found = text
            ALWAYS.warning("triton_cpp, verify: %s. ATen's results are used", text)
            events.emit("difference", text)


def up_to(gm: torch.fx.GraphModule, node: torch.fx.Node) -> torch.fx.GraphModule:
    """The graph that ends with the node's value."""
    graph = torch.fx.Graph()
    env: dict[torch.fx.Node, torch.fx.Node] = {}
    for old in gm.graph.nodes:
        env[old] = graph.node_copy(old, env.__getitem__)
        if old is node:
            break
    for old in gm.graph.nodes:      # every argument stays one, used or not
        if old.op == "placeholder" and old not in env:
            env[old] = graph.node_copy(old, env.__getitem__)
    graph.output((env[node],))
    return torch.fx.GraphModule(gm, graph)


def difference(want: list[Any], got: list[Any]) -> str | None:
    """What differs, as torch.testing says it; None where nothing does."""
    for a, b in zip(want, got, strict=True):
        if isinstance(a, torch.Tensor):
            try:
                assert_close(b, a, equal_nan=True, check_stride=False)
            except AssertionError as error:
                return " ".join(_figures(str(error)))
        elif a != b:
            return f"{b} instead of {a}"
    return None


def _figures(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line and not line.startswith("To "):
            yield line.strip()


def twin(value: Any) -> Any:
    """A copy with the same strides; of an overlapping tensor too."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return value
    extent = 1 + sum((n - 1) * s for n, s in zip(value.size(), value.stride(), strict=True)) if value.numel() else 0
    flat = value.detach().as_strided((extent,), (1,), value.storage_offset()).clone()
    return flat.as_strided(value.size(), value.stride(), 0)
