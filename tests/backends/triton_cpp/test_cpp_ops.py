"""Every operation of the loop IR on every type where eager torch has it, and every cast."""

from __future__ import annotations

import pytest
import sympy
import torch

from dynamo_nb.backends.triton_cpp.ir import OPERATIONS, Const, DType, Expr, Kernel, Load, Op, Phase, Store

from .cpp_helpers import BINARY, EAGER, INEXACT, Built, buffer, buffers, same, symbol, values

N = 4003
I = symbol("i")  # noqa: E741


def pointwise(name: str, operands: list[DType], operation: str, result: DType) -> Kernel:
    reads = [f"x{k}" for k in range(len(operands))]
    args: tuple[Expr, ...] = tuple(Load(d, r, I) for r, d in zip(reads, operands, strict=True))
    made = buffers(*(buffer(r, (N,), d) for r, d in zip(reads, operands, strict=True)), buffer("y", (N,), result))
    loops = ((I, sympy.Integer(N)),)
    return Kernel(name, loops, (Phase((), (Store("y", loops, I, Op(result, operation, args)),)),), tuple(reads), ("y",), (), made)


def operands(name: str, dtype: DType) -> list[torch.Tensor]:
    a, b = values(dtype, N, 1), values(dtype, N, 2)
    if name in ("shl", "shr"):
        b = torch.randint(0, 70, (N,)).to(dtype.torch)
    if name == "pow" and dtype.is_int:
        b = torch.randint(0, 9, (N,)).to(dtype.torch)
    if name in ("floordiv", "truncdiv", "mod", "fmod") and dtype.is_int:
        b = torch.where((b == 0) | (b == -1), 3, b) if dtype is not DType.u8 else b.clamp(min=1)      # eager raises, or dies of -1
    if name in ("mod", "fmod") and dtype.is_float:
        b = torch.where((a.double() / b.double()).abs() > 1e30, 1.0, b)     # eager gives NaN where a / b overflows
    if name == "where":
        return [values(DType.b1, N, 3), a, b]
    return [a, b] if name in BINARY else [a]


def eager(name: str, args: list[torch.Tensor]) -> torch.Tensor | None:
    """None where torch has no such operation or gives another type."""
    if name == "erf" and args[0].dtype in (torch.float16, torch.bfloat16):      # eager's own approximation for half types is far off for small values
        return torch.erf(args[0].float()).to(args[0].dtype)
    try:
        out = EAGER[name](*args)
    except (RuntimeError, NotImplementedError):
        return None
    return out if out.dtype in (args[-1].dtype, torch.bool) else None


def test_table_is_complete() -> None:
    assert set(OPERATIONS) == set(EAGER) | {"cast"}


@pytest.mark.parametrize("dtype", DType)
def test_operations(dtype: DType) -> None:
    cases = [(name, args, expected) for name in EAGER for args in [operands(name, dtype)] if (expected := eager(name, args)) is not None]
    assert len(cases) > 10
    kernels = [pointwise(f"k_{n}", [DType.of(a.dtype) for a in args], n, DType.of(e.dtype)) for n, args, e in cases]  # type: ignore
    built = Built(kernels)
    wrong = []
    for name, args, expected in cases:
        got = torch.empty_like(expected)
        built(f"k_{name}", {**{f"x{k}": a for k, a in enumerate(args)}, "y": got}, cuts=(0.3, 0.31))
        units = (1 if dtype.itemsize == 2 else 4) if name in INEXACT else 0
        if name == "sqrt" and dtype.is_float:
            units = 1          # eager's is off by one at times
        if name == "lgamma":
            units = 400        # eager's own error, near its zeros, is that large
        if not same(got, expected, units):
            differs = (got != expected) & ~(got.isnan() & expected.isnan())
            k = int(differs.nonzero()[0]) if differs.any() else 0
            wrong.append((name, [a[k].item() for a in args], "got", got[k].item(), "eager", expected[k].item()))
    assert not wrong, "\n".join(map(str, wrong))


def numbers(dtype: DType) -> tuple[float, ...]:
    if dtype.is_float:
        return -1.0, -2.5
    return (True, False) if dtype is DType.b1 else (1, 2) if dtype is DType.u8 else (-1, -2)


@pytest.mark.parametrize("dtype", DType)
def test_constants_as_operands(dtype: DType) -> None:
    """Signs of numbers meet those of operations."""
    cases, loops = [], ((I, sympy.Integer(1)),)
    for name in EAGER:
        if name in ("pow", "shl", "shr") and dtype.is_int:
            continue
        consts = [Const(dtype, v) for v in (numbers(dtype) if name in (*BINARY, "where") else numbers(dtype)[:1])]
        consts = [Const(DType.b1, True), *consts] if name == "where" else consts
        expected = eager(name, [torch.tensor(c.value, dtype=c.dtype.torch) for c in consts])
        if expected is not None:
            value = Op(DType.of(expected.dtype), name, tuple(consts))  # type: ignore[arg-type]
            kernel = Kernel(f"k_{name}", loops, (Phase((), (Store("y", loops, I, value),)),), (), ("y",), (), buffers(buffer("y", (1,), value.dtype)))
            cases.append((kernel, expected))
    built = Built([kernel for kernel, _ in cases])
    for kernel, expected in cases:
        got = torch.empty(1, dtype=expected.dtype)
        built(kernel.name, {"y": got})
        assert same(got, expected.reshape(1), 4 if kernel.name[2:] in INEXACT else 0), kernel.name


def test_casts() -> None:
    pairs = [(a, b) for a in DType for b in DType]
    built = Built([pointwise(f"k_{a.value}_{b.value}", [a], "cast", b) for a, b in pairs])
    wrong = []
    for a, b in pairs:
        x = values(a, N, 5)
        expected = x.to(b.torch)
        got = torch.empty_like(expected)
        built(f"k_{a.value}_{b.value}", {"x0": x, "y": got})
        if a.is_float and b.is_int:         # what torch does beyond i32 depends on its own vectorisation
            inside = (x.double().abs() < 2.0 ** min(31, b.itemsize * 8 - 1)) & ((x >= 0) | (b is not DType.u8))
            expected, got = expected[inside], got[inside]
        if not same(got, expected):
            differs = (got != expected) & ~((got != got) & (expected != expected))
            wrong.append((a, b, x[differs][:3].tolist() if differs.shape == x.shape else "", got[differs][:3].tolist(), expected[differs][:3].tolist()))
    assert not wrong, "\n".join(map(str, wrong))
