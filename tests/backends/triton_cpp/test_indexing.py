# mypy: ignore-errors
"""Reading by tensors, compiled by triton_cpp, against eager: values, strides, what out of bounds raises, sizes that vary."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx

import dynamo_nb
from dynamo_nb.backends.aot import decompositions
from dynamo_nb.backends.triton_cpp.backend import compile_graph
from tests.backends.triton_cpp.reference import run_graph

X = torch.linspace(-2, 3, 120).reshape(4, 6, 5)
ROW, PAIR = torch.tensor([3, 0, 1]), torch.tensor([[1], [2]], dtype=torch.int32)


def traced(fn, *args):
    def listed(*inputs):
        out = fn(*inputs)
        return out if isinstance(out, list) else [out]

    with torch.no_grad():
        return make_fx(listed, decomposition_table=decompositions(), tracing_mode="fake")(*args)


def graph(fn, *args):
    seen = []
    run = compile_graph(traced(fn, *args), list(args), seen)
    assert not seen[0].why
    return run, seen[0]


def result(fn, *args):
    """A tensor, or the exception."""
    try:
        out = fn(*args)
    except (IndexError, RuntimeError) as err:
        return type(err), str(err)
    return out[0] if isinstance(out, (list, tuple)) else out


def same(got, want):
    torch.testing.assert_close(got, want, equal_nan=True)
    assert got.stride() == want.stride() or not want.numel()     # fake tensors give empty ones other strides than eager


def agree(fn, *args):
    run, seen = graph(fn, *args)
    same(run(list(args))[0], fn(*args))
    assert not seen.aten, seen.aten
    return seen


PROGRAMS = {
    "rows": lambda x, i, j: x[i], "columns": lambda x, i, j: x[:, i], "last": lambda x, i, j: x[..., i], "negative": lambda x, i, j: x[-1 - i],
    "adjacent": lambda x, i, j: x[i, j], "adjacent behind": lambda x, i, j: x[:, i, j], "apart": lambda x, i, j: x[i, :, j],
    "three": lambda x, i, j: x[i, j, i], "new dimension between": lambda x, i, j: x[i, None, j], "number": lambda x, i, j: x[i, 2, j],
    "slice between": lambda x, i, j: x[i, 1:3, j], "of a sum": lambda x, i, j: (x + x[0])[i] * 2, "of an exponential": lambda x, i, j: x.exp()[:, i],
    "of a concatenation": lambda x, i, j: torch.cat([x, x * 2], 1)[:, i + 4], "of a padded": lambda x, i, j: F.pad(x, (1, 2, 2, 0))[:, i, i + 2],
    "of a view": lambda x, i, j: x.reshape(2, 2, 30)[j % 2, :, i + 9],
    "then a view": lambda x, i, j: x[i].reshape(9, -1)[i], "flipped": lambda x, i, j: x.flip(1)[:, i],
    "of a transposed": lambda x, i, j: x.transpose(0, 2)[i, j], "of an expanded": lambda x, i, j: x[:1].expand(4, 6, 5)[i],
    "arange": lambda x, i, j: x[torch.arange(3), i], "arange past the end": lambda x, i, j: x[:, torch.arange(3) - 3],
    "of what it gave": lambda x, i, j: x[x[i].argmax(2)[:, 0] % 4], "expanded index": lambda x, i, j: x[i.expand(2, 3)],
    "strided index": lambda x, i, j: x[torch.stack([i, i], 1)[:, 0]], "folded": lambda x, i, j: x[i].sum((0, 1)) + x[:, i].amax((0, 1)),
    "gather": lambda x, i, j: x.gather(1, i.reshape(3, 1, 1).expand(3, 2, 4)), "gather 0": lambda x, i, j: x.gather(0, i[None, None]),
    "take_along_dim": lambda x, i, j: torch.take_along_dim(x, i[None, :, None], 1), "take": lambda x, i, j: torch.take(x, i * 7),
    "index_select": lambda x, i, j: x.index_select(1, i) + x.index_select(2, i).sum(2, keepdim=True)[:, :3],
    "embedding": lambda x, i, j: F.embedding(j, x[0]), "embedding and norm": lambda x, i, j: F.layer_norm(F.embedding(i, x[:, 0]), (5,)),
    "cross entropy": lambda x, i, j: F.cross_entropy(x[:3, :, 0], i),
    "cross entropy of planes": lambda x, i, j: F.cross_entropy(x[:3], i[:, None].expand(3, 5)),
    "ignored targets": lambda x, i, j: F.cross_entropy(x[:3, :, 0], i * 100 - 100, reduction="sum"), "roll": lambda x, i, j: torch.roll(x, 2, 1),
    "no rows": lambda x, i, j: x[i[:0]], "no columns": lambda x, i, j: x[:, :, :0][i],
}


def index_of(name):
    return torch.tensor([0, 1, 1]) if name == "ignored targets" else ROW


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    agree(PROGRAMS[name], X, index_of(name), PAIR)


@pytest.mark.parametrize("name", PROGRAMS)
def test_other_strides(name):
    """By the kernels' meaning."""
    i = index_of(name)
    args = X.permute(2, 0, 1).contiguous().permute(1, 2, 0), torch.stack([i, i], 1)[:, 0], PAIR
    same(run_graph(traced(PROGRAMS[name], *args), list(args))[0], PROGRAMS[name](*args))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.bool])
