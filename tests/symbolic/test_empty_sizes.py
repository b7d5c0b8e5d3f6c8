"""Sizes 0 and 1 under dynamic shapes: nothing is decided as if a size could not be them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import dynamo_nb


def above_zero(x: torch.Tensor) -> Any:
    return x + 1 if x.shape[0] > 0 else x - 1


def truth(x: torch.Tensor) -> Any:
    return x.new_ones(3) * x.shape[0] if x.shape[0] else x.new_zeros(3)


def least_and_most(x: torch.Tensor) -> Any:
    return x.new_ones(max(x.shape[0], 1)), min(x.storage_offset(), 1), max(x.storage_offset(), 1), max(x.stride(0), 1)


def mean(x: torch.Tensor) -> Any:
    return x.sum() / x.shape[0] if x.shape[0] != 0 else x.sum()


def arithmetic(x: torch.Tensor) -> Any:
    return torch.zeros(x.shape[0] + 1).sum() + x.shape[0] if x.shape[0] * 2 > 0 else torch.ones(2), x.numel() > 0, x.shape[0] // 2, (x.shape[0] + 1) % 2 == 1


def gradient(x: torch.Tensor) -> Any:
    x = x.detach().contiguous().requires_grad_()
    return torch.autograd.grad(torch.as_strided_copy(x, (1, 2), (1, 2), storage_offset=1).sum(), x) if x.numel() > 9 and x.storage_offset() == 0 else x.numel()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dynamic", (True, None, False))
@pytest.mark.parametrize("fn", (above_zero, truth, least_and_most, mean, arithmetic, gradient))
def test_as_eager(fn: Callable[[torch.Tensor], Any], dynamic: bool | None) -> None:
    for first in (0, 1, 2, 5):
        dynamo_nb.reset()
        compiled = dynamo_nb.compile(fn, dynamic=dynamic)
        for rows in (first, 0, 1, 4):
            for x in (torch.ones(rows, 3), torch.ones(1, 3).expand(rows, 3), torch.ones(rows + 1, 3)[1:]):
                want, got = fn(x), compiled(x)
                assert repr(got) == repr(want)
