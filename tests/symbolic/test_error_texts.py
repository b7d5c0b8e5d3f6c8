# mypy: ignore-errors
"""Errors of builtins called with wrong arguments carry eager's text."""

import torch

from tests.differ import differ


def program(x):
    try:
        [].sort(3)
    except TypeError as err:
        return x + 1, str(err)


def test_text_of_a_wrong_call() -> None:
    differ(program, (torch.ones(2),))
