"""Resume code continues a function at any instruction as if it had never stopped."""

from __future__ import annotations

import gc
import inspect
import sys
import traceback
import types
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynamo_nb.cpython import analysis
from dynamo_nb.cpython.assemble import decode
from dynamo_nb.cpython.resume import ResumeError, flatten_args, make_resume_code

from . import programs
from .splitting import boundaries, split
from .test_assemble import generated_programs


def _compare_everywhere(function, args, kwargs, make_log=list):
    reached = 0
    expected_log = make_log()
    expected = programs.outcome(function, expected_log, (expected_log, *args), kwargs)
    for index in boundaries(function.__code__):
        cut, arrivals = split(function, index)
        log = make_log()
        assert programs.outcome(cut, log, (log, *args), kwargs) == expected, decode(function.__code__).instructions[index]
        reached += len(arrivals)
    return reached


@pytest.mark.parametrize(("function", "args", "kwargs"), programs.CALLS)
def test_every_boundary(function, args, kwargs):
    assert _compare_everywhere(function, args, kwargs) >= 6


@settings(max_examples=25, deadline=None)
@given(generated_programs, st.tuples(st.integers(-2, 4), st.integers(0, 3), st.integers(0, 9)))
def test_generated_programs_at_every_boundary(function, args):
    assert _compare_everywhere(function, args, {}) > 0


@pytest.mark.parametrize(("method", "args", "kwargs"), [("scale", (3, 4, 5), {"plus": 2, "z": 1}), ("cell_self", (3,), {})])
def test_super_without_arguments(method, args, kwargs):
    function = getattr(programs.Child, method)
    expected_log, reached = [], 0
    expected = programs.outcome(function, expected_log, (programs.Child(expected_log), *args), kwargs)
    assert expected[0][0] == "returned"
    for index in boundaries(function.__code__):
        cut, arrivals = split(function, index)
        log = []
        assert programs.outcome(cut, log, (programs.Child(log), *args), kwargs) == expected
        reached += len(arrivals)
    assert reached > 10


def test_nested_function_is_resumed_over_shared_cells():
    def make(log):
        total = 1

        def step(by):
            nonlocal total
            total += by
            log.append(total)
            total = total * 2
            return total

        return step, lambda: total

    def run(index):
        log = []
        step, read = make(log)
        cut = split(step, index)[0] if index is not None else step
        return cut(3), read(), step(1), read(), log

    expected = run(None)
    indices = list(boundaries(make([])[0].__code__))
    assert len(indices) > 10
    assert all(run(index) == expected for index in indices)


def _find(code, opname, argval, nth=0):
    return [i for i in decode(code).instructions if i.opname == opname and i.argval == argval][nth].index


def test_null_on_the_stack():
    def function(a, b):
        return divmod(a, int("3")) + (b,)

    index = _find(function.__code__, "LOAD_GLOBAL", "int")
    layout = make_resume_code(function.__code__, index, stack_args=2, null_positions=(0,), locals_live=("b",), name="rest")
    assert layout.arg_names == ("a", "b", "___stack0", "___stack1")
    rest = types.FunctionType(layout.code, {})
    assert rest(None, "b", divmod, 10) == (3, 1, "b")


def test_live_only_and_names():
    def function(a, b, c):
        d = a + b
        e = d * c
        return e - c

    code = function.__code__
    index = _find(code, "STORE_FAST", "e") + 1
    layout = make_resume_code(code, index, stack_args=0, locals_live=("c", "e"), name="rest")
    assert layout.arg_names == ("a", "c", "e")
    assert (layout.code.co_name, layout.code.co_qualname) == ("rest", "test_live_only_and_names.<locals>.rest")
    assert layout.code.co_varnames == ("a", "c", "e")
    assert types.FunctionType(layout.code, {})(None, 2, 10) == 8


def test_stack_values_are_not_kept_alive():
    class Thing:
        pass

    def function(make, see):
        return [make(), see()]

    code = function.__code__
    index = next(i.index for i in decode(code).instructions if i.opname == "LOAD_FAST" and i.argval == "see") - 1
    assert decode(code).instructions[index].opname == "PUSH_NULL"
    layout = make_resume_code(code, index, stack_args=1, locals_live=("see",), name="rest")
    seen = []

    def see():
        frame = sys._getframe(1)
        seen.append(sorted(frame.f_locals))
        return sys.getrefcount(gc.get_referents(holder)[0])

    holder = [Thing()]
    rest = types.FunctionType(layout.code, {})
    baseline = sys.getrefcount(holder[0])
    result = rest(None, see, holder[0])
    del result[0]
    assert seen == [["make", "see"]]
    watched = weakref.ref(holder.pop())
    assert watched() is None
    assert result[0] <= baseline + 4


