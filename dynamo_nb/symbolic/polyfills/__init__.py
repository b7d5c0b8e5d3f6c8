"""Python functions traced in place of C code: itertools, functools, operator, string and container methods.

Their frames are never visible: a break inside one happens at the call of what it stands for.
"""

from __future__ import annotations

from typing import Any

from . import collections_, descriptors, functools_, itertools_, operator_, strings

METHODS: dict[tuple[type, str], Any] = {(str, name): fn for name, fn in strings.TABLE.items()}


def method(cls: type, name: str) -> Any:
    """The replacement of a C method when its operands are not all constant; None if there is none."""
    return METHODS.get((cls, name))


__all__ = ["collections_", "descriptors", "functools_", "itertools_", "method", "operator_", "strings"]
