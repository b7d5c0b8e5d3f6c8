"""Python constructs captured in one graph, with eager's results and effects."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
import operator
from typing import Any

import pytest
import torch

from tests.differ import differ

CASES: dict[str, Any] = {}


def case(fn: Any) -> Any:
    CASES[fn.__name__] = fn
    return fn


@case
def comprehensions(x):
    squares = [x * i for i in range(3) if i]
    table = {k: x + k for k in (1, 2)}
    return sum(squares) + table[2] + len({i % 2 for i in range(5)})


@case
def unpacking(x):
    first, *rest, last = [x, x + 1, x + 2, x + 3]
    (a, b), c = (1, 2), 3
    return first * a + rest[1] * b + last * c


@case
def generators(x):
    def numbers(n):
        for i in range(n):
            got = yield x + i
            if got:
                yield x * got
        return "done"

    def outer():
        result = yield from numbers(2)
        yield x + len(result)

    g = outer()
    return next(g) + g.send(5) + sum(g)


@case
def closures(x):
    count = 0

    def bump(by=1, *, scale=2):
        nonlocal count
        count += by * scale
        return lambda t: t + count

    f = bump()
    bump(3)
    return f(x)


@case
def exceptions(x):
    log = []
    try:
        try:
            raise KeyError("a")
        except KeyError as err:
            log.append(err.args[0])
            raise ValueError("b") from err
        finally:
            log.append("f")
    except ValueError as err:
        log += [str(err), type(err.__cause__).__name__]
    return x + len(log), log


@case
def context_managers(x):
    log = []

    @contextlib.contextmanager
    def scope(name):
        log.append("+" + name)
        try:
            yield len(name)
        finally:
            log.append("-" + name)

    with scope("ab") as n, contextlib.suppress(ZeroDivisionError):
        x = x * n
        operator.floordiv(1, 0)
    return x, log


@case
def matching(x):
    out = 0
    for value in ({"op": 2}, [1, 2, 3], 5, "s"):
        match value:
            case {"op": k}:
                out += k
            case [first, *others]:
                out += first + len(others)
            case int() as n if n > 3:
                out += n
            case _:
                out += 100
    return x + out


@case
def strings(x):
    name = f"{x.shape[0]:>4}|{'a,b'.split(',')!r}|{3.14159:.2f}"
    return x + len(name), "-".join(s.upper() for s in ("a", "b")), "%d%%" % 7  # noqa: UP031


@case
def iteration_tools(x):
    pairs = list(itertools.chain(enumerate("ab"), zip((1, 2), (3, 4), strict=True)))
    grouped = [(k, len(list(g))) for k, g in itertools.groupby([1, 1, 2])]
    return x + functools.reduce(operator.add, range(4)), pairs, grouped, list(itertools.accumulate((1, 2, 3), operator.mul))


@case
def collections_types(x):
    d = collections.OrderedDict(a=1, b=2)
    d.move_to_end("a")
    q = collections.deque((1, 2, 3), maxlen=2)
    q.append(4)
    counts = collections.Counter("aab")
    nested = collections.defaultdict(lambda: collections.defaultdict(list))
    nested["k"]["l"].append(x)
    return x + counts["a"] + q[0], list(d), nested["k"]["l"][0]


Pair = collections.namedtuple("Pair", "left right")


@dataclasses.dataclass(order=True)
class Point:
    px: int
    tags: list = dataclasses.field(default_factory=list)

    @property
    def double(self):
        return self.px * 2


class Kind(enum.Enum):
    ADD = 1
    MUL = 2

    def apply(self, t):
        return t + 1 if self is Kind.ADD else t * 2


class Vector:
    __slots__ = ("v",)

    def __init__(self, v):
        self.v = v

    def __add__(self, other):
        return Vector(self.v + (other.v if isinstance(other, Vector) else other))

    __radd__ = __add__

    def __getattr__(self, name):
        if name == "twice":
            return self.v * 2
        raise AttributeError(name)


class Loud(Vector):
    def __add__(self, other):
        out = super().__add__(other)
        out.v = out.v + 100
        return out


@case
def classes(x):
    p = Point(3, ["a"])
    q = dataclasses.replace(p, px=p.double)
    total = (Loud(x) + Vector(1) + 2).v
    pair = Pair(x, q.px)._replace(right=4)
    return total + pair.right + (1 + Vector(2)).twice, p == Point(3, ["a"]), p < q, Kind.MUL.apply(x), Kind(1) is Kind.ADD


@case
def sorting(x):
    rows = [("b", 2), ("a", 2), ("c", 1)]
    rows.sort(key=lambda r: r[1])
    return x + max([3, 1, 2], key=lambda v: -v), rows, sorted("bca", reverse=True), min(4, 2)


@case
def shapes(x):
    n, = x.shape
    if x.size(0) > 2 and x.dim() == 1 and x.is_floating_point():
        x = x.view(2, n // 2)
    return x.t(), x.numel(), tuple(x.shape), x.dtype is torch.float32


@case
def inplace(x):
    y = x
    y += 1
    z = x.view(-1)[1:]
    z.mul_(2)
    x[0] = 7
    torch.add(x, 1, out=x)
    torch.nn.functional.relu(x, inplace=True)
    return y is x, z


@pytest.mark.parametrize("name", CASES)
def test_one_graph(name: str) -> None:
    differ(CASES[name], graphs=1, fullgraph=True)


def test_effects_on_arguments() -> None:
    class Box:
        def __init__(self):
            self.n, self.items, self.seen = 1, [1], {3, 1}

    def change(x, box, table, items):
        box.n += 1
        box.new = x * 2
        del box.items[0]
        box.seen.add(100)
        table["k"] = table.pop("a")
        items[:] = [x, *items]
        items.append(items[0])
        return x + box.n

    differ(change, *((torch.ones(2), Box(), {"a": 1, "b": 2}, [5]) for _ in range(2)), graphs=1)


def test_aliases_of_one_argument() -> None:
    def both(a, b):
        a.append(1)
        b.append(2)
        return torch.ones(2) + len(a), a is b

    shared: list[int] = []
    differ(both, ([], []), (shared, shared), ([], []))


GLOBAL = 1


def test_globals_and_their_guards() -> None:
    def step(x):
        global GLOBAL
        GLOBAL = GLOBAL + 1
        return x * GLOBAL

    import dynamo_nb

    compiled = dynamo_nb.compile(step, backend="eager")
    got = [compiled(torch.ones(1)).item() for _ in range(3)]
    assert got == [2.0, 3.0, 4.0] and GLOBAL == 4
