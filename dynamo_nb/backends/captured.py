"""What AOTAutograd gets wrong, seen in the captured graph: such a graph runs as it was captured, or has its results mended.

In: the graph with the values of its trace (`example_value`), the call's arguments. Each case is one where torch 2.13's own compiled
results, memory or gradients differ from eager's without an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from ..core.logs import ALWAYS, artifact_logger
from ..native import tensors_overlap

hints = artifact_logger("perf_hints")


class AsCaptured:
    """A captured graph that nothing compiles: its calls are made one by one, as eager makes them. why: for reports."""

    generated_graphs: Any = ()

    def __init__(self, gm: torch.fx.GraphModule, why: str, expected: bool = False) -> None:
        self.gm, self.why = gm, why.splitlines()[0]
        (hints.info if expected else ALWAYS.warning)("a graph is run as it was captured, call by call, because %s", self.why)

    def __call__(self, *args: Any) -> Any:
        return self.gm.forward(*args)


class WithViews:
    """A compiled graph some of whose results have to be made views again.

    cut: those made under `no_grad`; AOTAutograd makes them under the caller's mode. shown: (result, result that it shows a part of), of results
    without gradients, which AOTAutograd returns unrelated: what changes one with gradients later gives them to the other.
    """

    generated_graphs: Any = ()

    def __init__(self, run: Callable[..., Any], cut: list[int], shown: list[tuple[int, int]]) -> None:
        self.run, self.cut, self.shown = run, cut, shown

    def __call__(self, *args: Any) -> Any:
        results = list(self.run(*args))
        for i, whole in self.shown:
            part, base = results[i], results[whole]
            if part.untyped_storage()._cdata == base.untyped_storage()._cdata:
                results[i] = base.as_strided(part.size(), part.stride(), part.storage_offset())
        with torch.no_grad():
            for i in self.cut:
                results[i] = results[i].view_as(results[i])
        return tuple(results)


def writes_shared(gm: torch.fx.GraphModule, inputs: list[Any]) -> bool:
    """AOTAutograd makes such arguments views of one: results that share their memory then miss writes, and the common memory's size isn't guarded."""
    tensors = [(i, t) for i, t in enumerate(inputs) if isinstance(t, torch.Tensor) and t.layout is torch.strided]
    written = {i for i, _ in tensors if i in gm.meta.get("dynamo_nb_written", ())}
    if written and _reaches_past(gm, written):
        return True
    return any(tensors_overlap(t, other) for i, t in tensors if i in written for j, other in tensors if i != j)


def _reaches_past(gm: torch.fx.GraphModule, written: set[int]) -> bool:
    """Is as_strided, whose windows may lie outside of the argument, taken of one that is written?"""
    def memory(node: torch.fx.Node) -> int | None:
        value = node.meta.get("example_value")
        return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None

    changed = {memory(node) for i, node in enumerate(gm.graph.find_nodes(op="placeholder")) if i in written}
    return any("as_strided" in str(node.target) and memory(node) in changed for node in gm.graph.nodes)


def several_histories(gm: torch.fx.GraphModule) -> bool:
    """Is a result's memory shared by tensors with gradients that autograd doesn't know to be views of one another?

    As after `d = x.detach(); d.mul_(y)`, where eager's d has y's gradients and x its own: AOTAutograd makes d from x.
    """
    whole: dict[int, torch.Tensor] = {}
    several: set[int] = set()
    for node in gm.graph.nodes:
        value = node.meta.get("example_value")
        if isinstance(value, torch.Tensor) and value.layout is torch.strided and value.requires_grad:
            base = _base_of(value)
            if whole.setdefault(memory := value.untyped_storage()._cdata, base) is not base:
                several.add(memory)
    return bool(several) and any(isinstance(v, torch.Tensor) and v.layout is torch.strided and v.untyped_storage()._cdata in several for v in _results(gm))


def cut_views(gm: torch.fx.GraphModule) -> list[int]:
    """Results that are views made under `no_grad` of something with gradients: these don't flow back through them."""
    if not torch.is_grad_enabled():
        return []
    no_grad, creation = torch._C._autograd.CreationMeta.NO_GRAD_MODE, torch._C._autograd._get_creation_meta
    return [i for i, v in enumerate(_results(gm)) if isinstance(v, torch.Tensor) and v._is_view() and v.requires_grad and creation(v) == no_grad]


def shown_views(gm: torch.fx.GraphModule) -> list[tuple[int, int]]:
    """Results that are views of memory that another result shows, where neither has gradients and none of it is an argument's."""
    if not torch.is_grad_enabled():
        return []
    given = {id(_base_of(v)) for n in gm.graph.find_nodes(op="placeholder") if isinstance(v := n.meta.get("example_value"), torch.Tensor)}
    groups: dict[int, list[tuple[int, torch.Tensor]]] = {}
    for i, value in enumerate(_results(gm)):
        if isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.requires_grad and value.dtype.is_floating_point:
            if id(base := _base_of(value)) not in given:
                groups.setdefault(id(base), []).append((i, value))
    pairs = []
    for group in groups.values():
        whole, base = min(group, key=lambda place: place[1]._is_view())
        pairs += [(i, whole) for i, value in group if i != whole and value.dtype is base.dtype]
    return pairs


def _base_of(value: torch.Tensor) -> torch.Tensor:
    return value._base if value._is_view() and value._base is not None else value


def _results(gm: torch.fx.GraphModule) -> list[Any]:
    """The values of the graph's results while it was captured, None for what isn't a value."""
    results: Any = next(reversed(gm.graph.nodes)).args[0]
    return [r.meta.get("example_value") if isinstance(r, torch.fx.Node) else None for r in (results if isinstance(results, (tuple, list)) else ())]
