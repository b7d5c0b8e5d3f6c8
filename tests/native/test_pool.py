"""Large results of compiled graphs reuse freed memory: never memory that anyone can still see."""

from __future__ import annotations

import os
import threading

import pytest
import torch

import dynamo_nb
from dynamo_nb import native

N = 1 << 20     # 4 MiB of f32


@pytest.fixture
def double():
    dynamo_nb.reset()
    yield dynamo_nb.compile(lambda x: x * 2 + 1)
    dynamo_nb.reset()
    assert native.pool_state()["bytes"] == 0


def test_a_freed_result_is_reused_and_a_living_one_is_not(double):
    x = torch.arange(N, dtype=torch.float32)
    first = double(x)
    address = first.data_ptr()
    second = double(x + 1)
    assert second.data_ptr() != address and torch.equal(first, x * 2 + 1)
    view = first[10:20]
    del first
    third = double(x + 2)
    assert third.data_ptr() != address and torch.equal(view, x[10:20] * 2 + 1)
    del view
    reused = native.pool_state()["reused"]
    fourth = double(x + 3)
    assert fourth.data_ptr() == address and native.pool_state()["reused"] == reused + 1
    assert torch.equal(fourth, (x + 3) * 2 + 1) and torch.equal(third, (x + 2) * 2 + 1)


def test_the_limit_is_kept_and_zero_turns_it_off(double):
    x = torch.ones(N)
    with dynamo_nb.config.patch(buffer_pool_mb=8):
        made = [dynamo_nb.compile(lambda x, k=k: x * k + 1)(x) for k in range(5)]
        del made
        assert 0 < native.pool_state()["bytes"] <= 8 << 20
    native.pool_limit(0)
    assert native.pool_state() | {"reused": 0} == {"blocks": 0, "bytes": 0, "reused": 0}
    double(x)
    native.pool_limit(0)
    del x
    assert native.pool_state()["bytes"] == 0


def test_results_can_be_resized_shared_and_saved(double, tmp_path):
    x = torch.arange(N, dtype=torch.float32)
    y = double(x)
    y.resize_(2 * N)
    assert torch.equal(y[:N], x * 2 + 1)
    z = double(x)
    z.share_memory_()
    torch.save(z, tmp_path / "z.pt")
    assert torch.equal(torch.load(tmp_path / "z.pt"), x * 2 + 1)
    assert (z.numpy() == (x * 2 + 1).numpy()).all()


def test_threads(double):
    bad = []

    def work(k):
        x = torch.full((N,), float(k))
        for _ in range(30):
            y, z = double(x), double(x + 1)
            if not (bool((y == 2 * k + 1).all()) and bool((z == 2 * k + 3).all())):
                bad.append(k)

    double(torch.ones(N))
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not bad


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_goes_on(double):
    x = torch.ones(N)
    y = double(x)
    del y
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)
        ok = all(bool((double(x) == 3).all()) for _ in range(3)) and native.pool_state()["blocks"] <= 2
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert torch.equal(double(x), x * 3)
