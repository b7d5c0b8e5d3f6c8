"""Inputs that a graph changes: the same contents as eager, whatever else reads them, and no memory between."""

from __future__ import annotations

import contextlib

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import dynamo_nb
from dynamo_nb.core import events


@contextlib.contextmanager
def generated():
    seen = []
    with events.listening(lambda kind, record: seen.append(record) if kind == "generated" else None):
        yield seen


def twin(x):
    return torch.empty_strided(x.size(), x.stride(), dtype=x.dtype).copy_(x)


def check(fn, *args):
    """Compare results and arguments twice; the ATen calls of the first graph."""
    mine = [twin(a) for a in args]
    compiled = dynamo_nb.compile(fn)
    with generated() as seen:
        for _ in range(2):
            with torch.no_grad():
                want, got = fn(*args), compiled(*mine)
            torch.testing.assert_close([*args], mine, equal_nan=True)
            if want is not None:
                torch.testing.assert_close(want, got, equal_nan=True)
    return [name for name, _ in seen[0].aten] if seen else []


def adam(p, g, m, v):
    m.mul_(0.9).add_(g, alpha=0.1)
    v.mul_(0.99).addcmul_(g, g, value=0.01)
    p.addcdiv_(m, v.sqrt().add_(1e-8), value=-0.1)


def test_an_optimizer_step_is_one_kernel():
    torch.manual_seed(0)
    with generated() as seen:
        assert not check(adam, *(torch.rand(50, 6) for _ in range(4)))
    assert len([k for k in seen[0].kernels if k.phases]) == 1


def softmax_(x):
    x.copy_(torch.softmax(x, -1))


def read_before_and_after(x, y):
    before = x.sum(0)
    x.mul_(y)
    after = x.sum(0)
    return before, after, x.t() * 2


def flipped(x):
    x.copy_(x.flip(0) + 1)


def transposed(x):
    x.copy_(x.t() + x)


def rolled(x):
    x.copy_(torch.softmax(x.roll(1, -1), -1).roll(1, -1))


def normalised(x, y):
    total = x.sum()
    x.sub_(total)
    y.add_(x.mean(0))


def through_views(x):
    x.t().mul_(2)
    x[::2].add_(1)
    x[:, 1] += x[:, 0]


def kept(x):
    old = x * 1
    view = x[1:]
    x.add_(1)
    return old, view + 1


@pytest.mark.parametrize("fn, shapes", [
    (softmax_, [(6, 300)]), (softmax_, [(300, 6)]), (read_before_and_after, [(5, 6), (5, 6)]), (flipped, [(5, 6)]), (transposed, [(6, 6)]),
    (rolled, [(6, 300)]), (normalised, [(5, 6), (6,)]), (through_views, [(6, 30)]), (kept, [(6, 3)]), (softmax_, [(0, 4)]), (flipped, [(1, 1)]),
])
def test_contents(fn, shapes):
    torch.manual_seed(0)
    check(fn, *(torch.randn(s) for s in shapes))


@pytest.mark.parametrize("make", [
    lambda: torch.randn(5, 6).half(), lambda: torch.arange(30).view(5, 6), lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    lambda: torch.randn(6, 5).t(), lambda: torch.randn(10, 12)[::2, ::2], lambda: torch.tensor(3.0),
])
def test_layouts_and_types(make):
    assert not check(lambda x: x.add_(1).mul_(2), make())


