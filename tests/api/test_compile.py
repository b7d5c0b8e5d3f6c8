# mypy: ignore-errors
"""compile() on functions, methods, modules, generators; cache, limits, dynamic sizes, errors, marks, logs."""

from __future__ import annotations

import asyncio
import copy
import gc
import inspect
import pickle
import threading
import weakref

import pytest
import torch
from torch import nn

import dynamo_nb
from dynamo_nb.testing import CompileCounter, EagerAndRecordGraphs


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(2, 2)
        self.calls = 0

    def forward(self, x, scale=1):
        self.calls += 1
        return self.lin(x) * scale


def plain(x):
    return x * 2


def test_recompiles_only_when_a_guard_fails() -> None:
    count = CompileCounter()
    f = dynamo_nb.compile(lambda x, mode: x + 1 if mode == "a" else x - 1, backend=count)
    for mode, expected in (("a", 1), ("a", 1), ("b", 2), ("a", 2)):
        f(torch.ones(2), mode)
        assert count.frame_count == expected
    f(torch.ones(2, dtype=torch.float64), "a")
    f(torch.ones(2, requires_grad=True), "a")
    assert count.frame_count == 4
    with torch.no_grad():
        f(torch.ones(2), "a")
    assert count.frame_count == 5


@pytest.mark.parametrize("values", [(3, 7, 9, 11), (0.5, 0.25, 0.75, 0.1)])
def test_numbers_become_symbols_after_a_change(values) -> None:
    count = CompileCounter()
    f = dynamo_nb.compile(lambda x, n: x * n, backend=count)
    assert [f(torch.ones(1), n).item() for n in values] == pytest.approx(list(values))
    assert count.frame_count == 2


def test_sizes_become_symbols_after_a_change() -> None:
    count = CompileCounter()
    f = dynamo_nb.compile(lambda x: x + x.shape[0], backend=count)
    for n in range(2, 8):
        assert f(torch.ones(n))[0].item() == 1 + n
    assert count.frame_count == 2


def test_marks_on_dimensions() -> None:
    count = CompileCounter()
    f = dynamo_nb.compile(lambda x: x * 2, backend=count)
    for n in (2, 3, 4):
        x = torch.ones(n)
        dynamo_nb.mark_dynamic(x, 0)
        f(x)
    assert count.frame_count == 1
    x = torch.ones(4)
    dynamo_nb.mark_dynamic(x, 0)
    with pytest.raises(dynamo_nb.exc.ConstraintViolationError, match="marked dynamic"):
        dynamo_nb.compile(lambda t: t + 1 if t.shape[0] == 4 else t, backend="eager")(x)


def test_limit_then_run_only() -> None:
    count = CompileCounter()
    f = dynamo_nb.compile(lambda x: x + 1, backend=count, dynamic=False)
    for n in range(1, 13):
        assert torch.equal(f(torch.ones(n)), torch.full((n,), 2.0))
    assert count.frame_count == 8
    dynamo_nb.reset()
    f(torch.ones(20))
    assert count.frame_count == 9
    with dynamo_nb.config.patch(fail_on_recompile_limit_hit=True), pytest.raises(dynamo_nb.exc.FailOnRecompileLimitHit):
        for n in range(1, 13):
            f(torch.ones(n))


def test_class_attribute_shadowed_by_the_instance() -> None:
    class Model(nn.Module):
        k = 1

        def forward(self, x):
            return x * self.k

    m = Model()
    f = dynamo_nb.compile(m, backend="eager")
    assert f(torch.ones(1)).item() == 1
    m.k = 5
    assert f(torch.ones(1)).item() == 5


def test_hooks_and_forward_replaced_later() -> None:
    m = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    f = dynamo_nb.compile(m, backend="eager")
    x = torch.ones(1, 2)
    f(x)
    seen: list[tuple[int, ...]] = []
    handle = m[0].register_forward_hook(lambda mod, i, o: seen.append(tuple(o.shape)))
    assert torch.equal(f(x), m(x)) and seen == [(1, 2), (1, 2)]
    handle.remove()
    m[1].forward = lambda t: t * 100
    assert torch.equal(f(x), m(x))


