"""Instructions as mutable objects, exception-table entries, and small sequences code generation needs.

Comes in: opcode names and operands. Goes out: `Instruction` objects and lists of them for
`assemble`. Used by the tracer (reading) and by code generation (writing).

`argval` follows `dis`: the name for opcodes on names, locals, cells and free variables, the object
itself for opcodes on constants, the operator's text for COMPARE_OP, the target's offset at decoding
for jumps (informational: `target` decides), and `arg` otherwise. For names, locals, cells, constants
and operators the assembler goes by `argval`, for everything else by `arg`. LOAD_GLOBAL keeps a fact in
`arg` as well: its lowest bit says that a NULL is pushed first (`push_null`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dynamo_nb.cpython import facts
from dynamo_nb.cpython.facts import version

Positions = tuple[int | None, int | None, int | None, int | None]  # (lineno, end_lineno, col, end_col)
_UNSET: Any = object()


class BytecodeError(Exception):
    """A list of instructions that is no valid bytecode; a fault of the caller, named by instruction."""


class Instruction:
    """One instruction, without its EXTENDED_ARG prefixes and inline caches. Hash and == go by identity.

    offset: byte offset of the opcode itself (as in `dis` and `f_lasti`) in the code it was decoded
    from, None for a created one. index: position in its list when decoded or last `reindex`ed.
    target: the instruction a jump leads to. positions: source span, None where there is none.
    """

    __slots__ = ("arg", "argval", "index", "offset", "opcode", "opname", "positions", "target")

    def __init__(self, opcode: int, arg: int | None, argval: Any, positions: Positions | None = None,
                 target: Instruction | None = None, offset: int | None = None, index: int = -1) -> None:
        self.opcode = opcode
        self.opname = facts.OPNAME[opcode]
        self.arg = arg
        self.argval = argval
        self.offset = offset
        self.positions = positions
        self.target = target
        self.index = index

    @property
    def lineno(self) -> int | None:
        return self.positions[0] if self.positions is not None else None

    @property
    def starts_line(self) -> int | None:
        """The same as `lineno` (every instruction answers, not only the first of its line)."""
        return self.lineno

    @property
    def push_null(self) -> bool:
        """LOAD_GLOBAL only: does it push a NULL under the value?"""
        return bool(facts.NAME_SHIFT.get(self.opcode) and (self.arg or 0) & 1)

    def copy(self) -> Instruction:
        """A new instruction with the same fields; `target` still names the old list's instruction."""
        return Instruction(self.opcode, self.arg, self.argval, self.positions, self.target, self.offset, self.index)

    def __repr__(self) -> str:
        if self.target is not None:
            operand = f" -> {self.target.index}"
        elif self.opcode < facts.HAVE_ARGUMENT:
            operand = ""
        else:
            operand = f" {self.argval!r}" if len(repr(self.argval)) < 60 else f" <{type(self.argval).__name__}>"
        return f"<{self.index}: {self.opname}{operand}>"


class ExceptionEntry:
    """One row of the exception table: `start`..`end` (inclusive) are covered by the handler `target`.

    depth: stack slots kept when the handler is entered. lasti: whether the raising instruction's
    offset is pushed beneath the exception.
    """

    __slots__ = ("depth", "end", "lasti", "start", "target")

    def __init__(self, start: Instruction, end: Instruction, target: Instruction, depth: int, lasti: bool) -> None:
        self.start = start
        self.end = end
        self.target = target
        self.depth = depth
        self.lasti = lasti

    @property
    def handler_depth(self) -> int:
        """Stack depth at the handler's first instruction: kept slots, the offset if any, the exception."""
        return self.depth + self.lasti + 1

    def __repr__(self) -> str:
        return f"<{self.start.index}..{self.end.index} -> {self.target.index} depth {self.depth}{' lasti' if self.lasti else ''}>"


def reindex(instructions: Sequence[Instruction]) -> None:
    """Set every instruction's `index` to its position in this list."""
    for index, instruction in enumerate(instructions):
        instruction.index = index


def copy_instructions(
    instructions: Sequence[Instruction], exceptions: Iterable[ExceptionEntry] = ()
) -> tuple[list[Instruction], list[ExceptionEntry]]:
    """Copy a whole list and its exception entries; jumps and entries refer to the copies."""
    twin = {instruction: instruction.copy() for instruction in instructions}
    for copied in twin.values():
        if copied.target is not None:
            copied.target = twin[copied.target]
    entries = [ExceptionEntry(twin[e.start], twin[e.end], twin[e.target], e.depth, e.lasti) for e in exceptions]
    return list(twin.values()), entries


