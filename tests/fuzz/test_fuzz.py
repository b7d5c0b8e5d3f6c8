"""The fuzzer in CI: a fixed range of seeds against dynamo_nb, and the generator's own promises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.fuzz.core import BREAKY, FAMILIES
from tests.fuzz.gen import generate

ROOT = Path(__file__).resolve().parents[2]
SILENT = {"extrainput", "methodentry", "opt", "dtype", "alias", "views", "inplace", "rng"}


def fuzz(*arguments: str, timeout: float = 900.0) -> str:
    """Run the command line in its own process (it forks, which a process that ran autograd must not) and return its output."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    done = subprocess.run([sys.executable, "-m", "tests.fuzz", *arguments], cwd=ROOT, env=env, capture_output=True, text=True,
                          timeout=timeout)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout[-12000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def test_programs_equal_eager() -> None:
    """150 programs on dynamo_nb, traced afresh at every hit: no difference, at least 90 % with a graph and 60 % whole."""
    out = fuzz("--programs", "150", "--seed", "0", "--subject", "dynamo_nb", "--strict", "retrace", "--shrink", "20", "--shrinks", "1", "--min-graph", "90",
               "--min-whole", "60")
    assert "150 programs" in out
    assert "mismatches 0, crashes 0, hangs 0, harness errors 0" in out


def test_plain_python_agrees_with_itself() -> None:
    """The harness finds nothing where there is no compiler, and the programs are valid and mostly do not raise."""
    out = fuzz("--programs", "200", "--seed", "1000", "--subject", "plain")
    assert "0 discarded" in out
    raising = int(out.split("raising ")[1].split()[0])
    assert raising < 40


def test_generator_is_deterministic() -> None:
    for seed in range(40):
        assert generate(seed).source == generate(seed).source
        assert generate(seed).source != generate(seed, attempt=1).source


def test_generator_reaches_every_family() -> None:
    seen: set[str] = set()
    for seed in range(500):
        seen |= generate(seed).features
    assert (set(FAMILIES) | set(BREAKY)) - SILENT <= seen
