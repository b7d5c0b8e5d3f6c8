# mypy: ignore-errors
"""A traceback through an ExitStack keeps the inlined callee's frame."""

import contextlib

import torch

from tests.differ import differ


def callee(x, log):
    log.append("before")
    y = x * 2
    if y.dim() == 1:
        raise ValueError(f"shape {tuple(y.shape)}")
    return y


def program(x, log):
    with contextlib.ExitStack() as stack:
        stack.callback(log.append, "unwound")
        return callee(x, log)


def test_the_callee_is_in_the_traceback() -> None:
    differ(program, (torch.ones(3), []))
