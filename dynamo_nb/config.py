"""`dynamo_nb.config`: settings as module attributes, `patch` as context manager and decorator."""

from __future__ import annotations

import contextlib
import sys
import types
from typing import Any

from .core.settings import settings


class _Patch(contextlib.ContextDecorator):
    """Changes settings while it is entered."""

    def __init__(self, changes: dict[str, Any]) -> None:
        self.changes = changes
        for name in changes:
            getattr(settings, name)
        self._active: list[Any] = []

    def __enter__(self) -> None:
        manager = settings.patched(self.changes)
        manager.__enter__()
        self._active.append(manager)

    def __exit__(self, *exc: Any) -> None:
        self._active.pop().__exit__(*exc)


def patch(arg: Any = None, value: Any = None, **changes: Any) -> _Patch:
    """patch(name=value, …), patch("name", value) or patch({"name": value})."""
    if isinstance(arg, dict):
        changes = {**arg, **changes}
    elif arg is not None:
        changes = {arg: value, **changes}
    return _Patch(changes)


class _ConfigModule(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(settings, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__") or name in self.__dict__:
            super().__setattr__(name, value)
        else:
            setattr(settings, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(settings, name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *settings.names()]


sys.modules[__name__].__class__ = _ConfigModule
