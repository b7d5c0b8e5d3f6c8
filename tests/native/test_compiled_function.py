"""CompiledFunction: binds like Python, looks like the function, and keeps nothing alive."""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import pickle
import sys
import types
import weakref
from typing import Any

import pytest
from native_helpers import Echo, flat_code, outcome

from dynamo_nb import native


def f_none():
    return ()


def f_plain(a, b=2):
    return a, b


def f_posonly(a, b=5, /, c=6):
    return a, b, c


def f_kwonly(a, *, k, d=4):
    return a, k, d


def f_all(a, /, b, c=3, *args, k, d=4, **kw):
    return a, b, c, args, k, d, kw


def f_varargs(*args):
    return args


def f_kwargs(**kw):
    return kw


def f_posonly_kw(a, /, **kw):
    return a, kw


def f_cells(a, b=1, *args, **kw):
    return (lambda: (a, b, args, kw))()


FUNCTIONS = [f_none, f_plain, f_posonly, f_kwonly, f_all, f_varargs, f_kwargs, f_posonly_kw, f_cells]
CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((1,), {}),
    ((1, 2), {}),
    ((1, 2, 3, 4, 5), {}),
    ((), {"a": 1}),
    ((1,), {"a": 1}),
    ((1,), {"b": 2}),
    ((1,), {"k": 7}),
    ((1, 2), {"k": 7, "z": 8}),
    ((1, 2), {"b": 7, "k": 1}),
    ((1,), {"b": 2, "c": 3, "k": 1, "d": 0, "x": 5}),
    ((1, 2, 3, 4), {"k": 1}),
    ((), {"x": 1, "y": 2}),
    ((), {"b": 1, "a": 2}),
]


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_binds_like_python(fn, call):
    args, kwargs = call
    compiled = Echo().compile(fn)
    for _ in range(2):  # a miss, then a hit
        assert outcome(lambda: compiled(*args, **kwargs)) == outcome(lambda: fn(*args, **kwargs))


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda f: f.__name__)
def test_wrong_call_raises_eager_error_and_compiles_nothing(fn):
    echo = Echo()
    bad = {} if fn.__code__.co_flags & inspect.CO_VARKEYWORDS else {"nope": 1}
    compiled, before = echo.compile(fn), len(echo.converted)
    result = outcome(lambda: compiled(**bad))
    assert result == outcome(lambda: fn(**bad))
    if result[0] == "TypeError":
        assert len(echo.converted) == before


def test_keyword_names_equal_but_not_identical():
    name = "".join(["b", "_long_name"])
    space: dict[str, Any] = {}
    exec("def g(a, b_long_name=1): return a, b_long_name", space)
    assert name is not space["g"].__code__.co_varnames[1]
    compiled = Echo(only=lambda code: True).compile(space["g"])
    assert compiled(1, **{name: 5}) == (1, 5)


def test_str_subclass_keyword():
    class Name(str):
        pass

    compiled = Echo().compile(f_plain)
    assert compiled(1, **{Name("b"): 5}) == (1, 5)


def test_many_arguments():
    names = [f"a{i}" for i in range(60)]
    space: dict[str, Any] = {}
    exec(f"def g({', '.join(names)}, *rest): return ({', '.join(names)}, rest)", space)
    compiled = Echo(only=lambda code: True).compile(space["g"])
    for _ in range(2):
        assert compiled(*range(70)) == (*range(60), tuple(range(60, 70)))


def test_changed_defaults_and_kwdefaults():
    def g(a=1, *, k=2):
        return a, k

    compiled = Echo().compile(g)
    assert compiled() == (1, 2)
    compiled.__defaults__ = (10,)
    g.__kwdefaults__ = {"k": 20}
    assert g() == compiled() == (10, 20)
    compiled.__kwdefaults__ = None
    assert outcome(compiled) == outcome(g)
    assert outcome(compiled)[0] == "TypeError"


def test_changed_code_uses_its_own_entries():
    def g():
        return 1

    echo = Echo()
    compiled = echo.compile(g)
    assert compiled() == 1
    g.__code__ = (lambda: 2).__code__
    assert compiled() == 2
    assert echo.converted == ["g", "<lambda>"]


def test_looks_like_the_function():
    def g(a: int, b: str = "x") -> int:
        """Doc of g."""
        return a

    g.mark = "m"
    compiled = Echo().compile(g)
    assert compiled.__name__ == "g" and compiled.__qualname__ == g.__qualname__ and compiled.__doc__ == "Doc of g."
    assert compiled.__module__ == __name__ and compiled.__annotations__ == g.__annotations__
    assert compiled.__code__ is g.__code__ and compiled.__globals__ is globals() and compiled.__closure__ is None
    assert compiled.mark == "m" and compiled.__wrapped__ is g and compiled._torchdynamo_orig_callable is g
    assert inspect.signature(compiled) == inspect.signature(g)
    assert inspect.getsource(compiled) == inspect.getsource(g)
    assert inspect.unwrap(compiled) is g and callable(compiled)
    assert repr(compiled).startswith(f"<compiled {g.__qualname__} at 0x")
    compiled.extra = 1
    assert compiled.extra == 1 and not hasattr(g, "extra")
    compiled.__name__ = "h"
    assert g.__name__ == "h"
    with pytest.raises(AttributeError):
        compiled.missing  # noqa: B018
    with pytest.raises(AttributeError):
        compiled.region = None
    assert not hasattr(functools.wraps(compiled)(lambda: 0), "_torchdynamo_orig_callable")


