"""Builds, runs and imitates kernels of the loop IR: `run` through the C++ printer, `imitate` with eager torch."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import sympy
import torch

from dynamo_nb.backends.triton_cpp import cpp_build
from dynamo_nb.backends.triton_cpp.cpp_printer import Unit, print_unit
from dynamo_nb.backends.triton_cpp.ir import Buffer, Const, DType, Expr, Index, Kernel, Load, Op, Reduce, Select, walk

CPU = torch.device("cpu")
ZERO = sympy.Integer(0)


def symbol(name: str) -> sympy.Symbol:
    return sympy.Symbol(name, integer=True, nonnegative=True)


def buffer(name: str, sizes: tuple[Any, ...], dtype: DType = DType.f32, kind: str = "input") -> Buffer:
    sizes = tuple(sympy.sympify(n) for n in sizes)
    strides = tuple(math.prod(sizes[k + 1 :], start=sympy.Integer(1)) for k in range(len(sizes)))
    return Buffer(name, dtype, sizes, strides, kind, CPU)


def buffers(*made: Buffer) -> dict[str, Buffer]:
    return {b.name: b for b in made}


def op(name: str, *operands: Expr, dtype: DType | None = None) -> Op:
    bools = ("lt", "le", "gt", "ge", "eq", "ne", "isnan", "isinf", "signbit")
    return Op(dtype or (DType.b1 if name in bools else operands[-1].dtype), name, operands)


class Built:
    """Kernels compiled together."""

    def __init__(self, kernels: list[Kernel]) -> None:
        self.kernels = {k.name: k for k in kernels}
        self.unit: Unit = print_unit(kernels)
        library = cpp_build.load(self.unit.source)
        assert library is not None
        self.library = library

    def __call__(self, name: str, tensors: dict[str, torch.Tensor], sizes: tuple[int, ...] = (), cuts: tuple[float, ...] = ()) -> None:
        """cuts: fractions of the range at which it is cut into runs; they're run last to first."""
        kernel = self.kernels[name]
        count = int(self.unit.kernels[name].count.subs(dict(zip(kernel.sizes, sizes, strict=True))))
        pointers = [tensors[b].data_ptr() for b in (*kernel.reads, *kernel.writes)]
        p = (ctypes.c_void_p * (len(pointers) + 1))(*pointers)
        s = (ctypes.c_int64 * (len(sizes) + 1))(*sizes)
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(self.library.address(name))
        ends = [0, *sorted(int(c * count) for c in cuts), count]
        for begin, end in reversed(list(zip(ends, ends[1:], strict=False))):
            function(ctypes.addressof(p), ctypes.addressof(s), begin, end)


# -- values -------------------------------------------------------------------------------------------------
def values(dtype: DType, n: int, seed: int = 0) -> torch.Tensor:
    """n values of that type: specials first, then random ones of all magnitudes."""
    g = torch.Generator().manual_seed(seed)
    special: list[float]
    if dtype is DType.b1:
        return torch.randint(0, 2, (n,), generator=g).bool()
    if dtype.is_int:
        info = torch.iinfo(dtype.torch)
        special = [0, 1, info.max, info.min, 2, 3, 7, info.max - 1, info.min + 1, 100]
        small = torch.randint(max(info.min, -20), 20, (n,), generator=g).to(dtype.torch)
        large = torch.randint(info.min, info.max, (n,), generator=g, dtype=torch.int64).to(dtype.torch)
        out = torch.where(torch.rand(n, generator=g) < 0.5, small, large)
    else:
        finfo = torch.finfo(dtype.torch)
        special = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 0.5, -0.5, 2.5, 3.5, -1.5, finfo.max, finfo.min, finfo.tiny, finfo.tiny / 4, 1e-3]
        near = torch.randn(n, generator=g, dtype=torch.float64)
        wide = near * 10.0 ** torch.randint(-8, 8, (n,), generator=g)
        out = torch.where(torch.rand(n, generator=g) < 0.7, near, wide).to(dtype.torch)
    k = min(n, len(special))
    out[:k] = torch.tensor(special[:k], dtype=torch.float64 if dtype.is_float else torch.int64).to(dtype.torch)
    return out[torch.randperm(n, generator=g)]


