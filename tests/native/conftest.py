from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from dynamo_nb import native


@pytest.fixture(autouse=True)
def clean_state() -> Iterator[None]:
    native.reset_all()
    yield
    native.reset_all()
    assert native.region_depth() == 0
    assert not native.is_disabled()
