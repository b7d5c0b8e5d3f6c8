"""Functions that delete parameters and break more than once: resume code of resume code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import dynamo_nb
from tests.differ import differ


def first(flat: list[torch.Tensor], b: torch.Tensor) -> torch.Tensor:
    a = flat[0] + 1
    del flat
    dynamo_nb.graph_break()
    c = a + b
    dynamo_nb.graph_break()
    return c * b


def first_between(flat: list[torch.Tensor], b: torch.Tensor) -> torch.Tensor:
    a = flat[0] + 1
    dynamo_nb.graph_break()
    del flat
    c = a + b
    dynamo_nb.graph_break()
    return c * b


def of_an_inlined_function(flat: list[torch.Tensor], b: torch.Tensor) -> torch.Tensor:
    return first(flat, b) + first_between(flat, b)


def first_and_a_cell(flat: list[torch.Tensor], b: torch.Tensor) -> Any:
    a = flat[0] + 1

    def read() -> Any:
        return flat  # noqa: F821 (deleted below, which is the point)

    del flat
    dynamo_nb.graph_break()
    c = a + b
    dynamo_nb.graph_break()
    try:
        return read()
    except NameError:
        return c * b


def all_of_them(*flat: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    a = flat[0] + 1
    del flat
    dynamo_nb.graph_break()
    b = a + key
    del key
    dynamo_nb.graph_break()
    return a * 2 + b


class Holder:
    def method(self, flat: list[torch.Tensor], b: torch.Tensor) -> torch.Tensor:
        del self
        return first(flat, b)


@pytest.mark.parametrize("fn", (first, first_between, of_an_inlined_function, first_and_a_cell, Holder().method))
def test_as_eager(fn: Callable[..., Any]) -> None:
    differ(fn, lambda: ([torch.ones(2)], torch.arange(2.0)))


def test_keywords() -> None:
    assert torch.equal(dynamo_nb.compile(all_of_them)(torch.ones(2), key=torch.arange(2.0)), all_of_them(torch.ones(2), key=torch.arange(2.0)))


def test_a_backward_of_torch_is_not_compiled() -> None:
    """autograd.grad beneath a compiled call runs what AOTAutograd generated, which is nobody's program."""

    def fn(x: torch.Tensor) -> Any:
        x = x.detach().requires_grad_()
        return torch.autograd.grad((torch.sin(x) * x).sum(), x)

    x = torch.arange(3.0)
    torch.testing.assert_close(dynamo_nb.compile(fn)(x), fn(x))
