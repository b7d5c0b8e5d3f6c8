# mypy: ignore-errors
"""Finalizers, open generators and temporary files end where eager Python ends them; compiling keeps nothing of the user's alive."""

from __future__ import annotations

import gc
import os
import tempfile
import weakref

import pytest
import torch

import dynamo_nb

LOG: list[object] = []


class Dying:
    def __init__(self, n):
        self.n = n

    def __del__(self):
        LOG.append(f"end of {self.n}")


@dynamo_nb.disable
def made(n):
    return Dying(n)


def generator():
    try:
        yield 1
        yield 2
    finally:
        LOG.append("closed")


@dynamo_nb.disable
def opened():
    return generator()


def rebound(x):
    d = made(1)
    d = None  # noqa: F841
    LOG.append("after")
    return x + 1


def rebound_after_a_break(x):
    d = made(1)
    y = x + 1
    print("break")
    LOG.append("before")
    d = None  # noqa: F841
    LOG.append("after")
    return y


def rebound_in_a_loop(x):
    for i in range(3):
        d = made(i)
        LOG.append("loop")
        x = x + 1
    del d
    LOG.append("end")
    return x


def never_read(x):
    d = made(1)  # noqa: F841
    x = x + 1
    print("break")
    LOG.append("after")
    return x


def made_in_the_trace(x):
    d = Dying(1)  # noqa: F841
    y = x + 1
    LOG.append("after")
    return y


def two_references(x):
    d = made(1)
    e = d
    del d
    LOG.append("one left")
    del e
    LOG.append("none left")
    return x * 2


def moved_into_a_list(x):
    d = made(1)
    kept = [d]
    del d
    LOG.append("kept")
    return x + len(kept)


def dropped_result(x):
    made(1)
    LOG.append("after")
    return x + 1


def left_loop(x):
    for i in generator():
        x = x + i
        if i == 1:
            break
    LOG.append("after")
    return x


def left_loop_from_outside(x):
    for i in opened():
        x = x + i
        print("break")
        if i == 1:
            break
    LOG.append("after")
    return x


def inner(x):
    d = made(1)
    y = x + 1
    print("break")
    LOG.append("a")
    d = None  # noqa: F841
    LOG.append("b")
    return y


def in_a_callee(x):
    y = inner(x)
    LOG.append("c")
    return y * 2


def temporary_directory(x):
    folder = tempfile.TemporaryDirectory()
    name = folder.name
    x = x + 1
    print("break")
    LOG.append(os.path.exists(name))
    x = x + 1
    print("break")
    folder = None
    LOG.append(os.path.exists(name))
    return x


PROGRAMS = [
    rebound, rebound_after_a_break, rebound_in_a_loop, never_read, made_in_the_trace, two_references, moved_into_a_list, dropped_result,
    left_loop, left_loop_from_outside, in_a_callee, temporary_directory,
]


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_the_end_comes_in_eagers_place(fn):
    gc.disable()
    try:
        LOG.clear()
        want, seen = fn(torch.ones(2)), list(LOG)
        compiled = dynamo_nb.compile(fn, backend="eager")
        for _ in range(3):
            LOG.clear()
            assert torch.equal(compiled(torch.ones(2)), want) and seen == LOG
        assert dynamo_nb.cache_entries(fn)
    finally:
        gc.enable()


@dynamo_nb.disable
def perhaps(flag):
    return Dying(1) if flag else None


def never_read_or_nothing(x, flag):
    d = perhaps(flag)  # noqa: F841
    y = x + 1
    print("break")
    LOG.append("after")
    return y


def test_what_ended_silently_at_the_first_call_may_not_at_the_next():
    compiled = dynamo_nb.compile(never_read_or_nothing, backend="eager")
    for flag in (False, True, False, True):
        LOG.clear()
        never_read_or_nothing(torch.ones(2), flag)
        seen = list(LOG)
        LOG.clear()
        compiled(torch.ones(2), flag)
        assert seen == LOG


class Plain:
    def __init__(self):
        self.items = [torch.ones(2)]


def uses(x, box, items, table):
    y = x * len(items) + box.items[0]
    print("break")
    return y + table["k"].items[0]


def test_nothing_of_a_call_stays_alive():
    compiled = dynamo_nb.compile(uses, backend="eager")
    gc.collect()
    gc.disable()
    try:
        box, other, x = Plain(), Plain(), torch.ones(2)
        alive = [weakref.ref(v) for v in (box, other, box.items[0], x)]
        compiled(x, box, [1, 2], {"k": other})
        del box, other, x
        assert [ref() for ref in alive] == [None] * 4
    finally:
        gc.enable()


class Watched:
    def __init__(self):
        self.defaults = {"scale": 2.0}

    def step(self, x):
        y = x * self.defaults["scale"]
        print("break inside")
        return self.rest(y)

    def rest(self, y):
        print("break inside again")
        return y + self.defaults["scale"]


@dynamo_nb.disable
def watched(objects):
    return objects[0]


def steps(x, objects):
    w = watched(objects)
    y = w.step(x)
    print("break")
    return w.step(y)


def test_objects_with_weak_references_cross_breaks_of_inlined_frames():
    objects = [Watched()]
    watcher = weakref.ref(objects[0])
    compiled = dynamo_nb.compile(steps, backend="eager")
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2), objects), steps(torch.ones(2), objects)) and watcher() is objects[0]


def test_an_optimizer_with_a_scheduler():
    def train(compile_step):
        w = torch.nn.Parameter(torch.ones(3))
        opt = torch.optim.SGD([w], lr=0.1, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(opt, 0.7)
        step = compile_step(lambda: opt.step())
        for _ in range(5):
            opt.zero_grad()
            (w**2).sum().backward()
            step()
            scheduler.step()
        return w.detach()

    assert torch.allclose(train(lambda f: dynamo_nb.compile(f, backend="eager")), train(lambda f: f))
