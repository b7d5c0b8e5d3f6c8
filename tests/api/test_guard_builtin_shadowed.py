# mypy: ignore-errors
"""A global that hides a builtin later on."""

import torch

from tests.api.test_recompiles import counted

X = torch.ones(3)


def test_a_builtin_shadowed_later() -> None:
    f, space, count = counted("def f(x):\n    return x + len('ab')\n")
    assert f(X)[0].item() == 3
    space["len"] = lambda s: 10
    assert f(X)[0].item() == 11
    del space["len"]
    assert f(X)[0].item() == 3 and count.frame_count == 2
