# mypy: ignore-errors
"""Lowerings by their meaning (reference.py, no compiler) and whole graphs through the backend, against eager."""

from __future__ import annotations

import logging

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx

import dynamo_nb
from dynamo_nb.backends.aot import decompositions
from dynamo_nb.backends.triton_cpp import backend
from dynamo_nb.backends.triton_cpp.graph import LOWERINGS
from dynamo_nb.core import events

from .reference import run_graph

X = torch.linspace(-2, 3, 32).reshape(4, 8)


def check(fn, *args, aten=()):
    """The lowered graph gives what eager gives; only operators named in `aten` are called."""
    with torch.no_grad():
        gm = make_fx(torch.func.functionalize(fn), decomposition_table=decompositions(), tracing_mode="fake")(*args)
        left = {n.target._schema.name for n in gm.graph.nodes if isinstance(n.target, torch._ops.OpOverload) and n.target not in LOWERINGS}
        assert left <= set(aten)
        for got, want in zip(run_graph(gm, list(args)), fn(*args), strict=True):
            torch.testing.assert_close(got, want, rtol=2e-5, atol=2e-5, equal_nan=True, check_stride=True)


def compiled(fn, *args, **options):
    """The backend's results and changed arguments are eager's; returns what became of the graphs."""
    mine, theirs, seen = [a.clone() for a in args], [a.clone() for a in args], []
    with events.listening(lambda kind, what: seen.append(what) if kind == "generated" else None):
        got = dynamo_nb.compile(fn, backend="triton_cpp", fullgraph=True, **options)(*mine)
    for g, w in zip((*got, *mine), (*fn(*theirs), *theirs), strict=True):
        torch.testing.assert_close(g, w, rtol=2e-5, atol=2e-5, equal_nan=True, check_stride=True)
    return seen


# -- operators -----------------------------------------------------------------------------------------
INTS = st.integers(-(2**63), 2**63 - 1)


@settings(max_examples=6, deadline=None)
@given(st.lists(st.tuples(INTS, st.integers(-3, 70) | INTS), min_size=1, max_size=6), st.sampled_from([torch.int64, torch.int32, torch.int8, torch.uint8]))
def test_shifts(pairs, dtype):
    a, b = (torch.tensor(v).to(dtype) for v in zip(*pairs, strict=True))
    check(lambda a, b: (a << b, a >> b, a << 3, a >> 70, 3 << b, 5 >> b, torch.bitwise_or(3, a), torch.bitwise_xor(3, b)), a, b)


@settings(max_examples=8, deadline=None)
@given(st.integers(-9, 9), st.integers(-9, 9), st.integers(1, 4), st.integers(0, 1))
def test_slice_scatter(start, end, step, dim):
    def scattered(x, s):
        return torch.slice_scatter(x, s, dim, start, end, step), torch.slice_scatter(x.int(), s, dim, start, None, step) if end == 9 else x

    cut = X.numpy()[(slice(None),) * dim + (slice(start, end, step),)]
    check(scattered, X, torch.arange(float(cut.size)).reshape(cut.shape).double())


def test_writes_to_slices():
    def written(x):
        y, z, w = x.clone(), x.clone(), x * 2
        y[1:3], z[:, 1::3], w[2], w[..., -2:] = 0, x[:, 1::3].sum(0), 5, x[..., :2]
        return y, z, w, torch.zeros(4, 8, dtype=torch.int32).copy_(x), torch.zeros(4, 8).copy_(x[1]), torch.select_scatter(x, x[0], 0, 2)

    check(written, X)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_norms(layout):
    x, w, b = torch.linspace(-3, 2, 120).reshape(2, 4, 3, 5).to(memory_format=layout), torch.linspace(1, 2, 4), torch.linspace(-1, 1, 4)

    def norms(x, w, b):
        return F.batch_norm(x, b, w, w, b), F.batch_norm(x, b, w), F.group_norm(x, 2, w, b), F.group_norm(x, 4), F.group_norm(x, 1).relu()

    with torch.no_grad():
        assert all(graph.kernels and not graph.aten for graph in compiled(norms, x, w, b))


def test_batch_norm_of_strided_inputs():
    compiled(lambda x: (F.batch_norm(x, None, None, training=True) + 1, F.batch_norm(x, x[0] * 0, x[0] * 0 + 1)), X.t())


def test_complex_tensors_go_to_aten():
    z = torch.complex(X, X + 1)
    compiled(lambda z: ((z + z).real * 2, torch.view_as_real(z) + 1, z.angle() * 2), z)


def test_operators_that_return_lists_or_nothing():
    compiled(lambda x: (torch.histogramdd(x, bins=[3, 4]).hist * 2, *torch.histogramdd(x, bins=[3, 4])[1]), X.reshape(16, 2))
    compiled(lambda i: (F.one_hot(i, 5) * 2,), torch.tensor([0, 3, 4]))


def test_integer_powers():
    values = torch.tensor([0, 1, -1, 2, -3, 7, 100, -128, 255, 2**31, -(2**63)])
    with torch.no_grad():
        for dtype in (torch.int64, torch.int32, torch.int8, torch.uint8):
            seen = compiled(lambda x: tuple(x**n for n in (0, 1, 4, 5, 13, 127)), values.to(dtype))
            assert not seen[0].aten


