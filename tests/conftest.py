"""Every test starts from a reset compiler, with internal errors raised and guards checked in all their forms."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

os.environ["DYNAMO_NB_RAISE_INTERNAL"] = "1"


@pytest.fixture(autouse=True)
def _fresh_compiler(request: pytest.FixtureRequest) -> Iterator[None]:
    import dynamo_nb
    from dynamo_nb.guards import strict

    dynamo_nb.reset()
    with strict.enabled("native" not in request.node.nodeid):
        yield
    dynamo_nb.reset()
