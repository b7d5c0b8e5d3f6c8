"""Compiled against eager: results, changed arguments, printed text and exceptions."""

from __future__ import annotations

import contextlib
import copy
import io
from collections.abc import Callable
from typing import Any

import torch

import dynamo_nb
from dynamo_nb.testing import EagerAndRecordGraphs


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        same = isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.shape == b.shape and a.requires_grad == b.requires_grad
        return same and torch.allclose(a, b, equal_nan=True) if a.is_floating_point() else same and torch.equal(a, b)
    if type(a) is not type(b) and not (hasattr(a, "__dict__") and type(a).__qualname__ == type(b).__qualname__):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, BaseException):
        return str(a) == str(b)
    if hasattr(a, "__dict__") and not isinstance(a, type) and not callable(a):
        return equal(vars(a), vars(b))
    if isinstance(a, float):
        return repr(a) == repr(b)
    return True if callable(a) else bool(a == b)


def observe(fn: Callable[..., Any], args: tuple[Any, ...]) -> dict[str, Any]:
    out = io.StringIO()
    seen: dict[str, Any] = {"result": None, "error": None}
    with contextlib.redirect_stdout(out):
        try:
            seen["result"] = fn(*args)
        except Exception as err:
            seen["error"] = (type(err).__name__, str(err))
    return seen | {"printed": out.getvalue(), "args": args}


def differ(fn: Callable[..., Any], *calls: tuple[Any, ...], graphs: int | None = None, backend: Any = None, **options: Any) -> EagerAndRecordGraphs:
    """Call eager and compiled on equal copies of each call's arguments and compare everything; graphs: how many are captured in all."""
    record = EagerAndRecordGraphs()
    compiled = dynamo_nb.compile(fn, backend=backend or record, **options)
    for args in calls or ((torch.arange(4.0) - 1.5,),):
        want, got = observe(fn, copy.deepcopy(args)), observe(compiled, copy.deepcopy(args))
        for what in ("error", "printed", "result", "args"):
            assert equal(want[what], got[what]), f"{what}: eager {want[what]!r}, compiled {got[what]!r}"
    if graphs is not None:
        assert len(record.graphs) == graphs, [g.code for g in record.graphs]
    return record
