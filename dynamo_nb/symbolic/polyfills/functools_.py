"""functools in Python."""

from __future__ import annotations

from typing import Any

_MISSING = object()


def reduce(function: Any, iterable: Any, initial: Any = _MISSING) -> Any:
    iterator = iter(iterable)
    if initial is _MISSING:
        try:
            value = next(iterator)
        except StopIteration:
            raise TypeError("reduce() of empty iterable with no initial value") from None
    else:
        value = initial
    for item in iterator:
        value = function(value, item)
    return value


class ComparedKey:
    """What functools.cmp_to_key wraps a value in."""

    def __init__(self, obj: Any, compare: Any) -> None:
        self.obj = obj
        self.compare = compare

    def __lt__(self, other: Any) -> bool:
        return self.compare(self.obj, other.obj) < 0

    def __gt__(self, other: Any) -> bool:
        return self.compare(self.obj, other.obj) > 0

    def __le__(self, other: Any) -> bool:
        return self.compare(self.obj, other.obj) <= 0

    def __ge__(self, other: Any) -> bool:
        return self.compare(self.obj, other.obj) >= 0

    def __eq__(self, other: Any) -> bool:
        return self.compare(self.obj, other.obj) == 0

    __hash__ = None  # type: ignore[assignment]


def make_cmp_key(compare: Any) -> Any:
    def key(obj: Any) -> Any:
        return ComparedKey(obj, compare)

    return key
