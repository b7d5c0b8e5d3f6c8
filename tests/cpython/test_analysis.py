"""Liveness, stack depths, reachability and blocks, on functions whose answers can be read off their source."""

from __future__ import annotations

import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynamo_nb.cpython import analysis
from dynamo_nb.cpython import instruction as ins
from dynamo_nb.cpython.assemble import assemble, decode
from dynamo_nb.cpython.facts import OPMAP, stack_effect
from dynamo_nb.cpython.instruction import BytecodeError, ExceptionEntry, create

from . import programs
from .test_assemble import generated_programs


def _live_after_line(function, offset):
    """Live locals before the first instruction past the function's line `offset` (0 is `def`)."""
    decoded = decode(function.__code__)
    line = function.__code__.co_firstlineno + offset
    last = max(i.index for i in decoded.instructions if i.lineno == line)
    at = decoded.instructions[last + 1]
    live = analysis.live_locals(decoded.instructions, decoded.exceptions, at)
    assert live == analysis.live_locals_all(decoded.instructions, decoded.exceptions)[at.index]
    return live


def test_liveness_in_straight_code_and_loops():
    def function(a, b, n):
        c = a + b
        d = 0
        for i in range(n):
            d += c
            c = i
        e = d
        return e

    assert _live_after_line(function, 1) == {"c", "n"}
    assert _live_after_line(function, 4) == {"d", "i"}
    assert _live_after_line(function, 5) == {"d"}
    decoded = decode(function.__code__)
    back = next(i for i in decoded.instructions if i.opname == "JUMP_BACKWARD")
    assert analysis.live_locals(decoded.instructions, decoded.exceptions, back) == {"d", "c"}
    assert _live_after_line(function, 6) == {"e"}


def test_liveness_along_exception_edges():
    def function(a, b):
        x = 1
        try:
            x = a()
            y = b
        except ValueError:
            return x
        return y

    assert "x" in _live_after_line(function, 1)
    assert _live_after_line(function, 3) == {"b", "x"}


def test_deleting_reads_and_cells_stay_alive():
    def deleting(a):
        b = a
        a = 2
        del b
        return 3

    def cells(a, b):
        b = [b]
        b[0] = 1
        return lambda: a

    assert _live_after_line(deleting, 2) == {"b"}
    assert _live_after_line(cells, 2) == {"a"}


@pytest.mark.parametrize("function", [call[0] for call in programs.CALLS[::2]])
def test_dead_locals_are_never_read(function):
    """Overwriting every dead local before every instruction changes nothing."""
    code = function.__code__
    decoded = decode(code, fresh=True)
    live = analysis.live_locals_all(decoded.instructions, decoded.exceptions)
    slots = set(code.co_varnames) - set(code.co_cellvars)
    fenced, first_of = [], {}
    for instruction, names in zip(decoded.instructions, live, strict=True):
        unfenced = instruction.opname in ("COPY_FREE_VARS", "MAKE_CELL", "RESUME", "PRECALL", "CALL")
        poison = [] if unfenced else [i for name in sorted(slots - names)
                                      for i in (*ins.load_const("poison"), create("STORE_FAST", argval=name))]
        first_of[instruction] = (poison or [instruction])[0]
        fenced += [*poison, instruction]
    for instruction in decoded.instructions:
        instruction.target = first_of.get(instruction.target)
    for entry in decoded.exceptions:
        entry.start, entry.target = first_of[entry.start], first_of[entry.target]
    poisoned = types.FunctionType(assemble(fenced, decoded.exceptions, template=code), function.__globals__)
    poisoned.__kwdefaults__ = function.__kwdefaults__
    for args, kwargs in [call[1:] for call in programs.CALLS if call[0] is function]:
        first, second = [], []
        assert programs.outcome(poisoned, first, (first, *args), kwargs) == programs.outcome(function, second, (second, *args), kwargs)


