# mypy: ignore-errors
"""Arithmetic that is exact in eager is so in generated code, bit for bit: how scalars meet half types, and signed zeros."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import dynamo_nb

SAME_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32}


def same_bits(want, got):
    """NaN counts as equal to NaN, 0.0 not to -0.0."""
    assert want.dtype is got.dtype and want.shape == got.shape
    if want.is_floating_point():
        assert torch.equal(want.isnan(), got.isnan())
        want, got = want.nan_to_num(7.0), got.nan_to_num(7.0)
    assert torch.equal(want.contiguous().view(SAME_SIZE[want.element_size()]), got.contiguous().view(SAME_SIZE[got.element_size()]))


def check(fn, *args):
    for number, (want, got) in enumerate(zip(fn(*args), dynamo_nb.compile(fn, backend="triton_cpp", fullgraph=True)(*args), strict=True)):
        try:
            same_bits(want, got)
        except AssertionError as err:
            raise AssertionError(f"result {number}") from err


def by_numbers(h, k):
    return (
        h > 0.1, h == 0.1, h < 0.3, h >= 0.7, h != 2.7, h * 0.1, h + 0.1, h - 0.3, h / 0.7, 0.1 - h, 1 / h, h // 0.3, h % 0.3, torch.fmod(h, 0.3), h**2, h**3,
        h**-1, h**-2, h.clamp(0.1, 0.7), torch.where(h > 0.2, h, 0.1), h.masked_fill(h < 0, 0.1), torch.full_like(h, 0.1), torch.add(h, k, alpha=0.3),
        F.hardtanh(h, -0.3, 0.7), F.leaky_relu(h, 0.1), F.threshold(h, 0.3, 0.1), (h * 0.1).to(torch.int8), h.int() * 0.1 + h, torch.copysign(h, -0.1),
    )


def by_tensors(h, k, f, d):
    """f, d: without dimensions; they don't take part in promotion."""
    return (
        h + f, h * f, h / f, h - f, f - h, f / h, f * h, h + d, h * d, h > f, h == d, torch.maximum(h, f), h.clamp(f, k), torch.where(h > k, h, f),
        h + k, h * k, h / k, h - k, torch.remainder(h, k), torch.fmod(h, k), h // k, torch.div(h, k, rounding_mode="trunc"), h.float() * h, h.double() > h,
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "f16"])
def test_scalars_and_half_types(dtype):
    torch.manual_seed(0)
    h, k = (torch.cat([torch.tensor([0.1, 0.3, 0.7, 1 / 3, 2.7]), torch.randn(300) * 3]).to(dtype) for _ in range(2))
    check(by_numbers, h, k)
    check(by_tensors, h, k, torch.tensor(0.37), torch.tensor(0.37, dtype=dtype))


def test_signed_zeros():
    """Two-tensor maximum and minimum are left out: eager's own vector and scalar forms choose different zeros."""
    x = torch.tensor([-0.0, 0.0, float("nan"), 1.0, -1.0, float("inf"), -float("inf"), 1e-40, -1e-40])
    y = torch.tensor([0.0, -0.0, 1.0, float("nan"), -0.0, 0.0, 1.0, -1e-40, 1e-40])
    check(lambda x, y: (
        x.relu(), x.clamp(0, 1), x.clamp(-1, 0.0), F.hardtanh(x, 0, 1), x.sign(), x.abs(), -x, x.round(), x + 0, x * 1, x - 0.0, 0 - x, torch.fmax(x, y),
        torch.fmin(x, y), x.trunc(), x.floor(), x.ceil(), x**2, x**3, F.leaky_relu(x), x * y, x + y, x - y, torch.copysign(x, y), x.signbit(),
    ), x, y)


def moves(x, y, k):
    changed = x.clone()
    changed[1:3] = y[:2]
    return (
        x.clone(), x.t().contiguous(), x.flip(0), x.roll(1, 1), x[k], x[:, k], x[k, k], x.index_select(1, k), F.embedding(k, x),
        torch.cat([x, y, x]), torch.stack([x, y]), torch.where(k > 2, x, y), torch.where(x == x, y, x), F.pad(x, (1, 1), value=2.5), x.repeat(2, 1),
        x.masked_fill(k > 2, 0.5), x.expand(2, 5, 5).reshape(10, 5), changed, x[::2, 1:].reshape(-1), torch.cat([x, y]).flip(0)[k], x.triu(),
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64], ids=str)
def test_what_is_moved_keeps_its_bits(dtype):
    """NaNs too, with signs, payloads and as signals. (Not of gather: eager's own gather of half types computes.)"""
    torch.manual_seed(0)
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    limits = torch.iinfo(whole)
    x, y = (torch.randint(limits.min, limits.max, (5, 5), dtype=whole) for _ in range(2))
    infinite = torch.tensor(float("inf"), dtype=dtype).view(whole)
    x[2], y[1] = infinite + torch.tensor([1, 2, 3, 4, 5]), limits.min + infinite + torch.tensor([0, 1, 2, 7, 9])
    args = x.view(dtype), y.view(dtype), torch.tensor([2, 0, 4, 3, 1])
    assert all(v.isnan().sum() >= 4 for v in args[:2])
    for number, (want, got) in enumerate(zip(moves(*args), dynamo_nb.compile(moves, fullgraph=True)(*args), strict=True)):
        assert torch.equal(want.view(whole), got.view(whole)), number
    mine = args[0].clone()
    dynamo_nb.compile(lambda x, y: x.copy_(y.flip(0)))(mine, args[1])
    assert torch.equal(mine.view(whole), y.flip(0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_a_sum_of_nothing_but_a_negative_zero_is_positive(dtype):
    for x in (torch.tensor(-0.0, dtype=dtype), torch.tensor([[-0.0]], dtype=dtype), torch.full((3, 1), -0.0, dtype=dtype)):
        def fn(x):
            return x.sum(), x.sum(-1), x.mean(-1, keepdim=True), x.amax(-1), x.prod(-1)

        for got, want in zip(dynamo_nb.compile(fn)(x), fn(x), strict=True):
            assert torch.equal(torch.signbit(got), torch.signbit(want)) and torch.equal(got, want)
