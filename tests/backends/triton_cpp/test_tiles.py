"""Kernels that read along another dimension than they write go tile by tile: any sizes, orders, types, number of threads."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dynamo_nb
from dynamo_nb.core import events


def forms(fn, *args, dynamic=False):
    """Results compared bit for bit; the sources of the kernels."""
    seen = []
    with events.listening(lambda kind, record: seen.append(record) if kind == "generated" else None), torch.no_grad():
        got, want = dynamo_nb.compile(fn, dynamic=dynamic)(*args), fn(*args)
    assert got.stride() == want.stride()
    torch.testing.assert_close(got, want, rtol=0, atol=0)
    return seen[0].source


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int8, torch.int64, torch.bool])
@pytest.mark.parametrize("shape", [(64, 64), (33, 70), (16, 1000), (1000, 17)])
def test_transposes(dtype, shape):
    torch.manual_seed(0)
    x = (torch.randn(shape) * 3).to(dtype)
    assert "tile0" in forms(lambda x: x.t().contiguous(), x)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3)))[1:])
def test_every_order_of_three_dimensions(order):
    torch.manual_seed(0)
    x, y = torch.randn(20, 33, 40), torch.randn([(20, 33, 40)[d] for d in order])
    forms(lambda x, y: x.permute(order) * 2 + y, x, y)


def test_several_reads_across_and_part_of_a_tensor():
    torch.manual_seed(0)
    a, b, c = torch.randn(70, 50), torch.randn(50, 140)[:, :70], torch.randn(200, 50)[100:170]
    assert "tile1" in forms(lambda a, b, c: b * a.t() + (b + c.t() - a.t()).abs(), a, b, c)


def test_a_read_on_one_side_of_a_choice_is_made_there_only():
    torch.manual_seed(0)
    a, b = torch.randn(40, 64), torch.randn(30, 64)
    forms(lambda a, b: torch.cat([a.t(), b.t()], 1).contiguous(), a, b)


@pytest.mark.parametrize("threads", [1, 2])
def test_symbolic_sizes_and_threads(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        compiled = dynamo_nb.compile(lambda x: x.t().contiguous() + 1, dynamic=True)
        for n, m in ((7, 900), (900, 7), (31, 33), (700, 801)):
            x = torch.randn(n, m)
            torch.testing.assert_close(compiled(x), x.t().contiguous() + 1, rtol=0, atol=0)
    finally:
        torch.set_num_threads(before)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 50), min_size=2, max_size=4), st.data())
def test_any_permutation(sizes, data):
    order = data.draw(st.permutations(range(len(sizes))))
    step = data.draw(st.sampled_from([1, 2]))
    torch.manual_seed(sum(sizes))
    x = torch.randn([n * step for n in sizes])[tuple(slice(None, None, step) for _ in sizes)]
    dynamo_nb.reset()
    forms(lambda x: torch.relu(x.permute(order).contiguous() - 0.5), x)
