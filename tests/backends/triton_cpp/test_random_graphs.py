"""Random programs through triton_cpp, in one process of their own: 50 compiled, 100 (of those that change nothing) by the meaning of their kernels."""

from __future__ import annotations

import pytest

from tests.backends.triton_cpp.random_graphs import check


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(0, 50, 10))
def test_compiled(first: int) -> None:
    assert [why for seed in range(first, first + 10) if (why := check(seed))] == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(1000, 1200, 50))
def test_kernels_by_their_meaning(first: int) -> None:
    assert [why for seed in range(first, first + 50) if (why := check(seed, reference=True))] == []
