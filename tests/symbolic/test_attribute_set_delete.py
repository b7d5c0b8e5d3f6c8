# mypy: ignore-errors
"""An attribute set and deleted again is gone from the instance; the class attribute shows."""

import torch

from tests.differ import differ


class Box:
    kind = "class"


def make():
    box = Box()
    box.kind = "own"
    return torch.ones(2), box


def program(x, box):
    box.kind = "instance"
    del box.kind
    return x + 1, box.kind


def test_deleting_uncovers_the_class_attribute() -> None:
    differ(program, make)
