# mypy: ignore-errors
"""Breaks at calls, jumps, stores and operators inside every kind of block, and inside inlined callees.

PYTEST_DONT_REWRITE: the programs are compiled as they are written.
"""

from __future__ import annotations

import contextlib

import pytest
import torch

import dynamo_nb
from tests.differ import differ

X = torch.tensor([1.0, -2.0, 3.0])


def stop(value=None, fail=None):
    """Printing breaks the graph; may raise."""
    print("stop", type(value).__name__, fail)
    if fail:
        raise fail("from stop")
    return value


class Loud:
    """Every special method prints."""

    def __init__(self, v):
        self.v = v

    def __enter__(self):
        print("enter", self.v)
        return self

    def __exit__(self, kind, value, tb):
        print("exit", self.v, kind and kind.__name__)
        return self.v == "swallow"

    def __iter__(self):
        print("iter")
        return iter([1, 2])

    def __bool__(self):
        print("bool")
        return bool(self.v)

    def __add__(self, other):
        print("add")
        return other + 1

    def __setitem__(self, key, value):
        print("setitem", key)

    def __getitem__(self, key):
        print("getitem", key)
        return 4

    def __setattr__(self, name, value):
        print("setattr", name)
        super().__setattr__(name, value)

    def __delitem__(self, key):
        print("delitem", key)

    def __contains__(self, item):
        print("contains")
        return True

    def __lt__(self, other):
        print("lt")
        return True

    def __neg__(self):
        print("neg")
        return 5

    def __call__(self, *args, **kw):
        print("call", len(args), sorted(kw))
        return args[0]


def operators(x):
    a = Loud(1)
    y = x + (a + 2)
    a["k"] = y
    del a["k"]
    y = y * a["q"] + (-a)
    z = y if a else x
    if 3 in a and a < 2 and not Loud(0):
        z = z + 1
    for i in a:
        z = z * i
    first, second = a
    return a(z, k=1) + first, second, [*a], f"{first}"


def with_blocks(x):
    with Loud("a") as a, Loud("swallow"):
        y = x + 1
        stop(y)
        with torch.no_grad(), contextlib.suppress(KeyError):
            y = y * 2
            stop(fail=KeyError)
            y = y * 100
        y = y - 1
        stop(fail=ValueError)
        y = y * 1000
    return y, a.v, torch.is_grad_enabled()


def return_from_blocks(x, n):
    for i in range(3):
        with Loud("w"):
            try:
                y = x + i
                stop(i)
                if i == n:
                    return y * 2
                continue
            finally:
                stop("fin")
                x = x + 1
    return x


def try_blocks(x, kind):
    seen = []
    try:
        y = x * 2
        stop(fail=kind)
        seen.append("after")
    except (KeyError, ValueError) as err:
        y = x - 1
        stop(err)
        seen.append(repr(err))
    else:
        stop("else")
        seen.append("else")
        y = y + 0.5
    finally:
        seen.append(stop("finally"))
        y = x * 3
    return y, seen


def handler_raises(x):
    y = x + 1
    try:
        try:
            stop(fail=KeyError)
        except KeyError as err:
            z = y * 2
            stop()
            raise LookupError("again") from err
        finally:
            stop("inner finally")
    except LookupError as err:
        return z, repr(err.__cause__), repr(err.__context__)


def bare_reraise(x):
    try:
        x = x + 1
        stop(fail=KeyError)
    except KeyError:
        x = x * 2
        stop()
        raise


def loops(x):
    out = []
    for i, v in enumerate([x, x + 1]):
        for w in (1, 2):
            if w == 2 and i == 0:
                continue
            v = v * w
            out.append(stop(v))
        while (v > 0).any():
            v = v - 2
            if v.sum() < -20:
                break
        else:
            out.append("ran out")
        out.append(v)
    return out, i, w


def loop_over_zip(x):
    total = 0
    it = iter(range(10))
    for a, b in zip(it, [x, x, x], strict=False):
        total = total + a * b
        stop()
    return total, next(it)


def loop_over_dict(x):
    out = {}
    for k, v in {"a": x, "b": x + 1}.items():
        out[stop(k)] = v * 2
    for k in out:
        out[k] = out[k] + 1
        stop()
    return out


def comprehensions(x):
    rows = [[stop(i) * x + j for j in range(2)] for i in range(2)]
    return rows, {stop(k): v for k, v in zip("ab", (x, x), strict=True)}, {stop(1)}, sum(stop(x) for _ in range(2))


def generators(x):
    def numbers():
        for i in range(3):
            stop(i)
            yield x + i

    return sum(numbers()), [v for v in numbers() if v.sum() > 4]


