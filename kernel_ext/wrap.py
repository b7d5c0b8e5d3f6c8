"""What `%%compile` does to each thing a cell defines.

In: a function or class fresh from its definition. Out: what the name will be bound to, and whether it
was compiled or why it was left. Called by `session.define`.
"""

from __future__ import annotations

import inspect
import linecache
import sys
import types
from collections.abc import Callable
from typing import Any, NamedTuple

from dynamo_nb.reports.run import is_compiled


class Wrapped(NamedTuple):
    """value: what to bind; function: the Python function compiled, None if none was; left: why not."""

    value: Any
    function: types.FunctionType | types.MethodType | None = None
    left: str = ""


def wrap(value: Any, name: str, compiler: Callable[[Any], Any]) -> Wrapped:
    """Compile a function, or the `forward` of an nn.Module class; leave anything else as it is."""
    if isinstance(value, type):
        return _wrap_class(value, name, compiler)
    if is_compiled(value):
        return Wrapped(value, _function_of(value))
    if not isinstance(value, types.FunctionType):
        return Wrapped(value, left=f"{name} (a {type(value).__name__} after its decorators)")
    if value.__code__.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        return Wrapped(value, left=f"async function {name}")
    return Wrapped(compiler(value), value)


def _function_of(value: Any) -> types.FunctionType | None:
    inner: Any = inspect.unwrap(value)
    return inner if isinstance(inner, types.FunctionType) else None


def _wrap_class(cls: type, name: str, compiler: Callable[[Any], Any]) -> Wrapped:
    torch = sys.modules.get("torch")
    if torch is None or not issubclass(cls, torch.nn.Module):
        return Wrapped(cls, left=f"class {name} (not an nn.Module)")
    forward = vars(cls).get("forward")
    if forward is None:
        return Wrapped(cls, left=f"class {name} (inherits its forward)")
    inner: Wrapped = wrap(forward, f"{name}.forward", compiler)
    if inner.value is not forward:
        setattr(cls, "forward", inner.value)  # noqa: B010
    return Wrapped(cls, inner[1], inner.left)


def relocate(function: types.FunctionType, file: str, text: str) -> None:
    """Give a function from a cell without a file of its own (%%time) one whose lines can be shown."""
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    function.__code__ = _moved(function.__code__, file)


def _moved(code: types.CodeType, file: str) -> types.CodeType:
    constants = tuple(_moved(item, file) if isinstance(item, types.CodeType) else item for item in code.co_consts)
    return code.replace(co_filename=file, co_consts=constants)
