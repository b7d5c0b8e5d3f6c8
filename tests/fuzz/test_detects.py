"""The comparison notices every kind of difference: hand-made "compilers" that each get one thing wrong."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.fuzz.program import Program
from tests.fuzz.runner import Outcome, run_program
from tests.fuzz.subjects import Subject

SOURCE = """import torch
G = [1]
class E(Exception): pass
def f(x, lst, d):
    lst.append(2); lst.append(3)
    d['z'] = 1
    G.append(len(lst))
    x.add_(1)
    print('one'); print('two')
    if x.dim() == 1:
        raise E('one dim')
    return {'v': x[0], 'same': lst, 'zero': -0.0, 'n': 3, 't': x * 2, 'z': torch.zeros(2) * -1.0}
def make_state():
    return {'keep': [0]}
def call_args(k, st):
    return (mk((2, 3) if k == 0 else (3,), 'float32', k), st['keep'] if k else [], {'a': 0}), {}
def entry(st):
    return f
"""


def changed(change: Callable[[dict[str, Any], tuple[Any, ...]], Any]) -> Callable[..., Any]:
    """A compiler whose code works and then has its result or arguments changed."""

    def compile_fn(fn: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            out = fn(*args)
            done = change(out, args)
            return out if done is None else done

        return run

    return compile_fn


def swallow(fn: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        try:
            return fn(*args)
        except Exception:
            return None

    return run


def other_message(fn: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        try:
            return fn(*args)
        except Exception as exc:
            raise type(exc)("something else") from None

    return run


def reordered_print(fn: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            result = fn(*args)
        print("\n".join(reversed(out.getvalue().splitlines())))
        return result

    return run


def reorder_dict(out: dict[str, Any], args: tuple[Any, ...]) -> None:
    first = args[2].pop("a")
    args[2]["a"] = first


WRONG = {
    "result": changed(lambda out, args: out.update(n=4)),
    "int for float": changed(lambda out, args: out.update(n=3.0)),
    "bool for int": changed(lambda out, args: out.update(n=True)),
    "negative zero": changed(lambda out, args: out.update(zero=0.0)),
    "tensor negative zero": changed(lambda out, args: out.update(z=torch.zeros(2))),
    "copied list": changed(lambda out, args: out.update(same=list(args[1]))),
    "copied view": changed(lambda out, args: out.update(v=out["v"].clone())),
    "tensor value": changed(lambda out, args: out.update(t=out["t"] + 1e-3)),
    "tensor dtype": changed(lambda out, args: out.update(t=out["t"].double())),
    "effect doubled": changed(lambda out, args: args[1].append(3)),
    "effect lost": changed(lambda out, args: args[1].remove(2)),
    "effects reordered": changed(lambda out, args: args[1].reverse()),
    "input mutation lost": changed(lambda out, args: args[0].sub_(1)),
    "dict order": changed(reorder_dict),
    "rng": changed(lambda out, args: torch.rand(1) and None),
    "grad mode": changed(lambda out, args: torch._C._set_grad_enabled(False)),
    "result order": changed(lambda out, args: dict(reversed(out.items()))),
    "swallowed": swallow,
    "message": other_message,
    "print order": reordered_print,
}


def outcome(compile_fn: Callable[..., Any]) -> Outcome:
    subject = Subject("test", lambda fn, capture: compile_fn(fn), lambda: None, dict)
    return run_program(Program(1, SOURCE, calls=2), subject)


@pytest.mark.parametrize("name", WRONG)
def test_difference_is_seen(name: str) -> None:
    assert outcome(WRONG[name]).status == "differs"


def test_no_difference_without_one() -> None:
    result = outcome(lambda fn: fn)
    assert result.status == "same", result.diffs
    assert result.errors == ("E",)
