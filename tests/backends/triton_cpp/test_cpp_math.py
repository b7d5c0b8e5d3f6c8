"""Accuracy of the f32 functions against f64, over a sample of all bit patterns."""

from __future__ import annotations

import ctypes
import math

import pytest
import torch

from dynamo_nb.backends.triton_cpp import cpp_build, cpp_math

TWO = ("pow", "atan2", "hypot")
ONE = [name[:-4] for name in cpp_math.F32 if name[:-4] not in (*TWO, "lgamma")]
BOUND = 2.5


@pytest.fixture(scope="module")
def library() -> cpp_build.Library:
    loop = "#pragma omp simd\nfor (i64 i = 0; i < n; i++)"
    text = "".join(f'extern "C" void {n}(const f32 *__restrict x, f32 *__restrict y, i64 n) {{\n{loop} y[i] = {n}_f32(x[i]);\n}}\n' for n in ONE)
    text += "".join(
        f'extern "C" void {n}(const f32 *__restrict x, const f32 *__restrict z, f32 *__restrict y, i64 n) {{\n{loop} y[i] = {n}_f32(x[i], z[i]);\n}}\n'
        for n in TWO
    )
    library = cpp_build.load(cpp_math.library(text) + text)
    assert library is not None
    return library


def sample() -> torch.Tensor:
    every = torch.arange(0, 2**32, 4099, dtype=torch.int64).to(torch.int32).view(torch.float32)
    special = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 1e-45, -1e-45, 3.4028235e38, 0.5, -0.5, 1.1754944e-38, 88.72284, -103.97])
    return torch.cat([every, special, torch.linspace(-20, 20, 100001), torch.linspace(-1.2, 1.2, 100001), torch.linspace(0.9, 1.1, 50001)])


def error(got: torch.Tensor, exact: torch.Tensor) -> float:
    """In units of the last place of f32; inf where one is not finite and the other differs."""
    rounded = exact.float()
    finite = rounded.isfinite() & got.isfinite()
    if not torch.equal(got[~finite].nan_to_num(nan=7.0), rounded[~finite].nan_to_num(nan=7.0)):
        return math.inf
    got, exact = got[finite].double(), exact[finite]
    unit = 2.0 ** (exact.abs().clamp(min=2.0**-126).log2().floor() - 23)
    return ((got - exact).abs() / unit).max().item()


@pytest.mark.parametrize("name", ONE)
def test_unary(library: cpp_build.Library, name: str) -> None:
    x = sample()
    y = torch.empty_like(x)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(library.address(name))(x.data_ptr(), y.data_ptr(), len(x))
    exact = getattr(torch, name)(x.double())
    if name == "sigmoid":      # as eager: exp(-x) overflows in f32 before its inverse underflows
        exact = torch.where(x < -88.722, torch.sigmoid(x).double(), exact)
    found = error(y, exact)
    print(f"{name}: {found:.2f} ULP")
    assert found <= BOUND
    zeros = (x == 0) & (exact == 0)
    assert torch.equal(y[zeros].signbit(), exact[zeros].signbit())


@pytest.mark.parametrize("name", TWO)
def test_binary(library: cpp_build.Library, name: str) -> None:
    g = torch.Generator().manual_seed(1)
    special = torch.tensor([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 0.5, -0.5, 2.0, 3.0, -3.0, 1e-45, 3e38, 16777217.0, 1.0000001])
    x, z = (t.flatten() for t in torch.meshgrid(special, special, indexing="ij"))
    bits = torch.randint(-(2**31), 2**31, (2, 200000), generator=g).to(torch.int32).view(torch.float32)
    near = torch.randn(2, 200000, generator=g) * 4
    x, z = torch.cat([x, bits[0], near[0], near[0].abs()]), torch.cat([z, bits[1], near[1], near[1] * 10])
    y = torch.empty_like(x)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(library.address(name))
    call(x.data_ptr(), z.data_ptr(), y.data_ptr(), len(x))
    found = error(y, getattr(torch, name)(x.double(), z.double()))
    print(f"{name}: {found:.2f} ULP")
    assert found <= BOUND