def test_resuming_resume_code():
    def function(a, b):
        total = 0
        for x in a:
            total += x
            for y in b:
                total += x * y
        return total

    index = _find(function.__code__, "STORE_FAST", "y")
    layout = make_resume_code(function.__code__, index, stack_args=3, locals_live=("a", "b", "total", "x"), name="one")
    again = _find(layout.code, "STORE_FAST", "x")
    inner = make_resume_code(layout.code, again, stack_args=2, locals_live=("a", "b", "total"), name="two")
    assert inner.arg_names == ("a", "b", "total", "___stack0", "___stack1")
    assert types.FunctionType(layout.code, {})([1, 2], [3, 4], 1, 1, iter([2]), iter([4]), 3) == function([1, 2], [3, 4])
    assert types.FunctionType(inner.code, {})([1, 2], [3, 4], 8, iter([]), 2) == function([1, 2], [3, 4])


def test_traceback_line():
    def function(a, b):
        c = a + 1
        d = c
        with programs.Manager([]):
            e = c // b
        return d, e

    line = function.__code__.co_firstlineno + 4
    lines = set()
    for index in boundaries(function.__code__):
        cut, arrivals = split(function, index)
        with pytest.raises(ZeroDivisionError) as caught:
            cut(1, 0)
        frame = traceback.extract_tb(caught.value.__traceback__)[-1]
        assert (frame.lineno, frame.filename) == (line, __file__)
        assert frame.line == "e = c // b"
        if arrivals:
            lines.add(frame.name)
    assert len(lines) > 10


def test_code_past_the_target_only():
    def function(a):
        if a:
            a = "first part"
        try:
            a = a + 1
        except ValueError:
            a = 2
        return a

    code = function.__code__
    index = next(i.index for i in decode(code).instructions if i.opname == "RETURN_VALUE") - 1
    layout = make_resume_code(code, index, stack_args=0, locals_live=("a",), name="rest")
    assert [i.opname for i in decode(layout.code).instructions] == ["RESUME", "LOAD_FAST", "RETURN_VALUE"]
    assert decode(layout.code).exceptions == []


def test_prologue_is_outside_exception_ranges():
    for index in boundaries(programs.finally_.__code__):
        decoded = decode(programs.finally_.__code__)
        depth = analysis.stack_depths(decoded.instructions, decoded.exceptions)[index]
        layout = make_resume_code(programs.finally_.__code__, index, stack_args=depth, locals_live=("log", "a", "b"), name="rest")
        made = decode(layout.code)
        prologue = 1 + 2 * depth
        assert all(entry.start.index >= prologue for entry in made.exceptions)


def _generator(a):
    yield a


class _NoArguments:
    def star(*args):
        return super().__init__(), args

    def first(self, x):
        return super().__init__(), x


def _first_call(code):
    return next(i.index for i in decode(code).instructions if i.opname == "CALL")


@pytest.mark.parametrize(("code", "index", "arguments", "reason"), [
    (_generator.__code__, 3, {}, "generator"),
    (compile("x = 1", "<m>", "exec"), 1, {}, "module or class"),
    (programs.straight.__code__, 10_000, {}, "none with index"),
    (programs.straight.__code__, 3, {"stack_args": 0}, "holds 2 slots"),
    (programs.straight.__code__, 1, {"stack_args": -1, "null_positions": (4,)}, "do not fit"),
    (programs.straight.__code__, 1, {"locals_live": ("nobody",)}, "no local named nobody"),
    (_NoArguments.star.__code__, 2, {"locals_live": ("args",)}, "no positional parameter"),
    (_NoArguments.first.__code__, 2, {"first_unbound": True}, "rebinds or deletes"),
    (programs.Child.rebound.__code__, 3, {}, "rebinds or deletes"),
    (programs.closures.__code__, _first_call(programs.closures.__code__), {}, "cut off"),
])
def test_refusals(code, index, arguments, reason):
    with pytest.raises(ResumeError, match=reason):
        make_resume_code(code, index, **{"stack_args": 0, "locals_live": (), "name": "rest", **arguments})


def test_flattened_arguments():
    def function(a, /, b, *args, c=3, **kwargs):
        show = lambda: (a, kwargs)  # noqa: E731
        return show(), b, args, c, sorted(locals())

    flat = flatten_args(function.__code__)
    assert flat.co_varnames[:5] == ("a", "b", "c", "args", "kwargs")
    assert (flat.co_argcount, flat.co_posonlyargcount, flat.co_kwonlyargcount) == (5, 5, 0)
    assert not flat.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    again = types.FunctionType(flat, globals())
    assert again(1, 2, 4, (5, 6), {"z": 7}) == function(1, 2, 5, 6, c=4, z=7)
    with pytest.raises(TypeError):
        again(1, 2, 4, (5,), kwargs={})
    with pytest.raises(ResumeError):
        flatten_args(_NoArguments.star.__code__)
