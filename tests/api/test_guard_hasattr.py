# mypy: ignore-errors
"""The outcome of hasattr() is guarded."""

import torch

import dynamo_nb

X = torch.ones(3)


class Box:
    def __init__(self, **values):
        self.__dict__.update(values)


def program(x, a):
    return x + hasattr(a, "n")


def test_hasattr_is_guarded() -> None:
    compiled = dynamo_nb.compile(program, backend="eager")
    assert compiled(X, Box(n=1))[0].item() == 2
    assert compiled(X, Box())[0].item() == 1
    assert compiled(X, Box(n=1))[0].item() == 2
