"""The bound arguments of a code object in the order of its local slots."""

from __future__ import annotations

import inspect
import types


def argument_names(code: types.CodeType) -> tuple[str, ...]:
    """Positional-only, ordinary and keyword-only parameters, then `*args`, then `**kwargs`."""
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[:count]
