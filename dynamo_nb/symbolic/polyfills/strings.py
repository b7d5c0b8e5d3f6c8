"""String methods on operands that are not all constants, such as iterators of strings."""

from __future__ import annotations

from typing import Any


def join(separator: str, parts: Any) -> str:
    text = ""
    first = True
    for part in parts:
        if not isinstance(part, str):
            raise TypeError(f"sequence item: expected str instance, {type(part).__name__} found")
        text = text + part if first else text + separator + part
        first = False
    return text


TABLE: dict[str, Any] = {"join": join}
