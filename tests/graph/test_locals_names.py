# mypy: ignore-errors
"""locals() after a break names every bound local."""

import torch

from tests.differ import differ


def program(x):
    scope = {"k": 3}
    exec("k = k + 1", scope)
    return x + scope["k"], sorted(locals())


def test_locals_after_a_break() -> None:
    differ(program, (torch.ones(2),))
