"""Backends on torch's AOTAutograd: functionalised graphs, forward and backward ahead of time.

`aot_autograd(fw, bw)` gives a backend from two compilers of ATen graphs. Fake inputs are made afresh
with the symbols of the trace, since the trace's own may have been changed in place.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.fx

from ..core.collector import full_collections_postponed
from ..core.logs import ALWAYS, artifact_logger
from ..native import tensors_overlap
from .lean import Made, shortened
from .registry import register_builtin

Compiler = Callable[[torch.fx.GraphModule, list[Any]], Callable[..., Any]]
log, hints = artifact_logger("aot_graphs"), artifact_logger("perf_hints")


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


def _logged(name: str, compiler: Compiler, made: Made) -> Any:
    def compile_graph(gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        if log.isEnabledFor(logging.INFO):
            log.info("TRACED GRAPH\n ===== %s graph =====\n%s", name, gm.print_readable(print_output=False))
        if name == "Backward":
            made.gradients = tuple(v is not None for v in next(reversed(gm.graph.nodes)).args[0])  # type: ignore[union-attr]
        try:
            with full_collections_postponed():      # a backward is compiled by its first call
                out = compiler(gm, inputs)
        except Exception as err:
            made.failure = err
            raise
        out = out if getattr(out, "_boxed_call", False) else boxed(out)
        setattr(made, name.lower(), out)
        return out

    return compile_graph


def run_as_is(gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    return gm.forward


class AsCaptured:
    """A captured graph that nothing compiles: its calls are made one by one, as eager makes them. why: for reports."""

    generated_graphs: Any = ()

    def __init__(self, gm: torch.fx.GraphModule, why: str, expected: bool = False) -> None:
        self.gm, self.why = gm, why.splitlines()[0]
        (hints.info if expected else ALWAYS.warning)("a graph is run as it was captured, call by call, because %s", self.why)

    def __call__(self, *args: Any) -> Any:
        return self.gm.forward(*args)


def min_cut_partition(joint: torch.fx.GraphModule, joint_inputs: Any, **kwargs: Any) -> Any:
    """torch's min-cut partition, which never has a backward work anything out of an input that the call has changed meanwhile.

    torch's own may save such an input, which costs nothing, and compute again from it what depends on what it was.
    """
    from torch._functorch.partitioners import CheckpointPolicy, min_cut_rematerialization_partition

    for node in _reads_of_changed(joint.graph):
        node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    return min_cut_rematerialization_partition(joint, joint_inputs, **kwargs)


def _reads_of_changed(graph: torch.fx.Graph) -> Iterator[torch.fx.Node]:
    """What is computed from the memory of inputs that change: in the graph, or, where they have gradients, after it (it clones them first)."""
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    meta = context.fw_metadata if context is not None else None
    changed_after = meta is None or any(info.mutates_data for info in meta.input_info)
    for node in graph.find_nodes(op="placeholder"):
        memory, inside = [node], any(map(_writes_first, node.users))
        for part in memory if inside else ():
            for user in part.users:
                if user.target is operator.getitem or getattr(user.target, "is_view", False):
                    memory.append(user)
                elif user.op == "call_function" and not _writes_first(user):
                    yield user
        if changed_after and not inside:
            yield from (user for user in node.users if user.target is torch.ops.aten.clone.default)


def _writes_first(node: torch.fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


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

    if _writes_shared(gm, example_inputs):
        return AsCaptured(gm, "it writes an argument that shares memory with another", expected=True)
    fake_mode, made = _fake_mode(fake_inputs), Made()
    options: dict[str, Any] = {"decompositions": decompositions} if decompositions is not None else {}
    if partition_fn is not None:
        options["partition_fn"] = partition_fn
    context_of_trace: Any = contextlib.nullcontext()      # the caller's, torch._dynamo's say
    if fake_mode is not None:
        context_of_trace = tracing(TracingContext(fake_mode))
    # The partitioner's search for equal nodes imports all of Inductor, 1.6 CPU seconds; code generators find equal values themselves.
    with context_of_trace, functorch_config.patch(cse=False):
        try:
            compiled = aot_module_simplified(
                gm, fake_inputs if fake_inputs is not None else example_inputs, fw_compiler=_logged("Forward", fw_compiler, made),
                bw_compiler=_logged("Backward", bw_compiler or fw_compiler, made), inference_compiler=_logged("Inference", inference_compiler or fw_compiler, made),
                keep_inference_input_mutations=True, **options,
            )
        except Exception as err:
            if made.failure is not None or fake_mode is None:
                raise
            return AsCaptured(gm, f"AOTAutograd can't trace it: {type(err).__name__}: {err}")
        meta = context.fw_metadata if (context := TracingContext.try_get()) is not None else None
    if meta is not None and len(meta.input_info) != len(example_inputs) and fake_mode is not None:
        return AsCaptured(gm, "AOTAutograd takes arguments that share memory for one", expected=True)
    if meta is not None:
        meta.bw_donated_idxs = []       # no backward of ours writes into what was saved: retain_graph=True may come at any call
    run = shortened(compiled, made, meta, len(example_inputs)) if fake_mode is not None else compiled
    cut = _cut_views(gm)
    return WithCutViews(run, cut) if cut else run


def _cut_views(gm: torch.fx.GraphModule) -> list[int]:
    """Results that are views made under `no_grad` of something with gradients: these don't flow back through them."""
    found: list[int] = []
    if not torch.is_grad_enabled():
        return found
    results: Any = next(reversed(gm.graph.nodes)).args[0]
    for i, node in enumerate(results if isinstance(results, (tuple, list)) else ()):
        value = node.meta.get("example_value") if isinstance(node, torch.fx.Node) else None
        if isinstance(value, torch.Tensor) and value._is_view() and value.requires_grad:
            if torch._C._autograd._get_creation_meta(value) == torch._C._autograd.CreationMeta.NO_GRAD_MODE:
                found.append(i)
    return found


class WithCutViews:
    """A compiled graph some of whose results are views made under `no_grad`; AOTAutograd makes them under the caller's mode."""

    generated_graphs: Any = ()

    def __init__(self, run: Callable[..., Any], cut: list[int]) -> None:
        self.run, self.cut = run, cut

    def __call__(self, *args: Any) -> Any:
        results = list(self.run(*args))
        with torch.no_grad():
            for i in self.cut:
                results[i] = results[i].view_as(results[i])
        return tuple(results)


def _writes_shared(gm: torch.fx.GraphModule, inputs: list[Any]) -> bool:
    """AOTAutograd makes such arguments views of one: results that share their memory then miss writes, and the common memory's size isn't guarded."""
    tensors = [(i, t) for i, t in enumerate(inputs) if isinstance(t, torch.Tensor) and t.layout is torch.strided]
    written = {i for i, _ in tensors if i in gm.meta.get("dynamo_nb_written", ())}
    return any(tensors_overlap(t, other) for i, t in tensors if i in written for j, other in tensors if i != j)


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
