"""Stop a function at an instruction and go on in its resume code: what a graph break does, without a tracer.

`split(function, index)` gives a function that runs `function` up to the instruction with that index; when it
gets there for the first time, it hands stack, live locals and cells to `make_resume_code`'s function and returns what that returns.
"""

from __future__ import annotations

import types

from dynamo_nb.cpython import analysis
from dynamo_nb.cpython import instruction as ins
from dynamo_nb.cpython.assemble import assemble, decode
from dynamo_nb.cpython.instruction import create
from dynamo_nb.cpython.resume import make_resume_code


def boundaries(code):
    """Indices where a function can be cut: reached, past the prologue, no NULL on the stack, no call cut apart."""
    decoded = decode(code)
    depths = analysis.stack_depths(decoded.instructions, decoded.exceptions)
    floor = None  # stack depth below the lowest NULL, which a call replaces by its result
    called = False
    for instruction, depth in zip(decoded.instructions, depths, strict=True):
        if floor is not None and depth <= floor + called:
            floor = None
        called = instruction.opname in ("CALL", "CALL_FUNCTION_EX")
        if depth >= 0 and floor is None and instruction.opname not in ("COPY_FREE_VARS", "MAKE_CELL", "RESUME", "PRECALL", "CALL"):
            yield instruction.index
        if floor is None and (instruction.opname in ("PUSH_NULL", "LOAD_METHOD") or instruction.push_null):
            floor = depth


def split(function, index):
    code = function.__code__
    original = decode(code)
    depth = analysis.stack_depths(original.instructions, original.exceptions)[index]
    live = analysis.live_locals(original.instructions, original.exceptions, original.instructions[index])
    arrivals = []

    def go_on(stack, bound, cells):
        arrivals.append(index)
        first = code.co_varnames[0] if code.co_argcount else None
        layout = make_resume_code(
            code, index, stack_args=len(stack), locals_live=tuple(name for name in code.co_varnames if name in live and name in bound),
            name=f"resume_at_{index}", first_unbound=first is not None and first not in bound)
        values = {**bound, **dict(zip(layout.stack_names, stack, strict=True))}
        rest = types.FunctionType(layout.code, function.__globals__, closure=cells)
        assert layout.code.co_varnames[:layout.code.co_argcount] == layout.arg_names
        assert layout.free_names == layout.code.co_freevars == code.co_cellvars + code.co_freevars
        return rest(*[values[name] for name in layout.arg_names])

    instructions, exceptions = ins.copy_instructions(original.instructions, original.exceptions)
    target = instructions[index]
    tail = [*ins.build_tuple(depth), create("PUSH_NULL"), create("SWAP", 2), *ins.load_const(go_on), create("SWAP", 2),
            *ins.load_const(locals), *ins.call_function(0, True),
            *(create("LOAD_CLOSURE", argval=name) for name in code.co_cellvars + code.co_freevars),
            *ins.build_tuple(len(code.co_cellvars + code.co_freevars)), *ins.call_function(3, False), *ins.return_value()]
    (detour,) = ins.jump(tail[0])
    for instruction in instructions:
        if instruction.target is target:
            instruction.target = detour
    for entry in exceptions:
        entry.target = detour if entry.target is target else entry.target
    where = instructions.index(target)
    code = function.__code__
    head = assemble([*instructions[:where], detour, *instructions[where:], *tail], exceptions, template=code)
    cut = types.FunctionType(head, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    cut.__kwdefaults__ = function.__kwdefaults__
    return cut, arrivals
