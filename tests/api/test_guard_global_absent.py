# mypy: ignore-errors
"""A global that is absent while tracing and present later."""

import torch

from tests.api.test_recompiles import counted

X = torch.ones(3)


def test_a_global_deleted_later() -> None:
    f, space, _ = counted("def f(x):\n    try:\n        return x + NAME\n    except NameError:\n        return x - 1\n", NAME=1)
    assert f(X)[0].item() == 2
    del space["NAME"]
    assert f(X)[0].item() == 0
    space["NAME"] = 5
    assert f(X)[0].item() == 6
