"""Graph breaks: at calls, jumps, operators, in nested blocks and inlined callees; eager sees real frames."""

from __future__ import annotations

import sys
import traceback
from typing import Any

import pytest
import torch

import dynamo_nb
from tests.differ import differ


def opaque(value: Any = None) -> Any:
    """Breaks the graph, prints, gives its argument back."""
    print("opaque", type(value).__name__)
    return value


def in_expression(x):
    return (x + 1) * opaque(x * 2) - (x if opaque(3) else -x)


def in_loop(x):
    out = []
    for i in range(4):
        x = x + i
        opaque()
        out.append(x * 2)
    return out, i


def in_while(x):
    n = 0
    while x.sum() < 40:
        x = x.abs() * 2 + 1
        n += 1
    return x, n


def in_with(x):
    with torch.no_grad():
        y = x * 2
        opaque()
        z = y + 1
    return z, x * 3


def in_try(x):
    log = []
    try:
        y = x + 1
        opaque()
        try:
            opaque()
            raise KeyError("k")
        except KeyError as err:
            opaque()
            log.append(str(err))
            raise ValueError("late") from err
        finally:
            opaque()
            log.append("finally")
    except ValueError as err:
        opaque()
        log.append(repr(err.__cause__))
        y = y * 2
    else:
        y = y * 100
    return y, log


def data_dependent(x):
    if (hit := (x > 0).any()):
        y = x + 1
    elif x.sum() > -5:
        y = x - 1
    else:
        return x
    return y * 2, hit


def comprehension(x):
    return [opaque(x + i) * 2 for i in range(2)], {k: opaque(k) for k in "ab"}


def callee(x, k=2):
    y = x + k
    opaque(y)
    return y * 3


def in_callee(x):
    z = callee(x * 2)
    return callee(z, k=4) - 1


def closure_cells(x):
    total = x

    def add(v):
        nonlocal total
        total = total + v
        opaque()
        return total

    add(1)
    return add(2) + total


def starred(x):
    def take(a, *rest, key=0, **kw):
        opaque()
        return a + sum(rest) + key + kw["z"]

    return take(*[x, 1], 2, key=3, **{"z": 4})


def store_and_operators(x):
    class_like = [0, 1]
    class_like[opaque(0)] = x + 1
    d = {}
    d[opaque("k")] = class_like[0] * 2
    return d["k"] + opaque(1), -opaque(x), opaque([1, 2])[1]


FUNCTIONS = [in_expression, in_loop, in_while, in_with, in_try, data_dependent, comprehension, in_callee, closure_cells, starred, store_and_operators]


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda f: f.__name__)
def test_equal_to_eager_with_graphs(fn: Any, nested: bool) -> None:
    x = torch.arange(4.0) - 1.5
    with dynamo_nb.config.patch(nested_graph_breaks=nested):
        record = differ(fn, (x,), (x,), (-x - 3,), (torch.ones(3),))
    assert record.graphs


def test_a_loop_with_a_break_settles() -> None:
    record = dynamo_nb.testing.CompileCounter()
    compiled = dynamo_nb.compile(in_loop, backend=record)
    compiled(torch.ones(2))
    first = record.frame_count
    compiled(torch.ones(2))
    assert record.frame_count == first


def test_a_long_loop_compiles_its_body_once() -> None:
    def count(x, n):
        for i in range(n):
            x = x * 0.5 + i
        return x

    with dynamo_nb.config.patch(max_unrolled_ops=50):
        record = dynamo_nb.testing.CompileCounter()
        got = dynamo_nb.compile(count, backend=record)(torch.ones(2), 300)
    assert torch.allclose(got, count(torch.ones(2), 300))
    assert record.frame_count <= 4 and record.op_count < 60


def test_recursion_beyond_the_budget() -> None:
    def down(x, n):
        return x if n == 0 else down(x, n - 1) + 1

    assert dynamo_nb.compile(lambda x: down(x, 300), backend="eager")(torch.zeros(1)).item() == 300


def test_eager_code_sees_the_frames_of_the_program() -> None:
    seen: list[list[tuple[str, int]]] = []

    def look():
        frames, frame = [], sys._getframe(1)
        while frame is not None and len(frames) < 2:
            frames.append((frame.f_code.co_name, frame.f_lineno))
            frame = frame.f_back
        seen.append(frames)

    look = dynamo_nb.disable(look)

    def inner(x):
        look()
        return x + 1

    def outer(x):
        return inner(x * 2)

    outer(torch.ones(1))
    dynamo_nb.compile(outer, backend="eager")(torch.ones(1))
    assert seen[0][-1:] == seen[1][-1:]


def test_tracebacks_show_each_user_frame_once() -> None:
    def check(x):
        opaque()
        assert x.dim() == 2, "want a matrix"

    def outer(x):
        y = x + 1
        check(y)
        return y

    with pytest.raises(AssertionError, match="want a matrix") as caught:
        dynamo_nb.compile(outer, backend="eager")(torch.ones(1))
    names = [f.name for f in traceback.extract_tb(caught.value.__traceback__)]
    assert [n for n in names if "outer" in n or "check" in n].__len__() == 2


def test_effects_before_an_exception_remain() -> None:
    def go(x, log, bad):
        log.append("start")
        y = x + 1
        if bad:
            raise ValueError(f"bad {bad}")
        log.append("end")
        return y

    differ(go, (torch.ones(1), [], 0), (torch.ones(1), [], 7), (torch.ones(1), [], 8))


def test_a_graph_that_raises_gives_the_exception_and_effects_of_eager() -> None:
    def go(x, i, log):
        log.append(1)
        try:
            y = x[i]
        except IndexError:
            log.append("caught")
            y = x * 0
        return y + 1

    differ(go, (torch.ones(2), torch.tensor([1]), []), (torch.ones(2), torch.tensor([7]), []), graphs=1)


def test_fullgraph_names_line_cause_and_fix() -> None:
    def go(x):
        y = x + 1
        opaque()
        return y

    with pytest.raises(dynamo_nb.exc.Unsupported) as caught:
        dynamo_nb.compile(go, backend="eager", fullgraph=True)(torch.ones(1))
    text = str(caught.value)
    assert "print" in text and "Hint" in text and "in go" in text and "opaque()" in text and "NB0003" in text


def test_views_that_autograd_refuses_can_cross_a_break() -> None:
    def rows(x):
        h = x * 2
        seen = 0
        for row in h[:2]:
            h[-1] = -1.0
            print(seen)
            seen += row.shape[-1] + row.ndim
        return h, seen

    differ(rows, (torch.ones(3, 2, requires_grad=True),), (torch.ones(4, 2),))


def test_a_view_that_autograd_refuses_raises_where_it_is_used() -> None:
    def rows(x):
        h = x * 2
        first, second = h.unbind(0)
        h[-1] = -1.0
        print("break")
        return first + 1

    differ(rows, (torch.ones(2, 2, requires_grad=True),), (torch.ones(2, 2),))
