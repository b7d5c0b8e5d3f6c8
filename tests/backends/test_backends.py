# mypy: ignore-errors
"""Backends: the table of names, what a backend gets, its failures, gradients and aliases through AOTAutograd."""

from __future__ import annotations

import pytest
import torch

import dynamo_nb
from tests.differ import differ

X = torch.tensor([1.0, -2.0, 3.0])


@pytest.fixture
def registered():
    from dynamo_nb.backends import registry

    yield dynamo_nb.register_backend
    registry.forget_user_backends()


def test_names() -> None:
    names = dynamo_nb.list_backends(None)
    assert {"eager", "aot_eager", "inductor"} <= set(names) and names == sorted(names)
    assert set(dynamo_nb.list_backends()) <= set(names)


def test_users_own(registered) -> None:
    seen = []

    @registered
    def mine(gm, example_inputs):
        seen.append((isinstance(gm, torch.fx.GraphModule), [tuple(t.shape) for t in example_inputs]))
        return gm.forward

    registered(lambda gm, inputs: lambda *a: [t + 100 for t in gm(*a)], name="plus_100")
    assert torch.equal(dynamo_nb.compile(lambda x: x + 1, backend="mine")(X), X + 1)
    assert torch.equal(dynamo_nb.compile(lambda x: x + 1, backend="plus_100")(X), X + 101)
    assert seen == [(True, [(3,)])] and {"mine", "plus_100"} <= set(dynamo_nb.list_backends())


def test_options_reach_the_backend() -> None:
    seen = {}

    def backend(gm, inputs, **options):
        seen.update(options)
        return gm.forward

    dynamo_nb.compile(lambda x: x + 1, backend=backend, options={"level": 3})(X)
    assert seen["level"] == 3


@pytest.mark.parametrize("how", [{"backend": "nothing"}, {"mode": "fastest"}, {"unknown": 1}, {"dynamic": "yes"}, {"options": 3}])
def test_wrong_options_are_errors(how) -> None:
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        dynamo_nb.compile(lambda x: x, **how)


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(dynamo_nb.exc.InvalidBackend) as caught:
        dynamo_nb.compile(lambda x: x, backend="aot_eagre")
    assert "aot_eagre" in str(caught.value) and all(n in str(caught.value) for n in dynamo_nb.list_backends(None))


def test_a_failing_backend_is_named_and_leaves_nothing() -> None:
    def bad_backend(gm, inputs):
        raise ZeroDivisionError("cannot compile this")

    log: list[int] = []

    def f(x):
        log.append(1)
        return x + 1

    compiled = dynamo_nb.compile(f, backend=bad_backend)
    for _ in range(2):
        with pytest.raises(dynamo_nb.exc.BackendCompilerFailed, match="bad_backend") as caught:
            compiled(X)
        assert isinstance(caught.value.inner_exception, ZeroDivisionError) and "cannot compile this" in str(caught.value)
        assert caught.value.__cause__ is caught.value.inner_exception
    assert log == [] and dynamo_nb.cache_entries(f) == []
    assert torch.equal(f(X), X + 1) and torch.equal(dynamo_nb.compile(f, backend="eager")(X), X + 1)


def test_a_backend_that_returns_no_callable() -> None:
    with pytest.raises(dynamo_nb.exc.BackendCompilerFailed, match="callable"):
        dynamo_nb.compile(lambda x: x + 1, backend=lambda gm, inputs: 3)(X)


def test_a_backend_is_not_called_for_a_program_without_operations() -> None:
    count = dynamo_nb.testing.CompileCounter()
    assert dynamo_nb.compile(lambda x: [1, x], backend=count)(X)[0] == 1
    assert count.frame_count == 0


def in_place(x, y):
    x.add_(1)
    y[0] = 5
    return x * y, x[1:], y.t()


def views(x, y):
    a = x.view(3, 1)
    return a, x, a.squeeze(), y, x.detach(), y[:0]


def random(x, y):
    return torch.dropout(x, 0.5, True) + torch.rand(3), torch.randn_like(y)


def matmuls(x, y):
    return torch.nn.functional.layer_norm(y @ y + x, (3,)), torch.softmax(y, 0).sum(), torch.where(y > 0, x, y)


def dtypes(x, y):
    return x.double(), y.long(), (x > 0), x.to(torch.bfloat16) * 2, torch.arange(3) + 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "aot_eager_decomp_partition"])
@pytest.mark.parametrize("fn", [in_place, views, random, matmuls, dtypes], ids=lambda f: f.__name__)
def test_equal_to_eager(fn, backend: str) -> None:
    def run(call):
        torch.manual_seed(3)
        x, y = X.clone(), torch.arange(9.0).view(3, 3) - 4
        return call(x, y), x, y, torch.get_rng_state()

    if backend.endswith("partition") and fn is random:
        got = run(dynamo_nb.compile(fn, backend=backend))
        assert [t.shape for t in got[0]] == [t.shape for t in run(fn)[0]]
        return
    got, want = run(dynamo_nb.compile(fn, backend=backend)), run(fn)
    for g, w in zip((*got[0], *got[1:]), (*want[0], *want[1:]), strict=True):
        assert g.dtype == w.dtype and torch.allclose(g, w)
    aliases = [[a.untyped_storage()._cdata == b.untyped_storage()._cdata for b in (*r[0], *r[1:3])] for r in (got, want) for a in (*r[0], *r[1:3])]
    assert aliases[: len(aliases) // 2] == aliases[len(aliases) // 2 :]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "aot_eager_decomp_partition"])
def test_gradients(backend: str) -> None:
    def f(x, w):
        y = torch.tanh(x @ w)
        return y.sum() + (y.detach() * w.sum()).mean(), y

    def run(call):
        torch.manual_seed(0)
        x, w = torch.randn(3, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True)
        loss, y = call(x, w)
        (loss + (y**2).sum()).backward()
        return loss, x.grad, w.grad

    for _ in range(2):
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(run(dynamo_nb.compile(f, backend=backend)), run(f), strict=True))


def test_double_backward_with_the_graph_as_it_is() -> None:
    x = torch.ones(2, requires_grad=True)
    (g,) = torch.autograd.grad(dynamo_nb.compile(lambda t: (t**3).sum(), backend="eager")(x), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x)
    assert torch.equal(h, torch.full((2,), 6.0))


def test_user_errors_are_the_users() -> None:
    def f(x):
        y = x + 1
        return y @ torch.ones(7, 7)

    for backend in ("eager", "aot_eager"):
        with pytest.raises(RuntimeError) as want:
            f(X)
        with pytest.raises(RuntimeError) as got:
            dynamo_nb.compile(f, backend=backend)(X)
        assert str(got.value) == str(want.value) and type(got.value) is type(want.value)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_graph_that_raises_at_run_time(backend: str) -> None:
    def f(x, i, log):
        log.append("a")
        y = (x * 2)[i]
        log.append("b")
        return y + 1

    calls = [(X, torch.tensor([0]), []), (X, torch.tensor([8]), []), (X, torch.tensor([2]), [])]
    differ(f, *calls, backend=backend)


def test_attributes_of_a_users_callable_mean_nothing_to_us():
    class Run:
        def __init__(self, gm):
            self.gm = gm

        def __call__(self, *args):
            return self.gm.forward(*args)

        def entry(self, *args):
            raise AssertionError("not ours to call")

        call = entry

    assert dynamo_nb.compile(lambda x: x + 1, backend=lambda gm, inputs: Run(gm))(torch.ones(2)).tolist() == [2.0, 2.0]
