"""Device functions that printed kernels call: registers in, registers out. Importing this imports Triton.

`device` and `libdevice` are what kernel files import. Compiled, they are this module and Triton's libdevice; under TRITON_INTERPRET
the plain functions and a NumPy libdevice (Triton's own returns None there, and its bf16 conversions lose rounding and subnormals).
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

import triton
import triton.language as tl

INTERPRETED = bool(triton.knobs.runtime.interpret)

libdevice: Any = importlib.import_module("dynamo_nb.backends.triton_cpp.triton_interpreted" if INTERPRETED else "triton.language.extra.libdevice")


@triton.jit
def index_floordiv(a, b):
    q = a // b
    return tl.where((q * b != a) & ((a < 0) != (b < 0)), q - 1, q)


@triton.jit
def index_mod(a, b):
    m = a % b
    return tl.where((m != 0) & ((m < 0) != (b < 0)), m + b, m)


@triton.jit
def divide(a, b):
    """Rounded to nearest; Triton's `/` is so for f64 only."""
    if a.dtype == tl.float64:
        quotient = a / b
    else:
        quotient = tl.div_rn(a, b)
    return quotient


@triton.jit
def remainder(a, b):
    m = libdevice.fmod(a, b)
    return tl.where((m != 0) & ((m < 0) != (b < 0)), m + b, m)


@triton.jit
def floordiv(a, b):
    m = libdevice.fmod(a, b)
    quotient = divide(a - m, b)
    quotient = tl.where((m != 0) & ((m < 0) != (b < 0)), quotient - 1, quotient)
    whole = libdevice.floor(quotient)
    whole = tl.where(quotient - whole > 0.5, whole + 1, whole)
    plain = divide(a, b)
    whole = tl.where(quotient != 0, whole, libdevice.copysign(whole * 0, plain))
    return tl.where(b == 0, plain, whole)


@triton.jit
def sigmoid(a):
    below = libdevice.exp(-a) + 1.0
    return divide(tl.full(below.shape, 1.0, below.dtype), below)


@triton.jit
def integer_power(a, b):
    power, square, left = a * 0 + b * 0 + 1, a + b * 0, b + a * 0
    for _ in range(0, 64):
        power = tl.where((left & 1) != 0, power * square, power)
        square = square * square
        left = left >> 1
    return power


@triton.jit
def shift_left(a, b, bits: tl.constexpr):
    inside = (b >= 0) & (b < bits)
    return tl.where(inside, a << tl.where(inside, b, b * 0), a * 0)


@triton.jit
def shift_right(a, b, most: tl.constexpr):
    inside = (b >= 0) & (b < most)
    amount = tl.where(inside, b, b * 0)
    far = a >> (most - 1)       # two steps: an amount of all bits has no defined shift
    return tl.where(inside, a >> amount, far >> 1)


@triton.jit
def round_bf16(a):
    return a.to(tl.bfloat16).to(tl.float32)


@triton.jit
def widen_bf16(a):
    return a.to(tl.float32)


@triton.jit
def narrow_bf16(a):
    return a.to(tl.bfloat16)


@triton.jit
def check(place, size, mask, kind: tl.constexpr, text: tl.constexpr, wraps: tl.constexpr):
    """Stops the device where a place isn't in [0, size), as eager's own kernels do."""
    tl.device_assert((place >= 0) & (place < size), text, mask)


# -- folds: two partial results in, one out -----------------------------------------------------------
@triton.jit
def multiply(a, b):
    return a * b


@triton.jit
def larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def smaller(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def first_largest(a, i, b, j):
    """Of two (value, position) pairs the larger, a NaN above all, the first of equals."""
    same = (a == b) | ((a != a) & (b != b))
    takes_a = (a > b) | ((a != a) & (b == b)) | (same & (i < j))
    return tl.where(takes_a, a, b), tl.where(takes_a, i, j)


@triton.jit
def first_smallest(a, i, b, j):
    same = (a == b) | ((a != a) & (b != b))
    takes_a = (a < b) | ((a != a) & (b == b)) | (same & (i < j))
    return tl.where(takes_a, a, b), tl.where(takes_a, i, j)


# Kernels hand these to tl.reduce, which looks for the function inside what it gets; everything else is called.
fold_multiply, fold_larger, fold_smaller, fold_first_largest, fold_first_smallest = multiply, larger, smaller, first_largest, first_smallest


def _plain_functions() -> types.SimpleNamespace:
    functions: dict[str, Any] = {name: f if name.startswith("fold_") else f.fn for name, f in globals().items() if hasattr(f, "fn")}
    globals()["divide"] = divide.fn     # what other functions here call
    functions |= {name: getattr(libdevice, name) for name in ("round_bf16", "widen_bf16", "narrow_bf16", "check")}
    return types.SimpleNamespace(**functions)


device: Any = _plain_functions() if INTERPRETED else sys.modules[__name__]
