# mypy: ignore-errors
"""A starred argument that comes out of a break."""

import torch

from tests.differ import differ


def give(v):
    print("give")
    return v


def take(x, *rest):
    return x + 1, rest


def program(x):
    return take(x, *give([2]))


def test_starred_argument_from_a_break() -> None:
    differ(program, (torch.ones(2),))
