"""strict="retrace": at every hit a new trace must come to what the entry is; and what made a trace end is guarded."""

from __future__ import annotations

import pytest
import torch

import dynamo_nb
from dynamo_nb.guards.builder import GuardBuilder, GuardBuildError
from dynamo_nb.guards.strict import RetraceDiffers

X = torch.arange(3.0)


@pytest.fixture(autouse=True)
def _retrace():
    with dynamo_nb.config.patch(strict="retrace"):
        yield


class Box:
    def __init__(self, k: int) -> None:
        self.k = k


def numbers(x, n, log):
    log.append(n)
    return x * n + len(log)


def boxes(x, box, flag):
    box.k += 1
    if flag:
        x = x.sin()
    return x + box.k


def breaks(x, n, table):
    y = x.cos() + table["a"]
    if y.sum() > n:
        return y
    return y - n


PROGRAMS = {
    "numbers": (numbers, lambda n: (X, n, [1] * n)),
    "boxes": (boxes, lambda n: (X, Box(n), n % 2 == 0)),
    "breaks": (breaks, lambda n: (X, float(n), {"a": n % 2})),
    "sizes": (lambda x, y: x.reshape(-1) * x.size(0) + y.sum(), lambda n: (torch.ones(n + 2, 2), torch.ones(n + 1))),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_right_guards_pass(name):
    fn, inputs = PROGRAMS[name]
    compiled = dynamo_nb.compile(fn, backend="eager")
    for n in (1, 1, 2, 3, 4, 5, 4, 3, 2, 1):
        assert torch.equal(compiled(*inputs(n)), fn(*inputs(n)))


@pytest.mark.parametrize("name, kinds", [
    ("numbers", {"EQUALS_MATCH", "SEQUENCE_LENGTH", "LIST_LENGTH"}), ("boxes", {"EQUALS_MATCH", "CONSTANT_MATCH", "BOOL_MATCH", "TYPE_MATCH"}),
    ("breaks", {"EQUALS_MATCH"}), ("sizes", {"TENSOR_MATCH"}),
])
def test_a_guard_left_out_is_found(name, kinds, monkeypatch):
    add_all = GuardBuilder.add_all
    monkeypatch.setattr(GuardBuilder, "add_all", lambda self, made: add_all(self, [a for a in made if a.kind not in kinds]))
    fn, inputs = PROGRAMS[name]
    compiled = dynamo_nb.compile(fn, backend="eager")
    with pytest.raises(RetraceDiffers, match="guards hold, but"):
        for n in range(1, 6):
            compiled(*inputs(n))


def bad_shape(x, other):
    return (x @ other).sum() + 1


def needs_three(x, items):
    a, b, c = items
    return x + a + b + c


def indexes(x, items):
    return x * 2 + items[2]


def looks_up(x, items):
    return x + items.index(7)


@pytest.mark.parametrize("fn, bad, good", [
    (bad_shape, lambda: (X, torch.ones(4)), lambda: (X, torch.ones(3))),
    (needs_three, lambda: (X, [1]), lambda: (X, [1, 2, 3])),
    (indexes, lambda: (X, [1]), lambda: (X, [1, 2, 3])),
    (looks_up, lambda: (X, [1]), lambda: (X, [1, 7])),
], ids=["shape", "unpack", "index", "lookup"])
def test_calls_that_fail_leave_the_others_whole(fn, bad, good):
    counter = dynamo_nb.testing.CompileCounter()
    compiled = dynamo_nb.compile(fn, backend=counter)
    with pytest.raises(Exception) as eager:
        fn(*bad())
    for _ in range(2):
        with pytest.raises(type(eager.value)):
            compiled(*bad())
    before = counter.frame_count
    for _ in range(2):
        assert torch.equal(compiled(*good()), fn(*good()))
    assert counter.frame_count == before + 1


def test_a_cause_that_cannot_be_guarded_does_not_cost_the_frame(monkeypatch):
    add_all, refused = GuardBuilder.add_all, []

    def picky(self, made):
        made = list(made)
        if any(a.kind == "SEQUENCE_LENGTH" for a in made):
            refused.append(made)
            raise GuardBuildError("lengths can't be guarded")
        add_all(self, made)

    monkeypatch.setattr(GuardBuilder, "add_all", picky)
    counter = dynamo_nb.testing.CompileCounter()
    compiled = dynamo_nb.compile(lambda x, items: needs_three(x * 2, items), backend=counter)
    with dynamo_nb.config.patch(strict=""), pytest.raises(ValueError, match="not enough values"):
        compiled(X, [1])
    assert refused and counter.frame_count == 1
