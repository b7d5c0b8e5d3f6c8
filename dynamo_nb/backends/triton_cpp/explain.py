"""`triton_cpp.explain(gm, example_inputs)`: what the code generator makes of a captured graph, without running it.

The graph is compiled as by the backend, its backward graph too where inputs require gradients. Out: an `Explanation`, whose
text says for each node which kernel computes it, or why ATen does, and for each kernel what it moves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

from ...core.generated import GeneratedRecord, KernelRecord
from .backend import triton_cpp
from .compiled import CompiledGraph
from .measure import bandwidth, kernel_seconds


class Explanation:
    """graphs: a record an ATen graph, forward (or inference) first. `str()` is the text without sources; `text()` has them."""

    def __init__(self, compiled: Sequence[CompiledGraph]) -> None:
        self._compiled = list(compiled)
        self.graphs: list[GeneratedRecord] = [c.record() for c in self._compiled]

    @classmethod
    def failed(cls, why: str) -> Explanation:
        """Of a graph for which nothing could be generated."""
        return cls([CompiledGraph([], [], [], "", {}, why)])

    @property
    def kernels(self) -> list[KernelRecord]:
        return [k for graph in self.graphs for k in graph.kernels]

    def measured(self) -> Explanation:
        """The same with each kernel's time and share of the roofline. Takes some tens of milliseconds a kernel, more the first time."""
        other = Explanation(self._compiled)
        other.graphs = [_measured(c, record) for c, record in zip(self._compiled, self.graphs, strict=True)]
        return other

    def text(self, source: bool = True) -> str:
        return "\n\n".join(graph.text(source) for graph in self.graphs)

    def __str__(self) -> str:
        return self.text(source=False)


def explain(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], measure: bool = False, *, fake_inputs: list[Any] | None = None, **options: Any
) -> Explanation:
    """Compile gm for these inputs and say what became of each node.

    example_inputs: one a placeholder; they are looked at, not computed with. measure: also time the kernels, each alone, and compare
    with the speed of memory. options: those of the backend. ValueError for an unknown one.
    """
    import torch._functorch.config as functorch

    with functorch.patch(force_non_lazy_backward_lowering=True):
        run = triton_cpp(_returning_a_tuple(gm), list(example_inputs), fake_inputs=fake_inputs, **options)
    explanation = Explanation(run.generated_graphs)
    return explanation.measured() if measure else explanation


def _returning_a_tuple(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """As our tracer's graphs do, and AOTAutograd wants; those of torch.fx.symbolic_trace may return one tensor."""
    output = next(iter(reversed(gm.graph.nodes)))
    if isinstance(output.args[0], (tuple, list)):
        return gm
    graph = torch.fx.Graph()
    graph.output((graph.graph_copy(gm.graph, {}),))
    return torch.fx.GraphModule(gm, graph)


def _measured(compiled: CompiledGraph, record: GeneratedRecord) -> GeneratedRecord:
    if not record.kernels:
        return record
    seconds = kernel_seconds(compiled)
    kernels = []
    for kernel, ir in zip(record.kernels, (k for k in compiled.kernels if k.phases), strict=True):
        if kernel.name in seconds:
            speed = bandwidth(next(iter(ir.buffers.values())).device, torch.get_num_threads())
            kernel = dataclasses.replace(kernel, seconds=seconds[kernel.name], bandwidth=speed)
        kernels.append(kernel)
    return dataclasses.replace(record, kernels=tuple(kernels))
