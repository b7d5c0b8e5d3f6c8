# mypy: ignore-errors
"""The backend triton_cpp from capture to kernels, against eager: values, types, strides, aliases, gradients, sizes that vary."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dynamo_nb
from dynamo_nb.core import events
from tests import test_models

X = torch.linspace(-2, 3, 32).reshape(4, 8)


def leaves(value):
    return [t for v in value for t in leaves(v)] if isinstance(value, (tuple, list)) else [value]


def compare(fn, *inputs, dynamic=None, graphs=None):
    """inputs: functions that make the arguments of one call."""
    compiled = dynamo_nb.compile(fn, backend="triton_cpp", fullgraph=True, dynamic=dynamic)
    for make in inputs:
        mine, theirs = make(), make()
        got, want = compiled(*mine), fn(*theirs)
        for g, w in zip((*leaves(got), *mine), (*leaves(want), *theirs), strict=True):
            torch.testing.assert_close(g, w, rtol=2e-5, atol=2e-5, equal_nan=True)
            assert g.stride() == w.stride() and g.dtype is w.dtype
    return compiled


def soft(x):
    return torch.softmax(x, -1), torch.log_softmax(x, 0), torch.softmax(x.relu() * 2, 1).sum(0)


def norms(x):
    return F.layer_norm(x + 1, (8,)), x.var(0), x.std(1), x.mean(), x.logsumexp(0), F.batch_norm(x, None, None, training=True)


def folds(x):
    return (
        x.sum(0), x.sum(1), x.sum(), x.amax(1), x.argmax(1), x.argmin(), x.max(0)[1], (x > 0).any(1), (x > 0).sum(0), x.prod(1), x.mean(0, keepdim=True),
        x.int().sum(), x.to(torch.uint8).sum(1), x.bfloat16().sum(0),
    )


def views(x):
    return (
        x.t() + 1, (x[:, ::2] + 1).view(-1), x.view(2, 2, 8).permute(2, 0, 1).reshape(8, 4) * 2, x.flip(0) + 0, torch.cat([x, x * 2], 1).sum(0),
        torch.stack([x, x], 1)[1], x.repeat(2, 3) + 1, x[-1] + x[:, 2:3], x.expand(3, 4, 8) + 1, x.diagonal() * 2, *(p * 2 for p in x.split(3, 1)),
        torch.cat([x[:1], x.double()[1:]]), F.pad(x, (1, 2)) + 1, F.pad(x, (-1, 2, 3, 0), value=7.0),
    )


def elements(x):
    return (
        F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), x.clamp(-0.5, 0.5), torch.where(x > 0, x, 2.0), x**2, x.abs()**-0.5, x // 0.3, x % 0.7,
        x.round(), -x, 1 - x, F.softplus(x), F.elu(x), x.int() * 3 // 2, torch.arange(8) + x, F.leaky_relu(x), torch.sigmoid(x) * torch.tanh(x),
        x.double() * 0.1, (x * 20).to(torch.int8), x.long() + x.int(), x.bool() | (x > 0.5), torch.maximum(x, x.flip(0)), x.sign(), x / 0,
        torch.add(x, x, alpha=3), x.isnan(), F.hardtanh(x), x.masked_fill(x > 1, 0.5), ~(x > 0), x.int() & 3, x.half() * 0.1, x.bfloat16() * x.bfloat16() + 1,
    )


def called(x):
    return torch.mm(x.t() + 1, x).relu() + 1, torch.topk(x, 2)[0] * 2, x.cumsum(0) * 2, x.sort(1)[1] + 1, x[torch.tensor([0, 2])] + 1


def aliases(x):
    y = x + 1
    return y, y.clone(), x.clone(), y.view(-1)


PROGRAMS = [soft, norms, folds, views, elements, called, aliases]


@pytest.mark.parametrize("dynamic", [None, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_programs(fn, dynamic):
    if dynamic and fn is views:
        fn = lambda x: views(x)[:-2]  # noqa: E731  (torch's fake tensors don't take a pad of symbolic sizes)
    compare(fn, lambda: (X.clone(),), dynamic=dynamic)


@pytest.mark.parametrize("fn", [soft, norms, folds, elements], ids=lambda f: f.__name__)
def test_strided_inputs(fn):
    wide = torch.linspace(-2, 3, 8 * 12).reshape(8, 12)
    compare(fn, lambda: (wide.t()[4:8].clone(memory_format=torch.preserve_format),), lambda: (wide.t()[4:8],), lambda: (X[:1].expand(4, 8),))


def test_clones_are_other_memory():
    compiled = dynamo_nb.compile(aliases, backend="triton_cpp")
    x = X.clone()
    y, again, mine, flat = compiled(x)
    y.zero_(), mine.zero_()
    assert again.abs().sum() > 0 and torch.equal(x, X) and flat.abs().sum() == 0


def test_changed_inputs():
    def change(x):
        x.add_(1)
        z = x * 2
        x.mul_(3)
        return z, x + 1

    compare(change, lambda: (X.clone(),), lambda: (X.clone(),))


def test_one_kernel_serves_all_sizes():
    seen = []
    with events.listening(lambda kind, what: seen.append(what) if kind == "generated" else None):
        compare(lambda x, y: torch.softmax(x + y, -1) * x.size(0) + x.shape[1], *(lambda n=n: (torch.ones(n, n + 2), torch.ones(n + 2)) for n in (3, 5, 9, 17)))
    assert len(seen) == 2 and all(len(graph.kernels) == 1 and not graph.aten for graph in seen)


def test_empty_and_scalar_tensors():
    compare(lambda x: (x + 1, x.sum(), x.sum(-1) if x.dim() else x), lambda: (torch.ones(0, 3),), lambda: (torch.ones(2, 0),), lambda: (torch.tensor(2.0),))


def test_fusion_of_a_norm_and_its_neighbours():
    seen = []
    with events.listening(lambda kind, what: seen.append(what) if kind == "generated" else None), torch.no_grad():
        compare(lambda x, w, b: F.layer_norm(x + 1, (8,), w, b).relu() * 2, lambda: (X, torch.ones(8), torch.ones(8)))
    assert [len(graph.kernels) for graph in seen] == [1]


def test_a_missing_compiler_leaves_the_graph_to_aten(monkeypatch):
    from dynamo_nb.backends.triton_cpp import cpp_build

    monkeypatch.setattr(cpp_build, "load", lambda *args, **kwargs: None)
    compare(soft, lambda: (X,))


@pytest.mark.parametrize("make", [test_models.mlp, test_models.cnn, test_models.transformer, test_models.llama], ids=lambda f: f.__name__)
def test_training_step_of_a_model(make):
    torch.manual_seed(0)
    model, x = make()
    loss, grads = test_models.step(model, model, x)
    got, mine = test_models.step(model, dynamo_nb.compile(model, backend="triton_cpp", fullgraph=True), x)
    torch.testing.assert_close(got, loss, rtol=1e-4, atol=1e-4)
    for g, w in zip(mine, grads, strict=True):
        torch.testing.assert_close(g, w, rtol=1e-3, atol=1e-4)


def test_dropout_draws_what_eager_draws():
    layer = nn.Sequential(nn.Dropout(0.5), nn.ReLU())
    compiled = dynamo_nb.compile(layer, backend="triton_cpp")
    torch.manual_seed(3)
    want = layer(torch.ones(50))
    torch.manual_seed(3)
    assert torch.equal(compiled(torch.ones(50)), want)
