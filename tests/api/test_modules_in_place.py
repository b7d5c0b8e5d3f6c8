# mypy: ignore-errors
"""compile_in_place: the module itself is compiled, and in all else stays what it was."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

import dynamo_nb
from dynamo_nb.testing import CompileCounter

X = torch.ones(2, 3)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)
        self.calls = 0

    def forward(self, x, scale=1):
        self.calls += 1
        return torch.relu(self.lin(x)) * scale


class Outer(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x + 1) * 2


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net()


def test_same_object_one_graph_same_state(net):
    counter, want, keys = CompileCounter(), net(X, 3), list(net.state_dict())
    attributes = set(vars(net)) | {"_compiled_call_impl"}
    made = dynamo_nb.compile_in_place(net, backend=counter, fullgraph=True)
    assert made is net and type(net) is Net and list(net.state_dict()) == keys and set(vars(net)) == attributes
    assert torch.equal(net(X, 3), want) and torch.equal(net(X, scale=3), want)
    assert counter.frame_count == 2 and net.calls == 3
    net(X).sum().backward()
    assert net.lin.weight.grad is not None


def test_hooks_in_eagers_order(net):
    def record(module):
        log = []
        module.register_forward_pre_hook(lambda m, a: log.append("pre"))
        module.register_forward_hook(lambda m, a, out: log.append("post") or out + 1)
        module.lin.register_forward_hook(lambda m, a, out: log.append("inner"))
        return module(X), log

    eager, compiled = copy.deepcopy(net), dynamo_nb.compile_in_place(net, backend="eager")
    (want, wanted), (got, seen) = record(eager), record(compiled)
    assert torch.equal(got, want) and seen == wanted == ["pre", "inner", "post"]


def test_copies_and_pickles_are_eager(net):
    counter = CompileCounter()
    dynamo_nb.compile_in_place(net, backend=counter)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net)), copy.copy(net)):
        assert type(other) is Net and other._compiled_call_impl is None and torch.equal(other(X), other.forward(X))
    assert counter.frame_count == 0


def test_inside_compiled_and_eager_modules(net):
    counter = CompileCounter()
    dynamo_nb.compile_in_place(net, backend=counter)
    outer = Outer(net)
    want = outer.forward(X)
    assert counter.frame_count == 1 and torch.equal(outer(X), want)
    before = counter.frame_count
    compiled = dynamo_nb.compile(outer, backend=counter, fullgraph=True)
    assert torch.equal(compiled(X), want) and counter.frame_count == before + 1


def test_two_of_a_class_and_back_to_eager(net):
    counter, other = CompileCounter(), Net()
    dynamo_nb.compile_in_place(net, backend=counter)
    other(X)
    assert counter.frame_count == 0
    net(X)
    assert counter.frame_count == 1
    del net._compiled_call_impl
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Net, "forward", lambda self, x: x)
        assert net(X) is X
    assert dynamo_nb.compile_in_place(net, disable=True) is net and "_compiled_call_impl" not in vars(net)


def test_what_it_refuses():
    with pytest.raises(TypeError, match="takes an nn.Module, not function"):
        dynamo_nb.compile_in_place(lambda x: x)
    with pytest.raises(TypeError):
        dynamo_nb.compile_in_place(Net(), unknown=1)
