"""Folds of a large tensor into one number are made in parts, for several threads: of any shape, layout and type, on any number of threads."""

from __future__ import annotations

import pytest
import torch

import dynamo_nb

SHAPES = [(1024, 700), (1 << 18,), (300_007,), (4, 1 << 17), (1 << 17, 4), (64, 32, 64, 2), (1, 1 << 19)]


def exact(x):
    return (x > 1).any(), (x > 100).any(), (x < 50).all(), x.amax(), x.amin(dim=tuple(range(x.dim())), keepdim=True), x.to(torch.int64).sum()


def sums(x):
    return x.sum(), (x * x).mean(dim=tuple(range(x.dim())), keepdim=True) + 1, x.var()


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_any_shape(shape, threads):
    torch.manual_seed(0)
    x = torch.randn(shape) * 3
    fold, add = dynamo_nb.compile(exact), dynamo_nb.compile(sums)
    for y in (x, x.flip(0), x.t() if x.dim() == 2 else x[..., ::2]):
        for a, b in zip(exact(y), fold(y), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=0)
        for a, b, true in zip(sums(y), add(y), sums(y.double()), strict=True):
            assert a.shape == b.shape
            room = 4 * (a - true).abs() + 1e-7 * y.abs().double().mean() + 1e-9 * y.abs().double().sum()
            assert (b - true).abs().item() <= room.item()


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.uint8, torch.bfloat16, torch.float64])
def test_any_type(dtype):
    torch.manual_seed(0)
    x = (torch.randn(1024, 700) * 3).to(dtype)
    compiled = dynamo_nb.compile(lambda x: (x.sum(), x.any(), x.all()))
    for a, b in zip((x.sum(), x.any(), x.all()), compiled(x), strict=True):
        torch.testing.assert_close(a, b, rtol=2e-2 if dtype is torch.bfloat16 else 1e-12, atol=0)


def test_nan_and_infinity_reach_the_result():
    for special in (float("nan"), float("inf"), -float("inf")):
        x = torch.zeros(1 << 18)
        x[77_777] = special
        compiled = dynamo_nb.compile(lambda x: (x.sum(), x.amax(), x.amin(), x.prod()))
        torch.testing.assert_close(compiled(x), (x.sum(), x.amax(), x.amin(), x.prod()), equal_nan=True)