def test_every_way_to_be_called():
    echo = Echo()

    class Box:
        def __init__(self, v):
            self.v = v

        def get(self, k=1):
            return self.v + k

        both = classmethod(echo.compile(lambda cls, x: (cls, x)))
        static = staticmethod(echo.compile(lambda x: x))
        prop = property(echo.compile(lambda self: self.v))
        get = echo.compile(get)

    box = Box(3)
    assert box.get() == 4 and Box.get(box, k=2) == 5 and box.get(k=7) == 10
    assert isinstance(box.get, types.MethodType)
    assert Box.both(1) == (Box, 1) and box.static(2) == 2 and box.prop == 3
    compiled = echo.compile(f_plain)
    assert functools.partial(compiled, 1)(b=9) == (1, 9)
    assert list(map(compiled, [1, 2])) == [(1, 2), (2, 2)]
    assert compiled.__call__(1) == (1, 2)
    assert max([3, 1], key=echo.compile(lambda v: -v)) == 1


def test_only_functions_can_be_compiled():
    for bad in (len, Echo, 3, functools.partial(f_plain)):
        with pytest.raises(TypeError):
            native.CompiledFunction(bad, Echo().region)
    with pytest.raises(TypeError):
        native.CompiledFunction(f_plain, object())


def _rebuild(name):
    return _pickled if name == "f_plain" else None


_pickled = Echo().compile(f_plain)


def test_pickle_copy_weakref():
    compiled = _pickled
    assert copy.copy(compiled) is compiled and copy.deepcopy([compiled])[0] is compiled
    with pytest.raises(TypeError, match="cannot pickle"):
        pickle.dumps(compiled)
    compiled.region.reduce = lambda cf: (_rebuild, (cf.__name__,))
    assert pickle.loads(pickle.dumps(compiled)) is compiled
    compiled.region.reduce = None
    assert weakref.ref(compiled)() is compiled


def test_generators_and_coroutines_stay_what_they_are():
    echo = Echo()

    def gen(n):
        yield from range(n)

    async def co(x):
        return x

    assert list(echo.compile(gen)(3)) == [0, 1, 2]
    coroutine = echo.compile(co)(5)
    with pytest.raises(StopIteration) as stop:
        coroutine.send(None)
    assert stop.value.value == 5
    assert echo.converted == []


def test_closures_share_code_but_not_cells():
    def make(n):
        def inner(x):
            return x + n

        return inner

    echo = Echo()
    a, b = echo.compile(make(1)), echo.compile(make(10))
    assert (a(1), b(1), a(2), b(2)) == (2, 11, 3, 12)
    assert echo.converted == ["inner"]


def test_free_map_builds_the_closure():
    extra = types.CellType("extra")
    space: dict[str, Any] = {}
    exec("def outer(n, more):\n    def target(x):\n        return (x, more, n)\n    return target", space)
    target = space["outer"](0, 0).__code__
    assert target.co_freevars == ("more", "n")

    def make(n):
        def inner(x):
            return x, n

        return inner

    region = native.Region(lambda code, *rest: None)
    for n in (1, 2):
        fn = make(n)
        native.reset_code(fn.__code__)
        native.insert_entry(fn.__code__, native.CacheEntry(target, native.RootGuardManager(), region, (extra, 0)))
        assert native.CompiledFunction(fn, region)(7) == (7, "extra", n)
    with pytest.raises(ValueError, match="free_map"):
        native.CacheEntry(target, native.RootGuardManager(), region, (0,))
    broken = native.CacheEntry(target, native.RootGuardManager(), region, (0, 5))
    native.insert_entry(fn.__code__, broken)
    with pytest.raises(SystemError, match="out of range"):
        native.CompiledFunction(fn, region)(7)


def test_builtins_of_the_function_are_kept():
    space: dict[str, Any] = {"__builtins__": {"len": lambda x: "mine"}}
    exec("def g(x): return len(x)", space)
    compiled = Echo(only=lambda code: True).compile(space["g"])
    assert compiled([1]) == compiled([1]) == "mine"


def test_old_code_is_freed_when_a_function_is_redefined():
    echo = Echo(only=lambda code: True)
    space: dict[str, Any] = {}
    gone = []
    for _ in range(5):
        exec("def g(x):\n    def h(): return g\n    return x", space)
        gone.append(weakref.ref(space["g"].__code__))
        space["g"] = echo.compile(space["g"])
        assert space["g"](1) == 1
    echo.calls.clear()
    gc.collect()
    assert [ref() is None for ref in gone] == [True] * 4 + [False]
    space.clear()
    gc.collect()
    assert gone[-1]() is None


def test_reset_frees_target_code_and_functions():
    def g(x):
        return x

    targets = []

    def target(code):
        made = flat_code(code)
        targets.append(weakref.ref(made))
        return made

    echo = Echo(target=target)
    compiled = echo.compile(g)
    compiled(1)
    assert targets[0]() is not None
    native.reset_all()
    assert targets[0]() is None
    assert compiled(2) == 2 and len(targets) == 2


def test_no_reference_leaks_on_any_path():
    class Thing:
        pass

    def g(a, b=None, *args, k=None, **kw):
        if k == "raise":
            raise ValueError("no")
        return (a, args, kw)

    echo = Echo()
    compiled = echo.compile(g)
    thing = Thing()
    calls = [
        lambda: compiled(thing),
        lambda: compiled(thing, thing, thing, k=thing, z=thing),
        lambda: compiled(thing, k="raise"),
        lambda: compiled(),
        lambda: compiled(thing, a=thing),
        lambda: native.call_disabled(compiled, thing, k=thing),
    ]
    for call in calls:
        outcome(call)
    echo.calls.clear()

    def counts():
        return [sys.getrefcount(o) for o in (thing, compiled, g, g.__code__, echo.region)]

    before = counts()
    for _ in range(2000):
        for call in calls:
            outcome(call)
    assert counts() == before
