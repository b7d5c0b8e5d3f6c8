"""Building kernels of the loop IR by hand, running them, and comparing with eager torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch

from dynamo_nb.backends.triton_cpp import ir
from dynamo_nb.backends.triton_cpp.triton_printer import Config

I0, I1, I2, I3, I4 = sympy.symbols("i0 i1 i2 i3 i4", integer=True)
S0, S1 = sympy.symbols("s0 s1", integer=True)
CPU = torch.device("cpu")
ONE_VALUE = sympy.Integer(0)
Loop = tuple[sympy.Symbol, Any]
Reference = Callable[..., torch.Tensor]


def loops(*pairs: Loop) -> ir.Loops:
    return tuple((v, sympy.sympify(n)) for v, n in pairs)


def buffer(name: str, dtype: ir.DType, sizes: Sequence[Any], strides: Sequence[Any] | None = None, kind: str = "input") -> ir.Buffer:
    whole = [sympy.sympify(n) for n in sizes]
    if strides is None:
        strides = [sympy.Mul(*whole[i + 1:]) for i in range(len(whole))]
    return ir.Buffer(name, dtype, tuple(whole), tuple(map(sympy.sympify, strides)), kind, CPU)


def load(name: str, dtype: ir.DType, offset: Any, *indirect: tuple[sympy.Symbol, ir.Expr]) -> ir.Load:
    return ir.Load(dtype, name, sympy.sympify(offset), indirect)


def const(value: Any, dtype: ir.DType) -> ir.Const:
    return ir.Const(dtype, value)


def index(expr: Any) -> ir.Index:
    return ir.Index(ir.DType.i64, sympy.sympify(expr))


BOOLEAN = ("isnan", "isinf", "signbit", "lt", "le", "gt", "ge", "eq", "ne")


def op(name: str, *operands: ir.Expr) -> ir.Op:
    return ir.Op(ir.DType.b1 if name in BOOLEAN else operands[-1].dtype, name, operands)


def cast(value: ir.Expr, dtype: ir.DType) -> ir.Op:
    return ir.Op(dtype, "cast", (value,))


def select(cond: ir.Expr, yes: ir.Expr, no: ir.Expr) -> ir.Select:
    return ir.Select(yes.dtype, cond, yes, no)


def kernel(name: str, outer: ir.Loops, phases: Sequence[ir.Phase], buffers: Sequence[ir.Buffer], writes: Sequence[str], sizes: Sequence[Any] = ()) -> ir.Kernel:
    local = tuple(b.name for b in buffers if b.kind == "local")
    reads = tuple(b.name for b in buffers if b.name not in writes and b.kind != "local")
    return ir.Kernel(name, outer, tuple(phases), reads, tuple(writes), tuple(sizes), {b.name: b for b in buffers}, local)


@dataclasses.dataclass
class Case:
    """A kernel, its tensors (reads, then writes), and what eager torch leaves in the written ones."""

    kernel: ir.Kernel
    tensors: list[torch.Tensor]
    expected: list[torch.Tensor]
    sizes: tuple[int, ...] = ()
    configs: tuple[Config, ...] = (Config(64, 1),)
    tolerance: float = 0.0
    level: float = 0.0                # results below it are as far off as it (cancellation)


def run(case: Case, launch: Any) -> list[torch.Tensor]:
    """launch: a Config, or a launcher of the case's kernel."""
    from dynamo_nb.backends.triton_cpp.triton_launch import Launcher

    if isinstance(launch, Config):
        launch = Launcher(case.kernel, launch)
    tensors = list(case.tensors)
    count = len(case.kernel.reads)
    # Written tensors may be read too, so each run gets its own; guards around them show stores out of bounds.
    guarded = [_guarded(t) for t in tensors[count:]]
    launch([*tensors[:count], *(inside for _, inside in guarded)], case.sizes)
    for whole, inside in guarded:
        start, end = inside.storage_offset(), inside.storage_offset() + _extent(inside)
        assert bool((whole[:start] == 1).all()) and bool((whole[end:] == 1).all()), "stored out of bounds"
    return [inside for _, inside in guarded]


def _extent(t: torch.Tensor) -> int:
    return 0 if t.numel() == 0 else 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))


def _guarded(t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    whole = torch.ones(_extent(t) + 128, dtype=t.dtype)
    inside = whole.as_strided(t.shape, t.stride(), 64)
    inside.copy_(t)
    return whole, inside


def check(case: Case, launcher: Any = None) -> None:
    for config in case.configs if launcher is None else (launcher,):
        for got, want in zip(run(case, config), case.expected, strict=True):
            compare(got, want, case.tolerance, f"{case.kernel}\n{config}", case.level)


def compare(got: torch.Tensor, want: torch.Tensor, tolerance: float, what: str, level: float = 0.0) -> None:
    """Equal, NaN with NaN; tolerance: relative, in units of the type's precision."""
    assert got.dtype is want.dtype and got.shape == want.shape, what
    if not want.dtype.is_floating_point:
        bad = got != want
    else:
        near = tolerance * torch.finfo(want.dtype).eps * want.double().abs().clamp(min=max(level, torch.finfo(want.dtype).tiny))
        same = (got == want) | (got.isnan() & want.isnan()) | ((got.double() - want.double()).abs() <= near)
        bad = ~same
    assert not bool(bad.any()), f"{what}\ngot  {got[bad][:5]}\nwant {want[bad][:5]} at {bad.nonzero()[:5].tolist()}"