def test_compiled_module_is_the_module() -> None:
    m = Net()
    f = dynamo_nb.compile(m, backend="eager")
    assert isinstance(f, Net) and f.__class__ is Net and list(f.state_dict()) == list(m.state_dict())
    assert list(inspect.signature(type(m).forward).parameters) == ["self", "x", "scale"]
    f(torch.ones(1, 2)).sum().backward()
    assert m.lin.weight.grad is not None and m.calls == 1
    twin = copy.deepcopy(f)
    with torch.no_grad():
        twin.lin.weight.zero_()
    assert not torch.equal(f.lin.weight, twin.lin.weight)
    again = pickle.loads(pickle.dumps(f))
    assert torch.equal(again(torch.ones(1, 2)), m(torch.ones(1, 2)))
    m.extra = 3
    assert f.extra == 3


def test_methods_static_and_class_methods() -> None:
    class Ops:
        k = 3

        @dynamo_nb.compile
        def plain(self, x):
            return x * self.k

        @staticmethod
        @dynamo_nb.compile(backend="eager")
        def stat(x):
            return x + 1

        @classmethod
        @dynamo_nb.compile
        def klass(cls, x):
            return x - cls.k

    x = torch.ones(1)
    assert [Ops().plain(x).item(), Ops.stat(x).item(), Ops.klass(x).item()] == [3, 2, -2]
    assert dynamo_nb.compile(Ops().plain, backend="eager")(x).item() == 3
    assert Ops.plain.__name__ == "plain"


def test_generators_and_coroutines() -> None:
    count = CompileCounter()

    def half(x):
        return x * 0.5

    def numbers(x):
        got = yield half(x)
        yield half(got)

    async def later(x):
        await asyncio.sleep(0)
        return half(x)

    g = dynamo_nb.compile(numbers, backend=count)(torch.ones(1))
    assert next(g).item() == 0.5 and g.send(torch.ones(1) * 4).item() == 2
    assert asyncio.run(dynamo_nb.compile(later, backend=count)(torch.ones(1))).item() == 0.5
    assert count.frame_count >= 1


def test_wrong_calls_raise_as_eager() -> None:
    def f(a, /, b, *, c=1):
        return a + b + c

    compiled = dynamo_nb.compile(f, backend="eager")
    for call in (lambda g: g(1), lambda g: g(1, 2, 3), lambda g: g(a=1, b=2), lambda g: g(1, 2, d=3)):
        with pytest.raises(TypeError) as want:
            call(f)
        with pytest.raises(TypeError) as got:
            call(compiled)
        assert str(want.value) == str(got.value)


def test_backends() -> None:
    x = torch.tensor([-1.0, 2.0], requires_grad=True)
    for backend in ("eager", "aot_eager", "aot_eager_decomp_partition"):
        y = dynamo_nb.compile(lambda t: (t * 3).relu().sum(), backend=backend)(x)
        y.backward()
    assert torch.equal(x.grad, torch.tensor([0.0, 9.0]))
    with pytest.raises(dynamo_nb.exc.InvalidBackend, match="nonesuch.*aot_eager"):
        dynamo_nb.compile(plain, backend="nonesuch")

    def broken(gm, inputs):
        raise KeyError("no kernels")

    with pytest.raises(dynamo_nb.exc.BackendCompilerFailed, match="broken.*raised") as caught:
        dynamo_nb.compile(plain, backend=broken)(torch.ones(1))
    assert isinstance(caught.value.inner_exception, KeyError)
    with dynamo_nb.config.patch(suppress_errors=True):
        assert dynamo_nb.compile(plain, backend=broken)(torch.ones(1)).item() == 2


def test_aot_keeps_mutation_aliases_and_duplicates() -> None:
    def change(a, b):
        a.add_(1)
        return a.view(-1), b * a, a

    for make in (lambda: (torch.ones(2, 2), torch.ones(2, 2)), lambda: (t := torch.ones(2, 2), t)):
        args, twin = make(), make()
        got, want = dynamo_nb.compile(change, backend="aot_eager")(*args), change(*twin)
        assert all(torch.equal(g, w) for g, w in zip(got, want, strict=True))
        assert torch.equal(args[0], twin[0]) and got[2] is args[0] and got[0].data_ptr() == args[0].data_ptr()


