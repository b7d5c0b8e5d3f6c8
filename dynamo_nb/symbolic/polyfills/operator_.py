"""operator's getters in Python."""

from __future__ import annotations

from typing import Any


def _follow(obj: Any, path: str) -> Any:
    for name in path.split("."):
        obj = getattr(obj, name)
    return obj


def make_attrgetter(*paths: str) -> Any:
    if len(paths) == 1:
        path = paths[0]
        return lambda obj: _follow(obj, path)
    return lambda obj: tuple(_follow(obj, path) for path in paths)


def make_itemgetter(*keys: Any) -> Any:
    if len(keys) == 1:
        key = keys[0]
        return lambda obj: obj[key]
    return lambda obj: tuple(obj[key] for key in keys)


def make_methodcaller(name: str, *args: Any, **kwargs: Any) -> Any:
    return lambda obj: getattr(obj, name)(*args, **kwargs)
