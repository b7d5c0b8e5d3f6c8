# mypy: ignore-errors
"""Gradients of programs that change their arguments, look at them under no_grad or share memory: as eager's, with every backend on AOTAutograd."""

from __future__ import annotations

import pytest
import torch

import dynamo_nb
from tests.backends.random_training import check, check_late

BACKENDS = ("aot_eager", "aot_eager_decomp_partition", "triton_cpp")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", BACKENDS)
def test_random_programs(backend) -> None:
    first = 20 * BACKENDS.index(backend)
    found = [check(seed, backend) for seed in range(first, first + 20)]
    assert [why for why, _ in found if why] == []
    counts = [graphs for _, graphs in found if graphs is not None]
    assert len(counts) >= 10 and counts.count(0) <= 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", BACKENDS)
def test_random_changes_before_the_backward(backend) -> None:
    assert [why for seed in (*range(71055, 71065), 71087, 71176, 71189) if (why := check_late(seed, backend))] == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seed", (1003, 1161, 1187, 3205, 3212, 10325))
def test_programs_that_differed(backend, seed) -> None:
    why, graphs = check(seed, backend)
    assert why == "" and graphs != 0


def outcome(fn, grad=True):
    """Results, arguments after the call, gradients; which of them share memory."""
    torch.manual_seed(0)
    base, y, n = torch.randn(3, 3, requires_grad=grad), torch.randn(3, 3, requires_grad=grad), torch.randn(3, 3)
    x = base * 1
    try:
        results = fn(x, y, n, x.mT)
        after = [*(results if isinstance(results, tuple) else (results,)), x, y, n]
        total = sum((t * torch.arange(1.0, 4)).sum() for t in after if t.requires_grad)
        gradients = torch.autograd.grad(total, [base, y], allow_unused=True) if grad else ()
    except RuntimeError as err:
        return type(err).__name__, str(err).split(":")[0]
    shared = [[a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() for b in after] for a in after]
    return [t.detach() for t in after], gradients, shared, [(t.requires_grad, t.is_leaf) for t in after]


def assert_same(fn, backend, grad=True) -> None:
    dynamo_nb.reset()
    want, got = outcome(fn, grad), outcome(dynamo_nb.compile(fn, backend=backend), grad)
    if isinstance(want[0], str):
        assert got == want
        return
    torch.testing.assert_close([*got[0], *got[1]], [*want[0], *want[1]])
    assert got[2:] == want[2:]


def saved_product(x, y, n, v):
    return x.mul_(y)


def saved_sigmoid(x, y, n, v):
    t = n.sigmoid() * x
    n.add_(1)
    return t


def saved_transposed(x, y, n, v):
    t = n.t().exp().t() * x
    n.mul_(2)
    return t


def saved_and_refused(x, y, n, v):      # eager's backward raises: n itself was saved
    t = n * x
    n.add_(1)
    return t


def view_of_changed(x, y, n, v):
    t = v.mT
    x.add_(y)
    return t


def no_copy_of_changed(x, y, n, v):
    t = v.mT.contiguous()
    x[:, 1].add_(n[:, 0])
    return t


def cut_view(x, y, n, v):
    with torch.no_grad():
        t = y.view(9).view(3, 3)
    return t, x * 2


def cut_value(x, y, n, v):
    with torch.no_grad():
        t = x.sum(-1, keepdim=True) * n
    return t, y


def detached_takes_gradients(x, y, n, v):
    t = x.detach()
    t.mT.mul_(y)
    return t


def changed_after_a_break(x, y, n, v):
    t = torch.tanh(n)
    parts = t.mT, t[0], t.view(9)[1:5]
    dynamo_nb.graph_break()
    t.mul_(y)
    return parts


def changed_through_a_part(x, y, n, v):
    t = torch.tanh(n)
    first, second = t[0], t.mT
    dynamo_nb.graph_break()
    first.mul_(y[0])
    return second


def sizes_by_values(x, y, n, v):
    return n.index_put((n > 0,), y.sum())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("grad", (True, False))
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", (saved_product, saved_sigmoid, saved_transposed, saved_and_refused, view_of_changed, no_copy_of_changed, cut_view, cut_value,
                                detached_takes_gradients, changed_after_a_break, changed_through_a_part, sizes_by_values))
def test_as_eager(fn, backend, grad) -> None:
    assert_same(fn, backend, grad)


@pytest.mark.parametrize("backend", BACKENDS)
def test_errors_that_fake_tensors_miss(backend) -> None:
    def fn(x, y):
        return x.clamp_max_(y)

    dynamo_nb.reset()
    for call in (fn, dynamo_nb.compile(fn, backend=backend)):
        with pytest.raises(RuntimeError, match=r"output with shape \[5, 1\]"):
            call(torch.ones(5, 1), torch.ones(5, 5))


@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_tensors_are_left_to_eager() -> None:
    def fn(x, s):
        return (x + 1) @ s.to_dense(), x.to_sparse_csr().values() + 1

    x = torch.arange(9.0).reshape(3, 3)
    for s in (x.to_sparse(), x.to_sparse_csr()):
        dynamo_nb.reset()
        torch.testing.assert_close(dynamo_nb.compile(fn)(x, s), fn(x, s))


def test_an_error_of_our_partition_is_not_taken_for_the_graphs(monkeypatch, caplog) -> None:
    from dynamo_nb.backends import partition

    def broken(graph):
        raise KeyError("partition")

    monkeypatch.setattr(partition, "_reads_of_changed", broken)
    x = torch.randn(3, requires_grad=True)
    monkeypatch.setenv("DYNAMO_NB_RAISE_INTERNAL", "1")
    with pytest.raises(dynamo_nb.exc.BackendCompilerFailed, match="partition"):
        dynamo_nb.compile(lambda x: x.sin() * 2)(x)
    dynamo_nb.reset()
    monkeypatch.delenv("DYNAMO_NB_RAISE_INTERNAL")
    torch.testing.assert_close(dynamo_nb.compile(lambda x: x.sin() * 2)(x), x.sin() * 2)
    assert any("internal error" in r.getMessage() for r in caplog.records)
