"""Tensors from outside become graph inputs: a fake copy, a placeholder, a TENSOR_MATCH guard."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..core.reasons import UnsupportedOperation
from ..core.source import AttrSource, GlobalSource, LocalSource, Source
from ..guards import TensorMeta
from .variables import numpy_array
from .variables.base import VariableTracker
from .variables.misc import OpaqueVariable
from .variables.tensor import TensorVariable

if TYPE_CHECKING:
    from .builder import VariableBuilder

PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def wrap(builder: VariableBuilder, value: torch.Tensor) -> VariableTracker:
    tx, source = builder.tx, builder.source
    recorder = tx.recorder
    cls = type(value)
    if cls not in PLAIN and cls is not torch.nn.parameter.UninitializedParameter:
        return OpaqueVariable(value, source, UnsupportedOperation(f"the tensor subclass {cls.__name__}"))
    if not usable(value):
        return OpaqueVariable(value, source, UnsupportedOperation(f"a tensor of layout {value.layout} on {value.device}"))
    if numpy_array.lies_over_array(recorder, value):
        return OpaqueVariable(value, source, UnsupportedOperation("a tensor over the memory of a NumPy array that is another input"))
    if source is None:
        return OpaqueVariable(value, source, UnsupportedOperation("a tensor that no expression of the frame names"))
    if not autograd_takes(value):
        return OpaqueVariable(value, source, UnsupportedOperation("a view whose base was changed in place, which autograd refuses to use"))
    fake = recorder.shapes.fakify(recorder.fake_mode, value, source)
    recorder.keep_alive.append(fake)
    guard(builder, value, fake, source)
    entry = recorder.add_input(input_name(source), source, value, fake)
    made = TensorVariable(entry.node, fake, source, cls)
    made.real = value
    recorder.tensor_by_fake[id(fake)] = made
    return made


def usable(value: torch.Tensor) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor

    if isinstance(value, FakeTensor) or value.is_nested or value.is_quantized:
        return False
    return value.layout is torch.strided


def autograd_takes(value: torch.Tensor) -> bool:
    """False for one of several views of a tensor changed since: reading its grad_fn raises."""
    try:
        value.is_leaf  # noqa: B018
    except RuntimeError:
        return False
    return True


def guard(builder: VariableBuilder, value: torch.Tensor, fake: torch.Tensor, source: Source) -> None:
    open_sizes = [i for i, s in enumerate(fake.size()) if isinstance(s, torch.SymInt)]
    open_strides = [i for i, s in enumerate(fake.stride()) if isinstance(s, torch.SymInt)] if value.layout is torch.strided else []
    builder.guard("TENSOR_MATCH", TensorMeta.of(value, open_sizes, open_strides))
    marks = getattr(value, "_dynamo_dynamic_indices", None)
    if marks is None:
        builder.guard("NO_HASATTR", "_dynamo_dynamic_indices")
    else:
        builder.guard("DYNAMIC_INDICES", frozenset(marks))


def input_name(source: Source) -> str:
    """A placeholder's name: l_x_, l_self_parameters_weight_, … as the graphs of torch.compile have them."""
    if isinstance(source, LocalSource):
        text = f"L_{source.local_name}_"
    elif isinstance(source, GlobalSource):
        text = f"G_{source.global_name}_"
    else:
        text = source.name
        for mark in ("['", "']", "[", "]", ".", "(", ")", "'", " ", "-", ":", "\""):
            text = text.replace(mark, "_")
    return "".join(c if c.isalnum() or c == "_" else "_" for c in text).lower()


__all__ = ["AttrSource", "input_name", "wrap"]
