"""Every notebook of the course runs from top to bottom under nbval."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import nbformat
import pytest

import dynamo_nb

ROOT = pathlib.Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SANITIZE = pathlib.Path(__file__).with_name("sanitize.cfg")


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_and_marked_outputs_agree(notebook):
    package_root = str(pathlib.Path(dynamo_nb.__path__[0]).parent)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([package_root, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbval-lax", "--nbval-sanitize-with", str(SANITIZE),
               "--nbval-cell-timeout=200", str(notebook)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_committed_form(notebook):
    """No widget state (it can break viewers), no address, no machine path."""
    content = nbformat.read(notebook, 4)
    nbformat.validate(content)
    assert "widgets" not in content.metadata
    text = notebook.read_text(encoding="utf-8")
    for unwanted in ("widget-view+json", "ipykernel_", "0x7f"):
        assert unwanted not in text
