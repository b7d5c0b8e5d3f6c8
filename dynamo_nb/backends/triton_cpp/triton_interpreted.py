"""libdevice under Triton's interpreter: interpreter tensors in and out, computed on their NumPy arrays.

Functions NumPy has not (erf, lgamma, …) come from eager torch, which takes NumPy memory as it is.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime.interpreter import TensorHandle


def _wrapped(data: Any, dtype: tl.dtype) -> tl.tensor:
    array = np.asarray(data)
    return tl.tensor(TensorHandle(array, dtype), tl.block_type(dtype, list(array.shape)) if array.shape else dtype)


def _function(compute: Callable[..., torch.Tensor]) -> Callable[..., tl.tensor]:
    def call(*operands: tl.tensor) -> tl.tensor:
        arrays = np.broadcast_arrays(*(o.handle.data for o in operands))
        result = compute(*(torch.from_numpy(np.array(a)) for a in arrays))
        return _wrapped(result.numpy(), operands[0].dtype)

    return call


exp, exp2, expm1 = _function(torch.exp), _function(torch.exp2), _function(torch.expm1)
log, log2, log10, log1p = _function(torch.log), _function(torch.log2), _function(torch.log10), _function(torch.log1p)
sqrt, rsqrt = _function(torch.sqrt), _function(torch.rsqrt)
sin, cos, tan = _function(torch.sin), _function(torch.cos), _function(torch.tan)
asin, acos, atan = _function(torch.asin), _function(torch.acos), _function(torch.atan)
sinh, cosh, tanh = _function(torch.sinh), _function(torch.cosh), _function(torch.tanh)
asinh, acosh, atanh = _function(torch.asinh), _function(torch.acosh), _function(torch.atanh)
erf, erfc, lgamma = _function(torch.erf), _function(torch.erfc), _function(torch.lgamma)
floor, ceil, rint, trunc = _function(torch.floor), _function(torch.ceil), _function(torch.round), _function(torch.trunc)
pow, copysign = _function(torch.pow), _function(torch.copysign)
hypot, atan2 = _function(torch.hypot), _function(torch.atan2)


def fmod(a: tl.tensor, b: tl.tensor) -> tl.tensor:
    """NumPy's: torch's vectorised form gives NaN for subnormal divisors."""
    return _wrapped(np.fmod(a.handle.data, b.handle.data), a.dtype)


def round_bf16(a: tl.tensor) -> tl.tensor:
    """f32 rounded to the nearest bf16, ties to even, still f32."""
    return _wrapped(torch.from_numpy(np.array(a.handle.data)).bfloat16().float().numpy(), tl.float32)


def widen_bf16(a: tl.tensor) -> tl.tensor:
    """bf16 (the interpreter keeps its bits in uint16) as f32."""
    return _wrapped((a.handle.data.astype(np.uint32) << np.uint32(16)).view(np.float32), tl.float32)


def narrow_bf16(a: tl.tensor) -> tl.tensor:
    """f32 that is a bf16 already, as such."""
    return _wrapped((np.ascontiguousarray(a.handle.data).view(np.uint32) >> np.uint32(16)).astype(np.uint16), tl.bfloat16)


def check(place: tl.tensor, size: tl.tensor, mask: tl.tensor, kind: str, text: str, wraps: bool) -> None:
    """Raises what eager does where a place isn't in [0, size)."""
    places, sizes, asked = np.broadcast_arrays(place.handle.data, size.handle.data, mask.handle.data)
    bad = asked & ~((places >= 0) & (places < sizes))
    if bad.any():
        at, limit = int(places[bad][0]), int(sizes[bad][0])
        raise getattr(builtins, kind)(text.format(index=at - limit if wraps and at < 0 else at, size=limit))
