"""Backends on torch's AOTAutograd: functionalised graphs, forward and backward ahead of time.

`aot_autograd(fw, bw)` gives a backend from two compilers of ATen graphs. Fake inputs are made afresh
with the symbols of the trace, since the trace's own may have been changed in place.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from ..core.collector import full_collections_postponed
from ..core.logs import artifact_logger
from ..core.settings import raises_internal_errors
from ..native import compile_lock, own_memory, share_versions
from .captured import AsCaptured, WithViews, cut_views, several_histories, shown_views, writes_shared
from .lean import Made, shortened
from .partition import min_cut_partition
from .registry import register_builtin

Compiler = Callable[[torch.fx.GraphModule, list[Any]], Callable[..., Any]]
log = artifact_logger("aot_graphs")


def ensure_imported() -> None:
    """torch's compiler stack; imported by the first compile, under the compile lock."""
    import torch._functorch.aot_autograd
    import torch._functorch.partitioners
    import torch._guards  # noqa: F401


def boxed(fn: Callable[..., Any]) -> Callable[..., Any]:
    """AOTAutograd's calling convention: one list of inputs, emptied by the callee."""

    def run(args: list[Any]) -> Any:
        values = list(args)
        args.clear()
        return fn(*values)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _logged(name: str, compiler: Compiler, made: Made, at_once: bool = False) -> Any:
    """at_once: compile a backward with its forward."""
    def compile_graph(gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        if log.isEnabledFor(logging.INFO):
            log.info("TRACED GRAPH\n ===== %s graph =====\n%s", name, gm.print_readable(print_output=False))
        try:
            with full_collections_postponed():      # a backward is compiled by its first call
                out = compiler(gm, inputs)
        except Exception as err:
            made.failure = err
            raise
        out = out if getattr(out, "_boxed_call", False) else boxed(out)
        if name == "Inference":
            made.inference = out
        elif name == "Forward":
            made.forward, out = out, _with_shared_versions(out, _new_results())
        return out

    def compile_backward(gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        made.gradients = tuple(v is not None for v in next(reversed(gm.graph.nodes)).args[0])  # type: ignore[union-attr]
        made.backward = deferred = Deferred(functools.partial(compile_graph, gm, inputs))
        if at_once:
            deferred.compile()
        elif any(isinstance(value, torch.SymInt) for value in inputs):
            with contextlib.suppress(Exception):    # it may add guards; what it raises, the first backward raises again
                deferred.compile()
            made.failure = None
        return deferred

    return compile_backward if name == "Backward" else compile_graph


class Deferred:
    """A compiled backward that is compiled by its first call: many graphs with gradients never see one."""

    _boxed_call = True

    def __init__(self, compile_graph: Callable[[], Callable[..., Any]]) -> None:
        from torch._guards import TracingContext

        self.compile_graph: Callable[[], Callable[..., Any]] | None = compile_graph
        self.context = TracingContext.try_get()
        self.run: Callable[..., Any] | None = None

    def compile(self) -> Callable[..., Any]:
        from torch._guards import tracing

        with compile_lock():
            if self.run is None and self.compile_graph is not None:     # else another thread has been faster
                with tracing(self.context), torch._C._DisableAutocast(), torch.no_grad():
                    self.run = self.compile_graph()
                self.compile_graph = self.context = None
        assert self.run is not None
        return self.run

    def __call__(self, args: list[Any]) -> Any:
        return own_memory((self.run or self.compile())(args))


def _new_results() -> list[int]:
    """Places of the results that are views of nothing the caller sees.

    AOTAutograd's runtime would copy some of them, memory aside, so that they aren't views; they'd no longer count changes with what was saved.
    """
    from torch._functorch._aot_autograd.schemas import OutputType
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    meta = context.fw_metadata if context is not None else None
    if meta is None or meta.tokens:
        return []
    meta.unsafe_view_out_indices, meta.num_unsafe_view_outputs = [], 0
    new = (OutputType.non_alias, OutputType.unsafe_view_alias)
    return [meta.num_mutated_inp_runtime_indices + i for i, info in enumerate(meta.output_info) if info.output_type in new]


def _with_shared_versions(run: Callable[..., Any], new: list[int]) -> Callable[..., Any]:
    """A forward for AOTAutograd's own runtime, which would let results change what was saved for the backward without noticing.

    new: results that must not be views.
    """

    def forward(args: list[Any]) -> Any:
        inputs = list(args)
        results = list(run(args))
        share_versions(inputs, results)
        for i in new:
            if isinstance(results[i], torch.Tensor) and results[i]._is_view():
                results[i] = results[i].detach()
        return results

    forward._boxed_call = True  # type: ignore[attr-defined]
    return forward


def run_as_is(gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    return gm.forward


def aot_compile(
    gm: torch.fx.GraphModule, example_inputs: list[Any], fake_inputs: list[Any] | None, *, fw_compiler: Compiler, bw_compiler: Compiler | None = None,
    inference_compiler: Compiler | None = None, decompositions: dict[Any, Any] | None = None, partition_fn: Any = None,
) -> Callable[..., Any]:
    """Compile a captured graph through AOTAutograd; fake_inputs: the trace's fakes in placeholder order.

    `AsCaptured` where AOTAutograd can't trace it: sizes that depend on values, or an error that fake tensors don't show where eager's does.
    """
    from torch._functorch import config as functorch_config
    from torch._functorch.aot_autograd import aot_module_simplified
    from torch._guards import TracingContext, tracing

    if writes_shared(gm, example_inputs):
        return AsCaptured(gm, "it writes an argument that shares memory with another", expected=True)
    if torch.is_grad_enabled() and several_histories(gm):
        return AsCaptured(gm, "tensors of different gradients share a result's memory", expected=True)
    _keep_assertions(gm)
    fake_mode, made = _fake_mode(fake_inputs), Made()
    options: dict[str, Any] = {"decompositions": decompositions} if decompositions is not None else {}
    if partition_fn is not None:
        options["partition_fn"] = partition_fn
    context_of_trace: Any = contextlib.nullcontext()      # the caller's, torch._dynamo's say
    if fake_mode is not None:
        context_of_trace = tracing(TracingContext(fake_mode))
    at_once = functorch_config.force_non_lazy_backward_lowering
    # The partitioner's search for equal nodes imports all of Inductor, 1.6 CPU seconds; code generators find equal values themselves.
    # The backward is asked for at once, and compiled by its first call: calls with gradients then need AOTAutograd's runtime at no time.
    with context_of_trace, functorch_config.patch(cse=False, force_non_lazy_backward_lowering=True):
        try:
            compiled = aot_module_simplified(
                gm, fake_inputs if fake_inputs is not None else example_inputs, keep_inference_input_mutations=True, **options,
                fw_compiler=_logged("Forward", fw_compiler, made), bw_compiler=_logged("Backward", bw_compiler or fw_compiler, made, at_once),
                inference_compiler=_logged("Inference", inference_compiler or fw_compiler, made),
            )
        except Exception as err:
            ours = _from_partition(err)
            if made.failure is not None or fake_mode is None or (ours and raises_internal_errors()):
                raise
            why = "of an internal error (please report it)" if ours else "AOTAutograd can't trace it"
            return AsCaptured(gm, f"{why}: {type(err).__name__}: {err}")
        meta = context.fw_metadata if (context := TracingContext.try_get()) is not None else None
    if meta is not None and len(meta.input_info) != len(example_inputs) and fake_mode is not None:
        return AsCaptured(gm, "AOTAutograd takes arguments that share memory for one", expected=True)
    if meta is not None:
        meta.bw_donated_idxs = []       # no backward of ours writes into what was saved: retain_graph=True may come at any call
    run = shortened(compiled, made, meta, len(example_inputs)) if fake_mode is not None else compiled
    cut, shown = cut_views(gm), shown_views(gm)
    return WithViews(run, cut, shown) if cut or shown else run


def _keep_assertions(gm: torch.fx.GraphModule) -> None:
    """AOTAutograd drops an assertion unless it has a text."""
    packet = torch.ops.aten._assert_async
    with_text = {torch._assert_async: torch._assert_async, packet: packet, packet.default: packet.msg}
    bare = [n for n in gm.graph.nodes if n.op == "call_function" and n.target in with_text and len(n.args) == 1]
    for node in bare:
        node.target, node.args = with_text[node.target], (*node.args, "Expected Tensor with single nonzero value, but got zero")
    if bare:
        gm.recompile()


def _from_partition(err: Exception) -> bool:
    """An error of our own code that AOTAutograd called, not of the graph."""
    return any(frame.f_code is min_cut_partition.__code__ for frame, _ in traceback.walk_tb(err.__traceback__))


def _fake_mode(values: list[Any] | None) -> Any:
    for value in values or ():
        mode = getattr(value, "fake_mode", None)
        if mode is not None:
            return mode
    return None


def aot_autograd(**compilers: Any) -> Callable[..., Any]:
    """A backend from compilers of ATen graphs: fw_compiler, bw_compiler, inference_compiler, decompositions, partition_fn."""

    @functools.wraps(aot_compile)
    def backend(gm: torch.fx.GraphModule, example_inputs: list[Any], *, fake_inputs: list[Any] | None = None, **options: Any) -> Callable[..., Any]:
        return aot_compile(gm, example_inputs, fake_inputs, **compilers)

    backend.takes_fake_inputs = True  # type: ignore[attr-defined]
    return backend


register_builtin("aot_eager", "debug")(aot_autograd(fw_compiler=run_as_is))


def decompositions() -> dict[Any, Any]:
    """torch's core decompositions, without those whose results the operator's own backward can't use.

    Operators that torch itself composes of others aren't among them: tracing sees those others. (The public table lists them
    too, and takes 0.2 s to.)
    """
    from torch._decomp import _core_aten_decompositions_post_autograd

    aten, table = torch.ops.aten, dict(_core_aten_decompositions_post_autograd())
    table.pop(aten._scaled_dot_product_flash_attention_for_cpu.default, None)     # its logsumexp is a placeholder
    for op in (aten.select_scatter.default, aten.baddbmm.default):
        table.pop(op, None)     # its result isn't laid out as eager's
    for op in (aten.binary_cross_entropy.default, aten.bernoulli.default):
        table.pop(op, None)     # eager looks at the values and refuses some
    for op in (aten._native_batch_norm_legit.default, aten._native_batch_norm_legit.no_stats, aten._native_batch_norm_legit_functional.default,
               aten._native_batch_norm_legit_no_training.default):
        table[op] = functools.partial(_dense_batch_norm, op)
    return table


def _dense_batch_norm(op: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Eager's result is laid out in the suggested format; fake tensors keep the input's strides, so they get an input of that format."""
    layout = torch._prims_common.suggest_memory_format(x)
    if x.is_contiguous(memory_format=layout):
        return NotImplemented
    return op(x.contiguous(memory_format=layout), *args, **kwargs)


@register_builtin("aot_eager_decomp_partition", "debug")
def aot_eager_decomp_partition(
    gm: torch.fx.GraphModule, example_inputs: list[Any], *, fake_inputs: list[Any] | None = None, **options: Any
) -> Callable[..., Any]:
    """aot_eager with decompositions and the min-cut partitioner."""
    return aot_compile(gm, example_inputs, fake_inputs, fw_compiler=run_as_is, decompositions=decompositions(), partition_fn=min_cut_partition)


aot_eager_decomp_partition.takes_fake_inputs = True  # type: ignore[attr-defined]
