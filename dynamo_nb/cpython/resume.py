"""Code objects that run part of another one: resume code after a graph break, flattened arguments, fragments.

Comes in: a code object and where to go on, or instructions. Goes out: a code object with the order of its
parameters and free variables. Called by code generation and the frame hook.

Resume code takes everything as positional arguments: the original's first parameter (zero-argument
`super()` reads it from the frame's first slot), the live locals, the stack values. The original's cells
are its free variables, so closures keep sharing them.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Sequence

from dynamo_nb.cpython import analysis, facts
from dynamo_nb.cpython.assemble import CodeOptions, Decoded, assemble, decode
from dynamo_nb.cpython.instruction import BytecodeError, ExceptionEntry, Instruction, Positions, copy_instructions, create, jump

_SUSPENDING = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_FUNCTION = inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS
_PROLOGUE = frozenset(facts.OPMAP[name] for name in ("COPY_FREE_VARS", "MAKE_CELL", "RESUME"))


class ResumeError(BytecodeError):
    """This code cannot be continued there (or its arguments cannot be flattened); the message says why."""


@dataclasses.dataclass(frozen=True)
class ResumeLayout:
    """Resume code and what to call it with.

    arg_names: its parameters in order, all positional: locals (the first parameter of the original first),
    then `stack_names`. A parameter that is a cell in the original takes the cell's contents.
    free_names: the closure to give it, in order: all cells of the original, then its free variables.
    origins: for each of its instructions the index of the original's it stands for, -1 in the prologue.
    """

    code: types.CodeType
    arg_names: tuple[str, ...]
    free_names: tuple[str, ...]
    stack_names: tuple[str, ...]
    origins: tuple[int, ...]


def make_resume_code(
    code: types.CodeType, target_index: int, *, stack_args: int, null_positions: tuple[int, ...] = (),
    handled_positions: tuple[int, ...] = (), locals_live: tuple[str, ...], name: str, first_unbound: bool = False,
) -> ResumeLayout:
    """Code that continues `code` at the instruction with index `target_index` (of `decode(code).instructions`).

    stack_args: how many stack values are passed, bottom first, NULLs not counted. null_positions: places in
    the whole stack (0 is the bottom) that hold NULL. locals_live: the bound locals to pass; names of cells in
    it are ignored, they come with the closure; a live local left out is unbound in the resume code.
    handled_positions: places in the whole stack where PUSH_EXC_INFO saved the exception handled before. The
    value passed for one is the exception being handled now; the prologue makes it current again.
    first_unbound: the original's first parameter has been deleted.

    The first parameter is passed even where it is not live, unless it is a cell and no `super()` can need it.
    Where the target lies in an exception handler, the stack values include what the handler found there
    (saved exception, raising offset, exception), and the thread's current exception must be as it was: both
    are the caller's business. An offset passed so is the original's, and only ever used for a line number.

    ResumeError: generators, coroutines, module and class bodies; a target inside a call sequence, in code
    never reached, or whose stack depth is not stack_args + NULLs; zero-argument `super()` that could not see
    what it sees in the original.
    """
    decoded = decode(code)
    _check_target(code, decoded, target_index, stack_args, null_positions)
    first = _first_parameter(code, first_unbound)
    free_names = tuple(dict.fromkeys((*code.co_cellvars, *code.co_freevars)))
    wanted = [first] if first is not None else []
    wanted += [local for local in locals_live if local not in free_names]
    unknown = [local for local in wanted if local not in code.co_varnames]
    if unknown:
        raise ResumeError(f"{code.co_qualname} has no local named {', '.join(unknown)}")
    args = tuple(dict.fromkeys(wanted))
    body, exceptions, target = _body(decoded, target_index)
    used = {i.argval for i in body if i.opcode in facts.HAS_LOCAL}
    stack_names = _stack_names(stack_args, used.union(args, free_names))
    arg_names = (*args, *stack_names)
    if arg_names:
        _check_super_without_arguments(code)
    prologue = _prologue(target.positions, len(free_names), stack_names, null_positions, handled_positions)
    if body[0] is not target:
        prologue += jump(target)
        prologue[-1].positions = target.positions
    options = dataclasses.replace(
        CodeOptions.of(code), name=name, qualname=_renamed(code.co_qualname, name), argcount=len(arg_names),
        posonlyargcount=0, kwonlyargcount=0, flags=code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS),
        varnames=(*arg_names, *(v for v in code.co_varnames if v in used and v not in arg_names)),
        cellvars=(), freevars=free_names,
    )
    origins = (*(-1 for _ in prologue), *(i.index for i in body))
    return ResumeLayout(assemble(prologue + body, exceptions, template=options), arg_names, free_names, stack_names, origins)


def _renamed(qualname: str, name: str) -> str:
    head, dot, _ = qualname.rpartition(".")
    return head + dot + name


def _check_target(
    code: types.CodeType, decoded: Decoded, target_index: int, stack_args: int, null_positions: tuple[int, ...]
) -> None:
    where = f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"
    if code.co_flags & _SUSPENDING:
        raise ResumeError(f"{where} is a generator or coroutine; those are not resumed from the middle")
    if code.co_flags & _FUNCTION != _FUNCTION:
        raise ResumeError(f"{where} is a module or class body; only function bodies can be resumed")
    if not 0 <= target_index < len(decoded.instructions):
        raise ResumeError(f"{where} has {len(decoded.instructions)} instructions, none with index {target_index}")
    target = decoded.instructions[target_index]
    if target.opcode in facts.MUST_FOLLOW:
        raise ResumeError(f"{where}, line {target.lineno}: {target.opname} cannot be cut off from the instruction before it")
    total = stack_args + len(null_positions)
    depth = analysis.stack_depths(decoded.instructions, decoded.exceptions)[target_index]
    if depth < 0:
        raise ResumeError(f"{where}: {target!r} is never reached")
    if depth != total:
        raise ResumeError(f"{where}: the stack before {target!r} holds {depth} slots, but {total} are to be restored")
    if len(set(null_positions)) != len(null_positions) or not all(0 <= position < total for position in null_positions):
        raise ResumeError(f"null_positions {null_positions} do not fit a stack of {total} slots")


def _first_parameter(code: types.CodeType, first_unbound: bool) -> str | None:
    """The local that must come first, None if there is none; ResumeError where `super()` would be misled."""
    may_call_super = "__class__" in code.co_freevars
    if code.co_argcount == 0:
        return None
    first = code.co_varnames[0]
    if may_call_super and (first_unbound or (first in code.co_cellvars and _rebinds_cell(code, first))):
        raise ResumeError(f"{code.co_qualname} uses __class__ and rebinds or deletes its first parameter {first!r}, which super() reads")
    if first_unbound or (first in code.co_cellvars and not may_call_super):
        return None
    return first


def _check_super_without_arguments(code: types.CodeType) -> None:
    """Such a `super()` fails in the original; it must not find an argument once there are some."""
    if code.co_argcount == 0 and "__class__" in code.co_freevars:
        raise ResumeError(f"{code.co_qualname} uses __class__ but has no positional parameter: super() would find another argument")


def _rebinds_cell(code: types.CodeType, name: str) -> bool:
    """Does the code, or one nested in it, store to or delete the cell `name`?"""
    if any(i.opname in ("STORE_DEREF", "DELETE_DEREF") and i.argval == name for i in decode(code).instructions):
        return True
    nested = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return any(name in inner.co_freevars and _rebinds_cell(inner, name) for inner in nested)


def _body(decoded: Decoded, target_index: int) -> tuple[list[Instruction], list[ExceptionEntry], Instruction]:
    """Copies of what can be reached from the target, without the function prologue, and the target among them."""
    instructions, exceptions = copy_instructions(decoded.instructions, decoded.exceptions)
    while instructions[target_index].opcode in _PROLOGUE:
        target_index += 1
    keep = analysis.reachable(instructions, exceptions, target_index)
    for index, instruction in enumerate(instructions):
        if keep[index] and instruction.opcode in _PROLOGUE:
            raise ResumeError(f"{instruction!r} is reached from within the function")
    body, entries = analysis.restricted(instructions, exceptions, keep)
    return body, entries, instructions[target_index]


def _stack_names(count: int, taken: set[str]) -> tuple[str, ...]:
    prefix = "___stack"
    while any(f"{prefix}{i}" in taken for i in range(count)):
        prefix = "_" + prefix
    return tuple(f"{prefix}{i}" for i in range(count))


def _prologue(
    positions: Positions | None, nfree: int, stack_names: tuple[str, ...], null_positions: tuple[int, ...],
    handled_positions: tuple[int, ...],
) -> list[Instruction]:
    prologue = [create("COPY_FREE_VARS", nfree)] if nfree else []
    prologue.append(create("RESUME", 0, positions=positions))
    values = iter(stack_names)
    for position in range(len(stack_names) + len(null_positions)):
        if position in null_positions:
            prologue.append(create("PUSH_NULL", positions=positions))
        else:
            prologue.append(create("LOAD_FAST", argval=next(values), positions=positions))
            if position in handled_positions:
                prologue.append(create("PUSH_EXC_INFO", positions=positions))
                prologue.append(create("POP_TOP", positions=positions))
    prologue += [create("DELETE_FAST", argval=value, positions=positions) for value in stack_names]
    return prologue


def flatten_args(code: types.CodeType) -> types.CodeType:
    """The same code with every argument turned into a positional-only one, in slot order.

    Called with the already bound locals: positional parameters, keyword-only ones, the `*args` tuple, the
    `**kwargs` dict. ResumeError where zero-argument `super()` would start to see an argument it does not see.
    """
    varargs, varkeywords = bool(code.co_flags & inspect.CO_VARARGS), bool(code.co_flags & inspect.CO_VARKEYWORDS)
    count = code.co_argcount + code.co_kwonlyargcount + varargs + varkeywords
    if count:
        _check_super_without_arguments(code)
    return code.replace(
        co_argcount=count, co_posonlyargcount=count, co_kwonlyargcount=0,
        co_flags=code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS),
    )


def make_fragment(
    instructions: Sequence[Instruction], exceptions: Sequence[ExceptionEntry], options: CodeOptions
) -> types.CodeType:
    """Assemble a function body that lacks its prologue: COPY_FREE_VARS, MAKE_CELL and RESUME come first."""
    prologue = [create("COPY_FREE_VARS", len(options.freevars))] if options.freevars else []
    prologue += [create("MAKE_CELL", argval=cell) for cell in options.cellvars]
    prologue.append(create("RESUME", 0, positions=(options.firstlineno, options.firstlineno, 0, 0)))
    return assemble([*prologue, *instructions], exceptions, template=options)
