"""Hook regions: which frames are compiled, what passes through untouched, and that exits always happen."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time

import pytest
from native_helpers import Echo, outcome

from dynamo_nb import native


def inner(x, k=1):
    return x + k


def outer(x):
    return inner(x, k=2) + inner(x)


class Number:
    def __init__(self, v):
        self.v = v

    def __add__(self, other):
        return Number(self.v + 1)

    def __bool__(self):
        return self.v > 0

    def __iter__(self):
        return iter([self.v])

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)


def gen(n):
    for i in range(n):
        yield inner(i)


def test_frames_in_a_region_are_compiled_and_outside_are_not():
    echo = Echo()
    assert outer(1) == 5 and echo.converted == []
    with echo:
        assert outer(1) == 5
    assert echo.converted == ["outer"]  # what target code calls runs as it is
    with echo:
        assert inner(1) == 2
    assert echo.converted == ["outer", "inner"]
    assert outer(1) == 5
    assert [e.hits for e in native.get_entries(outer.__code__)] == [0]


def test_the_converter_is_given_no_function_for_a_hooked_frame():
    echo = Echo()
    with echo:
        inner(1)
    code, globals_, _, closure, values, fn, is_resume = echo.calls[0]
    assert (code, values, fn, is_resume, closure) == (inner.__code__, (1, 1), None, False, None) and globals_ is globals()


def test_special_methods_are_frames_too():
    echo = Echo()
    with echo:
        n = Number(1) + 2
        n.v = 2
        assert bool(n) and list(n) == [2]
    assert {"__init__", "__add__", "__bool__", "__iter__", "__setattr__"} <= set(echo.converted)


def test_generators_coroutines_and_class_bodies_are_left_alone():
    async def co():
        await asyncio.sleep(0)
        return inner(1)

    echo = Echo()
    with echo:
        assert list(gen(3)) == [1, 2, 3]
        assert asyncio.run(co()) == 2

        class Body:
            value = inner(4)

        exec(compile("made = 1", "x", "exec"), {})
        assert Body.value == 5
    assert "gen" not in echo.converted and "co" not in echo.converted and "Body" not in echo.converted
    assert "inner" in echo.converted


def test_generator_started_outside_and_resumed_inside():
    it = gen(3)
    assert next(it) == 1
    echo = Echo()
    with echo:
        assert next(it) == 2
        with pytest.raises(KeyError):
            it.throw(KeyError("x"))
    assert "gen" not in echo.converted


def test_unknown_exits_and_unbalanced_targets():
    echo = Echo()
    with pytest.raises(RuntimeError, match="without"):
        echo.region.exit()

    def leaves_open(x):
        echo.region.enter()
        raise ValueError(x)

    def exits_too_often(x):
        echo.region.exit()

    with echo:
        with pytest.raises(ValueError):
            echo.compile(leaves_open)(1)
        assert native.region_depth() == 1
        with pytest.raises(RuntimeError):
            echo.compile(exits_too_often)(1)
        assert native.region_depth() == 1


def test_enter_of_a_dead_region():
    enter = native.Region(lambda *args: None).enter
    with pytest.raises(RuntimeError, match="gone"):
        enter()


def test_region_inside_target_code_hooks_what_it_calls():
    def target(x):
        echo.region.enter()
        try:
            return inner(x)
        finally:
            echo.region.exit()

    echo = Echo()
    assert echo.compile(target)(1) == 2
    assert echo.converted == ["target", "inner"]


def test_disabled_frames_run_plainly():
    echo = Echo()
    with echo:
        assert native.call_disabled(outer, 1) == 5
        assert native.call_disabled(outer, x=1) == 5
        with pytest.raises(TypeError):
            native.call_disabled()
        before = native.set_disabled(True)
        assert outer(1) == 5 and before is False and native.is_disabled()
        assert native.set_disabled(False) is True
        native.disable_enter()
        native.disable_enter()
        native.disable_exit()
        assert native.is_disabled() and echo.compile(outer)(1) == 5
        native.disable_exit()
    assert echo.converted == []


def test_call_disabled_restores_after_an_exception():
    def bad():
        raise OSError("x")

    with pytest.raises(OSError):
        native.call_disabled(bad)
    assert not native.is_disabled()


def test_three_threads_in_regions_that_release_the_gil():
    wrong: list[object] = []
    echoes = [Echo() for _ in range(3)]

    def work(echo, n):
        for i in range(300):
            with echo:
                if inner(i, k=n) != i + n:
                    wrong.append((n, i))
                if i % 10 == 0:
                    time.sleep(0.0001)
            if inner(i) != i + 1:
                wrong.append(("outside", i))

    threads = [threading.Thread(target=work, args=(echo, n)) for n, echo in enumerate(echoes)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []
    assert [e.converted.count("inner") for e in echoes] == [1, 1, 1]


def test_a_region_is_per_thread():
    echo = Echo()
    result = []
    with echo:
        t = threading.Thread(target=native.call_disabled, args=(lambda: result.append((inner(1), native.is_disabled())),))
        t.start()
        t.join()
        u = threading.Thread(target=lambda: result.append(native.region_depth()))
        native.call_disabled(u.start)
        native.call_disabled(u.join)
    assert result == [(2, True), 0] and "inner" not in echo.converted


def test_one_thread_compiles_and_the_others_wait():
    compiles = []

    def convert(code, *rest):
        compiles.append(threading.get_ident())
        time.sleep(0.05)
        entry = native.CacheEntry(code, native.RootGuardManager(), region)
        native.insert_entry(code, entry)
        return entry

    def g(x):
        return x

    region = native.Region(convert)
    compiled = native.CompiledFunction(g, region)
    results = []
    threads = [threading.Thread(target=lambda i=i: results.append(compiled(i))) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(results) == list(range(6)) and len(compiles) == 1


def test_compile_lock_is_reentrant_and_private():
    lock = native.compile_lock()
    with lock, native.compile_lock():
        assert lock.held()
        seen = []
        t = threading.Thread(target=lambda: seen.append(native.compile_lock().held()))
        t.start()
        t.join()
        assert seen == [False]
    assert not lock.held()
    with pytest.raises(RuntimeError, match="does not hold"):
        lock.__exit__(None, None, None)


def test_a_thread_that_holds_an_import_lock_does_not_wait(tmp_path, monkeypatch):
    (tmp_path / "module_that_calls.py").write_text("import builtins\nresult = builtins._dnb_compiled(3)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    echo = Echo()

    def g(x):
        return x * 2

    import builtins

    monkeypatch.setattr(builtins, "_dnb_compiled", echo.compile(g), raising=False)
    with native.compile_lock():
        results = []
        t = threading.Thread(target=lambda: results.append(__import__("module_that_calls").result))
        t.start()
        t.join(20)
        assert not t.is_alive() and results == [6] and echo.converted == []
    sys.modules.pop("module_that_calls")


def test_fork_while_another_thread_holds_the_lock():
    held, release = threading.Event(), threading.Event()

    def hold():
        with native.compile_lock():
            held.set()
            release.wait(20)

    t = threading.Thread(target=hold)
    t.start()
    held.wait()
    echo = Echo()
    pid = os.fork()
    if pid == 0:
        ok = False
        with contextlib.suppress(BaseException):
            ok = echo.compile(inner)(1) == 2 and echo.converted == ["inner"]
        os._exit(0 if ok else 1)
    release.set()
    t.join()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_settrace_sees_the_users_lines():
    echo = Echo()
    lines = []

    def tracer(frame, event, arg):
        if frame.f_code is inner.__code__:
            lines.append((event, frame.f_lineno - inner.__code__.co_firstlineno))
        return tracer

    compiled = echo.compile(inner)
    assert compiled(1) == 2
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        assert compiled(1) == 2
        with echo:
            assert inner(1) == 2
    finally:
        sys.settrace(before)
    assert lines == [("call", 0), ("line", 1), ("return", 1)] * 2
    assert compiled(5) == 6


def test_profilers_see_balanced_events():
    echo = Echo()
    depth, seen = [0], []

    def profiler(frame, event, arg):
        if event in ("call", "return"):
            depth[0] += 1 if event == "call" else -1
            seen.append(frame.f_code.co_name)

    compiled = echo.compile(outer)
    compiled(1)
    sys.setprofile(profiler)
    try:
        assert compiled(1) == 5
        with echo:
            assert outer(1) == 5
    finally:
        sys.setprofile(None)
    assert seen.count("outer") == 4 and seen.count("inner") == 8 and depth[0] in (0, -1)


def test_tracebacks_point_at_the_users_lines():
    def fails(x):
        y = x
        raise ValueError(y)

    def line(call):
        try:
            call()
        except ValueError as error:
            tb = error.__traceback__
            names = []
            while tb:
                names.append((tb.tb_frame.f_code.co_name, tb.tb_lineno))
                tb = tb.tb_next
            return [n for n in names if n[0] == "fails"]
        return None

    echo = Echo()
    compiled = echo.compile(fails)
    expected = line(lambda: fails(1))
    assert line(lambda: compiled(1)) == line(lambda: compiled(1)) == expected

    def hooked():
        with echo:
            fails(1)

    assert line(hooked) == expected


def test_frames_see_their_caller():
    def who():
        return sys._getframe(1).f_code.co_name

    def caller():
        return who()

    echo = Echo()
    assert echo.compile(caller)() == "caller"
    with echo:
        assert caller() == "caller" and who() == "test_frames_see_their_caller"


def test_arguments_that_are_cells_and_every_kind_of_local():
    def g(a, /, b, *args, k=3, **kw):
        x = a + 1

        def h():
            nonlocal x
            x += b
            return x, args, k, kw

        return h()

    echo = Echo()
    with echo:
        results = [outcome(lambda: g(1, 2, 3, k=4, z=5)), outcome(lambda: g(1, b=2)), outcome(lambda: g())]
    assert results == [outcome(lambda: g(1, 2, 3, k=4, z=5)), outcome(lambda: g(1, b=2)), outcome(lambda: g())]


def test_hooked_frames_leak_nothing():
    class Thing:
        pass

    def g(a, *args, **kw):
        if kw:
            raise ValueError
        return a, args

    thing, echo = Thing(), Echo()
    calls = [lambda: g(thing, thing), lambda: g(thing, k=thing), lambda: g(), lambda: list(gen(2))]
    with echo:
        for call in calls:
            outcome(call)
        echo.calls.clear()
        before = sys.getrefcount(thing), sys.getrefcount(g), sys.getrefcount(echo.region)
        for _ in range(1000):
            for call in calls:
                outcome(call)
        assert (sys.getrefcount(thing), sys.getrefcount(g), sys.getrefcount(echo.region)) == before
