"""collections' C helpers in Python."""

from __future__ import annotations

from typing import Any


def count_elements(mapping: Any, iterable: Any) -> None:
    for element in iterable:
        mapping[element] = mapping.get(element, 0) + 1
