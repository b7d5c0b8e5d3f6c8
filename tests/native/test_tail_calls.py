"""Tail calls and fragments: resume functions run as units of their own, one after the other."""

from __future__ import annotations

import sys
import types

import pytest
from native_helpers import Echo, flat_code

from dynamo_nb import native


def _entry_for(code, region, target):
    entry = native.CacheEntry(target, native.RootGuardManager(), region)
    native.insert_entry(code, entry)
    return entry


def step(n, total):
    if n == 0:
        return total
    return native.tail_call(step.__code__, None, n - 1, total + n)


def test_a_chain_of_tail_calls_does_not_grow_the_stack():
    echo = Echo()
    limit = sys.getrecursionlimit()
    assert echo.compile(step)(50 * limit, 0) == sum(range(50 * limit + 1))
    assert echo.converted == ["step"]


def test_resume_units_have_their_own_entries_and_see_the_frames_globals():
    def first(x):
        return native.tail_call(second, (cell,), x, x + 1)

    space = {"native": native}
    exec("def outer(c):\n    def second(a, b): return a, b, c, marker\n    return second", space)
    second = space["outer"](0).__code__
    cell = types.CellType("cell")
    echo = Echo(only=lambda code: True)
    assert echo.compile(first)(1) == (1, 2, "cell", MARKER) and echo.compile(first)(2)[0] == 2
    assert echo.converted == ["first", "second"]
    resumed = echo.calls[1]
    assert resumed[1] is globals() and resumed[3] == (cell,) and resumed[4] == (1, 2) and resumed[5] is None and resumed[6] is True


MARKER = marker = "module global"


def test_resume_function_that_is_not_converted_runs_plainly_in_the_region():
    def rest(x):
        return helper(x)

    def start(x):
        return native.tail_call(rest.__code__, None, x)

    echo = Echo(only=lambda code: code.co_name in ("start", "helper"))
    assert echo.compile(start)(3) == 4
    assert echo.converted == ["start", "helper"]


def helper(x):
    return x + 1


def test_plain_tail_call_runs_the_original_with_all_kinds_of_arguments():
    def original(a, b=2, *args, k, **kw):
        return a, b, args, k, kw

    def target(a, b, k, args, kw):
        return native.tail_call_plain(original.__code__, None, a, b, k, args, kw)

    region = native.Region(lambda *args: pytest.fail("must not be asked"))
    code = target.__code__.replace(co_freevars=(), co_cellvars=()) if not target.__code__.co_freevars else None
    assert code is None  # target closes over `original`: its cell comes through free_map
    entry = native.CacheEntry(target.__code__, native.RootGuardManager(), region, target.__closure__)
    native.insert_entry(original.__code__, entry)
    compiled = native.CompiledFunction(original, region)
    assert compiled(1, 5, 6, 7, k=8, z=9) == (1, 5, (6, 7), 8, {"z": 9})
    assert compiled(1, k=8) == (1, 2, (), 8, {})
    region.enter()
    try:
        assert original(1, k=3) == (1, 2, (), 3, {})
    finally:
        region.exit()


def test_tail_call_checks_its_arguments():
    code = helper.__code__
    with pytest.raises(SystemError, match="with 2 values instead of 1"):
        native.tail_call(code, None, 1, 2)
    for bad in ((), (code,), (helper, None, 1), (code, 3, 1)):
        with pytest.raises(TypeError):
            native.tail_call(*bad)
    with pytest.raises(TypeError):
        native.TailCall()


def test_tail_call_with_the_wrong_closure_raises():
    space: dict[str, object] = {}
    exec("def outer(c):\n    def second(a): return a, c\n    return second", space)
    second = space["outer"](0).__code__

    def start(x):
        return native.tail_call(second, None, x)

    with pytest.raises(SystemError, match="closure cells"):
        Echo(only=lambda code: True).compile(start)(1)


def test_fragments_are_trusted_and_follow_tail_calls():
    def fragment(x):
        return native.tail_call(helper.__code__, None, x)

    echo = Echo()
    assert native.run_fragment(flat_code(fragment.__code__), globals(), fragment.__closure__, echo.region, 5) == 6
    assert echo.converted == ["helper"]
    with echo:
        assert native.run_fragment(fragment.__code__, globals(), None, echo.region, 6) == 7
    assert echo.converted == ["helper"]
    for bad in ((), (fragment.__code__, globals(), None, None), (fragment, globals(), None, echo.region)):
        with pytest.raises(TypeError):
            native.run_fragment(*bad)


def test_exceptions_leave_nothing_behind():
    def rest(x):
        raise KeyError(x)

    def start(x):
        return native.tail_call(rest.__code__, None, x)

    class Thing:
        pass

    thing, echo = Thing(), Echo()
    compiled = echo.compile(start)
    for _ in range(3):
        with pytest.raises(KeyError):
            compiled(thing)
    echo.calls.clear()
    before = sys.getrefcount(thing), sys.getrefcount(rest.__code__)
    for _ in range(500):
        with pytest.raises(KeyError):
            compiled(thing)
    assert (sys.getrefcount(thing), sys.getrefcount(rest.__code__)) == before


def test_tail_call_in_a_disabled_thread_runs_plainly():
    def start(x):
        native.set_disabled(True)
        return native.tail_call(helper.__code__, None, x)

    echo = Echo()
    try:
        assert echo.compile(start)(1) == 2
    finally:
        native.set_disabled(False)
    assert echo.converted == ["start"]
