"""Whole graphs through the Triton half: run in its interpreter against eager, and compiled ahead of time for sm_80 and sm_90."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from dynamo_nb.backends.aot import decompositions
from dynamo_nb.backends.triton_cpp.backend import compile_graph
from dynamo_nb.core import events
from tests.backends.triton_cpp import random_graphs, test_backend, test_indexing

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed: pip install '.[triton]'")
PROGRAMS = ("soft", "norms", "folds", "views", "elements", "called", "aliases")


def interpret() -> None:
    """In a process of its own, with TRITON_INTERPRET=1 before triton is imported."""
    import dynamo_nb

    for name in PROGRAMS:
        fn = getattr(test_backend, name)
        compiled = dynamo_nb.compile(fn, backend="triton_cpp", options={"codegen": "triton"}, fullgraph=True)
        got, want = test_backend.leaves(compiled(test_backend.X.clone())), test_backend.leaves(fn(test_backend.X.clone()))
        for g, w in zip(got, want, strict=True):
            torch.testing.assert_close(g, w, rtol=2e-5, atol=2e-5, equal_nan=True)
            assert g.stride() == w.stride()
        print(name, "agrees")
    assert random_graphs.check(620029, codegen="triton") == ""      # parts of a concatenation that are read nowhere, at places below 0
    interpret_indexing()
    with events.listening(lambda kind, what: print("left to ATen:", what.why) if kind == "generated" and what.why else None):
        varying = dynamo_nb.compile(lambda x: torch.softmax(x, -1) + x.shape[0], backend="triton_cpp", options={"codegen": "triton"}, dynamic=True)
        for n in (3, 5, 9):
            torch.testing.assert_close(varying(torch.ones(n, n + 1)), torch.softmax(torch.ones(n, n + 1), -1) + n)
    print("varying agrees")


def interpret_indexing() -> None:
    """Reading by tensors; out of bounds the interpreter raises what eager does."""
    for name in ("adjacent", "apart", "gather", "embedding and norm", "cross entropy", "of a concatenation"):
        fn, args = test_indexing.PROGRAMS[name], [test_indexing.X, test_indexing.ROW, test_indexing.PAIR]
        test_indexing.same(compile_graph(test_indexing.traced(fn, *args), args, codegen="triton")(list(args))[0], fn(*args))
    for name in ("index", "gather", "embedding and norm"):
        reads, size = test_indexing.READS[name]
        run = compile_graph(test_indexing.traced(reads, test_indexing.X, torch.zeros(3, dtype=torch.int64)), [], codegen="triton")
        for far in (size, -size - 1, 2**62, 0):
            bad = torch.tensor([0, far, 1])
            got, want = test_indexing.result(run, [test_indexing.X, bad]), test_indexing.result(reads, test_indexing.X, bad)
            assert got == want if isinstance(want, tuple) else torch.allclose(got, want, atol=1e-5)
    counted = compile_graph(test_indexing.traced(only_checked, test_indexing.X), [], codegen="triton")([test_indexing.X])[0]
    test_indexing.same(counted, only_checked(test_indexing.X))
    print("indexing agrees")


def only_checked(x: torch.Tensor) -> torch.Tensor:
    """What is read at computed places isn't needed: a kernel without tensors checks them."""
    x.index_select(0, (torch.arange(5) + 1).fmod(x.shape[0]))
    return x + 1


def test_programs_in_the_interpreter() -> None:
    env = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", "from tests.backends.triton_cpp.test_triton_backend import interpret; interpret()"], cwd=ROOT, env=env,
        capture_output=True, text=True, timeout=280,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert [line for line in done.stdout.splitlines() if line.endswith(" agrees")] == [f"{name} agrees" for name in (*PROGRAMS, "indexing", "varying")]
    assert "left to ATen" not in done.stdout


@pytest.mark.parametrize("name, arch", [("soft", 80), ("norms", 90), ("folds", 80), ("views", 90)])
def test_kernels_compile_ahead_of_time(name: str, arch: int) -> None:
    from dynamo_nb.backends.triton_cpp import triton_build
    from dynamo_nb.backends.triton_cpp.backend import _kernels
    from dynamo_nb.backends.triton_cpp.graph import GraphLowering
    from dynamo_nb.backends.triton_cpp.schedule import Scheduler
    from dynamo_nb.backends.triton_cpp.triton_printer import print_kernel

    program = getattr(test_backend, name)
    gm = make_fx(lambda x: test_backend.leaves(program(x)), decomposition_table=decompositions(), tracing_mode="fake")(test_backend.X)
    lowered = GraphLowering(gm).run()
    kernels = [k for k in _kernels(lowered, Scheduler(lowered).run()).values() if k.phases]
    assert kernels
    for kernel in kernels[:4]:
        ptx, cubin = triton_build.compile_ahead(print_kernel(kernel, triton_build.configs(kernel)[0]), arch)
        assert f".target sm_{arch}" in ptx and len(cubin) > 500


@pytest.mark.parametrize("name", ["apart", "cross entropy"])
def test_checks_stop_the_device(name: str) -> None:
    from dynamo_nb.backends.triton_cpp import triton_build
    from dynamo_nb.backends.triton_cpp.backend import _kernels
    from dynamo_nb.backends.triton_cpp.graph import GraphLowering
    from dynamo_nb.backends.triton_cpp.schedule import Scheduler
    from dynamo_nb.backends.triton_cpp.triton_printer import print_kernel

    lowered = GraphLowering(test_indexing.traced(test_indexing.PROGRAMS[name], test_indexing.X, test_indexing.ROW, test_indexing.PAIR)).run()
    checking = [k for k in _kernels(lowered, Scheduler(lowered).run()).values() if k.checks]
    assert checking
    for kernel in checking:
        ptx, _ = triton_build.compile_ahead(print_kernel(kernel, triton_build.configs(kernel)[0]), 90)
        assert "__assertfail" in ptx
