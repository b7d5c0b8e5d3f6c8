"""Opcode facts agree with `dis`, and an unknown interpreter is refused in one sentence."""

from __future__ import annotations

import dis
import importlib.util
import sys

import pytest

from dynamo_nb.cpython import facts
from dynamo_nb.cpython.assemble import decode

from . import programs


class _Version(tuple):
    major = property(lambda self: self[0])
    minor = property(lambda self: self[1])


@pytest.mark.parametrize(("version", "name"), [((3, 10, 2), "cpython"), ((3, 14, 0), "cpython"), ((3, 11, 1), "pypy")])
def test_other_interpreters_are_refused(monkeypatch, version, name):
    spec = importlib.util.spec_from_file_location("facts_elsewhere", facts.__file__)
    monkeypatch.setattr(sys, "version_info", _Version(version))
    monkeypatch.setattr(sys.implementation, "name", name)
    with pytest.raises(ImportError, match=rf"CPython 3\.11 only; this is {name} {version[0]}\.{version[1]}\. Run it"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def test_decoded_operands_agree_with_dis():
    for function in {call[0] for call in programs.CALLS}:
        ours = decode(function.__code__).instructions
        theirs = [i for i in dis.get_instructions(function) if i.opname != "EXTENDED_ARG"]
        assert [(i.opname, i.arg, i.offset, i.positions and i.positions[0]) for i in ours] == [
            (i.opname, i.arg, i.offset, i.positions.lineno) for i in theirs]
        for mine, other in zip(ours, theirs, strict=True):
            if mine.opname not in ("FORMAT_VALUE", "MAKE_FUNCTION"):
                assert mine.argval == other.argval
            assert mine.push_null == ("NULL + " in other.argrepr)


def test_every_jump_has_a_form_for_its_own_direction():
    for opcode in facts.JUMPS:
        assert opcode in (facts.BACKWARD_FORM if opcode in facts.BACKWARD else facts.FORWARD_FORM).values()
        for forms, backward in ((facts.FORWARD_FORM, False), (facts.BACKWARD_FORM, True)):
            if opcode in forms:
                assert (forms[opcode] in facts.BACKWARD) == backward
                assert facts.stack_effect(forms[opcode], 1, True) == facts.stack_effect(opcode, 1, True)
