# mypy: ignore-errors
"""The helper itself: each kind of difference is seen."""

from __future__ import annotations

import pytest
import torch

from tests import differ as helper


def _cause(err):
    raise ValueError("late") from err


DIFFERENCES = {
    "value": (lambda x, log: x + 1, lambda x, log: x + 2),
    "dtype": (lambda x, log: x * 1, lambda x, log: x.double()),
    "python type": (lambda x, log: 1, lambda x, log: True),
    "sign of zero": (lambda x, log: 0.0, lambda x, log: -0.0),
    "alias": (lambda x, log: (x, x), lambda x, log: (x, x.clone())),
    "view": (lambda x, log: x.view(-1), lambda x, log: x.clone()),
    "mutation": (lambda x, log: log.append(1), lambda x, log: None),
    "order": (lambda x, log: log.extend([1, 2]), lambda x, log: log.extend([2, 1])),
    "printed": (lambda x, log: print("a"), lambda x, log: print("b")),
    "dict order": (lambda x, log: {"a": 1, "b": 2}, lambda x, log: {"b": 2, "a": 1}),
    "error text": (lambda x, log: {}["a"], lambda x, log: {}["b"]),
    "no error": (lambda x, log: {}["a"], lambda x, log: None),
    "cause": (lambda x, log: _cause(KeyError(1)), lambda x, log: _cause(KeyError(2))),
}


@pytest.mark.parametrize("what", DIFFERENCES)
def test_a_difference_is_found(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    eager, compiled = DIFFERENCES[what]
    monkeypatch.setattr(helper.dynamo_nb, "compile", lambda fn, **options: compiled)
    with pytest.raises(AssertionError, match="call 0"):
        helper.differ(eager, (torch.ones(2), []), trace=False)


def test_the_line_of_an_exception_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def eager(x):
        raise ValueError("same")

    def compiled(x):
        raise ValueError("same")

    monkeypatch.setattr(helper.dynamo_nb, "compile", lambda fn, **options: compiled)
    with pytest.raises(AssertionError, match="traceback"):
        helper.differ(eager, (torch.ones(2),))


def test_outside_state_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    world: list[int] = []

    def state():
        world.clear()
        return world

    monkeypatch.setattr(helper.dynamo_nb, "compile", lambda fn, **options: lambda x: None)
    with pytest.raises(AssertionError, match="state"):
        helper.differ(lambda x: world.append(1), (torch.ones(2),), state=state)


def test_equal_programs_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper.dynamo_nb, "compile", lambda fn, **options: fn)
    for eager, _ in DIFFERENCES.values():
        helper.differ(eager, (torch.ones(2), []), (torch.zeros(2), [3]))