def create(opname: str, arg: int | None = None, argval: Any = _UNSET, target: Instruction | None = None,
           positions: Positions | None = None) -> Instruction:
    """Make an instruction; BytecodeError if the operand does not fit the opcode."""
    opcode = facts.OPMAP.get(opname)
    if opcode is None or opcode == facts.EXTENDED_ARG or opname == "CACHE":
        raise BytecodeError(f"{opname} is no instruction of CPython {version.VERSION[0]}.{version.VERSION[1]}")
    if (opcode in facts.JUMPS) != (target is not None):
        raise BytecodeError(f"{opname}: {'a jump needs' if target is None else 'only jumps take'} a target")
    if opcode in facts.HAS_CONST:
        if argval is _UNSET:
            raise BytecodeError(f"{opname} needs the constant as argval")
    elif opcode in facts.HAS_NAME or opcode in facts.HAS_LOCAL or opcode in facts.HAS_FREE:
        if not isinstance(argval, str):
            raise BytecodeError(f"{opname} needs the name as argval")
    elif opcode in facts.HAS_COMPARE:
        argval = facts.COMPARE_OPERATORS[arg] if argval is _UNSET and arg is not None else argval
        if argval not in facts.COMPARE_OPERATORS:
            raise BytecodeError(f"{opname} needs an operator as argval, one of {', '.join(facts.COMPARE_OPERATORS)}")
        arg = facts.COMPARE_OPERATORS.index(argval)
    elif opcode not in facts.JUMPS:
        if arg is None and argval is not _UNSET:
            arg = argval
        if (arg is None) != (opcode < facts.HAVE_ARGUMENT):
            raise BytecodeError(f"{opname} takes {'an' if arg is None else 'no'} argument")
        argval = arg
    return Instruction(opcode, arg, None if argval is _UNSET else argval, positions, target)


def rot_n(n: int) -> list[Instruction]:
    """Move the top of the stack down `n - 1` places; the values above its new place move up one."""
    return [create("SWAP", i) for i in range(n, 1, -1)]


def swap(i: int) -> list[Instruction]:
    """Exchange the top of the stack with the `i`-th value from the top (1 is the top itself)."""
    return [create("SWAP", i)] if i > 1 else []


def copy(i: int) -> list[Instruction]:
    """Push the `i`-th value from the top once more."""
    return [create("COPY", i)]


def call_function(nargs: int, push_null: bool) -> list[Instruction]:
    """Call with `nargs` positional arguments.

    push_null=True: the stack holds callable, arguments; a NULL is moved beneath them first.
    push_null=False: the stack already holds NULL, callable, arguments (or method, self, arguments).
    """
    head = [create("PUSH_NULL"), *rot_n(nargs + 2)] if push_null else []
    return head + [create(name, arg) for name, arg in version.call_sequence(nargs)]


def call_kw(nargs: int, names: tuple[str, ...]) -> list[Instruction]:
    """Call whose last `len(names)` of `nargs` arguments are keywords; NULL, callable, arguments are on the stack."""
    if not names:
        return call_function(nargs, push_null=False)
    return [create("KW_NAMES", argval=tuple(names))] + [create(name, arg) for name, arg in version.call_sequence(nargs)]


def load_const(value: Any) -> list[Instruction]:
    """Push that very object."""
    return [create("LOAD_CONST", argval=value)]


def load_global(name: str, push_null: bool = False) -> list[Instruction]:
    """Push a global (or builtin); with `push_null` a NULL beneath it."""
    return [create("LOAD_GLOBAL", int(push_null), name)]


def load_attr(name: str) -> list[Instruction]:
    return [create("LOAD_ATTR", argval=name)]


def store_attr(name: str) -> list[Instruction]:
    """Stack: value, object."""
    return [create("STORE_ATTR", argval=name)]


def build_tuple(n: int) -> list[Instruction]:
    return [create("BUILD_TUPLE", n)]


def jump(target: Instruction) -> list[Instruction]:
    """Jump either way; the assembler picks the opcode by where the target ends up."""
    return [create(version.JUMP, target=target)]


def pop_jump_if(condition: bool | str | None, target: Instruction) -> list[Instruction]:
    """Pop and jump if the value is true (True), false (False), None (None), or not None ("not None")."""
    if not (condition is None or isinstance(condition, bool) or condition == "not None"):
        raise BytecodeError(f'pop_jump_if takes True, False, None or "not None", not {condition!r}')
    return [create(version.POP_JUMP[condition], target=target)]


def return_value() -> list[Instruction]:
    return [create("RETURN_VALUE")]
