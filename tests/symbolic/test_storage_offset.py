"""Where a tensor begins in its memory: nothing else guards it, so what reads it must."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import dynamo_nb

Fn = Callable[[torch.Tensor], Any]
FUNCTIONS: list[Fn] = [
    lambda x: x.storage_offset() + x,
    lambda x: x[1:].storage_offset() + x,
    lambda x: (x + 1).storage_offset() + x,
    lambda x: x.as_strided((2,), (1,), 3) * 2,
    lambda x: x.as_strided((2,), (1,)) + 1,
    lambda x: torch.as_strided_copy(x, (2,), (1,), 3),
    lambda x: (x.as_strided((2,), (1,), 3).mul_(5), x + 1)[1],
    lambda x: x.untyped_storage().nbytes() + x,
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ("eager", "triton_cpp"))
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_as_eager(fn: Fn, backend: str) -> None:
    compiled = dynamo_nb.compile(fn, backend=backend)
    for offset in (0, 2, 4, 2):
        mine, theirs = torch.arange(12.0), torch.arange(12.0)
        want, got = fn(theirs[offset:offset + 4]), compiled(mine[offset:offset + 4])
        assert torch.equal(got, want) and torch.equal(mine, theirs)
