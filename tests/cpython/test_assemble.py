"""Operands, nested exception entries, code options and the decode cache, seen through running code."""

from __future__ import annotations

import gc
import math
import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynamo_nb.cpython import assemble as assembler
from dynamo_nb.cpython import facts
from dynamo_nb.cpython import instruction as ins
from dynamo_nb.cpython.assemble import CodeOptions, assemble, decode
from dynamo_nb.cpython.instruction import BytecodeError, ExceptionEntry, create
from dynamo_nb.cpython.resume import make_fragment

from . import programs


def _options(**fields):
    base = {"name": "made", "qualname": "made", "filename": "<made>", "firstlineno": 1, "flags": 3}
    return CodeOptions(**{**base, **fields})


def _function(instructions, exceptions=(), globals_=None, **fields):
    return types.FunctionType(make_fragment(list(instructions), list(exceptions), _options(**fields)), globals_ or {})


@pytest.mark.parametrize(("function", "args", "kwargs"), programs.CALLS)
def test_reassembled_functions_behave_the_same(function, args, kwargs):
    decoded = decode(function.__code__, fresh=True)
    for instruction in decoded.instructions:
        if facts.OPERAND_KIND[instruction.opcode] in ("const", "slot", "compare"):
            instruction.arg = None
    padded = [twin for i in decoded.instructions for twin in ((i, create("NOP")) if i.opname == "POP_TOP" else (i,))]
    code = assemble(padded, decoded.exceptions, template=function.__code__)
    again = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    again.__kwdefaults__ = function.__kwdefaults__
    first, second = [], []
    assert programs.outcome(again, first, (first, *args), kwargs) == programs.outcome(function, second, (second, *args), kwargs)


def test_constants_never_merge():
    marker = [1]
    values = [0, False, 0.0, -0.0, 1, True, 1.0, (0,), (False,), (-0.0,), marker, None, "s", b"s", 0j]
    body = [i for value in values for i in ins.load_const(value)] + ins.build_tuple(len(values)) + ins.return_value()
    got = _function(body)()
    assert list(map(type, got)) == list(map(type, values))
    assert got[10] is marker
    assert math.copysign(1, got[3]) == -1
    assert math.copysign(1, got[9][0]) == -1
    assert type(got[8][0]) is bool


@pytest.mark.parametrize("value", [False, 0.0, -0.0, 0])
def test_replaced_constant_is_that_object(value):
    def function():
        return 0.0

    decoded = decode(function.__code__, fresh=True)
    decoded.instructions[-2].argval = value
    got = types.FunctionType(assemble(decoded.instructions, [], template=function.__code__), {})()
    assert got is value


def test_calls_and_keywords():
    def target(*args, **kwargs):
        return args, kwargs

    loaded = [*ins.load_const(1), *ins.load_const(2)]
    plain = _function([*ins.load_const(target), *loaded, *ins.call_function(2, True), *ins.return_value()])
    named = _function([*ins.load_global("f", push_null=True), *loaded, *ins.call_kw(2, ("b",)), *ins.return_value()],
                      globals_={"f": target})
    assert plain() == ((1, 2), {})
    assert named() == ((1,), {"b": 2})
    assert _function([*ins.load_const(target), *ins.call_function(0, True), *ins.return_value()])() == ((), {})


def test_load_global_keeps_its_null_bit():
    for push_null in (False, True):
        (made,) = ins.load_global("name_that_comes_second", push_null)
        code = make_fragment([create("LOAD_GLOBAL", 0, "first"), create("POP_TOP"), made,
                              *ins.return_value()], [], _options())
        assert [i.push_null for i in decode(code).instructions if i.argval == "name_that_comes_second"] == [push_null]


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_stack_movers(n):
    values = [i for k in range(5) for i in ins.load_const(k)]
    expected = list(range(5))
    expected.insert(5 - n, expected.pop())
    assert _function([*values, *ins.rot_n(n), *ins.build_tuple(5), *ins.return_value()])() == tuple(expected)
    swapped = list(range(5))
    swapped[-1], swapped[-n] = swapped[-n], swapped[-1]
    assert _function([*values, *ins.swap(n), *ins.build_tuple(5), *ins.return_value()])() == tuple(swapped)
    assert _function([*values, *ins.copy(n), *ins.build_tuple(6), *ins.return_value()])() == (0, 1, 2, 3, 4, 5 - n)


@pytest.mark.parametrize(("condition", "taken"), [
    (True, [1, "x"]), (False, [0, None, ""]), (None, [None]), ("not None", [0, 1, "x", ""])])
