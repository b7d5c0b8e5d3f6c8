"""Backends by other projects: Inductor as an option, CUDA graphs, TVM and OpenXLA where installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from . import config as backend_config
from .aot import aot_compile, run_as_is
from .partition import min_cut_partition
from .registry import register_builtin


@register_builtin("inductor")
def inductor(
    gm: torch.fx.GraphModule, example_inputs: list[Any], *, fake_inputs: list[Any] | None = None, mode: str | None = None, **options: Any
) -> Callable[..., Any]:
    """torch's Inductor as the code generator behind our front end."""
    from torch._inductor import config, list_mode_options
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.decomposition import select_decomp_table

    chosen = list_mode_options(mode) if mode and mode != "default" else {}
    patches = {**backend_config.patches(), **chosen, **{k.replace("-", "_"): v for k, v in options.items()}}

    def forward(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        return compile_fx_inner(graph, inputs)

    def backward(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        with config.patch(patches):
            return compile_fx_inner(graph, inputs, is_backward=True)

    with config.patch(patches):
        return aot_compile(
            gm, example_inputs, fake_inputs, fw_compiler=forward, bw_compiler=backward, decompositions=select_decomp_table(),
            partition_fn=min_cut_partition,
        )


inductor.takes_fake_inputs = True  # type: ignore[attr-defined]


@register_builtin("cudagraphs")
def cudagraphs(gm: torch.fx.GraphModule, example_inputs: list[Any], *, fake_inputs: list[Any] | None = None, **options: Any) -> Callable[..., Any]:
    """AOTAutograd, each graph captured as a CUDA graph; on other devices the graphs run as they are."""

    def capture(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        tensors = [i for i in inputs if isinstance(i, torch.Tensor)]
        if not tensors or not all(t.is_cuda for t in tensors):
            return graph.forward
        return CapturedGraph(graph.forward)

    return aot_compile(gm, example_inputs, fake_inputs, fw_compiler=capture if torch.cuda.is_available() else run_as_is)


cudagraphs.takes_fake_inputs = True  # type: ignore[attr-defined]


class CapturedGraph:
    """Captures on the first call; later calls copy the inputs in and replay."""

    def __init__(self, run: Callable[..., Any]) -> None:
        self.run = run
        self.graph: Any = None
        self.inputs: list[Any] = []
        self.outputs: Any = None

    def __call__(self, *args: Any) -> Any:
        if self.graph is None:
            self.inputs = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                self.run(*self.inputs)
            torch.cuda.current_stream().wait_stream(stream)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.outputs = self.run(*self.inputs)
        for mine, given in zip(self.inputs, args, strict=True):
            if isinstance(mine, torch.Tensor):
                mine.copy_(given)
        self.graph.replay()
        return tuple(o.clone() if isinstance(o, torch.Tensor) else o for o in self.outputs)


def _needs(package: str, name: str) -> Callable[..., Any]:
    def backend(gm: torch.fx.GraphModule, example_inputs: list[Any], **options: Any) -> Callable[..., Any]:
        import importlib.util

        if importlib.util.find_spec(package) is None:
            raise ImportError(f"the backend {name!r} needs the package {package!r}: pip install {package}, or choose another backend")
        from torch._dynamo.backends.registry import lookup_backend

        return lookup_backend(name)(gm, example_inputs)

    backend.__name__ = name
    return backend


register_builtin("tvm")(_needs("tvm", "tvm"))
register_builtin("openxla")(_needs("torch_xla", "openxla"))
