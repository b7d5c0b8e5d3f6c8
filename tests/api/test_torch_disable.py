# mypy: ignore-errors
"""torch.compiler.disable means the same to us: the function runs eagerly."""

import torch

from tests.differ import differ


@torch.compiler.disable
def off(x):
    return x + (100 if torch.compiler.is_compiling() else 1)


def program(x):
    return off(x * 2) * 3


def test_torchs_own_disable_means_the_same() -> None:
    differ(program, (torch.ones(3),), graphs=2)
