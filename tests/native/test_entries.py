"""Cache entries: order, regions, actions, errors of the converter, resets and replacement while running."""

from __future__ import annotations

import gc
import types
import weakref

import pytest
from native_helpers import Echo, flat_code

from dynamo_nb import native


def _guarded(name, value):
    root = native.RootGuardManager()
    node = root.child("local", (name, 0), f"L[{name!r}]", "LocalGuardAccessor")
    node.add_leaf("EQUALS_MATCH", f"L[{name!r}] == {value!r}", ("equals", value))
    return root


def _specialising():
    """A region that makes one entry per value of the first argument."""
    made = []

    def convert(code, globals, builtins, closure, values, fn, is_resume):
        entry = native.CacheEntry(flat_code(code), _guarded(code.co_varnames[0], values[0]), region)
        native.insert_entry(code, entry)
        made.append(values[0])
        return entry

    region = native.Region(convert, "specialising")
    return region, made


def test_most_recent_hit_comes_first():
    def g(n):
        return n

    region, made = _specialising()
    compiled = native.CompiledFunction(g, region)
    assert [compiled(n) for n in (1, 2, 3)] == [1, 2, 3] and made == [1, 2, 3]
    first = native.get_entries(g.__code__)
    assert compiled(1) == 1 and made == [1, 2, 3]
    assert native.get_entries(g.__code__) == [first[2], first[0], first[1]]
    assert first[2].hits == 1 and first[0].hits == 0
    assert compiled(True) is True and made == [1, 2, 3, True]


def test_entries_belong_to_their_region():
    def g(n):
        return n

    a, b = Echo(), Echo()
    fa, fb = a.compile(g), b.compile(g)
    fa(1), fb(1), fa(2), fb(2)
    assert (a.converted, b.converted) == (["g"], ["g"])
    assert {e.region for e in native.get_entries(g.__code__)} == {a.region, b.region}


def test_entry_of_a_dead_region_is_dropped():
    def g(n):
        return n

    a, b = Echo(), Echo()
    a.compile(g)(1)
    gone = weakref.ref(a.region)
    entry = native.get_entries(g.__code__)[0]
    del a
    gc.collect()
    assert gone() is None and entry.region is None
    b.compile(g)(1)
    assert len(native.get_entries(g.__code__)) == 1


def test_actions():
    def g(n):
        return n

    echo = Echo()
    compiled = echo.compile(g)
    native.set_action(g.__code__, native.SKIP)
    assert compiled(1) == 1 and echo.converted == [] and native.get_action(g.__code__) == native.SKIP
    native.set_action(g.__code__, native.RUN_ONLY)
    assert compiled(1) == 1 and echo.converted == []
    native.set_action(g.__code__, native.DEFAULT)
    assert compiled(1) == 1 and echo.converted == ["g"]
    native.set_action(g.__code__, native.RUN_ONLY)
    assert compiled(1) == 1 and native.get_entries(g.__code__)[0].hits == 1
    with pytest.raises(ValueError, match="unknown action"):
        native.set_action(g.__code__, 9)


def helper(x):
    return x


def test_a_skipped_function_has_its_callees_compiled():
    def g(x):
        return helper(x)

    echo = Echo(only=lambda code: code is helper.__code__)
    assert echo.compile(g)(1) == 1
    assert echo.converted == ["helper"]


def test_skip_recursive_leaves_callees_alone():
    def g(x):
        return helper(x)

    echo = Echo()
    native.set_action(g.__code__, native.SKIP_RECURSIVE)
    assert echo.compile(g)(1) == 1
    with echo:
        assert g(1) == 1
    assert echo.converted == []


def test_converter_returning_none_is_not_asked_twice_for_one_call():
    asked = []

    def convert(code, *rest):
        asked.append(code.co_name)
        return None

    def g(x):
        return x

    region = native.Region(convert)
    assert native.CompiledFunction(g, region)(1) == 1
    assert asked == ["g"]


def test_errors_of_the_converter_reach_the_caller():
    def g(x):
        return x

    def raises(*args):
        raise LookupError("from convert")

    with pytest.raises(LookupError, match="from convert"):
        native.CompiledFunction(g, native.Region(raises))(1)
    with pytest.raises(TypeError, match="must return a CacheEntry"):
        native.CompiledFunction(g, native.Region(lambda *args: 3))(1)
    assert not native.is_disabled() and not native.compile_lock().held()