def test_disable_allow_in_graph_and_is_compiling() -> None:
    record = EagerAndRecordGraphs()

    @dynamo_nb.allow_in_graph
    def node(x):
        return x + 1

    @dynamo_nb.disable
    def off(x):
        return x + (100 if dynamo_nb.is_compiling() else 1)

    def f(x):
        y = off(node(x * 2))
        return y + (10 if dynamo_nb.is_compiling() else 0) + (10 if torch.compiler.is_compiling() else 0)

    assert dynamo_nb.compile(f, backend=record)(torch.ones(1)).item() == 24
    assert [n.target.__name__ for n in record.graphs[0].graph.nodes if n.op == "call_function"] == ["mul", "node"]


def test_explain_counts_and_places_breaks() -> None:
    def f(x):
        y = x + 1
        print("", end="")
        return y * 2

    out = dynamo_nb.explain(f)(torch.ones(1))
    assert (out.graph_count, out.graph_break_count) == (2, 1)
    assert "print" in out.break_reasons[0].reason and "test_compile.py" in str(out)


def test_logs(capfd: pytest.CaptureFixture[str]) -> None:
    dynamo_nb.set_logs(graph_breaks=True, recompiles=True, guards=True, bytecode=True)
    try:
        f = dynamo_nb.compile(lambda x: x + 1 if x.sum() > 0 else x, backend="eager", dynamic=False)
        f(torch.ones(2))
        f(torch.ones(3))
    finally:
        dynamo_nb.set_logs()
    text = capfd.readouterr().err
    mismatch = "tensor 'x' size mismatch at index 0. expected 2, actual 3"
    for needle in ("Data-dependent branching", "torch.cond", mismatch, "TREE_GUARD_MANAGER", "MODIFIED BYTECODE"):
        assert needle in text
    with pytest.raises(ValueError, match="nonsense.*graph_breaks"):
        dynamo_nb.set_logs(nonsense=True)


def test_config() -> None:
    with dynamo_nb.config.patch(recompile_limit=3):
        assert dynamo_nb.config.cache_size_limit == 3
    assert dynamo_nb.config.recompile_limit == 8
    with pytest.raises(AttributeError, match="recompile_limit"):
        dynamo_nb.config.recompile_limits = 1


def test_compiling_leaves_namespace_and_random_state() -> None:
    space: dict = {"torch": torch}
    exec("def f(x):\n    return torch.dropout(x, 0.5, True) + 1\n", space)
    names = set(space)
    f = dynamo_nb.compile(space["f"], backend="aot_eager")
    torch.manual_seed(3)
    got = f(torch.ones(64))
    after = torch.get_rng_state()
    torch.manual_seed(3)
    assert torch.equal(got, space["f"](torch.ones(64))) and torch.equal(after, torch.get_rng_state())
    assert set(space) == names | {"__builtins__"}


def test_modules_and_inputs_are_freed() -> None:
    m, x = nn.Linear(2, 2), torch.ones(1, 2)
    refs = [weakref.ref(m), weakref.ref(x)]
    f = dynamo_nb.compile(m, backend="aot_eager")
    f(x).sum().backward()
    del f, m, x
    gc.collect()
    assert [r() for r in refs] == [None, None]


def test_threads_share_a_function() -> None:
    f = dynamo_nb.compile(lambda x: (x * 2).sum() + x.shape[0], backend="eager", dynamic=False)
    errors: list[str] = []

    def work(k: int) -> None:
        for n in range(1, 5):
            if f(torch.ones(n + k % 2)).item() != 3 * (n + k % 2):
                errors.append(f"{k} {n}")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert errors == []


def test_a_training_loop_with_a_data_loader() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(40.0).view(20, 2) / 40, torch.arange(20) % 2)

    def train(model, opt):
        total = 0.0
        for x, y in torch.utils.data.DataLoader(data, batch_size=5):
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            total += loss.item()
        return total

    losses = []
    count = CompileCounter()
    for fn in (train, dynamo_nb.compile(train, backend=count)):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2))
        losses.append(fn(model, torch.optim.SGD(model.parameters(), 0.1)))
    assert losses[0] == pytest.approx(losses[1]) and 1 <= count.frame_count < 30
