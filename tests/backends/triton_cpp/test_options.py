"""Options of the backend: tiered builds, calls compared with ATen."""

from __future__ import annotations

import logging
import shutil
import time

import pytest
import torch

import dynamo_nb
from dynamo_nb.backends.triton_cpp import cpp_build
from dynamo_nb.backends.triton_cpp.graph import LOWERINGS
from dynamo_nb.core import events

aten = torch.ops.aten


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """Sets $CXX to a script around the real compiler, with an empty cache."""
    real = shutil.which("g++") or shutil.which("c++")
    if real is None:
        pytest.skip("no C++ compiler")

    def use(body):
        script = tmp_path / "cxx"
        script.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then exec {real} --version; fi\n{body.format(real=real)}\n')
        script.chmod(0o755)
        monkeypatch.setenv("CXX", str(script))
        monkeypatch.setenv("DYNAMO_NB_CACHE_DIR", str(tmp_path / "cache"))
        cpp_build.clear()
        return tmp_path

    yield use
    cpp_build.clear()


def model(x):
    return (x.sin() * 2).relu().sum(-1)


def test_aten_runs_until_the_build_is_done(compiler):
    folder = compiler('while [ ! -e "$(dirname "$0")/go" ]; do sleep 0.05; done; exec {real} "$@"')
    seen = []
    with events.listening(lambda kind, record: seen.append(record) if kind == "generated" else None):
        compiled = dynamo_nb.compile(model, options={"tiered": True})
        x = torch.randn(5, 7)
        torch.testing.assert_close(compiled(x), model(x), rtol=0, atol=0)        # ATen's own operators
        assert len(seen) == 1 and seen[0].waits and "ATen runs it" in seen[0].text()
        (folder / "go").touch()
        end = time.monotonic() + 120
        while len(seen) == 1 and time.monotonic() < end:
            torch.testing.assert_close(compiled(x), model(x))
            time.sleep(0.02)
        assert seen[-1] is seen[0] and not seen[0].waits and "ATen runs it" not in seen[0].text()
        torch.testing.assert_close(compiled(x), model(x))


def test_a_build_that_is_cached_starts_at_once(compiler):
    compiler('exec {real} "$@"')
    x = torch.randn(5, 7)
    dynamo_nb.compile(model)(x)
    dynamo_nb.reset()
    seen = []
    with events.listening(lambda kind, record: seen.append(record) if kind == "generated" else None):
        torch.testing.assert_close(dynamo_nb.compile(model, options={"tiered": True})(x), model(x))
    assert not seen[0].waits


def test_a_build_that_fails_leaves_aten(compiler):
    compiler("exit 1")
    compiled = dynamo_nb.compile(model, options={"tiered": True})
    x = torch.randn(5, 7)
    for _ in range(20):
        torch.testing.assert_close(compiled(x), model(x), rtol=0, atol=0)
        time.sleep(0.02)


def test_training_and_changed_inputs_under_tiers(compiler):
    compiler('sleep 0.3; exec {real} "$@"')

    def step(w, x, count):
        count.add_(1)
        return ((x @ w).tanh() ** 2).mean()

    compiled = dynamo_nb.compile(step, options={"tiered": True})
    torch.manual_seed(0)
    w, x = torch.randn(4, 3, requires_grad=True), torch.randn(5, 4)
    a, b = torch.tensor(0.0), torch.tensor(0.0)
    for _ in range(30):
        w.grad = None
        step(w, x, a).backward()
        want, w.grad = w.grad, None
        compiled(w, x, b).backward()
        torch.testing.assert_close(w.grad, want)
        assert a.equal(b)
        time.sleep(0.05)


@pytest.fixture
def warnings(caplog):
    logger = logging.getLogger("dynamo_nb")
    logger.addHandler(caplog.handler)
    yield lambda: [r.getMessage() for r in caplog.records if "verify" in r.getMessage()]
    logger.removeHandler(caplog.handler)


def dropout_and_state(x, s):
    s.add_(x.sum(0))
    return torch.nn.functional.dropout(x.exp(), 0.5) + x.t().contiguous().t()


@pytest.mark.parametrize("make", [
    lambda: (torch.randn(4, 3), torch.zeros(3)), lambda: (torch.randn(8, 6)[::2, ::2], torch.zeros(3)),
    lambda: (torch.randn(1, 3).expand(4, 3), torch.zeros(3)),
])
def test_a_verified_graph_does_what_eager_does(make, warnings):
    compiled = dynamo_nb.compile(dropout_and_state, options={"verify": True})
    torch.manual_seed(0)
    args = make()
    twins = args[0], args[1].clone()
    for seed in range(3):
        torch.manual_seed(seed)
        want = dropout_and_state(*args)
        torch.manual_seed(seed)
        torch.testing.assert_close(compiled(*twins), want, rtol=0, atol=0)
        torch.testing.assert_close(args[1], twins[1], rtol=0, atol=0)
    assert not warnings()


def test_verify_names_the_first_node_that_differs(monkeypatch, warnings):
    monkeypatch.setitem(LOWERINGS, aten.sin.default, LOWERINGS[aten.cos.default])

    def wrong(x):
        y = x * 2 + 1
        z = y.sin()             # the line that a fault is put into
        return z.exp() + y

    x = torch.randn(5)
    found = []
    with events.listening(lambda kind, record: found.append(record) if kind == "difference" else None):
        torch.testing.assert_close(dynamo_nb.compile(wrong, options={"verify": True})(x), wrong(x), rtol=0, atol=0)
    line = wrong.__code__.co_firstlineno + 2
    assert len(found) == 1 and found[0].startswith("sin (aten.sin.default") and f"test_options.py:{line}" in found[0]
    assert len(set(warnings())) == 1


def test_errors_of_options():
    for options in ({"tierd": True}, {"codegen": "rust"}):
        with pytest.raises(Exception, match="takes the options"):
            dynamo_nb.compile(model, options=options)(torch.randn(3, 3))
