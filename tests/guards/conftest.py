from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from dynamo_nb.guards import strict


@pytest.fixture(autouse=True)
def strict_mode() -> Iterator[None]:
    with strict.enabled():
        yield
