# mypy: ignore-errors
"""list, tuple, dict, set, str, range, deque and friends, and the library that works on them.

PYTEST_DONT_REWRITE: the programs are compiled as they are written.
"""

from __future__ import annotations

import bisect
import collections
import copy
import functools
import heapq
import itertools
import json
import math
import operator
import re
import typing

import pytest
import torch

from tests.differ import Cases

cases = Cases()


@cases.add()
def lists(x):
    v = [3, 1, 2]
    v.extend((5, 4))
    v.insert(1, "i")
    v.remove("i")
    popped = v.pop(0), v.pop()
    v.reverse()
    w = v.copy()
    w.sort(key=lambda n: -n, reverse=True)
    v += [x]
    v[-1:] = [7, 7]
    return x + len(v), v, w, popped, v.index(7), v.count(7), [1, 2] + [3], [0] * 3, [1, 2] < [1, 3], [] == [], v is w, 2 in w, list("ab")


@cases.add()
def list_errors(x):
    out = []
    for attempt in (lambda: [].pop(), lambda: [1].remove(2), lambda: [1].index(5), lambda: [1][4], lambda: (1, 2)[5], lambda: [2, "a"].sort()):
        try:
            attempt()
        except Exception as err:
            out.append((type(err).__name__, str(err)))
    return x + 1, out


@cases.add()
def tuples(x):
    t = (1, x, "a")
    return t[1] + 1, t + (2,), t[::-1], t.index("a"), (1, 2) < (1, 2, 0), hash((1, 2)) == hash((1, 2)), tuple(i for i in range(3)), () == tuple([])  # noqa: SIM300


@cases.add()
def dicts(x):
    d = {"a": 1, 2: x, (3, 4): "t"}
    d.setdefault("s", []).append(1)
    d.update({"u": 5}, v=6)
    d |= {"w": 7}
    popped = d.pop("a"), d.pop("none", None), d.popitem()
    merged = {"z": 0} | {"z": 1, "y": 2}
    return x + len(d), list(d), list(d.items())[-1], popped, merged, d.get("q", 9), "u" in d, dict(zip("ab", (1, 2), strict=True)), dict.fromkeys("ab", 0), [*d.keys() & {"u", "v"}] != [], {**merged} == merged, list(reversed(merged))  # noqa: E501


@cases.add()
def dict_views_follow(x):
    d = {"a": 1}
    keys, values, items = d.keys(), d.values(), d.items()
    d["b"] = 2
    return x + 1, list(keys), list(values), list(items), len(keys), "b" in keys


@cases.add()
def sets(x):
    s = {1, 2, 3}
    s.add(4)
    s.discard(9)
    s.remove(1)
    t = frozenset((3, 4, 5))
    return x + len(s), s & t, s | t, s - t, s ^ t, s <= {2, 3, 4, 5}, s.isdisjoint({7}), {t: 1}[frozenset((5, 4, 3))], 3 in s, sorted(s, reverse=True), len(set("hello"))  # noqa: E501


@cases.add()
def ranges(x):
    r = range(10, 0, -3)
    return x + r[1], list(r), len(r), 4 in r, r[::-1], r == range(10, 1, -3), r.index(7), sum(range(5)), list(reversed(range(3)))


@cases.add()
def deques(x):
    q = collections.deque([1, 2, 3], maxlen=4)
    q.appendleft(0)
    q.append(x)
    q.rotate(1)
    return q.pop() if isinstance(q[0], int) else q.popleft() + 1, list(q), len(q), q.maxlen


@cases.add()
def default_dicts(x):
    groups = collections.defaultdict(list)
    for i, word in enumerate(["a", "b", "a"]):
        groups[word].append(i)
    ordered = collections.OrderedDict([("x", 1), ("y", 2)])
    ordered.move_to_end("x")
    return x + len(groups["a"]), dict(groups), list(ordered), ordered.popitem(last=False), "zzz" in groups


@cases.add()
def itertools_all(x):
    take = itertools.islice
    return (
        x + sum(take(itertools.count(3, 2), 3)), list(take(itertools.cycle("ab"), 5)), list(itertools.repeat(1, 2)), list(itertools.chain([1], [2])),
        list(itertools.compress("abc", (1, 0, 1))), list(itertools.dropwhile(lambda v: v < 2, (1, 2, 1))), list(itertools.takewhile(lambda v: v < 2, (1, 2, 1))),  # noqa: E501
        list(itertools.product("ab", (1, 2))), list(itertools.permutations((1, 2, 3), 2)), list(itertools.combinations("abc", 2)), list(itertools.pairwise((1, 2, 3))),  # noqa: E501
        list(itertools.zip_longest((1, 2), (3,), fillvalue=0)), list(itertools.starmap(operator.add, [(1, 2)])), list(itertools.filterfalse(None, (0, 1))),
        list(itertools.accumulate((1, 2, 3), initial=10)),
    )