def test_stack_depths_follow_calls_and_handlers():
    def function(f, a):
        with f:
            return f(a, k=a)

    decoded = decode(function.__code__)
    depths = analysis.stack_depths(decoded.instructions, decoded.exceptions)
    by_name = {i.opname: depths[i.index] for i in decoded.instructions if i.opname in ("CALL", "WITH_EXCEPT_START", "KW_NAMES")}
    assert by_name["KW_NAMES"] == 5  # __exit__, NULL, f, a, a
    handler = decoded.exceptions[0]
    assert depths[handler.target.index] == handler.handler_depth == 3  # __exit__, offset, exception
    assert analysis.stack_depth(decoded.instructions, decoded.exceptions) == function.__code__.co_stacksize
    assert analysis.stack_depth(ins.load_const(1) + ins.return_value(), [], start_depth=4) == 5


def test_stack_effects():
    assert stack_effect(OPMAP["CALL"], 2) == -3
    assert stack_effect(OPMAP["PRECALL"], 2) == 0
    assert (stack_effect(OPMAP["FOR_ITER"], 1, True), stack_effect(OPMAP["FOR_ITER"], 1, False)) == (-1, 1)
    assert stack_effect(OPMAP["POP_TOP"]) == -1


def test_disagreeing_paths_are_refused():
    end = ins.return_value()
    body = [*ins.load_const(1), *ins.load_const(1), *ins.pop_jump_if(True, end[0]), *ins.load_const(2), *end]
    with pytest.raises(BytecodeError, match="on one path"):
        analysis.stack_depths(body, [])


def test_dead_code_goes_and_ranges_shrink():
    handler = [create("PUSH_EXC_INFO"), create("POP_TOP"), create("POP_EXCEPT"), *ins.load_const("caught"), *ins.return_value()]
    target = ins.load_const(1)
    body = [*ins.jump(target[0]), create("NOP"), create("NOP"), *target, *ins.return_value(), create("NOP"), *handler]
    wide = ExceptionEntry(body[1], body[5], handler[0], 0, False)
    gone = ExceptionEntry(body[1], body[2], handler[0], 0, False)
    left, entries = analysis.dead_code_removed(body, [wide, gone])
    assert left == [body[0], *target, body[4], *handler]
    assert [(e.start, e.end) for e in entries] == [(target[0], body[4])]
    assert analysis.dead_code_removed(body[:5], [])[0] == [body[0], *target, body[4]]


def _blocks(function, name):
    """(handler line offsets, outermost first) around the call of the global `name`."""
    decoded = decode(function.__code__)
    at = next(i for i in decoded.instructions if i.argval == name)
    innermost = analysis.exception_entry_at(decoded.exceptions, at)
    blocks = analysis.block_stack_at(decoded.exceptions, at)
    assert (blocks[-1] if blocks else None) is innermost
    return [(entry.depth, entry.lasti) for entry in blocks]


def test_blocks():
    def function(a):
        outside(a)  # noqa: F821
        try:
            with a:
                for x in a:
                    try:
                        deep(x)  # noqa: F821
                    finally:
                        cleanup(x)  # noqa: F821
            middle(a)  # noqa: F821
        except ValueError:
            handling(a)  # noqa: F821
        return a

    assert _blocks(function, "outside") == []
    assert _blocks(function, "middle") == [(0, False)]
    assert _blocks(function, "deep") == [(0, False), (1, True), (2, False)]
    assert _blocks(function, "handling") == [(1, True)]


@settings(max_examples=40, deadline=None)
@given(generated_programs, st.data())
def test_nothing_reachable_is_removed(function, data):
    code = function.__code__
    decoded = decode(code)
    left, entries = analysis.dead_code_removed(decoded.instructions, decoded.exceptions)
    depths = analysis.stack_depths(decoded.instructions, decoded.exceptions)
    assert [i.index for i in left] == [index for index, depth in enumerate(depths) if depth >= 0]
    args = data.draw(st.tuples(st.integers(-2, 4), st.integers(0, 3), st.integers(0, 9)))
    again = types.FunctionType(assemble(left, entries, template=code), function.__globals__)
    first, second = [], []
    assert programs.outcome(again, first, (first, *args), {}) == programs.outcome(function, second, (second, *args), {})