def test_batch_norm_statistics():
    torch.manual_seed(0)
    check(
        lambda x, mean, var, count: (count.add_(1), F.batch_norm(x, mean, var, training=True))[1],
        torch.randn(6, 30, 4), torch.zeros(30), torch.ones(30), torch.tensor(0),
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("norm", [
    lambda x, mean, var: F.batch_norm(x, mean, var, training=True, momentum=0.5), lambda x, mean, var: F.instance_norm(x, mean, var, momentum=0.5),
    lambda x, mean, var: torch.native_batch_norm(x, None, None, mean, var, True, 0.5, 1e-5)[0],
])
def test_statistics_of_half_types(norm, dtype):
    """The called operator's own statistics have another dtype than fake tensors say."""
    torch.manual_seed(0)
    check(norm, torch.randn(3, 5, 40).to(dtype), torch.ones(5, dtype=dtype), torch.ones(5, dtype=dtype))


def put(c, i, v):
    c[:, i] = v
    return c.sum(-1)


def copied(c, i, v):
    c.index_copy_(1, i, v)
    return (c * 2).sum(1)


def returned(c, i, v):
    c[:, i] = v
    return c


def from_itself(c, i, v):
    c[:, i] = c[:, i + 1] * 2


def old_and_new(c, i, v):
    old = c * 1
    c[:, i] = 0.0
    return old, c + 1


def twice(c, i, v):
    c[:, i] = v
    c[:, i + 1] = c[:, i] + v


@pytest.mark.parametrize("fn", [put, copied, returned, from_itself, old_and_new, twice])
def test_a_few_elements_of_a_large_tensor(fn):
    torch.manual_seed(0)
    names = check(fn, torch.randn(3, 8, 4), torch.tensor([2, 5]), torch.randn(3, 2, 4))
    assert not any("copy_" in name for name in names), names


def test_an_index_out_of_range_leaves_what_eager_leaves():
    def fn(c, i, v):
        c.add_(1)
        c.index_copy_(0, i, v)

    args = torch.zeros(4, 2), torch.tensor([1, 9]), torch.ones(2, 2)
    mine = [twin(a) for a in args]
    with pytest.raises(IndexError):
        fn(*args)
    with pytest.raises(IndexError):
        dynamo_nb.compile(fn)(*mine)
    torch.testing.assert_close(args[0], mine[0])


STEPS = {
    "add": lambda a, b: a.add_(b), "mul": lambda a, b: a.mul_(0.5), "flip": lambda a, b: a.copy_(b.flip(0)), "t": lambda a, b: a.copy_(b.t() + 0.5),
    "row": lambda a, b: a.sub_(b.mean(1, keepdim=True)), "col": lambda a, b: a.add_(b.amax(0)), "slice": lambda a, b: a[1:3].copy_(b[:2] + 1),
    "put": lambda a, b: a.index_copy_(0, torch.tensor([2, 0]), b[1:3] * 2), "all": lambda a, b: a.sub_(b.sum() * 0.01),
    "soft": lambda a, b: a.copy_(torch.softmax(b, -1)), "mask": lambda a, b: a.masked_fill_(b > 0.5, 0.25),
}


@settings(max_examples=12, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=7))
def test_any_order_of_changes(steps):
    def fn(*tensors):
        seen = []
        for name, a, b in steps:
            STEPS[name](tensors[a], tensors[b])
            seen.append(tensors[b] * 2)
        return seen[-1], sum(seen)

    torch.manual_seed(0)
    dynamo_nb.reset()
    check(fn, *(torch.randn(4, 4) for _ in range(3)))


COPIES = {
    "clone": torch.clone, "no fold": lambda x: x.amax((), keepdim=True) if x.dim() == 0 else x.reshape(1, *x.shape).sum(0),
    "to": lambda x: x.to(x.dtype, copy=True), "pad": lambda x: F.pad(x, [0, 0]) if x.dim() else torch.cat([x.view(1)]).view(()),
    "repeat": lambda x: x.repeat([1] * x.dim()),
}
SHOWN = {
    "itself": lambda y: y, "flat": lambda y: y.view(-1), "part": lambda y: y.view(-1)[:1], "bits": lambda y: y.view(torch.int32),
    "turned bits": lambda y: y.mT.view(torch.int32) if y.dim() > 1 else y.view(torch.int32), "strided": lambda y: y.as_strided((1,), (1,)),
}


@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("shape", [(), (3, 4)])
def test_a_copy_is_no_view(copy, shape):
    """Nor are views of it: they share the copy's memory, and show what was copied, whatever becomes of the original."""
    def fn(x):
        y = copy(x)
        results = [show(y) for show in SHOWN.values()]
        x.add_(1)
        return results

    x = torch.randn(shape)
    mine = twin(x)
    want, got = fn(x), dynamo_nb.compile(fn)(mine)
    torch.testing.assert_close([*want, x], [*got, mine])
    assert len({y.untyped_storage().data_ptr() for y in got}) == 1
    assert got[0].untyped_storage().data_ptr() != mine.untyped_storage().data_ptr()
    for show in SHOWN.values():
        dynamo_nb.reset()
        assert dynamo_nb.compile(lambda x, show=show: show(copy(x)))(mine).untyped_storage().data_ptr() != mine.untyped_storage().data_ptr()


def test_views_of_results_show_them_before_a_change():
    def fn(x):
        y = x * 2
        shown = y.t(), (y > 1).view(-1), y.sum(0, keepdim=True).view(-1)
        x.mul_(3)
        return shown

    torch.manual_seed(0)
    check(fn, torch.randn(3, 4))


def put_one(x, k):
    y = x * 2
    y[k] = 1.0
    return y


def spread(x, k):
    n = x.shape[0] - 2
    return (k[:1] * 2).expand(3, 0).cumsum(0), torch.full((4, n), 2.0).expand(5, 4, -1).cumsum(0), x.new_ones(1).expand(n).cumsum(0)


@pytest.mark.parametrize("fn", [put_one, spread])
@pytest.mark.parametrize("dynamic", [False, True])
def test_nothing_is_written_where_expanded_memory_has_no_elements(fn, dynamic):
    compiled = dynamo_nb.compile(fn, dynamic=dynamic)
    for shape in ((5, 0), (2, 3), (5, 3), (3, 4), (2, 0)):
        args = torch.randn(shape), torch.tensor([0, 1])
        torch.testing.assert_close(compiled(*args), fn(*args))
