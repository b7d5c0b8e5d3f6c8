"""Readable listing of a code object, one instruction a line, for the `bytecode` log and the reports.

Comes in: a code object. Goes out: text. Unlike `dis`, constants are shortened and callables, such as
compiled graphs held as constants, are shown by their names; no code of the user's runs for it.
"""

from __future__ import annotations

import types
from typing import Any

from dynamo_nb.cpython import facts
from dynamo_nb.cpython.assemble import decode
from dynamo_nb.cpython.instruction import ExceptionEntry, Instruction

_LONGEST = 60
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
_NAMED = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)


def disassemble(code: types.CodeType, nested: bool = False) -> str:
    """Listing of `code`; with `nested`, of the code objects among its constants too."""
    decoded = decode(code, fresh=True)
    targets = {i.target for i in decoded.instructions if i.target is not None}
    targets.update(entry.target for entry in decoded.exceptions)
    lines = [f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"]
    line: int | None = None
    for instruction in decoded.instructions:
        shown = instruction.lineno if instruction.lineno != line else None
        line = instruction.lineno
        mark = ">>" if instruction in targets else "  "
        text = f"{'' if shown is None else shown:>5} {mark} {instruction.offset:>5} {instruction.opname:<28} {_operand(instruction)}"
        lines.append(text.rstrip())
    lines += [_row(entry) for entry in decoded.exceptions]
    if nested:
        lines += ["\n" + disassemble(constant, True) for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return "\n".join(lines)


def _row(entry: ExceptionEntry) -> str:
    lasti = ", lasti" if entry.lasti else ""
    return f"         {entry.start.offset}..{entry.end.offset} -> {entry.target.offset} (depth {entry.depth}{lasti})"


def _operand(instruction: Instruction) -> str:
    if instruction.opcode < facts.HAVE_ARGUMENT:
        return ""
    if instruction.target is not None:
        return f"to {instruction.target.offset}"
    if instruction.opcode in facts.HAS_CONST:
        return describe(instruction.argval)
    if instruction.push_null:
        return f"NULL + {instruction.argval}"
    return str(instruction.argval)


def describe(value: Any) -> str:
    """A constant in at most about 60 characters: its repr, its name if it is a function or class, else its type.

    A listing runs none of the user's code, so objects of other types are never asked for their repr or attributes.
    """
    text = _described(value).replace("\n", " ")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST - 3]}..."


def _described(value: Any) -> str:
    kind = type(value)
    if kind is types.CodeType:
        return f"<code {value.co_qualname}>"
    if kind in _NAMED:
        return value.__name__
    if isinstance(value, type):
        return _class_name(value)
    if kind in _PLAIN:
        return repr(value)
    if kind is types.ModuleType:
        return f"<module {vars(value).get('__name__')}>"
    if vars(kind).get("__module__") == "torch" and type(kind.__repr__) is types.WrapperDescriptorType:    # dtypes, devices, sizes
        return repr(value)
    if kind is tuple:
        return f"({', '.join(map(_described, value))}{',' if len(value) == 1 else ''})"
    if kind is frozenset:
        return f"frozenset({{{', '.join(sorted(map(_described, value)))}}})"
    return f"<{_class_name(kind)} object>"


def _class_name(cls: type) -> str:
    """The name kept in the class, whatever its metaclass shows."""
    return type.__dict__["__name__"].__get__(cls)