def test_types(dtype):
    def every(x, i, j):
        return [PROGRAMS[name](x, i, j) for name in ("rows", "adjacent", "apart", "gather", "take", "embedding", "of a concatenation")]

    args = ((X * 20).to(dtype), ROW, PAIR)
    run, seen = graph(every, *args)
    assert not seen.aten
    for got, want in zip(run(list(args)), every(*args), strict=True):
        same(got, want)


def test_masks_and_complex_tensors_go_to_aten():
    _, seen = graph(lambda x, i: (x * 2)[i].real + 1, torch.complex(X, X), ROW)
    assert [why for name, why in seen.aten if name == "aten.index.Tensor"] == ["dtype torch.complex64"]
    _, seen = graph(lambda x, m: torch.ops.aten.index_put(x + 1, [m], x[0, 0, 0]) * 2, X, X > 0)
    assert [name for name, _ in seen.aten] == ["aten.index_put.default"] or not seen.aten


# -- out of bounds ---------------------------------------------------------------------------------------
READS = {
    "index": (lambda x, i: x[i] + 1, 4), "index 1": (lambda x, i: x[:, i].sum(1), 6), "second index": (lambda x, i: x[i * 0, i], 6),
    "unused": (lambda x, i: x[i][:0], 4), "used in part": (lambda x, i: x[i][:1] * 2, 4), "gather": (lambda x, i: x.gather(1, i[None, :, None]), 6),
    "gather 0": (lambda x, i: x[:, 0, :1].gather(0, i[:, None]), 4), "gather of a fold": (lambda x, i: x.softmax(2).gather(2, i.expand(4, 6, len(i))), 5),
    "embedding": (lambda x, i: F.embedding(i, x[0]), 6), "embedding and norm": (lambda x, i: F.layer_norm(F.embedding(i, x[0]), (5,)), 6),
    "index_select": (lambda x, i: x.index_select(0, i), 4), "index_select 2": (lambda x, i: x.index_select(2, i) * 2, 5),
    "concatenated": (lambda x, i: torch.cat([x[:, 0], x[:, 0]])[i], 8), "nothing else": (lambda x, i: x[:, :, :0][i], 4),
    "index_select of nothing else": (lambda x, i: x[:, :0].index_select(0, i), 4),
}


@pytest.mark.parametrize("name", READS)
def test_bounds(name):
    fn, size = READS[name]
    run, _ = graph(fn, X, torch.zeros(3, dtype=torch.int64))
    for far in (-(2**63), -(2**31), -size - 1, -size, -1, 0, size - 1, size, size + 1, 2**31, 2**63 - 1):
        values = torch.tensor([0, far, size - 1])
        got, want = result(run, [X, values]), result(fn, X, values)
        if not isinstance(want, tuple):
            same(got, want)
        elif "index_select" in name:        # eager's own type varies with the sizes
            assert isinstance(got, tuple)
        else:
            assert got == want


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(-7, 7), min_size=2, max_size=2), st.lists(st.integers(-6, 6), min_size=3, max_size=3))
def test_several_index_tensors(rows, columns):
    run = several()
    args = X, torch.tensor(rows)[:, None], torch.tensor(columns)
    got, want = result(run, list(args)), result(lambda x, i, j: x[i, :, j] * 2, *args)
    assert got[0] is want[0] if isinstance(want, tuple) else torch.equal(got, want)


@functools.cache
def several():
    return graph(lambda x, i, j: x[i, :, j] * 2, X, torch.zeros(2, 1, dtype=torch.int64), torch.zeros(3, dtype=torch.int64))[0]


def test_one_bad_index_of_many():
    """Found by whichever thread comes to it."""
    places = torch.arange(300_000) % 4
    run, _ = graph(lambda x, i: x[i], X[:, 0, 0], places)
    for at in (0, 123_457, 299_999):
        bad = places.clone()
        bad[at] = 7
        assert result(run, [X[:, 0, 0], bad]) == (IndexError, "index 7 is out of bounds for dimension 0 with size 4")
    torch.testing.assert_close(run([X[:, 0, 0], places])[0], X[:, 0, 0][places])


def test_nothing_is_written_before_a_check():
    def move(x, i):
        x.add_(1)
        return x[i]

    for index in (ROW, torch.tensor([0, 9])):
        mine, theirs = X.clone(), X.clone()
        got, want = result(dynamo_nb.compile(move, backend="triton_cpp"), mine, index), result(move, theirs, index)
        assert got == want if isinstance(want, tuple) else torch.equal(got, want)
        assert torch.equal(mine, theirs)