# -- memory --------------------------------------------------------------------------------------------
def test_values_read_before_an_input_changes():
    def change(x, y, z):
        values = torch.cat([x]), z.ceil(), x.flip([]), x.clone(), x[1:].clone(), x.view(-1) * 2, x.t().clone()
        y.copy_(x)
        x.sin_()
        z.add_(10)
        return *values, x + 1

    assert not compiled(change, X.clone(), X + 1, torch.zeros((), dtype=torch.int64))[0].why


def test_inputs_that_change_places():
    def swap(x, y):
        kept, first = x.t().clone(), x[0] + 0
        x.copy_(y)
        y.copy_(kept)
        x.mul_(2)
        return first, kept + x

    compiled(swap, X[:, :4].contiguous(), X[:, 4:].contiguous())


def test_views_as_other_types():
    def viewed(x, y):
        x, y = x + 1, y + 1
        return x.view(torch.int32), y.view(torch.float32).t(), x.view(torch.uint8) + 1, x.t().view(torch.int32)[1:], y

    compiled(viewed, X, torch.arange(8, dtype=torch.int32).reshape(2, 4))


# -- sizes ---------------------------------------------------------------------------------------------
def test_sizes_that_only_shapes_give():
    seen = compiled(lambda x, w: (x * w + 1, x.sum(0), x.reshape(-1) * 2), X, torch.ones(8), dynamic=True)
    assert seen[0].kernels and not seen[0].why


def test_strides_that_vary():
    run = dynamo_nb.compile(lambda x: x * 2 + 1, backend="triton_cpp", dynamic=True)
    wide = torch.arange(240.0).reshape(20, 12)
    for x in (wide[:, :5], wide[3:9, 2:9], wide.t()[:7, :4], wide):
        assert torch.equal(run(x), x * 2 + 1)


def test_gradients_of_slices_with_varying_sizes():
    run = dynamo_nb.compile(lambda x: x[:, :-1].contiguous() * 2, backend="triton_cpp", dynamic=True)
    for n in (4, 6):
        x = torch.ones(n, n + 1, requires_grad=True)
        run(x).sum().backward()
        assert torch.equal(x.grad, F.pad(torch.full((n, n), 2.0), (0, 1)))


def test_the_callers_tracing_context_stands():
    """torch._dynamo traces with symbolic sizes and hands over real tensors."""
    run = torch.compile(lambda x: x.chunk(4), backend=lambda gm, inputs: backend.triton_cpp(gm, inputs))
    for n in (16, 17, 13, 11):
        x = torch.arange(float(n))
        assert [t.tolist() for t in run(x)] == [t.tolist() for t in x.chunk(4)]
    torch._dynamo.reset()


# -- errors --------------------------------------------------------------------------------------------
def test_an_internal_error_leaves_the_graph_to_aten(monkeypatch, caplog):
    def broken(*args, **kwargs):
        raise ZeroDivisionError("broken")

    monkeypatch.setattr(backend, "_generate", broken)
    monkeypatch.delenv("DYNAMO_NB_RAISE_INTERNAL", raising=False)
    gm = make_fx(lambda x: (x + 1,))(X)
    seen = []
    logger = logging.getLogger("dynamo_nb")
    monkeypatch.setattr(logger, "propagate", True)
    with caplog.at_level(logging.WARNING, logger="dynamo_nb"):
        assert torch.equal(backend.compile_graph(gm, [X], seen)([X])[0], X + 1)
    assert "leaves a graph to ATen: ZeroDivisionError: broken" in caplog.text
    assert "ZeroDivisionError: broken" in seen[0].why
    monkeypatch.setenv("DYNAMO_NB_RAISE_INTERNAL", "1")
    with pytest.raises(ZeroDivisionError):
        backend.compile_graph(gm, [X], seen)


def test_nothing_moves_before_a_write_through_a_view():
    def program(x):
        total = x.sum()
        row = x[0]
        row.copy_(row * 2)
        return (x + total,)

    x = torch.arange(12.0).reshape(3, 4)
    gm = make_fx(program, tracing_mode="fake")(x)
    assert torch.equal(run_graph(gm, [x.clone()])[0], program(x.clone())[0])


@pytest.mark.parametrize("dynamic", [False, True])
def test_layers_that_repeat_are_compiled_once(dynamic):
    layers = torch.nn.Sequential(*[layer for _ in range(4) for layer in (torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.LayerNorm(16))])
    seen = []
    with events.listening(lambda kind, record: seen.append(record) if kind == "generated" else None), torch.no_grad():
        compiled = dynamo_nb.compile(layers, dynamic=dynamic)
        for n in (5, 9) if dynamic else (5,):
            x = torch.randn(n, 16)
            torch.testing.assert_close(compiled(x), layers(x))
    kernels = seen[0].record().kernels
    assert len(kernels) == 4 and sum("the same function as" in k.source for k in kernels) == 3
    assert seen[0].source.count('extern "C" void k') == 1
