"""The committed widget bundle is what its sources build to."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

import pytest

import kernel_ext

PACKAGE = pathlib.Path(kernel_ext.__path__[0])
SOURCES = PACKAGE / "widgets"
BUNDLE = PACKAGE / "static" / "report.js"


def test_bundle_equals_a_fresh_build(tmp_path):
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("needs npm and node to rebuild the widget")
    work = tmp_path / "widgets"
    shutil.copytree(SOURCES, work, ignore=shutil.ignore_patterns("node_modules"))
    try:
        subprocess.run([npm, "ci", "--no-audit", "--no-fund"], cwd=work, capture_output=True, text=True, check=True, timeout=120)
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
        pytest.skip(f"npm could not install esbuild: {error} {str(error.stderr or '').strip()[-300:]}")
    built = tmp_path / "report.js"
    subprocess.run([node, "build.mjs", str(built)], cwd=work, check=True, timeout=60)
    assert built.read_text(encoding="utf-8") == BUNDLE.read_text(encoding="utf-8"), "run `npm ci && node build.mjs` in kernel_ext/widgets"


def test_scripts_only_ever_set_text():
    for path in [*SOURCES.glob("*.js"), BUNDLE]:
        text = path.read_text(encoding="utf-8")
        for unsafe in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "://", "import("):
            assert unsafe not in text, f"{path.name} uses {unsafe}"
