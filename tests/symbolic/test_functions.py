# mypy: ignore-errors
"""Calls, arguments, closures, generators, decorators, context managers, exceptions inside one graph."""

from __future__ import annotations

import contextlib
import functools

import pytest
import torch

from tests.differ import Cases, differ

cases = Cases()


def kinds(a, b=2, /, c=3, *rest, d, e=5, **more):
    return [a, b, c, rest, d, e, sorted(more.items())]


@cases.add()
def every_kind_of_argument(x):
    out = [kinds(x, d=1), kinds(x, 1, 2, 3, 4, d=0, z=9, y=8), kinds(*[x, 7], **{"d": 1, "c": 4}), kinds(*(x,), *[1, 2], d=1, **{"q": 1})]
    return x + len(out), out


@cases.add()
def defaults_are_shared(x, store=[]):  # noqa: B006
    def keep(v, seen=[]):  # noqa: B006
        seen.append(v)
        return seen

    first = keep(1)
    keep(x)
    return x + 1, first, keep(2) is first


@cases.add()
def cells_shared_by_closures(x):
    count, seen = 0, []

    def bump():
        nonlocal count
        count += 1
        seen.append(count)
        return peek

    def peek():
        return count

    a, b = bump(), bump()
    count += 10
    return x + a() + b(), seen, bump()()


@cases.add()
def closures_returned(x):
    factor = 3

    def times(t, extra=x):
        return t * factor + extra

    factor = 4
    return times(x), [f(2) for f in [lambda v, k=k: v * k for k in range(3)]]


@cases.add()
def recursion(x):
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    def halve(t, n):
        return t if not n else halve(t / 2, n - 1)

    return halve(x, 4) + fib(8)


@cases.add()
def decorators(x):
    calls = []

    def traced(label):
        def wrap(fn):
            @functools.wraps(fn)
            def inner(*args, **kwargs):
                calls.append(label)
                return fn(*args, **kwargs)

            return inner

        return wrap

    @traced("out")
    @traced("in")
    def work(t):
        """Doc."""
        return t * 2

    return work(x), calls, work.__name__, work.__doc__


@cases.add()
def generator_protocol(x):
    log = []

    def source():
        try:
            got = yield x
            log.append(got)
            got = yield x * 2
            log.append(got)
        finally:
            log.append("closed")
        return "end"

    g = source()
    out = [next(g), g.send("a")]
    try:
        g.send("b")
    except StopIteration as stop:
        log.append(stop.value)
    return out, log, next(g, "empty")


@cases.add()
def generator_delegation(x):
    def inner():
        total = 0
        while True:
            got = yield total
            if got is None:
                return total
            total = total + got

    def outer():
        result = yield from inner()
        yield ("result", result)

    g = outer()
    next(g)
    return g.send(x), g.send(1), next(g)


@cases.add()
def generators_feed_builtins(x):
    def numbers(n):
        for i in range(n):
            yield x * i

    first, *rest = numbers(3)
    pairs = dict(enumerate(numbers(2)))
    return first, rest, pairs, sum(numbers(4)), [a + b for a, b in zip(numbers(2), numbers(9))], any(v for v in (0, 2)), tuple(map(len, ("a", "bc")))  # noqa: B905


class Countdown:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n == 0:
            raise StopIteration
        self.n -= 1
        return self.n


class Indexed:
    def __getitem__(self, i):
        if i > 2:
            raise IndexError(i)
        return i * 10


@cases.add()
def iterator_protocol(x):
    it = Countdown(5)
    first = next(it)
    return x + first + sum(it), list(Indexed()), 20 in Indexed(), list(iter([1, 2, 3, 0, 4].pop, 1)), list(reversed([1, 2]))


@cases.add()
def exception_handling(x):
    log = []

    def risky(n):
        try:
            if n == 0:
                raise KeyError("zero")
            if n == 1:
                return "returned"
            return 10 // (n - 2)
        except (KeyError, ZeroDivisionError) as err:
            log.append(type(err).__name__)
            return "handled"
        else:
            log.append("else")
        finally:
            log.append(f"finally {n}")

    return x + 1, [risky(n) for n in range(4)], log


@cases.add()
def exception_chains(x):
    try:
        try:
            raise ValueError("inner", 1)
        except ValueError as err:
            raise LookupError("outer") from err
    except LookupError as err:
        outer = err
    try:
        try:
            {}["missing"]
        finally:
            raise RuntimeError("replaced")
    except RuntimeError as err:
        replaced = err
    return x + 1, str(outer), outer.__cause__.args, type(replaced.__context__).__name__, outer.__suppress_context__


@cases.add()
def finally_overrides(x):
    def lost():
        try:
            raise ValueError("swallowed")
        finally:
            return "from finally"  # noqa: B012

    def loops():
        for i in range(5):
            try:
                if i == 1:
                    continue
                if i == 3:
                    break
            finally:
                seen.append(i)
        return i

    seen = []
    return x + loops(), lost(), seen


class Custom(ValueError):
    def __init__(self, code, **extra):
        super().__init__(f"code {code}")
        self.code, self.extra = code, extra


