"""The listing names what matters: every instruction, handlers, callables by name, long constants shortened."""

from __future__ import annotations

import types

from dynamo_nb.cpython import instruction as ins
from dynamo_nb.cpython.assemble import CodeOptions, decode
from dynamo_nb.cpython.decompile import describe, disassemble
from dynamo_nb.cpython.resume import make_fragment

from . import programs


def test_one_line_an_instruction():
    code = programs.finally_.__code__
    text = disassemble(code)
    lines = text.splitlines()
    decoded = decode(code)
    assert len(lines) == 1 + len(decoded.instructions) + len(decoded.exceptions)
    assert programs.__file__ in lines[0]
    for line, instruction in zip(lines[1:], decoded.instructions, strict=False):
        assert f" {instruction.offset} {instruction.opname}" in line
    assert any("NULL + str" in line for line in lines)
    jump = next(i for i in decoded.instructions if i.target is not None)
    assert f"to {jump.target.offset}" in lines[1 + jump.index]
    assert ">>" in lines[1 + jump.target.index]


def test_constants():
    class Rude:
        def __repr__(self):
            raise RuntimeError("no")

    def graph(x):
        return x

    graph.__name__ = "__compiled_fn_0_abc"
    values = [graph, Rude(), "y" * 500, 3]
    body = [i for value in values for i in ins.load_const(value)] + ins.build_tuple(len(values)) + ins.return_value()
    code = make_fragment(body, [], CodeOptions("made", "made", "<made>", 1, 3))
    text = disassemble(code)
    assert "__compiled_fn_0_abc\n" in text
    assert "<Rude object>" in text
    assert max(map(len, text.splitlines())) < 120
    assert types.FunctionType(code, {})()[0] is graph
    assert describe(code) == "<code made>"


def test_nested_code():
    text = disassemble(programs.closures.__code__, nested=True)
    assert "closures.<locals>.bump" in text.splitlines()[0] or "\nclosures.<locals>.bump (" in text
    assert "\nclosures.<locals>.bump (" not in disassemble(programs.closures.__code__)
