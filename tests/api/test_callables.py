# mypy: ignore-errors
"""compile() on everything that can be called, and what the compiled object is to its users."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import random
import threading
import weakref

import numpy as np
import pytest
import torch

import dynamo_nb
from dynamo_nb.testing import CompileCounter

X = torch.ones(3)


def top(x, a=1, *rest, k: int = 2, **more) -> torch.Tensor:
    """Doc of top."""
    return x * a + k + len(rest) + len(more)


def test_metadata_of_a_function() -> None:
    c = dynamo_nb.compile(top, backend="eager")
    for name in ("__name__", "__qualname__", "__doc__", "__module__", "__annotations__", "__defaults__", "__kwdefaults__", "__code__", "__globals__"):
        assert getattr(c, name) == getattr(top, name), name
    assert inspect.signature(c) == inspect.signature(top) and c.__wrapped__ is top and callable(c) and inspect.unwrap(c) is top
    assert weakref.ref(c)() is c
    for args, kw in (((X,), {}), ((X, 2, 3), {"k": 4, "z": 5}), ((X,), {"a": 7})):
        assert torch.equal(c(*args, **kw), top(*args, **kw))


def test_copies() -> None:
    c = dynamo_nb.compile(pickled, backend="eager")
    assert torch.equal(copy.copy(c)(X), X + 1) and torch.equal(copy.deepcopy({"f": c})["f"](X), X + 1)


def pickled(x):
    return x + 1


def test_wrapping_twice_and_by_functools() -> None:
    count = CompileCounter()
    c = dynamo_nb.compile(dynamo_nb.compile(pickled, backend="eager"), backend=count)
    assert torch.equal(c(X), X + 1) and count.frame_count == 1
    part = functools.partial(dynamo_nb.compile(top, backend="eager"), a=3)
    assert torch.equal(part(X), top(X, 3))
    whole = dynamo_nb.compile(functools.partial(top, a=3), backend="eager")
    assert torch.equal(whole(X), top(X, 3))

    @functools.wraps(top)
    def around(*args, **kwargs):
        return top(*args, **kwargs) * 2

    assert torch.equal(dynamo_nb.compile(around, backend="eager")(X, k=0), top(X, k=0) * 2)


class Thing:
    scale = 3

    def __init__(self, v=1):
        self.v = v

    @dynamo_nb.compile(backend="eager")
    def decorated(self, x):
        self.v += 1
        return x * self.scale + self.v

    @staticmethod
    @dynamo_nb.compile(backend="eager")
    def static(x):
        return x - 1

    @classmethod
    @dynamo_nb.compile(backend="eager")
    def klass(cls, x):
        return x * cls.scale

    @property
    @dynamo_nb.compile(backend="eager")
    def prop(self):
        return torch.ones(2) * self.v

    def plain(self, x):
        return x + self.v

    def __call__(self, x):
        return x * 100 + self.v

    @dynamo_nb.compile(backend="eager")
    def __add__(self, x):
        return x + self.v


class Child(Thing):
    scale = 4

    def decorated(self, x):
        return super().decorated(x) + 0.5


def test_methods() -> None:
    t = Thing()
    assert t.decorated(X)[0].item() == 5 and t.v == 2 and Thing.static(X)[0].item() == 0 and t.static(X)[0].item() == 0
    assert Thing.klass(X)[0].item() == 3 and t.klass(X)[0].item() == 3 and t.prop[0].item() == 2 and (t + X)[0].item() == 3
    assert Child().decorated(X)[0].item() == 6.5 and Child.klass(X)[0].item() == 4
    bound = dynamo_nb.compile(t.plain, backend="eager")
    assert bound(X)[0].item() == 3 and bound.__self__ is t
    t.v = 10
    assert bound(X)[0].item() == 11
    assert dynamo_nb.compile(t, backend="eager")(X)[0].item() == 110
    assert dynamo_nb.compile(Thing.plain, backend="eager")(t, X)[0].item() == 11
    assert t.decorated.__func__ is Thing.decorated


def test_lambdas_builtins_and_torch_functions() -> None:
    assert torch.equal(dynamo_nb.compile(lambda x: x + 1, backend="eager")(X), X + 1)
    assert torch.equal(dynamo_nb.compile(torch.sin, backend="eager")(X), X.sin())
    assert dynamo_nb.compile(len, backend="eager")([1, 2]) == 2
    assert torch.equal(dynamo_nb.compile(torch.nn.functional.relu, backend="eager")(-X), X * 0)


@pytest.mark.parametrize("thing", [3, "name", None.__class__.__name__, object()])
def test_what_is_not_callable(thing) -> None:
    with pytest.raises(TypeError, match="callable"):
        dynamo_nb.compile(thing)


def test_decorator_forms() -> None:
    @dynamo_nb.compile
    def a(x):
        return x + 1

    @dynamo_nb.compile()
    def b(x):
        return x + 1

    @dynamo_nb.compile(backend="eager", fullgraph=True, dynamic=False)
    def c(x):
        return x + 1

    @dynamo_nb.compile(disable=True)
    def d(x):
        return x + 1

    assert all(torch.equal(f(X), X + 1) for f in (a, b, c, d)) and inspect.isfunction(d)


def test_generator_functions() -> None:
    log: list[str] = []

    def numbers(x, n):
        try:
            for i in range(n):
                got = yield x * 2 + i
                log.append(str(got))
            return "done"
        except KeyError as err:
            yield repr(err)
        finally:
            log.append("closed")

    def drive(fn):
        log.clear()
        g = fn(X, 2)
        out = [next(g)[0].item(), g.send("a")[0].item()]
        try:
            next(g)
        except StopIteration as stop:
            out.append(stop.value)
        h = fn(X, 5)
        next(h)
        out.append(h.throw(KeyError("k")))
        h.close()
        return [*out, *log], [v[0].item() for v in fn(X, 3)]

    c = dynamo_nb.compile(numbers, backend="eager")
    assert drive(c) == drive(numbers) and inspect.isgeneratorfunction(c)


def test_coroutines_and_async_generators() -> None:
    async def add(x):
        await asyncio.sleep(0)
        return x + 1

    async def stream(x):
        for i in range(3):
            await asyncio.sleep(0)
            yield x + i

    async def fails(x):
        await asyncio.sleep(0)
        raise KeyError("async")

    async def both(one, many, bad):
        out = [(await one(X))[0].item(), [v[0].item() async for v in many(X)], [r[0].item() for r in await asyncio.gather(one(X), one(X * 2))]]
        try:
            await bad(X)
        except KeyError as err:
            out.append(repr(err))
        return out

    compiled = [dynamo_nb.compile(f, backend="eager") for f in (add, stream, fails)]
    assert asyncio.run(both(*compiled)) == asyncio.run(both(add, stream, fails))
    assert inspect.iscoroutinefunction(compiled[0]) and inspect.isasyncgenfunction(compiled[1])


def states():
    return torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiling_draws_no_random_number(backend: str) -> None:
    def f(x):
        y = torch.nn.functional.dropout(x, 0.5)
        print(end="")
        return y + random.random() + torch.rand(3) + float(np.random.rand())

    results = []
    for fn in (f, dynamo_nb.compile(f, backend=backend)):
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)
        results.append(([fn(X).tolist() for _ in range(2)], states()))
    assert results[0] == results[1]


def test_compiling_without_random_code_leaves_the_states() -> None:
    before = states()
    dynamo_nb.compile(lambda x: (x @ x).relu(), backend="aot_eager")(torch.ones(2, 2, requires_grad=True)).sum().backward()
    assert states() == before


def test_namespace_is_untouched() -> None:
    space = {"torch": torch, "stop": print}
    exec("def f(x):\n    y = x + 1\n    stop(end='')\n    return [y * i for i in range(2)]\n", space)
    before = list(space)
    dynamo_nb.compile(space["f"], backend="aot_eager")(X)
    assert list(space) == before


def test_grad_mode_of_each_thread() -> None:
    c = dynamo_nb.compile(lambda x: x * 2, backend="eager")
    x, seen = torch.ones(2, requires_grad=True), {}

    def inside():
        with torch.no_grad():
            seen["thread"] = [c(x).requires_grad for _ in range(3)]

    seen["main"] = [c(x).requires_grad]
    t = threading.Thread(target=inside)
    t.start()
    t.join()
    assert seen == {"main": [True], "thread": [False] * 3} and c(x).requires_grad


def test_compiled_calls_compiled_and_recurses() -> None:
    @dynamo_nb.compile(backend="eager")
    def down(x, n):
        return x if n == 0 else down(x + 1, n - 1)

    inner = dynamo_nb.compile(lambda x: x * 2, backend="eager")
    count = CompileCounter()
    assert down(X, 5)[0].item() == 6
    assert dynamo_nb.compile(lambda x: inner(x) + inner(x + 1), backend=count)(X)[0].item() == 6 and count.frame_count == 1


def test_endless_recursion_is_a_recursion_error() -> None:
    @dynamo_nb.compile(backend="eager")
    def forever(x):
        return forever(x + 1)

    with pytest.raises(RecursionError):
        forever(X)
    assert dynamo_nb.compile(lambda x: x + 1, backend="eager")(X)[0].item() == 2
