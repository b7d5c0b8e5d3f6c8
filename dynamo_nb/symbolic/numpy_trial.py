"""Does `torch._numpy` do what NumPy does on these operands? Answered by running both, while tracing.

In: an operation of `numpy_ops` and its operands, arrays given by their fake tensors. Out: whether NumPy
gives a scalar, or which operand it gives back. Any difference in type, dtype, shape, strides, shared
memory, values on samples, or an error or unusual warning of NumPy raises `Differs`: the graph then breaks
before the operation. Called by `variables.numpy_array`.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
import torch

from . import numpy_ops

MAX_ELEMENTS = 1 << 20
CAP = 4
TOLERANCE = {np.dtype("float16"): 2e-2, np.dtype("float32"): 1e-4, np.dtype("complex64"): 1e-4}
SAMPLES = (1.25, -0.5, 0.0, 2.0, 0.5, -1.5, 3.0, 0.75, -2.5, 1.0, 2.5)


class Differs(Exception):
    """NumPy and torch._numpy disagree; the text says on what."""


@dataclasses.dataclass(eq=False)
class Operand:
    """An array (or NumPy scalar) in the arguments. index: it selects elements, so samples are valid positions."""

    fake: torch.Tensor
    scalar: bool = False
    index: bool = False


@dataclasses.dataclass
class Outcome:
    """scalar: NumPy gives a scalar. same: the operand that it gives back. shape, strides: of an exact trial."""

    scalar: bool = False
    same: Operand | None = None
    dtype: Any = None
    shape: tuple[int, ...] | None = None
    ndim: int = 0


def hint(size: Any) -> int:
    if isinstance(size, int):
        return size
    known = size.node.hint
    if known is None:
        raise Differs("a size is only known at run time")
    return int(known)


def _sample(operand: Operand, capped: bool) -> np.ndarray[Any, Any]:
    """An array laid out as the operand, filled with small values of both signs."""
    fake = operand.fake
    dtype = numpy_ops.DTYPES[fake.dtype]
    shape, stride = [hint(n) for n in fake.size()], [hint(n) for n in fake.stride()]
    count = int(np.prod(shape, dtype=np.int64))
    if capped and count > 4096:
        order = sorted(range(len(shape)), key=lambda i: -stride[i])
        dense, step = True, 1
        for i in reversed(order):
            dense, step = dense and stride[i] == step, step * shape[i]
        if dense:
            shape, step = [min(n, CAP) for n in shape], 1
            for i in reversed(order):
                stride[i], step = step, step * shape[i]
    extent = sum((n - 1) * s for n, s in zip(shape, stride, strict=True)) + 1 if all(shape) else 0
    if extent > MAX_ELEMENTS:
        raise Differs("the array is too large for a trial")
    if operand.index:
        values = np.zeros(extent, dtype=dtype) if dtype.kind != "b" else np.arange(extent) % 2 == 0
    elif dtype.kind == "b":
        values = np.arange(extent) % 3 == 0
    elif dtype.kind in "iu":
        values = (np.arange(extent) % 7 - (3 if dtype.kind == "i" else 0)).astype(dtype)
    else:
        values = np.resize(np.array(SAMPLES), extent).astype(dtype)
    strides = [s * dtype.itemsize for s in stride]
    return np.lib.stride_tricks.as_strided(values, shape, strides) if extent else np.empty(shape, dtype)


def run(op: Any, args: Any, kwargs: Any) -> Outcome:
    operands = {id(v): v for v in [*numpy_ops.leaves(args), *numpy_ops.leaves(kwargs)] if isinstance(v, Operand)}
    arrays: dict[int, Any] = {}
    tensors: dict[int, torch.Tensor] = {}
    for key, operand in operands.items():
        if operand.scalar:
            number = _sample(operand, False).reshape(())[()]
            arrays[key], tensors[key] = number, torch.from_numpy(np.array(number))
        else:
            arrays[key] = _sample(operand, op.capped)
            tensors[key] = torch.from_numpy(_sample(operand, op.capped))
    state = np.geterr()
    if (state["divide"], state["over"], state["under"], state["invalid"]) != ("warn", "warn", "ignore", "warn"):
        raise Differs("np.errstate is not the default")
    expected = _numpy(op, *(numpy_ops.map_nested(lambda v: arrays.get(id(v), v) if isinstance(v, Operand) else v, part) for part in (args, kwargs)))
    try:
        got = numpy_ops.via_torch(op, *(numpy_ops.map_nested(lambda v: tensors.get(id(v), v) if isinstance(v, Operand) else v, part) for part in (args, kwargs)))
    except Exception as err:
        raise Differs(f"torch._numpy raises {type(err).__name__}") from None
    for key, operand in operands.items():
        if not operand.scalar:
            _same_values(arrays[key], tensors[key], "the operands afterwards")
    if op.returns_first:
        if expected is not arrays[id(args[0])]:
            raise Differs("the result is a new object")
        return Outcome(same=args[0])
    if op.writes:
        return Outcome()
    for key, operand in operands.items():
        if expected is arrays[key] and not operand.scalar:      # True and False are one object each
            return Outcome(same=operand)
    return _compare(op, expected, got, [(arrays[k], tensors[k], o) for k, o in operands.items()])


def _numpy(op: Any, args: Any, kwargs: Any) -> Any:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            result = op.numpy_fn(*args, **kwargs)
        except Exception as err:
            raise Differs(f"NumPy raises {type(err).__name__}: {err}") from None
    odd = [w for w in seen if w.category is not RuntimeWarning]
    if odd:
        raise Differs(f"NumPy warns: {odd[0].message}")
    return result


def _compare(op: Any, expected: Any, got: Any, pairs: list[Any]) -> Outcome:
    if not isinstance(expected, (np.generic, np.ndarray)) or type(expected) not in (np.ndarray, expected.dtype.type):
        raise Differs(f"the result is a {type(expected).__name__}")
    if not isinstance(got, torch.Tensor) or numpy_ops.DTYPES.get(got.dtype) != expected.dtype:
        raise Differs(f"the result is {expected.dtype}, torch._numpy's {getattr(got, 'dtype', type(got).__name__)}")
    scalar = isinstance(expected, np.generic)
    if tuple(got.shape) != expected.shape:
        raise Differs(f"the shape is {expected.shape}, torch._numpy's {tuple(got.shape)}")
    if not scalar:
        if not expected.flags.writeable:
            raise Differs("the result is read-only")
        ours = [s * expected.itemsize for s, n in zip(got.stride(), got.shape, strict=True) if n > 1]
        if expected.size and ours != [s for s, n in zip(expected.strides, expected.shape, strict=True) if n > 1]:
            raise Differs("the layout in memory differs")
    for array, tensor, operand in pairs:
        mine = not scalar and not operand.scalar and np.may_share_memory(expected, array)
        theirs = got.numel() > 0 and got.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
        if mine != theirs:
            raise Differs("one is a view, the other a copy")
        if mine and (expected.__array_interface__["data"][0] - array.__array_interface__["data"][0]) != got.data_ptr() - tensor.data_ptr():
            raise Differs("the views begin at different elements")
    _same_values(expected, got, "the values")
    return Outcome(scalar, None, expected.dtype, None if op.capped else expected.shape, expected.ndim)


def _same_values(expected: Any, got: torch.Tensor, what: str) -> None:
    ours = got.numpy()
    if expected.dtype.kind in "fc":
        limit = TOLERANCE.get(expected.dtype, 1e-9)
        with np.errstate(all="ignore"):
            same = np.allclose(ours, expected, rtol=limit, atol=limit, equal_nan=True)
    else:
        same = np.array_equal(ours, expected)
    if not same:
        raise Differs(f"{what} differ")