@pytest.mark.parametrize("backward", [False, True])
def test_conditional_jumps_both_ways(condition, taken, backward):
    yes, no = [*ins.load_const("jumped"), *ins.return_value()], [*ins.load_const("fell"), *ins.return_value()]
    test = [create("LOAD_FAST", argval="v"), *ins.pop_jump_if(condition, yes[0])]
    body = [*ins.jump(test[0]), *yes, *test, *no] if backward else [*test, *no, *yes]
    function = _function(body, argcount=1, varnames=("v",))
    for value in (0, 1, None, "x", ""):
        assert function(value) == ("jumped" if value in taken and type(value) in map(type, taken) else "fell")


def test_attributes_and_new_locals():
    class Box:
        pass

    box = Box()
    body = [*ins.load_const(5), create("STORE_FAST", argval="fresh"), create("LOAD_FAST", argval="fresh"),
            create("LOAD_FAST", argval="b"), *ins.store_attr("x"), create("LOAD_FAST", argval="b"), *ins.load_attr("x"),
            *ins.return_value()]
    function = _function(body, argcount=1, varnames=("b",))
    assert function(box) == 5
    assert box.x == 5
    assert function.__code__.co_varnames == ("b", "fresh")


def test_argument_cells_share_their_slot():
    inner = make_fragment([create("LOAD_DEREF", argval="a"), *ins.return_value()], [], _options(freevars=("a",)))
    body = [create("LOAD_CLOSURE", argval="a"), *ins.build_tuple(1), *ins.load_const(inner), create("MAKE_FUNCTION", 8),
            create("STORE_FAST", argval="g"), *ins.load_const(9), create("STORE_DEREF", argval="a"),
            create("LOAD_FAST", argval="g"), *ins.call_function(0, True), *ins.return_value()]
    function = _function(body, argcount=1, varnames=("a",), cellvars=("a",))
    assert function(1) == 9
    assert function.__code__.co_nlocals == 2


def _divide(handler_value):
    return [*ins.load_const(1), *ins.load_const(0), create("BINARY_OP", 11)], [
        create("PUSH_EXC_INFO"), create("POP_TOP"), create("POP_EXCEPT"), *ins.load_const(handler_value), *ins.return_value()]


def test_nested_exception_entries_innermost_wins():
    (body, outer), inner = _divide("outer"), _divide("inner")[1]
    before = [create("NOP"), *ins.load_const(2), create("POP_TOP")]
    everything = [*before, *body, *ins.return_value(), *outer, *inner]
    wide = ExceptionEntry(before[0], body[-1], outer[0], 0, False)
    narrow = ExceptionEntry(body[0], body[-1], inner[0], 0, False)
    for entries in ([wide, narrow], [narrow, wide]):
        function = _function(everything, entries)
        assert function() == "inner"
        rows = decode(function.__code__).exceptions
        assert [row.end.index < later.start.index for row, later in zip(rows, rows[1:], strict=False)] == [True]
    late = ExceptionEntry(before[0], before[1], inner[0], 0, False)
    assert _function(everything, [wide, late])() == "outer"


def test_positions_reach_tracebacks():
    spots = [(40, 40, 3, 9), (7, 9, 0, 4), (300, 300, None, None), (41, 41, 90, 200)]
    for spot in spots:
        body = [*ins.load_const(1), *ins.load_const(0), create("BINARY_OP", 11, positions=spot), *ins.return_value()]
        function = _function(body, firstlineno=20)
        with pytest.raises(ZeroDivisionError) as caught:
            function()
        assert caught.traceback[-1].lineno + 1 == spot[0]
        assert spot in list(function.__code__.co_positions())
    assert (None, None, None, None) in list(_function([*ins.load_const(1), *ins.return_value()]).__code__.co_positions())