def test_converter_gets_the_unit():
    def make(n):
        def g(a, *args, k=3, **kw):
            return n

        return g

    echo, fn = Echo(), make(5)
    echo.compile(fn)(1, 2, z=4)
    code, globals_, builtins, closure, values, given, is_resume = echo.calls[0]
    assert code is fn.__code__ and globals_ is globals() and builtins["len"] is len and closure is fn.__closure__
    assert values == (1, 3, (2,), {"z": 4}) and given is fn and is_resume is False


def test_converter_runs_with_the_compiler_off():
    seen = []

    def convert(code, *rest):
        seen.append(native.is_disabled())
        other(1)
        return None

    def g(x):
        return x

    region = native.Region(convert)
    other = native.CompiledFunction(lambda x: x, region)
    native.CompiledFunction(g, region)(1)
    assert seen == [True]


def test_insert_remove_reset_and_data():
    def g(x):
        return x

    code = g.__code__
    echo = Echo()
    echo.compile(g)(1)
    entry = native.get_entries(code)[0]
    native.insert_entry(code, entry)
    assert native.get_entries(code) == [entry]
    assert native.remove_entry(code, entry) is True and native.remove_entry(code, entry) is False
    assert native.get_entries(code) == []
    native.code_data(code)["k"] = 1
    assert native.code_data(code) == {"k": 1} and code in native.codes_with_state()
    native.set_action(code, native.SKIP)
    native.reset_code(code)
    assert native.code_data(code) == {} and native.get_action(code) == native.DEFAULT
    for bad in (3, g):
        with pytest.raises(TypeError):
            native.get_entries(bad)


def test_replaced_code_carries_no_entry():
    def g(x):
        return x

    echo = Echo()
    echo.compile(g)(1)
    copy = g.__code__.replace()
    assert native.get_entries(copy) == [] and len(native.get_entries(g.__code__)) == 1
    twin = types.FunctionType(copy, globals())
    echo.compile(twin)(1)
    assert echo.converted == ["g", "g"]


def test_entry_reset_while_it_runs():
    def g(x):
        native.reset_all()
        gone.append(native.get_entries(g.__code__))
        return x, helper(x)

    gone: list[object] = []
    echo = Echo()
    compiled = echo.compile(g)
    assert compiled(1) == (1, 1) and compiled(2) == (2, 2)
    assert gone == [[], []]


def test_entry_replaced_while_its_guards_run():
    class Nasty:
        def __eq__(self, other):
            native.reset_all()
            gc.collect()
            return True

        def __hash__(self):
            return 1

    def g(x):
        return x

    def convert(code, *rest):
        root = native.RootGuardManager()
        root.child("local", ("x", 0), "L['x']", "").add_leaf("CALLBACK", "", ("callback", lambda value: value == 5))
        entry = native.CacheEntry(flat_code(code), root, region)
        native.insert_entry(code, entry)
        return entry

    region = native.Region(convert)
    compiled = native.CompiledFunction(g, region)
    nasty = Nasty()
    for _ in range(20):
        assert compiled(nasty) is nasty


def test_entry_attributes():
    def g(x):
        return x

    region = native.Region(lambda *args: None)
    entry = native.CacheEntry(g.__code__, native.RootGuardManager(), region, None, {"a": 1})
    entry.guard_manager, entry.compile_id, entry.note = "manager", "0/0", "note"
    assert (entry.guard_manager, entry.compile_id, entry.note, entry.data) == ("manager", "0/0", "note", {"a": 1})
    assert {"code", "guard_manager", "compile_id", "region", "hits"} <= set(dir(entry))
    with pytest.raises(TypeError):
        native.CacheEntry(g.__code__, object(), region)
    with pytest.raises(TypeError):
        native.CacheEntry(3, native.RootGuardManager(), region)


def test_cycle_through_an_entry_is_collected_with_the_code():
    class Marker:
        pass

    def build():
        space = {"marker": Marker()}
        exec("def g(x): return x", space)
        echo = Echo(only=lambda code: True)
        space["g"] = echo.compile(space["g"])
        space["g"](1)
        native.get_entries(space["g"].__code__)[0].data = {"plain": 1}
        return weakref.ref(space["marker"])

    gone = build()
    gc.collect()
    assert gone() is None
