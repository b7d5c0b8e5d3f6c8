"""NumPy functions called in the trace, and torch functions that take arrays.

Elementwise functions, reductions, contractions, shapes and creation come from the table in `numpy_ops`;
what copies or converts is named below. Everything else of NumPy breaks the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .. import numpy_ops
from ..variables.base import VariableTracker, const
from ..variables.classes import UserDefinedClassVariable
from ..variables.constant import ConstantVariable
from ..variables.numpy_array import NumpyNdarrayVariable, as_array, call, refuse, to_tensor
from ..variables.tensor import TensorVariable
from . import handler_of, handles

if TYPE_CHECKING:
    from ..interpreter import InstructionTranslatorBase as Tx


def _function(op: Any) -> Any:
    def handler(tx: Tx, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker | None:
        return call(tx, op, list(args), kwargs)

    return handler


for _fn in numpy_ops.KEEP:
    handles(_fn)(_function(numpy_ops.FUNCTIONS[id(_fn)]))


@handles(np.array)
def array(tx: Tx, value: VariableTracker, dtype: VariableTracker | None = None) -> VariableTracker:
    return call(tx, numpy_ops.array, [as_array(tx, value)], {} if dtype is None else {"dtype": dtype})


@handles(np.copy)
def copy(tx: Tx, value: VariableTracker) -> VariableTracker:
    if not isinstance(value.realize(), NumpyNdarrayVariable) or value.realize().scalar:  # type: ignore[attr-defined]
        raise refuse(f"np.copy() of a {value.describe()}")
    return call(tx, numpy_ops.array, [value], {})


@handles(np.asarray)
def asarray(tx: Tx, value: VariableTracker, dtype: VariableTracker | None = None) -> VariableTracker:
    value = as_array(tx, value)
    if isinstance(value, NumpyNdarrayVariable) and not value.scalar:
        if dtype is None or const(dtype) is None:
            return value
        raise refuse("np.asarray() of an array with a dtype")
    return call(tx, numpy_ops.array, [value], {} if dtype is None else {"dtype": dtype})


@handles(np.ascontiguousarray)
def ascontiguousarray(tx: Tx, value: VariableTracker) -> VariableTracker:
    value = as_array(tx, value)
    if not isinstance(value, NumpyNdarrayVariable) or value.scalar:
        raise refuse(f"np.ascontiguousarray() of a {value.describe()}")
    return call(tx, numpy_ops.contiguous, [value], {})


def _constant(cls: Any) -> Any:
    """A NumPy number or dtype made of constants."""

    def handler(tx: Tx, *args: VariableTracker) -> VariableTracker | None:
        values = [a.realize().value if isinstance(a.realize(), UserDefinedClassVariable) else const(a) for a in args]  # type: ignore[attr-defined]
        if any(not isinstance(v, (bool, int, float, complex, str, np.generic, np.dtype)) and v not in SCALAR_TYPES for v in values):
            return None
        return tx.fold(cls, values, {})

    return handler


SCALAR_TYPES = (*(d.type for d in numpy_ops.DTYPES.values()), bool, int, float, complex)
for _cls in {d.type for d in numpy_ops.DTYPES.values()} | {np.dtype}:
    handles(_cls)(_constant(_cls))


def _shared(tx: Tx, value: VariableTracker) -> NumpyNdarrayVariable | None:
    value = value.realize()
    return value if isinstance(value, NumpyNdarrayVariable) and not value.scalar else None


@handles(torch.from_numpy)
def from_numpy(tx: Tx, value: VariableTracker) -> VariableTracker | None:
    found = _shared(tx, value)
    return None if found is None else to_tensor(tx, found)


def _as_tensor(tx: Tx, data: VariableTracker, dtype: VariableTracker | None = None, device: VariableTracker | None = None) -> VariableTracker | None:
    """torch.as_tensor of an array: shares its memory unless the dtype changes."""
    found = _shared(tx, data)
    if found is None or (device is not None and const(device) is not None):
        return None
    shared = to_tensor(tx, found)
    if dtype is None or const(dtype) is None:
        return shared
    return tx.recorder.call(tx, "call_method", "to", (shared,), {"dtype": dtype})


handles(torch.as_tensor)(_as_tensor)
_tensor_before = handler_of(torch.tensor)


@handles(torch.tensor)
def tensor(tx: Tx, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker | None:
    """torch.tensor of an array copies it."""
    from .. import calls

    found = args[0].realize() if args else None
    if isinstance(found, NumpyNdarrayVariable):
        if len(args) > 1 or set(kwargs) - {"dtype"}:
            raise refuse("torch.tensor() of a NumPy array with these arguments")
        copied = tx.recorder.call(tx, "call_method", "clone", (found.tensor,), {"memory_format": ConstantVariable(torch.contiguous_format)})
        if "dtype" not in kwargs or const(kwargs["dtype"]) is None:
            return copied
        return tx.recorder.call(tx, "call_method", "to", (copied,), {"dtype": kwargs["dtype"]})
    return calls.invoke_handler(tx, _tensor_before, torch.tensor, list(args), kwargs) if _tensor_before is not None else None


__all__ = ["TensorVariable", "array", "asarray", "tensor"]