@cases.breaks()
def exception_classes(x):
    try:
        raise Custom(3, why="because")
    except ValueError as err:
        err.add_note("a note")
        return x + err.code, err.extra, str(err), err.__notes__, isinstance(err, Custom)


@cases.add()
def attribute_and_type_errors(x):
    out = []
    for attempt in (lambda: None.missing, lambda: 1 + "a", lambda: [][3], lambda: {}[1], lambda: int("q"), lambda: next(iter(())), lambda: undefined_name):  # noqa: F821
        try:
            attempt()
        except Exception as err:
            out.append((type(err).__name__, str(err)))
    return x + len(out), out


class Scope:
    def __init__(self, name, log, swallow=False):
        self.name, self.log, self.swallow = name, log, swallow

    def __enter__(self):
        self.log.append("in " + self.name)
        return self

    def __exit__(self, kind, value, tb):
        self.log.append((self.name, kind and kind.__name__, str(value)))
        return self.swallow


@cases.add()
def context_manager_classes(x):
    log = []

    with Scope("a", log) as a, Scope("b", log, True):
        x = x * 2
        raise ValueError("inside")
    with Scope("c", log):
        for _ in range(2):
            with Scope("d", log):
                break
    return x, log, a.name


@cases.breaks()
def contextlib_tools(x):
    log = []

    @contextlib.contextmanager
    def scope(n):
        log.append(n)
        try:
            yield n * 2
        except KeyError as err:
            log.append(repr(err))
        finally:
            log.append(-n)

    with contextlib.ExitStack() as stack:
        total = sum(stack.enter_context(scope(n)) for n in (1, 2))
        stack.callback(log.append, "callback")
    with scope(5):
        raise KeyError("k")
    with contextlib.nullcontext(7) as seven, contextlib.suppress(IndexError):
        [][1]
    return x + total + seven, log


@cases.add()
def torch_contexts(x):
    w = torch.ones(4, requires_grad=True)
    with torch.no_grad():
        a = w * 2
        with torch.enable_grad():
            b = w * 3
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=True):
        c = torch.outer(x, x) @ torch.outer(x, x)
    return a.requires_grad, b.requires_grad, c.dtype, torch.is_grad_enabled(), a, b.detach()


@torch.no_grad()
def helper_without_grad(t):
    return t * 2


@cases.add((torch.ones(2, requires_grad=True),), (torch.ones(2),), graphs=2)
def grad_mode_decorator(x):
    return helper_without_grad(x), x * 3, torch.is_grad_enabled()


@cases.breaks()
def exception_groups(x):
    seen = []
    try:
        raise ExceptionGroup("several", [ValueError("v"), KeyError("k"), TypeError("t")])
    except* ValueError as group:
        seen.append(len(group.exceptions))
    except* (KeyError, TypeError) as group:
        seen.append([type(e).__name__ for e in group.exceptions])
    return x + len(seen), seen


@cases.breaks()
def generator_closed_by_throw(x):
    log = []

    def source():
        try:
            yield x
        except ValueError as err:
            log.append(str(err))
            yield x * 5

    g = source()
    next(g)
    out = g.throw(ValueError("thrown"))
    g.close()
    return out, log


@cases.breaks()
def coroutines(x):
    async def give(v):
        return v + 1

    async def main():
        return await give(x) * 2

    c = main()
    try:
        c.send(None)
    except StopIteration as stop:
        return stop.value


@cases.breaks()
def lazy_generators_escape(x):
    return (x * i for i in range(3)).__name__, list(x + i for i in range(2))  # noqa: C400


@cases.breaks()
def classes_made_in_place(x):
    class Local:
        size = 2

        def __init__(self, t):
            self.t = t

        def twice(self):
            return self.t * self.size

    class Special(Local):
        def twice(self):
            return super().twice() + 1

    return Special(x).twice(), Local(x).twice(), Special.__mro__[1].__name__


@pytest.mark.parametrize("name", cases)
def test_functions(name: str) -> None:
    cases.check(name)


def raises_value(x, log):
    log.append("before")
    y = x * 2
    if y.dim() == 1:
        raise ValueError(f"shape {tuple(y.shape)}")
    return y


def raises_from_callee(x, log):
    try:
        return raises_value(x, log)
    finally:
        log.append("unwound")


def raises_in_handler(x, log):
    try:
        raises_value(x, log)
    except ValueError as err:
        log.append(str(err))
        raise KeyError("second") from None
    finally:
        log.append("finally")


def reraises(x, log):
    try:
        raises_value(x, log)
    except ValueError:
        log.append("seen")
        raise


def names_unbound(x, log):
    log.append(1)
    if log == []:
        late = 1
    return x + late


def bad_operation(x, log):
    log.append(1)
    return x @ torch.ones(3, 3, 3)[0, :2]


@pytest.mark.parametrize("fn", [raises_value, raises_from_callee, raises_in_handler, reraises, names_unbound, bad_operation], ids=lambda f: f.__name__)
def test_exceptions_that_leave(fn) -> None:
    differ(fn, (torch.ones(3), []), (torch.ones(4), ["old"]), (torch.ones(2, 2), []))