def leaf(x, k=1):
    y = x + k
    stop(y)
    return y * 2


def middle(x, n):
    with torch.no_grad():
        y = leaf(x, k=n)
        for _ in range(2):
            y = leaf(y)
    try:
        return y + leaf(x)
    finally:
        stop("middle")


def inlined_callees(x):
    log = []

    def inner(t):
        nonlocal log
        log = [*log, len(log)]
        return middle(t * 2, 3)

    y = inner(x) + inner(x + 1)
    return y, log


class Base:
    def work(self, x):
        stop("base")
        return x + 1


class Child(Base):
    scale = 2

    def work(self, x):
        y = super().work(x * 2)
        stop("child")
        return super().work(y) * self.scale

    @property
    def prop(self):
        stop("prop")
        return self.scale

    def __add__(self, other):
        stop("add")
        return other * 2


def methods(x):
    c = Child()
    return c.work(x) * c.prop + (c + x), Base.work(c, x)


def many_on_the_stack(x):
    return [x + 1, stop(x), (x * 2, stop(2)), {"k": stop(x - 1), **{"z": stop(3)}}, f"{stop(4)}-{x.dim()}"], stop(x) + stop(x) * stop(2) - x


def stores(x):
    table, items, box = {}, [0, 0], Loud("b")
    table[stop("k")] = x + 1
    items[stop(0)], items[1] = stop(x * 2), 5
    box.attr = stop(x)
    a = b = stop(x + 3)
    table["k"] += stop(1)
    items[1] *= stop(2)
    return table, items, a is b, vars(box)["attr"] + 1


def arguments(x):
    def take(a, b=stop(1), *rest, key=None, **more):
        return a + b, rest, key, sorted(more)

    return take(stop(x), stop(2), 3, key=stop(4), **{"m": stop(5)}), stop(max)(1, 2), (lambda t: stop(t) + 1)(x)


def shadowed_cells(x):
    total = x

    def add(n):
        nonlocal total
        stop()
        total = total + n
        return lambda: total

    f = add(1)
    stop()
    g = add(stop(2))
    del add
    return f() + g(), total


def match_and_walrus(x):
    match stop([1, {"k": x}]):
        case [n, {"k": t}] if stop(n) == 1:
            out = t + n
        case _:
            out = x
    if (m := stop(3)) > 2 and (q := (x > 0).any()):
        out = out * m
    return out, q


def asserts_and_deletes(x):
    y = x + 1
    assert stop(True), "never"
    z = [y, stop(y)]
    del z[stop(0)]
    assert (y.sum() > -100).item(), stop("message")
    return z


def conditions(x):
    a = x + 1 if stop(1) else x - 1
    b = stop(0) or stop(None) or x
    c = stop(x) is not None and x.sum() > 0
    d = 0 < stop(1) < stop(2)
    return a, b, c, d, not stop([])


PROGRAMS = [
    operators, with_blocks, handler_raises, bare_reraise, loops, loop_over_zip, loop_over_dict, comprehensions, generators, inlined_callees, methods,
    many_on_the_stack, stores, arguments, shadowed_cells, match_and_walrus, asserts_and_deletes, conditions,
]


@pytest.mark.parametrize("nested", [True, False], ids=["nested", "flat"])
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_breaks(fn, nested: bool) -> None:
    with dynamo_nb.config.patch(nested_graph_breaks=nested):
        record = differ(fn, (X,), (X,), (-X,))
    assert record.graphs or (fn is generators and not nested)


@pytest.mark.parametrize("kind", [None, KeyError, ValueError, TypeError])
def test_breaks_in_try_blocks(kind) -> None:
    assert differ(try_blocks, (X, kind), (X, kind), (X, None)).graphs


def test_returns_from_blocks() -> None:
    assert differ(return_from_blocks, *[(X, n) for n in (0, 1, 2, 5, 1)]).graphs


def test_the_rest_of_the_frame_is_compiled() -> None:
    def parts(x):
        a = x + 1
        stop()
        b = a * 2
        stop()
        return b - 3

    record = differ(parts, (X,), (X,), graphs=3)
    assert [[n.target.__name__ for n in g.graph.nodes if n.op == "call_function"] for g in record.graphs] == [["add"], ["mul"], ["sub"]]


def test_pieces_are_reused() -> None:
    count = dynamo_nb.testing.CompileCounter()
    compiled = dynamo_nb.compile(inlined_callees, backend=count)
    with contextlib.redirect_stdout(None):
        compiled(X)
        first = count.frame_count
        compiled(X)
    assert count.frame_count == first
