"""Opcode facts of the running interpreter, taken from its own `opcode` and `dis` metadata.

Comes in: the standard library's metadata and the version module. Goes out: sets of opcode numbers,
cache sizes, stack effects. Read by every module of `cpython` and by the tracer. An interpreter
whose bytecode is not known fails here, at import, with one sentence.
"""

from __future__ import annotations

import dis
import functools
import opcode as _opcode
import sys

if sys.implementation.name != "cpython" or sys.version_info[:2] != (3, 11):
    raise ImportError(
        f"dynamo_nb reads and writes the bytecode of CPython 3.11 only; this is {sys.implementation.name} "
        f"{sys.version_info.major}.{sys.version_info.minor}. Run it with CPython 3.11."
    )

from dynamo_nb.cpython import v311 as version

OPMAP: dict[str, int] = dict(_opcode.opmap)
OPNAME: tuple[str, ...] = tuple(_opcode.opname)
HAVE_ARGUMENT: int = _opcode.HAVE_ARGUMENT
EXTENDED_ARG: int = _opcode.EXTENDED_ARG
COMPARE_OPERATORS: tuple[str, ...] = tuple(_opcode.cmp_op)
# Inline cache entries (2-byte units) that follow each opcode.
INLINE_CACHE: tuple[int, ...] = tuple(_opcode._inline_cache_entries)  # type: ignore[attr-defined]

HAS_LOCAL = frozenset(_opcode.haslocal)
HAS_NAME = frozenset(_opcode.hasname)
HAS_CONST = frozenset(_opcode.hasconst)
HAS_FREE = frozenset(_opcode.hasfree)
HAS_COMPARE = frozenset(_opcode.hascompare)
JUMPS = frozenset(_opcode.hasjrel) | frozenset(_opcode.hasjabs)
TERMINATORS = frozenset(OPMAP[name] for name in version.TERMINATORS)
LOCAL_READS = frozenset(OPMAP[name] for name in version.LOCAL_READS)
LOCAL_WRITES = frozenset(OPMAP[name] for name in version.LOCAL_WRITES)
MAKE_CELL: int = OPMAP["MAKE_CELL"]
# How many flag bits stand below the index in a name operand.
NAME_SHIFT: dict[int, int] = {op: version.NAME_SHIFT.get(OPNAME[op], 0) for op in HAS_NAME}

# What an operand indexes: "const", "name", "slot" (locals, cells, free variables), "compare", or "" (a plain number).
OPERAND_KIND: tuple[str, ...] = tuple(
    "const" if op in HAS_CONST else "name" if op in HAS_NAME else "slot" if op in HAS_LOCAL | HAS_FREE
    else "compare" if op in HAS_COMPARE else "" for op in range(256)
)
OPERAND_SHIFT: tuple[int, ...] = tuple(NAME_SHIFT.get(op, 0) for op in range(256))

BACKWARD = frozenset(op for op in JUMPS if "BACKWARD" in OPNAME[op])
# Opcode to use when the target lies ahead / behind; an absent key means that direction does not exist.
FORWARD_FORM: dict[int, int] = {op: op for op in JUMPS - BACKWARD}
BACKWARD_FORM: dict[int, int] = {op: op for op in BACKWARD}
for _forward, _backward in version.JUMP_PAIRS:
    FORWARD_FORM[OPMAP[_backward]] = OPMAP[_forward]
    BACKWARD_FORM[OPMAP[_forward]] = OPMAP[_backward]
for _backward, _forward in version.BACKWARD_ONLY.items():
    FORWARD_FORM[OPMAP[_backward]] = OPMAP[_forward]

MUST_PRECEDE: dict[int, int] = {OPMAP[first]: OPMAP[second] for first, second in version.MUST_PRECEDE.items()}
MUST_FOLLOW = frozenset(MUST_PRECEDE.values())

_OVERRIDES = {OPMAP[name]: effect for name, effect in version.STACK_EFFECT_OVERRIDES.items()}


@functools.lru_cache(maxsize=8192)
def stack_effect(opcode: int, arg: int | None = None, jump: bool = False) -> int:
    """Change of the stack depth (in slots, NULLs counted) when `opcode` runs; `jump`: when it jumps.

    For a call the whole change is booked at CALL; RETURN_GENERATOR includes the value first sent.
    """
    override = _OVERRIDES.get(opcode)
    if override is not None:
        return override(arg or 0)
    if opcode < HAVE_ARGUMENT:
        return dis.stack_effect(opcode, jump=jump)
    return dis.stack_effect(opcode, arg or 0, jump=jump)


def _check() -> None:
    """The metadata must have the shape the assembler relies on."""
    problems = []
    if len(INLINE_CACHE) != 256:
        problems.append("opcode._inline_cache_entries")
    if _opcode.hasjabs:
        problems.append("absolute jumps")
    if any(INLINE_CACHE[op] for op in JUMPS):
        problems.append("jumps with inline caches")
    if {OPNAME[op] for op in HAS_LOCAL} != {"LOAD_FAST", "STORE_FAST", "DELETE_FAST"}:
        problems.append("opcodes on fast locals")
    if problems:
        raise ImportError(f"This CPython {sys.version.split()[0]} differs from the known 3.11 bytecode in: {', '.join(problems)}.")


_check()
