# mypy: ignore-errors
"""What eager code called from compiled code sees: the stack, lines, locals, warnings, tracebacks.

PYTEST_DONT_REWRITE: the programs are compiled as they are written.
"""

from __future__ import annotations

import inspect
import logging
import sys
import traceback
import warnings

import pytest
import torch

import dynamo_nb
from tests.differ import RESUMED, differ

SEEN: list = []
HERE = __file__


def program_frames():
    """(function, line) of this file's frames, innermost first, up to the test."""
    frames, frame = [], sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename == HERE:
            resumed = RESUMED.match(frame.f_code.co_name)
            frames.append((resumed.group(1) if resumed else frame.f_code.co_name, frame.f_lineno))
        frame = frame.f_back
    return frames


@dynamo_nb.disable
def look(value=None):
    SEEN.append(program_frames())
    return value


def world():
    SEEN.clear()
    return SEEN


def one_call(x):
    y = x + 1
    look()
    z = y * 2
    return look(z)


def leaf(x):
    look(x)
    return x + 1


def in_a_loop(x):
    for i in range(2):
        x = leaf(x) * i
    return x


def in_blocks(x):
    try:
        with torch.no_grad():
            x = leaf(x)
            look()
    finally:
        look()
    return (
        leaf(x)
        + look(x)
    )


def through_a_closure(x):
    def inner(t):
        return leaf(t * 2)

    return inner(x) + inner(x)


class Thing:
    def method(self, x):
        return leaf(x) + self.prop

    @property
    def prop(self):
        look()
        return 2


def through_methods(x):
    return Thing().method(x)


@pytest.mark.parametrize("fn", [one_call, in_a_loop, in_blocks, through_a_closure, through_methods], ids=lambda f: f.__name__)
def test_stack_seen_by_callees(fn) -> None:
    def trimmed():
        SEEN.clear()
        return SEEN

    lines = []
    for run in (fn, dynamo_nb.compile(fn, backend="eager")):
        SEEN.clear()
        run(torch.ones(2))
        lines.append([[f for f in frames if f[0] != "test_stack_seen_by_callees"] for frames in SEEN])
    assert lines[0] == lines[1]
    assert lines[0]


def raise_late(x, depth):
    y = x + 1
    look()
    if depth:
        return raise_late(y, depth - 1)
    raise ValueError("deep")


def raise_in_disabled(x):
    @dynamo_nb.disable
    def bad(t):
        raise KeyError("bad")

    y = x + 1
    return bad(y) * 2


def raise_in_operation(x):
    y = leaf(x)
    return torch.cat([y, y.reshape(1, -1)])


def raise_in_comprehension(x):
    return [leaf(x) for _ in range(2) if 1 // 0]


def raise_in_except(x):
    try:
        leaf(x)
        {}["k"]
    except KeyError:
        y = x * 2
        return leaf(y) + None


@pytest.mark.parametrize("fn", [raise_in_disabled, raise_in_operation, raise_in_comprehension, raise_in_except], ids=lambda f: f.__name__)
def test_tracebacks(fn) -> None:
    differ(fn, (torch.ones(2),))


@pytest.mark.parametrize("depth", [0, 2])
def test_traceback_of_recursion(depth: int) -> None:
    differ(raise_late, (torch.ones(2), depth))


def test_inspect_shows_the_source_line_of_the_caller() -> None:
    lines = []

    @dynamo_nb.disable
    def source():
        frame = inspect.stack()[1]
        while frame.filename != HERE or "marker" not in (frame.code_context or [""])[0]:
            frame = next(f for f in inspect.stack() if f.filename == HERE and "marker" in (f.code_context or [""])[0])
        lines.append((frame.lineno, frame.code_context[0].strip()))

    def go(x):
        y = x + 1
        source()  # marker
        return y * 2

    go(torch.ones(1))
    dynamo_nb.compile(go, backend="eager")(torch.ones(1))
    assert lines[0] == lines[1]


def test_warnings_name_the_line_and_show_once() -> None:
    def go(x):
        y = x + 1
        warnings.warn("careful", UserWarning, stacklevel=1)
        return y * 2

    found = []
    for run in (go, dynamo_nb.compile(go, backend="eager")):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run(torch.ones(1))
        found.append([(str(w.message), w.category, w.filename, w.lineno) for w in caught])
    assert found[0] == found[1] and len(found[0]) == 1


def test_logging_names_function_and_line(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("program.of.the.user")

    def go(x):
        y = x + 1
        log.warning("value %s", 3)
        return y * 2

    with caplog.at_level(logging.WARNING):
        go(torch.ones(1))
        dynamo_nb.compile(go, backend="eager")(torch.ones(1))
    said = [(r.getMessage(), r.lineno, RESUMED.sub(r"\1", r.funcName)) for r in caplog.records if r.name == log.name]
    assert len(said) == 2 and said[0] == said[1]


def test_locals_of_the_caller() -> None:
    found = []

    @dynamo_nb.disable
    def peek():
        frame = sys._getframe(1)
        while frame.f_code.co_filename != HERE or "marked" not in frame.f_locals:
            frame = frame.f_back
        found.append({k: v for k, v in frame.f_locals.items() if isinstance(v, (int, str))})

    def go(x, marked):
        n = marked + 1
        y = x * n
        peek()
        return y + n + marked

    go(torch.ones(1), 3)
    dynamo_nb.compile(go, backend="eager")(torch.ones(1), 3)
    assert found[0] == found[1] == {"marked": 3, "n": 4}


def test_traceback_prints_the_users_lines() -> None:
    def go(x):
        y = x + 1  # noqa: F841
        look()
        raise RuntimeError("shown")  # the line of the error

    with pytest.raises(RuntimeError) as caught:
        dynamo_nb.compile(go, backend="eager")(torch.ones(1))
    text = "".join(traceback.format_exception(caught.value))
    assert 'raise RuntimeError("shown")  # the line of the error' in text