def ulps(a: torch.Tensor, b: torch.Tensor) -> int:
    """The most units in the last place between corresponding floats; NaN equals NaN, -0 equals 0."""
    kind = {8: torch.int64, 4: torch.int32, 2: torch.int16}[a.dtype.itemsize]

    def rank(x: torch.Tensor) -> torch.Tensor:
        bits = x.contiguous().view(kind)
        return torch.where(bits < 0, torch.iinfo(kind).min - bits, bits).to(torch.int64)

    left, right = rank(a), rank(b)
    apart = (left < 0) != (right < 0)        # the difference of two f64 ranks may not fit
    different = torch.where(apart, left.double().abs() + right.double().abs(), (left - right).abs().double())
    different[(a == b) | (a.isnan() & b.isnan())] = 0
    different[a.isnan() != b.isnan()] = math.inf
    return 0 if not different.numel() else int(min(different.max().item(), 2**62))


def same(a: torch.Tensor, b: torch.Tensor, units: int = 0) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return ulps(a, b) <= units if a.dtype.is_floating_point else torch.equal(a, b)


# -- operations as eager torch has them ------------------------------------------------------------------------
def _division(mode: str) -> Callable[..., torch.Tensor]:
    return lambda a, b: torch.div(a, b, rounding_mode=mode)


EAGER: dict[str, Callable[..., torch.Tensor]] = {
    name: getattr(torch, name)
    for name in (
        "add sub mul div abs fmod pow fmin fmax sign copysign hypot atan2 exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan "
        "sinh cosh tanh asinh acosh atanh erf erfc lgamma sigmoid floor ceil round trunc isnan isinf signbit lt le gt ge eq ne neg where"
    ).split()
}
EAGER |= {
    "floordiv": _division("floor"), "truncdiv": _division("trunc"), "mod": torch.remainder, "min": torch.minimum, "max": torch.maximum,
    "and": torch.bitwise_and, "or": torch.bitwise_or, "xor": torch.bitwise_xor, "not": torch.bitwise_not,
    "shl": torch.bitwise_left_shift, "shr": torch.bitwise_right_shift,
}
INEXACT = frozenset(
    "pow hypot atan2 exp exp2 expm1 log log2 log10 log1p rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc lgamma sigmoid".split()
)
BINARY = frozenset("add sub mul div floordiv truncdiv mod fmod pow min max fmin fmax copysign hypot atan2 lt le gt ge eq ne and or xor shl shr".split())


def at(expr: sympy.Expr, points: dict[sympy.Symbol, torch.Tensor]) -> torch.Tensor:
    """An index expression at all points."""
    if isinstance(expr, sympy.Symbol):
        return points[expr]
    if isinstance(expr, sympy.Integer):
        return torch.tensor(int(expr))
    args = [at(a, points) for a in expr.args]
    if isinstance(expr, sympy.Add):
        return sum(args[1:], args[0])
    if isinstance(expr, sympy.Mul):
        return math.prod(args[1:], start=args[0])
    kind = type(expr).__name__
    if kind == "FloorDiv":
        return args[0] // args[1]
    assert kind == "Mod", expr
    return args[0] % args[1]


def imitate(root: Expr, tensors: dict[str, torch.Tensor], points: dict[sympy.Symbol, torch.Tensor]) -> torch.Tensor:
    """The value at all points, by eager operations; loads out of bounds give garbage."""
    done: dict[int, torch.Tensor] = {}
    shape = torch.broadcast_shapes(*(p.shape for p in points.values()))
    for e in walk(root):
        args = [done[id(a)] for a in e.args]
        if isinstance(e, Const):
            value = torch.tensor(e.value, dtype=e.dtype.torch)
        elif isinstance(e, Index):
            value = at(e.expr, points)
        elif isinstance(e, Load):
            where = at(e.offset, points | {s: v for (s, _), v in zip(e.indirect, args, strict=True)})
            value = tensors[e.buffer].flatten()[where.clamp(0, tensors[e.buffer].numel() - 1)]
        elif isinstance(e, Select):
            value = torch.where(args[0], args[1], args[2])
        else:
            assert isinstance(e, Op)
            value = args[0].to(e.dtype.torch) if e.name == "cast" else EAGER[e.name](*args)
        assert value.dtype == e.dtype.torch, e
        done[id(e)] = value.expand(shape)
    return done[id(root)]


def fold(reduce: Reduce, dtype: DType, value: torch.Tensor) -> torch.Tensor:
    """value: inner points last, flattened."""
    kind = reduce.kind
    if kind in ("sum", "prod"):
        return getattr(torch, kind)(value, -1, dtype=dtype.torch)
    if kind in ("argmax", "argmin"):
        return getattr(value.int() if value.dtype == torch.bool else value, kind)(-1)
    if kind in ("any", "all"):
        value = value.bool()
    return getattr(torch, {"max": "amax", "min": "amin"}.get(kind, kind))(value, -1)
