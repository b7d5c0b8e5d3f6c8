"""The hand-built kernels under Triton's interpreter, each against eager torch (run under TRITON_INTERPRET=1)."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dynamo_nb.backends.triton_cpp import ir, triton_build
from dynamo_nb.backends.triton_cpp.ir import DType
from dynamo_nb.backends.triton_cpp.triton_autotune import AutotunedLauncher
from dynamo_nb.backends.triton_cpp.triton_launch import Launcher
from dynamo_nb.backends.triton_cpp.triton_printer import Config
from tests.backends.triton_cpp.triton_building import I0, I1, I2, I3, S0, S1, buffer, check, kernel, load, op
from tests.backends.triton_cpp.triton_cases import CASES


def test_triton_is_imported_only_when_used() -> None:
    assert "triton" not in sys.modules      # the first test of its process
    Launcher(CASES["gather"]().kernel)
    assert "triton" not in sys.modules


@pytest.mark.parametrize("name", CASES)
def test_kernel(name: str) -> None:
    check(CASES[name]())


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, database=None)
@given(st.data())
def test_random_reductions(data: st.DataObject) -> None:
    """Any split of four permuted dimensions into outer and inner ones, a reduction and a phase that uses it, any blocks, both index widths."""
    shape = data.draw(st.lists(st.integers(1, 4), min_size=4, max_size=4))
    order = data.draw(st.permutations(range(4)))
    split = data.draw(st.integers(0, 3))
    a = torch.randint(-9, 10, shape, generator=torch.Generator().manual_seed(sum(shape))).float().permute(order)
    symbolic = data.draw(st.booleans())
    sizes = (a.shape[0], a.shape[3]) if symbolic else ()
    variables = (I0, I1, I2, I3)
    every: ir.Loops = tuple((v, n) for v, n in zip(variables, map(ir.sympy.Integer, a.shape), strict=True))
    if symbolic:
        every = ((I0, S0), every[1], every[2], (I3, S1))
    # Strides of a permuted contiguous tensor, as constants: sizes stay free of them.
    place = ir.sympy.Add(*(v * s for v, s in zip(variables, a.stride(), strict=True)))
    outer, inner, x = every[:split], every[split:], load("a", DType.f32, place)
    kind = data.draw(st.sampled_from(["sum", "max", "argmin"]))
    result = DType.i64 if kind == "argmin" else DType.f32
    total = load("t", result, 0) if result is DType.f32 else ir.Op(DType.f32, "cast", (load("t", result, 0),))
    phases = [ir.Phase(inner, (ir.Reduce("t", outer, inner, ir.sympy.Integer(0), kind, x),)),
              ir.Phase(inner, (ir.Store("o", every, place, op("sub", x, total)),))]
    bounds = [n for _, n in every]
    buffers = [buffer("a", DType.f32, bounds, a.stride()), buffer("o", DType.f32, bounds, a.stride()), buffer("t", result, [], kind="local")]
    k = kernel("random", outer, phases, buffers, ["o"], (S0, S1) if symbolic else ())
    launcher = Launcher(k, Config(data.draw(st.sampled_from([1, 2, 8])), data.draw(st.sampled_from([1, 4, 32]))))
    if data.draw(st.booleans()):
        launcher.source = dataclasses.replace(launcher.source, index_bound=lambda *_: 2**40)
    got = torch.empty_strided(a.shape, a.stride())
    launcher([a, got], sizes)
    flat = a.flatten(split)
    reduced = {"sum": lambda: flat.sum(-1), "max": lambda: flat.amax(-1), "argmin": lambda: flat.argmin(-1)}[kind]()
    assert torch.equal(got, a - reduced.reshape(*a.shape[:split], *[1] * (4 - split)).float()), str(k)


@pytest.mark.parametrize("name", [n for n in CASES if len(triton_build.configs(CASES[n]().kernel)) > 1][::6])
@pytest.mark.parametrize("best", [0, -1])
def test_autotuning_runs_every_candidate_on_copies_and_keeps_the_fastest(name: str, best: int) -> None:
    case, runs = CASES[name](), []

    def timer(run: Callable[[], None]) -> float:
        run()
        runs.append(run)
        return float(len(runs)) if best == 0 else -float(len(runs))

    launcher = AutotunedLauncher(case.kernel, timer=timer)
    check(case, launcher)
    assert len(runs) == len(launcher.launchers) and launcher.source is launcher.launchers[best].source
    check(case, launcher)
    assert len(runs) == len(launcher.launchers)
