"""Calls without AOTAutograd's runtime wrapper, where its metadata says that the wrapper has nothing to do.

The wrapper puts back what functionalisation took out: changed inputs, results that are views of inputs, tensor subclasses.
Where there is none of that, a graph without gradients is its compiled function alone, and one with gradients a small
autograd Function over two compiled functions. Training goes through the wrapper until its first backward has been compiled.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

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
    """A compiled graph without gradients. `entry` is what callers that need no attributes may call."""

    generated_graphs: Any = ()

    def __init__(self, run: Run) -> None:
        self.run = run
        self.entry = getattr(run, "call", None) or self.__call__

    def __call__(self, *args: Any) -> Any:
        return self.run(list(args))


class Trained:
    """A compiled graph with gradients: the wrapper until there is a backward, then an autograd Function of its own."""

    generated_graphs: Any = ()

    def __init__(self, full: Run, made: Made, meta: Any) -> None:
        self.full, self.made, self.meta = full, made, meta
        self.apply: Run | None = None

    def __call__(self, *args: Any) -> Any:
        if not torch.is_grad_enabled() or torch._C._are_functorch_transforms_active():
            return self.full(*args)
        if self.apply is not None:
            return self.apply(*args)
        if self.made.backward is not None:
            self.apply = autograd_function(self.made, self.meta)
        return self.full(*args)


def shortened(full: Run, made: Made, meta: Any, inputs: int) -> Run:
    """The shortest way to call what AOTAutograd compiled; `full` where its wrapper is needed.

    meta: AOTAutograd's ViewAndMutationMeta, or None. inputs: how many arguments a call has.
    """
    if meta is None or not _nothing_to_do(meta, inputs):
        return full
    if made.inference is not None:
        return Direct(_undifferentiated(made.inference, meta))
    if made.forward is not None and torch.is_grad_enabled():
        return Trained(full, made, meta)
    return full


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


def autograd_function(made: Made, meta: Any) -> Run:
    """`apply` of a Function whose forward and backward are the two compiled graphs."""
    forward: Any = made.forward
    backward: Any = made.backward
    returns, tensors, symbols = meta.num_forward_returns, meta.tensors_saved_for_backwards_slice, meta.symints_saved_for_backwards_slice
    constant = [i for i, info in enumerate(meta.output_info) if issubclass(info.raw_type, torch.Tensor) and not info.requires_grad]
    tangents = [(i, layout) for i, layout in zip(_with_tangents(meta), meta.subclass_tangent_meta, strict=True)]

    class CompiledGraph(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            outs = forward(list(args))
            ctx.save_for_backward(*[t.detach() if t._is_view() else t for t in outs[tensors]])
            ctx.symints = outs[symbols]
            results = tuple(outs[:returns])
            if constant:
                ctx.mark_non_differentiable(*[results[i] for i in constant])
            ctx._materialize_non_diff_grads = False
            return results

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            args = [*ctx.symints, *ctx.saved_tensors, *[_tangent(grads[i], layout) for i, layout in tangents]]
            if torch.is_grad_enabled():
                return Last.apply(backward, len(args), *args, torch.empty(0, requires_grad=True))
            return tuple(backward(args))

    apply: Run = torch._C._FunctionBase.__dict__["apply"].__get__(None, CompiledGraph)  # Function.apply's checks are made in Trained
    cut = _cut_off(made, meta)
    if not cut:
        return apply
    return lambda *args: apply(*[a.detach() if i in cut else a for i, a in enumerate(args)])


class Last(torch.autograd.Function):
    """A backward whose results can be used, but not differentiated again."""

    @staticmethod
    def forward(ctx: Any, run: Run, count: int, *args: Any) -> Any:
        return tuple(run(list(args[:count])))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise RuntimeError("a compiled graph can't be differentiated twice: run this part eagerly (dynamo_nb.disable) to use create_graph=True")


def _with_tangents(meta: Any) -> list[int]:
    return [i for i, info in enumerate(meta.output_info) if issubclass(info.raw_type, torch.Tensor) and info.requires_grad_for_backward]


def _cut_off(made: Made, meta: Any) -> frozenset[int]:
    """Inputs to which no gradient flows: autograd shouldn't reach what they came from through this graph."""
    return frozenset(
        i for i, (info, flows) in enumerate(zip(meta.input_info, made.gradients, strict=True)) if info.requires_grad and not info.is_leaf and not flows
    )


def _tangent(value: Any, layout: Any) -> Any:
    """The incoming gradient, laid out as the backward was compiled for."""
    expected = layout.memory_format
    if type(value) is torch.Tensor and expected is not None:
        if expected.memory_format is None:
            if value.shape == expected.size and value.stride() == expected.stride:
                return value
        elif value.is_contiguous(memory_format=expected.memory_format):
            return value
    from torch._functorch._aot_autograd.runtime_wrappers import AOTDispatchAutograd

    return AOTDispatchAutograd.process_runtime_tangent(value, layout)[0]
