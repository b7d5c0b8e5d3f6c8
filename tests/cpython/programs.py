"""Small functions with every kind of block, and what they are called with; shared by the tests of this folder.

Each takes a log to append to (so that effects and their order are compared) and further arguments.
"""

from __future__ import annotations

import contextlib


class Manager:
    def __init__(self, log, swallow=False):
        self.log, self.swallow = log, swallow

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, value, trace):
        self.log.append(("exit", kind and kind.__name__, str(value)))
        return self.swallow


class Base:
    def __init__(self, log):
        self.log = log

    def scale(self, x):
        return x * 10


class Child(Base):
    def scale(self, x, *rest, plus=1, **more):
        y = super().scale(x) + plus
        self.log.append((y, rest, sorted(more)))
        return super().scale(y) + len(rest)

    def cell_self(self, x):
        get = lambda: self  # noqa: E731
        y = super().scale(x)
        self.log.append(get() is self)
        return super().scale(y), __class__.__name__, get() is self

    def rebound(self, x):
        get = lambda: self  # noqa: E731
        x = x + 1
        self = Child([])
        return super().scale(x), get() is self


def straight(log, a, b):
    c = a + b
    log.append(c)
    d = c * 2 if a else c - b
    del c
    return d, a, [a, *(b, d)], {"k": a, **{"z": b}}


def loops(log, n, m):
    total = 0
    for i in range(n):
        for j in range(m):
            if j == 3:
                continue
            if i == 4:
                break
            total += i * j
        else:
            log.append(("done", i))
    while total > 7:
        total -= 5
    return total, [x * total for x in range(n) if x % 2]


def finally_(log, a, b):
    try:
        log.append("body")
        x = a // b
        if x == 2:
            return "early", x
    except ZeroDivisionError as error:
        log.append(str(error))
        x = -1
    else:
        log.append("else")
    finally:
        log.append("finally")
        y = len(log)
    return x, y


def nested_try(log, items, key):
    out = []
    for item in items:
        try:
            try:
                out.append(item[key])
            except KeyError:
                log.append("missing")
                raise ValueError(key) from None
            finally:
                log.append("inner")
        except (ValueError, TypeError) as error:
            log.append(type(error).__name__)
            if item is None:
                raise
            out.append(None)
    return out


def withs(log, a, swallow):
    with Manager(log) as outer, Manager(log, swallow):
        log.append(outer.swallow)
        value = 10 // a
        log.append(value)
    with contextlib.suppress(ZeroDivisionError):
        for k in range(3):
            with Manager(log):
                if k == a:
                    return "returned", k
                value = k // (a - 1)
    return value if a else "swallowed"


def closures(log, a, *args, b=2, **kwargs):
    count = a

    def bump(by):
        nonlocal count
        count += by
        return count

    first = bump(b)
    doubled = [x * count for x in args]
    count = count * 2
    second = bump(1)
    maker = (lambda q: lambda r: (q, r, count, b))(first)
    log.append((first, second))
    return count, doubled, maker(len(kwargs)), sorted(kwargs.items())


def groups(log, kind):
    try:
        raise ExceptionGroup("g", [ValueError(1), kind("2")])
    except* ValueError as eg:
        log.append(("value", len(eg.exceptions)))
    except* TypeError as eg:
        log.append(("type", len(eg.exceptions)))
    return len(log)


def matching(log, subject):
    match subject:
        case {"x": x, **rest}:
            log.append(rest)
            return "dict", x
        case [first, *others] if first:
            return "list", first, others
        case int() | float() as number:
            return "number", number
        case None:
            return "none"
    return "other"


def unbound(log, flag):
    if flag:
        value = 1
    log.append("before")
    return value


def shortcuts(log, a, b):
    c = (a and b) or (b and not a) or "neither"
    d = a < b < 5
    assert c != "bad", "never"
    log.append(f"{c!r:>10}{d}")
    e, (f, *g) = c, (d, a, b)
    g[0] = e
    return a is None or b is not None, e, f, g


CALLS = [
    (straight, (1, 2), {}), (straight, (0, 2), {}), (loops, (6, 5), {}), (loops, (0, 1), {}),
    (finally_, (6, 3), {}), (finally_, (6, 2), {}), (finally_, (6, 0), {}), (finally_, (6, "x"), {}),
    (nested_try, ([{"a": 1}, {}, {"a": 2}], "a"), {}), (nested_try, ([{"a": 1}, None], "a"), {}),
    (withs, (1, True), {}), (withs, (0, True), {}), (withs, (0, False), {}), (withs, (2, False), {}), (withs, (9, False), {}),
    (closures, (1, 2, 3), {"b": 4, "z": 5}), (closures, (1,), {}),
    (groups, (TypeError,), {}), (groups, (KeyError,), {}),
    (matching, ({"x": 1, "y": 2},), {}), (matching, ([1, 2, 3],), {}), (matching, (2.5,), {}), (matching, (None,), {}),
    (matching, ("s",), {}),
    (unbound, (True,), {}), (unbound, (False,), {}),
    (shortcuts, (1, 2), {}), (shortcuts, (0, 7), {}), (shortcuts, (None, None), {}),
]


def outcome(function, log, args, kwargs):
    """What a call shows: result or exception (with its context), and the log."""
    try:
        result = ("returned", repr(function(*args, **kwargs)))
    except Exception as error:
        leaves = [repr(e) for e in getattr(error, "exceptions", ())]
        result = ("raised", repr(error), leaves, repr(error.__cause__), repr(error.__context__), error.__suppress_context__)
    return result, repr(log)