@cases.add()
def functools_all(x):
    add = functools.partial(operator.add, 5)
    named = functools.partial(lambda a, *, b: a * b, b=3)
    return x + functools.reduce(lambda a, b: a * b, (1, 2, 3)), add(1), named(2), add.args, named.keywords, sorted("bca", key=functools.cmp_to_key(lambda a, b: -1 if a > b else 1))  # noqa: E501


@functools.lru_cache(maxsize=None)  # noqa: UP033
def memo(n):
    return n * 2


@functools.singledispatch
def describe(value):
    return "object"


@describe.register
def _(value: int):
    return "int"


@cases.add()
def caches(x):
    return x + memo(3) + memo(3)


@cases.breaks()
def dispatch(x):
    return x + 1, describe(1), describe("s")


@cases.add()
def builtins_all(x):
    return (
        x + any([0, 1]) + all([]), list(map(lambda a, b: a + b, (1, 2), (3, 4))), list(filter(None, (0, 1, 2))), list(enumerate("ab", 1)), list(zip((1, 2), "ab", strict=False)),  # noqa: E501
        min((3, 1), default=0), max((), default="d"), sum([[1], [2]], []), round(3.14159, 2), divmod(7, 3), pow(2, 5), hex(255), isinstance(True, int), callable(len), repr("q"),  # noqa: E501
        str(1.0), bool([]), complex(1, 2).imag, slice(1, 2).start, type(()).__name__, sorted([(2, "b"), (1, "z")]), hash(1), ascii("é"), int("ff", 16), float("inf") > 1,  # noqa: E501
    )


@cases.add()
def math_all(x):
    return x * math.pi, math.sqrt(16), math.floor(-1.5), math.ceil(1.2), math.gcd(12, 18), math.isclose(0.1 + 0.2, 0.3), math.prod((1, 2, 3)), math.log2(8), math.inf, math.isnan(math.nan), math.comb(5, 2), math.hypot(3, 4)  # noqa: E501


@cases.add()
def sizes(x):
    n, = x.shape
    half = x.view(2, -1)
    return half, torch.Size([1, 2]).numel(), x.shape[0] * 2, half.shape + (1,), half.shape == (2, 2), list(half.size()), math.prod(half.shape), half.stride(), x.new_zeros(n + 1), torch.zeros(half.shape[1], n), torch.empty_like(half).shape  # noqa: E501


@cases.breaks()
def copies(x):
    nested = {"a": [1, x], "b": (2,)}
    shallow, deep = copy.copy(nested), copy.deepcopy(nested)
    deep["a"][0] = 9
    return deep["a"][1] + 1, shallow["a"] is nested["a"], nested["a"][0], deep["a"][1] is x


@cases.breaks()
def text_tools(x):
    found = re.search(r"(\d+)-(?P<w>\w+)", "go 12-ab")
    return x + int(found.group(1)), found["w"], re.sub("a", "b", "banana"), json.loads(json.dumps({"k": [1, None]})), re.findall(r"\w", "a b")


@cases.breaks()
def heaps_and_bisection(x):
    h = [5, 1, 4]
    heapq.heapify(h)
    heapq.heappush(h, 0)
    return x + heapq.heappop(h), h, bisect.bisect([1, 3, 5], 4), heapq.nlargest(2, h)


@cases.add()
def typing_is_free(x):
    n: int = 3
    y = typing.cast(torch.Tensor, x)
    z: typing.Optional[int]  # noqa: F842, UP045
    return y + n, typing.TYPE_CHECKING


@cases.breaks((torch.ones(2),), (torch.ones(2),))
def iterators_over_arguments(x):
    it = iter([x, x + 1, x + 2])
    first = next(it)
    print("middle")
    rest = list(it)
    z = zip("ab", range(5))  # noqa: B905
    a = next(z)
    print("again", a)
    return first, rest, list(z)


@cases.add((torch.ones(2), [1, 2]), (torch.ones(2), [1, 2]), (torch.ones(2), [1, 2, 3]), graphs=2)
def list_length_is_guarded(x, values):
    return x + sum(values)


@cases.add((torch.ones(2), {"a": 1, "b": 2}), (torch.ones(2), {"b": 2, "a": 1}), graphs=2)
def dict_order_is_guarded(x, table):
    return x + len(table), list(table)


@cases.add((torch.ones(2), {"a", "b"}), (torch.ones(2), {"b", "a"}), (torch.ones(2), {"c"}), graphs=2)
def set_contents_are_guarded(x, names):
    return x + ("a" in names)


@pytest.mark.parametrize("name", cases)
def test_containers(name: str) -> None:
    cases.check(name)
