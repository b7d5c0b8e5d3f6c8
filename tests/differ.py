# mypy: ignore-errors
"""Compiled against eager: results, changed arguments, outside state, printed text, exceptions with their chain and traceback, and order.

In: a function and the arguments of some calls. Out: the captured graphs; AssertionError names what differs. Called by every behaviour test.
"""

from __future__ import annotations

import contextlib
import copy
import io
import re
import traceback
from collections.abc import Callable
from typing import Any

import torch

import dynamo_nb
from dynamo_nb.testing import EagerAndRecordGraphs
from tests.fuzz.snapshot import Snapshotter, compare

RESUMED = re.compile(r"^torch_dynamo_resume_in_(.*)_at_\d+$")
NOT_THE_PROGRAM = ("/dynamo_nb/", "/tests/differ.py", "/torch/", "<eval_with_key>")


class _Snapshot(Snapshotter):
    """Exceptions with their chain, user classes met as values by name."""

    def take(self, obj: Any, depth: int = 0) -> Any:
        if isinstance(obj, BaseException) and depth <= 40:
            known = self.number(obj)
            if known is not None:
                return ("ref", known)
            chain = (self.take(obj.__cause__, depth + 1), self.take(obj.__context__, depth + 1), obj.__suppress_context__)
            notes = list(getattr(obj, "__notes__", ()))
            inner = [self.take(e, depth + 1) for e in obj.exceptions] if isinstance(obj, BaseExceptionGroup) else []
            return ("exc", type(obj).__qualname__, str(obj), [self.take(a, depth + 1) for a in obj.args], chain, notes, inner)
        return super().take(obj, depth)


def user_frames(err: BaseException) -> list[tuple[str, int]]:
    """(function, line) of the program's frames in a traceback, outermost first; resumed pieces under their function's name."""
    found = []
    for frame in traceback.extract_tb(err.__traceback__):
        if not any(part in frame.filename for part in NOT_THE_PROGRAM):
            resumed = RESUMED.match(frame.name)
            found.append((resumed.group(1) if resumed else frame.name, frame.lineno))
    return found


def observe(fn: Callable[..., Any], args: tuple[Any, ...], trace: bool) -> dict[str, Any]:
    out = io.StringIO()
    seen: dict[str, Any] = {"error": None, "traceback": None, "result": None}
    with contextlib.redirect_stdout(out):
        try:
            seen["result"] = fn(*args)
        except Exception as err:
            seen["error"] = err
            seen["traceback"] = user_frames(err) if trace else None
    return seen | {"args": args, "printed": out.getvalue()}


def run(fn: Callable[..., Any], calls: Any, state: Callable[[], Any] | None, trace: bool) -> list[dict[str, Any]]:
    """What each call shows, then what is left in `state`."""
    kept = state() if state is not None else None
    steps = []
    for given in calls:
        args = given() if callable(given) else copy.deepcopy(given)
        seen = observe(fn, args, trace)
        snap = _Snapshot()
        steps.append({what: snap.take(value) for what, value in seen.items()} | {"shown": repr(seen["error"])})
    return [*steps, {"state": _Snapshot().take(kept), "shown": ""}]


def differ(
    fn: Callable[..., Any], *calls: Any, graphs: int | None = None, backend: Any = None, state: Callable[[], Any] | None = None,
    trace: bool = True, **options: Any,
) -> EagerAndRecordGraphs:
    """Run the calls eagerly, then compiled, on equal arguments, and compare all that can be seen.

    calls: tuples of arguments (copied for each side) or functions that make them; one call with a vector of 4 by default.
    graphs: how many are captured in all. state: puts the outside world into its first state and returns what of it is compared
    in the end. trace: compare tracebacks too. The rest are compile()'s options.
    """
    record = EagerAndRecordGraphs()
    calls = calls or ((torch.arange(4.0) - 1.5,),)
    eager = run(fn, calls, state, trace)
    compiled = run(dynamo_nb.compile(fn, backend=backend or record, **options), calls, state, trace)
    for number, (want, got) in enumerate(zip(eager, compiled, strict=True)):
        differences: list[Any] = []
        for what in want:
            if what != "shown":
                compare(what, "", want[what], got[what], differences, 1e-5)
        assert not differences, f"call {number}: " + "; ".join(map(str, differences)) + f" (eager raised {want['shown']}, compiled {got['shown']})"
    if graphs is not None:
        assert len(record.graphs) == graphs, [g.code for g in record.graphs]
    return record


class Cases(dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]]):
    """A table of programs by name: `@cases.add(call, call, graphs=1)`; by default one graph and one call with a vector."""

    def add(self, *calls: Any, **how: Any) -> Callable[[Any], Any]:
        def register(fn: Any) -> Any:
            assert fn.__name__ not in self, fn.__name__
            self[fn.__name__] = (fn, calls, {"graphs": 1, "fullgraph": True} | how)
            return fn

        return register

    def breaks(self, *calls: Any, **how: Any) -> Callable[[Any], Any]:
        """A program that is not captured whole."""
        return self.add(*calls, **({"graphs": None, "fullgraph": False} | how))

    def check(self, name: str) -> EagerAndRecordGraphs:
        fn, calls, how = self[name]
        return differ(fn, *calls, **how)
