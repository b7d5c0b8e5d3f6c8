"""Was a class made by a class statement (or type()), rather than by C code?

Both are heap types; only those that Python makes are deallocated by the interpreter's own
`subtype_dealloc`, which is what is compared (PyTypeObject.tp_dealloc, object.h of 3.11).
"""

from __future__ import annotations

import ctypes
import functools
import re
import weakref

_TP_DEALLOC = ctypes.sizeof(ctypes.c_void_p) * 6


def _dealloc(cls: type) -> int | None:
    return ctypes.c_void_p.from_address(id(cls) + _TP_DEALLOC).value


class _Example:
    pass


_PYTHON_DEALLOC = _dealloc(_Example)
_known: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()


def is_python_class(cls: type) -> bool:
    found = _known.get(cls)
    if found is None:
        found = _known[cls] = _dealloc(cls) == _PYTHON_DEALLOC
    return found


def _self_test() -> None:
    python = (_Example, type("made", (dict,), {}), type("slots", (), {"__slots__": ("a",)}))
    native = (object, int, dict, re.Pattern, functools.partial, type(functools.lru_cache(int)), type, BaseException)
    if not all(map(is_python_class, python)) or any(map(is_python_class, native)):
        raise ImportError("dynamo_nb's layout of PyTypeObject does not fit this interpreter; use a stock CPython 3.11")


_self_test()
