"""Whole random graphs under the sanitizers: nothing generated reads or writes out of bounds, or does what C++ leaves undefined."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.backends.triton_cpp import sanitized


@pytest.mark.skipif(not sanitized.libraries(), reason="the sanitizers' libraries are not installed")
def test_random_graphs_are_clean(tmp_path: Path) -> None:
    done = sanitized.run(6, 2000, str(tmp_path))
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-6000:]
    assert "6 programs are clean" in done.stdout
