# mypy: ignore-errors
"""A class attribute written in the trace shows through instances."""

import torch

from tests.differ import differ


class Box:
    kind = "class"


def reset_class():
    Box.kind = "class"
    return Box


def program(x):
    Box.kind = "changed"
    return x + 1, Box().kind


def test_class_attribute_through_an_instance() -> None:
    differ(program, (torch.ones(2),), state=reset_class)
