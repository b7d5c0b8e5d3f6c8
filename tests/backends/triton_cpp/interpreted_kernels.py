"""The hand-built kernels under Triton's interpreter, each against eager torch (run under TRITON_INTERPRET=1)."""

from __future__ import annotations

import sys

import pytest

from dynamo_nb.backends.triton_cpp.triton_launch import Launcher
from tests.backends.triton_cpp.triton_building import check
from tests.backends.triton_cpp.triton_cases import CASES


def test_triton_is_imported_only_when_used() -> None:
    assert "triton" not in sys.modules      # the first test of its process
    Launcher(CASES["gather"]().kernel)
    assert "triton" not in sys.modules


@pytest.mark.parametrize("name", CASES)
def test_kernel(name: str) -> None:
    check(CASES[name]())
