# mypy: ignore-errors
"""A compiled module is the module: shared state, class, state_dict, pickling, copies, hooks, modes, moves."""

from __future__ import annotations

import copy
import inspect
import io
import pickle

import pytest
import torch
from torch import nn

import dynamo_nb
from dynamo_nb.testing import CompileCounter

X = torch.ones(2, 3)


class Net(nn.Module):
    """Doc of Net."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)
        self.register_buffer("steps", torch.zeros(()))
        self.calls = 0

    def forward(self, x, scale=1, *, shift=0):
        self.calls += 1
        self.steps += 1
        return torch.relu(self.lin(x)) * scale + shift

    def helper(self, x):
        return self.lin(x) - 1


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net()


@pytest.fixture
def pair(net):
    return net, dynamo_nb.compile(net, backend="eager")


def test_identity_of_the_two_objects(pair) -> None:
    m, c = pair
    assert c is not m and c.__dict__ is m.__dict__ and isinstance(c, Net) and c.__class__ is Net and type(m) is Net
    assert isinstance(c, nn.Module) and repr(c) == repr(m) and c.__doc__ == m.__doc__
    assert inspect.signature(c.forward) == inspect.signature(m.forward)
    assert list(c.state_dict()) == list(m.state_dict()) == ["steps", "lin.weight", "lin.bias"]
    assert [n for n, _ in c.named_parameters()] == [n for n, _ in m.named_parameters()] and not hasattr(c, "_orig_mod")


def test_shared_state(pair) -> None:
    m, c = pair
    c(X)
    m(X)
    assert m.calls == c.calls == 2 and m.steps.item() == 2
    c.extra, m.other = "e", "o"
    assert m.extra == "e" and c.other == "o"
    c.eval()
    assert m.training is False
    c.load_state_dict({k: torch.zeros_like(v) for k, v in m.state_dict().items()})
    assert m.lin.weight.abs().sum() == 0 and torch.equal(c(X, shift=3), torch.full((2, 3), 3.0))


def test_the_module_itself_stays_eager(net) -> None:
    count = CompileCounter()
    c = dynamo_nb.compile(net, backend=count)
    net(X)
    assert count.frame_count == 0
    c(X)
    assert count.frame_count == 1
    net(X)
    assert count.frame_count == 1


def test_arguments_and_methods(pair) -> None:
    m, c = pair
    for args, kw in (((X,), {}), ((X, 2), {}), ((X,), {"scale": 3, "shift": 1})):
        assert torch.equal(c(*args, **kw), m(*args, **kw))
    assert torch.equal(c.helper(X), m.helper(X)) and torch.equal(c.forward(X), m.forward(X))
    with pytest.raises(TypeError) as got:
        c(X, 1, 2)
    with pytest.raises(TypeError) as want:
        m(X, 1, 2)
    assert str(got.value) == str(want.value)


def test_pickle_save_deepcopy(pair) -> None:
    m, c = pair
    want = m(X)
    for twin in (pickle.loads(pickle.dumps(c)), copy.deepcopy(c), copy.copy(c)):
        assert isinstance(twin, Net) and torch.equal(twin(X), want)
    assert copy.deepcopy(c).lin is not c.lin and copy.copy(c).lin is c.lin
    file = io.BytesIO()
    torch.save(c.state_dict(), file)
    file.seek(0)
    fresh = Net()
    fresh.load_state_dict(torch.load(file))
    assert torch.equal(fresh(X), want)


def test_hooks_of_every_kind_in_order(net) -> None:
    log: list[str] = []

    def run(module):
        log.clear()
        x = torch.ones(2, 3, requires_grad=True)
        out = module(x)
        out.sum().backward()
        return out.detach(), x.grad, list(log)

    c = dynamo_nb.compile(net, backend="eager")
    plain = run(c)[0]
    handles = [
        net.register_forward_pre_hook(lambda m, a: (log.append("pre"), (a[0] * 2,))[1]),
        net.register_forward_hook(lambda m, a, o: (log.append("post"), o + 1)[1]),
        net.register_full_backward_hook(lambda m, gi, go: log.append("backward")),
        net.lin.register_forward_hook(lambda m, a, o: log.append("inner")),
        net.register_forward_pre_hook(lambda m, a, k: log.append("pre kw"), with_kwargs=True),
    ]
    got, want = run(c), run(net)
    assert torch.equal(got[0], want[0]) and torch.equal(got[1], want[1]) and got[2] == want[2] and "inner" in got[2]
    for h in handles:
        h.remove()
    assert torch.equal(run(c)[0], plain) and log == []


def test_hooks_added_and_removed_inside(net) -> None:
    log: list[str] = []

    def f(m, x):
        h = m.register_forward_hook(lambda mod, a, o: log.append("hook"))
        y = m(x)
        h.remove()
        return y + m(x)

    want = f(net, X)
    before = list(log)
    log.clear()
    assert torch.equal(dynamo_nb.compile(f, backend="eager")(net, X), want) and log == before and not net._forward_hooks


def test_train_and_eval_have_entries(net) -> None:
    m = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
    twin = copy.deepcopy(m)
    count = CompileCounter()
    c = dynamo_nb.compile(m, backend=count)
    for mode in (True, False, True, False):
        m.train(mode)
        twin.train(mode)
        torch.manual_seed(0)
        got = c(X)
        torch.manual_seed(0)
        assert torch.allclose(got, twin(X))
    assert count.frame_count == 2 and torch.allclose(m[1].running_mean, twin[1].running_mean)
    assert m[1].num_batches_tracked.item() == 2


def test_training_steps(net) -> None:
    twin = copy.deepcopy(net)
    c = dynamo_nb.compile(net, backend="aot_eager")
    losses = []
    for module, call in ((net, c), (twin, twin)):
        opt = torch.optim.Adam(module.parameters(), 0.1)
        for _ in range(4):
            opt.zero_grad(set_to_none=True)
            loss = ((call(X) - 1) ** 2).mean()
            loss.backward()
            opt.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_compiled_inside_another_module(net) -> None:
    outer = nn.Sequential(dynamo_nb.compile(net, backend="eager"), nn.Tanh())
    plain = nn.Sequential(net, nn.Tanh())
    assert list(outer.state_dict()) == list(plain.state_dict())
    assert torch.equal(outer(X), plain(X)) and torch.equal(dynamo_nb.compile(outer, backend="eager")(X), plain(X))


def test_containers_index_and_iterate() -> None:
    m = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    c = dynamo_nb.compile(m, backend="eager")
    assert len(c) == 2 and c[0] is m[0] and list(c) == list(m) and torch.equal(c[0](X), m[0](X))


def test_a_module_that_changes_while_it_runs() -> None:
    class Growing(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(3, 3)

        def forward(self, x):
            if not hasattr(self, "cache"):
                self.cache = self.lin(x).detach()
            self.last = x * 2
            return self.lin(x) + self.cache

    torch.manual_seed(0)
    m = Growing()
    twin = copy.deepcopy(m)
    c = dynamo_nb.compile(m, backend="eager")
    for k in (1, 2, 3):
        assert torch.allclose(c(X * k), twin(X * k))
    assert torch.equal(m.cache, twin.cache) and torch.equal(m.last, twin.last)
