"""The garbage collector while we compile."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

NEVER = 1 << 30


@contextlib.contextmanager
def full_collections_postponed() -> Iterator[None]:
    """No passes over everything that is loaded; young objects are collected as ever.

    A compile allocates enough to set off full collections, each of which walks all of torch for a quarter of a second.
    """
    before = gc.get_threshold()
    if not gc.isenabled() or before[0] == 0 or before[2] == NEVER:
        yield
        return
    gc.set_threshold(before[0], before[1], NEVER)
    try:
        yield
    finally:
        if gc.get_threshold() == (before[0], before[1], NEVER):
            gc.set_threshold(*before)
