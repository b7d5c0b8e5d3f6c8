"""Calls without AOTAutograd's runtime wrapper, where its metadata says that the wrapper has nothing to do.

The wrapper puts back what functionalisation took out: changed inputs, results that are views of inputs, tensor subclasses.
Where there is none of that, a graph without gradients is its compiled function alone, and one with gradients a native
node of autograd's graph over two compiled functions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from ..native import TrainedGraph

Run = Callable[..., Any]


@dataclasses.dataclass
class Made:
    """What the compilers of one graph have given so far; gradients: which inputs the backward graph has a gradient for; failure: what a compiler raised."""

    forward: Run | None = None
    inference: Run | None = None
    backward: Run | None = None
    gradients: tuple[bool, ...] = ()
    failure: Exception | None = None


class Direct:
    """A compiled graph that is called by itself. `entry` is what callers that need no attributes may call."""

    generated_graphs: Any = ()

    def __init__(self, entry: Run) -> None:
        self.entry = entry

    def __call__(self, *args: Any) -> Any:
        return self.entry(*args)


def shortened(full: Run, made: Made, meta: Any, inputs: int) -> Run:
    """The shortest way to call what AOTAutograd compiled; `full` where its wrapper is needed.

    meta: AOTAutograd's ViewAndMutationMeta, or None. inputs: how many arguments a call has.
    """
    if meta is None or not _nothing_to_do(meta, inputs):
        return full
    if made.inference is not None:
        return Direct(_one_by_one(_undifferentiated(made.inference, meta)))
    if made.forward is not None and made.backward is not None and torch.is_grad_enabled():
        return Direct(_trained(full, made.forward, made.backward, made.gradients, meta))
    return full


def _one_by_one(run: Run) -> Run:
    """Takes a boxed callable's arguments one by one."""
    return getattr(run, "call", None) or (lambda *args: run(list(args)))


def _undifferentiated(run: Run, meta: Any) -> Run:
    """Nothing of a graph without gradients is recorded for a backward, where its arguments have some. A native program records nothing anyway."""
    if hasattr(run, "call") or not torch.is_grad_enabled() or not any(info.requires_grad for info in meta.input_info):
        return run

    def plain(args: list[Any]) -> Any:
        with torch.no_grad():
            return run(args)

    return plain


def _nothing_to_do(meta: Any, inputs: int) -> bool:
    from torch._functorch._aot_autograd.schemas import MutationType, OutputType, PlainTensorMeta

    plain = (OutputType.non_alias, OutputType.unsafe_view_alias)
    return (
        len(meta.input_info) == inputs
        and all(info.mutation_type == MutationType.NOT_MUTATED for info in meta.input_info)
        and all(info.output_type in plain for info in meta.output_info)
        and all(type(m) is PlainTensorMeta for part in (meta.subclass_inp_meta, meta.subclass_fw_graph_out_meta, meta.subclass_tangent_meta) for m in part)
        and not (meta.num_intermediate_bases or meta.tokens or meta.num_backward_tokens or meta.num_graphsafe_rng_states or meta.num_outputs_rng_offset)
        and not (meta.num_tensors_saved_with_no_vc_check or meta.num_opaque_objects_saved_for_bw or meta.act_input_indices)
        and not meta.indices_of_inputs_that_requires_grad_with_mutations_in_bw
        and meta.grad_enabled_mutation is None
        and not torch._C._is_any_autocast_enabled()
    )


def _trained(full: Run, forward: Run, backward: Run, gradients: tuple[bool, ...], meta: Any) -> TrainedGraph:
    """The two compiled graphs alone; `full` without gradients and under transforms of torch.func. gradients: see `Made`."""
    def last(args: list[Any]) -> Any:
        return Last.apply(backward, len(args), *args, torch.empty(0, requires_grad=True))

    results = meta.output_info
    gives = [i for i, info in enumerate(results) if issubclass(info.raw_type, torch.Tensor) and info.requires_grad_for_backward]
    return TrainedGraph(
        full, forward=forward, backward=backward, last=last, lay_out=_lay_out,
        differentiable=tuple(issubclass(info.raw_type, torch.Tensor) and info.requires_grad for info in results), cut=_cut_off(gradients, meta),
        saved=meta.tensors_saved_for_backwards_slice, symbols=meta.symints_saved_for_backwards_slice,
        tangents=tuple(_tangent(i, layout) for i, layout in zip(gives, meta.subclass_tangent_meta, strict=True)),
    )


class Last(torch.autograd.Function):
    """A backward whose results can be used, but not differentiated again."""

    @staticmethod
    def forward(ctx: Any, run: Run, count: int, *args: Any) -> Any:
        return tuple(run(list(args[:count])))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise RuntimeError("a compiled graph can't be differentiated twice: run this part eagerly (dynamo_nb.disable) to use create_graph=True")


def _cut_off(gradients: tuple[bool, ...], meta: Any) -> tuple[bool, ...]:
    """Which inputs no gradient flows to: autograd shouldn't reach them, their hooks or what they came from through this graph."""
    return tuple(info.requires_grad and not flows for info, flows in zip(meta.input_info, gradients, strict=True))


def _tangent(result: int, layout: Any) -> tuple[Any, ...]:
    """Which result's gradient a backward takes, and the layout that it was compiled for: a memory format, or sizes and strides."""
    wanted = layout.memory_format
    if wanted is None or wanted.memory_format is not None:
        return (result, wanted and wanted.memory_format, (), (), layout)
    return (result, None, tuple(wanted.size), tuple(wanted.stride), layout)


def _lay_out(grad: Any, layout: Any) -> Any:
    """An incoming gradient of another layout."""
    from torch._functorch._aot_autograd.runtime_wrappers import AOTDispatchAutograd

    return AOTDispatchAutograd.process_runtime_tangent(grad, layout)[0]