@pytest.mark.parametrize("make", [
    lambda: create("NO_SUCH"),
    lambda: create("EXTENDED_ARG", 1),
    lambda: create("JUMP_FORWARD"),
    lambda: create("POP_TOP", 1),
    lambda: create("BUILD_LIST"),
    lambda: create("LOAD_CONST", 0),
    lambda: create("LOAD_FAST", 0),
    lambda: create("COMPARE_OP", argval="<>"),
    lambda: make_fragment([*ins.load_const(print), create("PUSH_NULL"), create("SWAP", 2), create("PRECALL", 0), create("NOP"),
                           create("CALL", 0), *ins.return_value()], [], _options()),
    lambda: make_fragment([*ins.load_const(print), create("PUSH_NULL"), create("SWAP", 2), create("CALL", 0), *ins.return_value()],
                          [], _options()),
    lambda: create("POP_TOP", target=create("NOP")), lambda: ins.pop_jump_if("maybe", create("NOP")),
    lambda: make_fragment([*ins.jump(create("NOP"))], [], _options()),
    lambda: make_fragment([create("POP_TOP"), *ins.load_const(1), *ins.return_value()], [], _options()),
    lambda: make_fragment([*ins.load_const(1)], [], _options()),
    lambda: make_fragment([create("LOAD_DEREF", argval="q"), *ins.return_value()], [], _options()),
    lambda: make_fragment([*ins.load_const(1), *ins.return_value()],
                          [ExceptionEntry(create("NOP"), create("NOP"), create("NOP"), 0, False)], _options()),
    lambda: make_fragment([*(i := ins.load_const(1)), create("FOR_ITER", target=i[0]), *ins.return_value()], [], _options()),
])
def test_invalid_bytecode_is_refused(make):
    with pytest.raises(BytecodeError):
        make()


def test_compare_operands():
    assert create("COMPARE_OP", argval="<").arg == create("COMPARE_OP", 0).arg == 0
    assert create("COMPARE_OP", 2).argval == "=="


def test_decode_cache_is_per_object_and_dies_with_it():
    source = "def f(): return (1, 'text', 2.5)"
    first, second = (compile(source, "<same>", "exec").co_consts[0] for _ in range(2))
    assert first == second
    assert decode(first) is decode(first)
    assert decode(first) is not decode(second)
    assert decode(first, fresh=True) is not decode(first)
    key = id(first)
    assert key in assembler._decoded
    del first
    gc.collect()
    assert key not in assembler._decoded
    assembler.clear_cache()
    assert not assembler._decoded
    assert decode(second).instructions[0].opname == "RESUME"


def test_offsets_lead_to_instructions():
    code = programs.loops.__code__
    decoded = decode(code)
    for instruction in decoded.instructions:
        assert decoded.at_offset(instruction.offset) is instruction
        assert code.co_code[instruction.offset] == instruction.opcode


_NAMES = st.sampled_from(["a", "b", "c"])


@st.composite
def _statements(draw, depth=2, loop=False):
    kinds = ["assign", "log"] + (["if", "for", "try", "with", "while"] if depth else []) + (["break", "continue"] if loop else [])
    lines = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(kinds))
        name, other = draw(_NAMES), draw(_NAMES)
        inner = lambda in_loop=loop: ["  " + line for line in draw(_statements(depth - 1, in_loop))]  # noqa: E731
        if kind == "assign":
            lines.append(f"{name} = {other} {draw(st.sampled_from(['+', '-', '*', '//']))} {draw(st.integers(0, 3))}")
        elif kind == "log":
            lines.append(f"log.append({name})")
        elif kind == "if":
            lines += [f"if {name} < {other}:", *inner(), "else:", *inner()]
        elif kind == "for":
            lines += [f"for {name} in range({draw(st.integers(0, 3))}):", *inner(True), "else:", *inner()]
        elif kind == "while":
            lines += [f"for _ in range(3):  # {name}", f"  if {name} > 5: break", *inner(True)]
        elif kind == "try":
            lines += ["try:", *inner(), "except ZeroDivisionError as e:", *inner(), "  log.append(str(e))", "finally:",
                      f"  log.append({other})"]
        elif kind == "with":
            lines += [f"with Manager(log, {draw(st.booleans())}):", *inner()]
        else:
            lines.append(kind)
    return lines


def build_program(lines):
    source = "def f(log, a, b, c):\n" + "\n".join("  " + line for line in lines) + "\n  return a, b, c"
    namespace = {"Manager": programs.Manager}
    exec(compile(source, "<generated>", "exec"), namespace)
    return namespace["f"]


generated_programs = _statements().map(build_program)


@settings(max_examples=60, deadline=None)
@given(generated_programs, st.tuples(st.integers(-2, 4), st.integers(0, 3), st.integers(0, 9)))
def test_generated_programs_survive(function, args):
    decoded = decode(function.__code__, fresh=True)
    code = assemble(decoded.instructions, decoded.exceptions, template=function.__code__)
    assert (code.co_code, code.co_linetable, code.co_exceptiontable) == (
        function.__code__.co_code, function.__code__.co_linetable, function.__code__.co_exceptiontable)
    first, second = [], []
    again = types.FunctionType(code, function.__globals__)
    assert programs.outcome(again, first, (first, *args), {}) == programs.outcome(function, second, (second, *args), {})