def test_eager_raises_what_it_raises():
    compiled = dynamo_nb.compile(F.cross_entropy, backend="triton_cpp")
    x = torch.ones(3, 5)
    compiled(x, torch.tensor([0, 1, 2]))
    with pytest.raises(IndexError, match="Target 7 is out of bounds"):
        compiled(x, torch.tensor([0, 7, 2]))


# -- sizes and gradients ---------------------------------------------------------------------------------
VARYING = "rows columns negative adjacent apart gather index_select embedding arange roll take_along_dim".split()


@pytest.mark.parametrize("name", [*VARYING, "cross entropy", "of a concatenation", "slice between"])
def test_sizes_that_vary(name):
    run = dynamo_nb.compile(PROGRAMS[name], backend="triton_cpp", dynamic=True)
    for n in (0, 1, 3, 2):
        x = torch.randn(4 + n, 6 + n, 5 + 2 * n)
        torch.testing.assert_close(run(x, ROW, PAIR), PROGRAMS[name](x, ROW, PAIR))
        if name in ("rows", "columns", "negative"):
            more = torch.arange(n)
            torch.testing.assert_close(run(x, more, PAIR), PROGRAMS[name](x, more, PAIR))


def test_a_dimension_that_may_be_empty():
    def after(x, i):
        return x[1:][i], x[1:, :2].gather(0, i[:, None])

    run = dynamo_nb.compile(after, backend="triton_cpp", dynamic=True)
    for x, i in ((X[:, 0], ROW % 3), (X[:3, 0], ROW % 2), (X[:1, 0], ROW[:0]), (X[:1, 0], ROW * 0), (X[:2, 0], ROW)):
        got, want = result(run, x, i), result(after, x, i)
        assert got == want if isinstance(want, tuple) else torch.equal(got, want)


def test_gradients():
    def loss(x, w, i):
        return F.cross_entropy(F.layer_norm(F.embedding(i, w), (5,)) @ x[:, i], i)

    made = [[t.detach().clone().requires_grad_() for t in (torch.linspace(0, 1, 30).reshape(5, 6), X[0])] for _ in range(2)]
    dynamo_nb.compile(loss, backend="triton_cpp")(*made[0], ROW % 3).backward()
    loss(*made[1], ROW % 3).backward()
    for a, b in zip(*made, strict=True):
        torch.testing.assert_close(a.grad, b.grad)


# -- fusion --------------------------------------------------------------------------------------------
def test_what_shares_a_kernel():
    x, ids = torch.randn(16, 64), torch.randint(0, 16, (8,))
    assert len(agree(PROGRAMS["embedding and norm"], X, ROW, PAIR).kernels) == 1
    assert len(agree(lambda x, i: F.cross_entropy(x, i), x[:8], ids).kernels) == 2
    seen = agree(lambda x, i: x[i] + x.t()[:, i].t() * x.index_select(0, i), x, ids)
    assert sum(len(k.checks) for k in seen.kernels) == 2        # negative indices are some to index only
    assert len(agree(lambda x, i: x.gather(1, i) * 2, x, torch.randint(0, 64, (16, 64))).kernels) == 1


def test_folds_of_what_is_gathered():
    """Gathered once, checked in the loop that folds it too."""
    x, i = torch.randn(16, 640), torch.randint(0, 640, (16, 640))

    def folds(x, i):
        y = x.gather(1, i) * 2
        return [y, y.sum(1), y.amax(1), y.argmax(1), x.gather(1, i).sum(0)]

    run, seen = graph(folds, x, i)
    for got, want in zip(run([x, i]), folds(x, i), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    for place, value in (((0, 0), -1), ((15, 639), 640), ((7, 333), -5)):
        bad = i.clone()
        bad[place] = value
        assert result(run, [x, bad]) == result(folds, x, bad) == (RuntimeError, f"index {value} is out of bounds for dimension 1 with size 640")


@pytest.mark.parametrize("make", [
    lambda a: (a > 0), lambda a: (a != 0) & (a == a), lambda a: torch.logical_and(a.ceil(), a), lambda a: ~(a > 0), lambda a: torch.isnan(a),
], ids=range(5))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int8])
def test_a_comparison_as_index(make, dtype):
    """GCC once took a mask of ones for the offset -1 (vector loads whose index is a bool)."""
    torch.manual_seed(0)
    a = torch.randn(67)
    a[::3] = float("nan")
    table = torch.arange(5).to(dtype)

    def fn(a, table):
        chosen = make(a)
        return table[chosen.to(torch.int64)], table[chosen.to(torch.int32).clamp(-5, 4)], table[torch.where(chosen, 1, 0)], table[torch.where(chosen, 0, 4)]

    for got, want in zip(dynamo_nb.compile(fn)(a, table), fn(a, table), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0)
