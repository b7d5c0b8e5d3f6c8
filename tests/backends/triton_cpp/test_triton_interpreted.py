"""Printed kernels run by Triton's interpreter against eager torch: in a process of their own, since TRITON_INTERPRET must precede Triton's import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="needs Triton (an optional dependency)")
HERE = Path(__file__).parent


def test_interpreted(tmp_path: Path) -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "DYNAMO_NB_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    files = [str(HERE / name) for name in ("interpreted_kernels.py", "interpreted_operations.py")]
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", *files],
                          env=environment, capture_output=True, text=True, cwd=HERE.parents[2])
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
