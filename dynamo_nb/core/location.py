"""`Location`: a place in the user's source, as records name it."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Location:
    """A place in the user's source; `line` is 1-based, 0 where unknown."""

    file: str
    line: int
    function: str
    text: str = ""
