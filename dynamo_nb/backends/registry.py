"""The table of backends by name, with tags; users add their own with `register_backend`."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any

from ..core.exc import InvalidBackend

Backend = Callable[..., Any]
_backends: dict[str, Backend] = {}
_tags: dict[str, tuple[str, ...]] = {}
_builtin: set[str] = set()
DEFAULT_BACKEND = "triton_cpp"


def register_backend(compiler_fn: Backend | None = None, name: str | None = None, tags: Iterable[str] = ()) -> Any:
    """Make `compiler_fn(gm, example_inputs)` usable by name; also as a decorator with or without arguments."""
    if compiler_fn is None:
        return lambda fn: register_backend(fn, name=name, tags=tags)
    if not callable(compiler_fn):
        raise TypeError(f"a backend must be callable, not {type(compiler_fn).__name__}")
    label = name or compiler_fn.__name__
    _backends[label] = compiler_fn
    _tags[label] = tuple(tags)
    return compiler_fn


def register_builtin(name: str, *tags: str) -> Callable[[Backend], Backend]:
    def register(fn: Backend) -> Backend:
        register_backend(fn, name=name, tags=tags)
        _builtin.add(name)
        return fn

    return register


def list_backends(exclude_tags: Iterable[str] | None = ("debug", "experimental")) -> list[str]:
    """Names of the registered backends without those carrying one of the tags; None lists all."""
    excluded = set(exclude_tags or ())
    return sorted(name for name in _backends if not excluded & set(_tags[name]))


def get_default_backend() -> str:
    return DEFAULT_BACKEND


def lookup_backend(backend: str | Backend | None) -> Backend:
    """The callable behind a name. InvalidBackend lists the known names."""
    if backend is None:
        backend = DEFAULT_BACKEND
    if callable(backend):
        return backend
    try:
        return _backends[backend]
    except (KeyError, TypeError):
        near = difflib.get_close_matches(str(backend), _backends, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise InvalidBackend(f"Invalid backend: {backend!r}.{hint} Known backends: {', '.join(list_backends(None))}.") from None


def forget_user_backends() -> None:
    for name in list(_backends):
        if name not in _builtin:
            del _backends[name], _tags[name]
