"""The hand-built kernels under Triton's interpreter, each against eager torch (run under TRITON_INTERPRET=1)."""

from __future__ import annotations

import pytest

from tests.backends.triton_cpp.triton_building import check
from tests.backends.triton_cpp.triton_cases import CASES


@pytest.mark.parametrize("name", CASES)
def test_kernel(name: str) -> None:
    check(CASES[name]())
