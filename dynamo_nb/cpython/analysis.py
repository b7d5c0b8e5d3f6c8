"""What can be said about a list of instructions without running it: stack depths, liveness, reachability, blocks.

Comes in: instructions and exception entries (as from `assemble.decode`). Goes out: plain ints, sets,
lists. Called by the assembler, by resume code and by the tracer. Except where said,
nothing here looks at `Instruction.index`, so lists may be freshly edited.

Exception entries may be nested: the one that starts last (of equals the shortest, of equals the later
in the list) is the innermost, and only it catches; outer handlers are reached through the inner
handler's own instructions, as CPython does it.
"""

from __future__ import annotations

from collections.abc import Sequence

from dynamo_nb.cpython import facts
from dynamo_nb.cpython.facts import (  # noqa: F401  (the opcode facts are part of this module's interface)
    HAS_CONST,
    HAS_FREE,
    HAS_LOCAL,
    HAS_NAME,
    INLINE_CACHE,
    JUMPS,
    TERMINATORS,
    stack_effect,
)
from dynamo_nb.cpython.instruction import BytecodeError, ExceptionEntry, Instruction

# Names through which a function may see its own frame's locals.
FRAME_READERS = frozenset({"locals", "vars", "dir", "eval", "exec", "_getframe", "currentframe", "breakpoint", "set_trace"})


def positions_in(instructions: Sequence[Instruction]) -> dict[Instruction, int]:
    """Index of every instruction in this list."""
    return {instruction: index for index, instruction in enumerate(instructions)}


def innermost_entries(
    instructions: Sequence[Instruction], exceptions: Sequence[ExceptionEntry], where: dict[Instruction, int] | None = None
) -> list[ExceptionEntry | None]:
    """For each instruction the entry that catches what it raises; BytecodeError if an entry leaves the list."""
    result: list[ExceptionEntry | None] = [None] * len(instructions)
    if not exceptions:
        return result
    where = positions_in(instructions) if where is None else where
    ranges = []
    for order, entry in enumerate(exceptions):
        try:
            start, end = where[entry.start], where[entry.end]
            where[entry.target]
        except KeyError as missing:
            raise BytecodeError(f"exception entry {entry!r} names an instruction outside the list: {missing}") from None
        if end < start:
            raise BytecodeError(f"exception entry {entry!r} ends before it starts")
        ranges.append((start, -(end - start), order, entry, end))
    ranges.sort(key=lambda r: r[:3])
    for start, _, _, entry, end in ranges:
        result[start:end + 1] = [entry] * (end + 1 - start)
    return result


class _Flow:
    """Successor arrays shared by the analyses: jump targets, fall-through, innermost handlers."""

    def __init__(self, instructions: Sequence[Instruction], exceptions: Sequence[ExceptionEntry]) -> None:
        self.instructions = instructions
        where = positions_in(instructions)
        self.where = where
        self.entries = innermost_entries(instructions, exceptions, where)
        self.handlers = [-1 if entry is None else where[entry.target] for entry in self.entries]
        self.targets = [-1] * len(instructions)
        for index, instruction in enumerate(instructions):
            if instruction.target is not None:
                try:
                    self.targets[index] = where[instruction.target]
                except KeyError:
                    raise BytecodeError(f"{instruction!r} jumps outside the list") from None


def stack_depths(
    instructions: Sequence[Instruction], exceptions: Sequence[ExceptionEntry], start_depth: int = 0
) -> list[int]:
    """Stack depth before each instruction, -1 where it is never reached.

    BytecodeError if two paths disagree, the stack would underflow, or control runs off the end.
    """
    return _depths(_Flow(instructions, exceptions), start_depth)[0]


def stack_depth(instructions: Sequence[Instruction], exceptions: Sequence[ExceptionEntry], start_depth: int = 0) -> int:
    """Slots the instructions need: the greatest depth on any path."""
    return _depths(_Flow(instructions, exceptions), start_depth)[1]


def _depths(flow: _Flow, start_depth: int) -> tuple[list[int], int]:
    instructions = flow.instructions
    depths = [-1] * len(instructions)
    highest = start_depth
    pending: list[tuple[int, int]] = [(0, start_depth)] if instructions else []
    while pending:
        index, depth = pending.pop()
        while True:
            if index >= len(instructions):
                raise BytecodeError(f"control runs off the end after {instructions[-1]!r}")
            if depths[index] >= 0:
                if depths[index] != depth:
                    raise BytecodeError(f"stack depth at {instructions[index]!r} is {depths[index]} on one path, {depth} on another")
                break
            depths[index] = depth
            instruction = instructions[index]
            entry = flow.entries[index]
            if entry is not None and depths[flow.handlers[index]] != entry.handler_depth:
                pending.append((flow.handlers[index], entry.handler_depth))
                highest = max(highest, entry.handler_depth)
            opcode = instruction.opcode
            if flow.targets[index] >= 0:
                after = depth + stack_effect(opcode, instruction.arg, True)
                _require_depth(instruction, after)
                highest = max(highest, after)
                pending.append((flow.targets[index], after))
            if opcode in TERMINATORS:
                _require_depth(instruction, depth + stack_effect(opcode, instruction.arg, opcode in JUMPS))
                break
            depth += stack_effect(opcode, instruction.arg, False)
            _require_depth(instruction, depth)
            highest = max(highest, depth)
            index += 1
    return depths, highest


def _require_depth(instruction: Instruction, depth: int) -> None:
    if depth < 0:
        raise BytecodeError(f"{instruction!r} takes more values than the stack holds")


def live_locals_all(instructions: Sequence[Instruction], exceptions: Sequence[ExceptionEntry]) -> list[frozenset[str]]:
    """For each instruction the fast locals that may be read before they are written, from it on.

    Deleting counts as reading (it fails on an unbound local). Names made into cells (MAKE_CELL) are
    always included: another function may read the cell at any time. A function that may look at its own
    frame (`locals()`, `eval()`…) keeps all its locals.
    """
    flow = _Flow(instructions, exceptions)
    bits: dict[str, int] = {}
    masks, names = _live_masks(flow, bits), {}
    order = list(bits)
    cells = frozenset(i.argval for i in instructions if i.opcode == facts.MAKE_CELL)
    if any(i.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR", "LOAD_METHOD") and i.argval in FRAME_READERS for i in instructions):
        return [cells.union(order)] * len(masks)
    for mask in set(masks):
        names[mask] = cells.union(name for position, name in enumerate(order) if mask >> position & 1)
    return [names[mask] for mask in masks]


def live_locals(instructions: Sequence[Instruction], exceptions: Sequence[ExceptionEntry], at: Instruction) -> set[str]:
    """`live_locals_all` for the one instruction `at` (before it runs)."""
    flow = _Flow(instructions, exceptions)
    bits: dict[str, int] = {}
    mask = _live_masks(flow, bits)[flow.where[at]]
    live = {name for position, name in enumerate(bits) if mask >> position & 1}
    live.update(i.argval for i in instructions if i.opcode == facts.MAKE_CELL)
    return live


def _live_masks(flow: _Flow, bits: dict[str, int]) -> list[int]:
    """Bit sets of live locals before each instruction; `bits` receives name -> bit, in bit order."""
    instructions, targets, handlers = flow.instructions, flow.targets, flow.handlers
    uses, kills = [0] * len(instructions), [0] * len(instructions)
    for index, instruction in enumerate(instructions):
        if instruction.opcode in HAS_LOCAL:
            bit = bits.setdefault(instruction.argval, 1 << len(bits))
            uses[index] = bit if instruction.opcode in facts.LOCAL_READS else 0
            kills[index] = bit if instruction.opcode in facts.LOCAL_WRITES else 0
    falls = [instruction.opcode not in TERMINATORS for instruction in instructions]
    live = [0] * (len(instructions) + 1)
    changed = True
    while changed:
        changed = False
        for index in range(len(instructions) - 1, -1, -1):
            out = live[index + 1] if falls[index] else 0
            if targets[index] >= 0:
                out |= live[targets[index]]
            mask = uses[index] | (out & ~kills[index])
            if handlers[index] >= 0:
                mask |= live[handlers[index]]  # it may raise before its own store
            if mask != live[index]:
                live[index] = mask
                changed = True
    return live[:-1]


def reachable(
    instructions: Sequence[Instruction], exceptions: Sequence[ExceptionEntry], start: int = 0
) -> list[bool]:
    """Which instructions control can reach from the one at index `start`, handlers included."""
    flow = _Flow(instructions, exceptions)
    seen = [False] * len(instructions)
    pending = [start] if instructions else []
    while pending:
        index = pending.pop()
        while index < len(instructions) and not seen[index]:
            seen[index] = True
            pending += [next_ for next_ in (flow.targets[index], flow.handlers[index]) if next_ >= 0]
            if instructions[index].opcode in TERMINATORS:
                break
            index += 1
    return seen


def dead_code_removed(
    instructions: Sequence[Instruction], exceptions: Sequence[ExceptionEntry], start: int = 0
) -> tuple[list[Instruction], list[ExceptionEntry]]:
    """New lists without what is unreachable from index `start`; entries shrink to what survives, empty ones go.

    The instructions themselves are shared with the old list and stay unchanged.
    """
    return restricted(instructions, exceptions, reachable(instructions, exceptions, start))


def restricted(
    instructions: Sequence[Instruction], exceptions: Sequence[ExceptionEntry], keep: Sequence[bool]
) -> tuple[list[Instruction], list[ExceptionEntry]]:
    """New lists with the instructions marked in `keep` only, entries cut down to them."""
    where = positions_in(instructions)
    entries = []
    for entry in exceptions:
        survivors = [i for i in range(where[entry.start], where[entry.end] + 1) if keep[i]]
        if survivors and keep[where[entry.target]]:
            first, last = instructions[survivors[0]], instructions[survivors[-1]]
            entries.append(ExceptionEntry(first, last, entry.target, entry.depth, entry.lasti))
    return [instruction for instruction, kept in zip(instructions, keep, strict=True) if kept], entries


def exception_entry_at(exceptions: Sequence[ExceptionEntry], instruction: Instruction) -> ExceptionEntry | None:
    """The innermost entry that covers the instruction. Goes by `Instruction.index`: after edits, `reindex` first."""
    best: ExceptionEntry | None = None
    for entry in exceptions:
        if entry.start.index <= instruction.index <= entry.end.index and (best is None or _innermore(entry, best)):
            best = entry
    return best


def _innermore(entry: ExceptionEntry, other: ExceptionEntry) -> bool:
    """Is `entry`, which comes later in the list, inside `other` (or equal to it)?"""
    return (entry.start.index, -entry.end.index) >= (other.start.index, -other.end.index)


def block_stack_at(exceptions: Sequence[ExceptionEntry], instruction: Instruction) -> list[ExceptionEntry]:
    """The entries an exception raised at the instruction can meet one after the other, outermost first.

    CPython's table lists for each instruction only the innermost handler; the next one out is the one
    that covers that handler. A handler's own clean-up, which keeps more of the stack than the block
    itself, is passed through but not listed. Goes by `Instruction.index`: after edits, `reindex` first.
    """
    chain: list[ExceptionEntry] = []
    seen: set[int] = set()
    entry = exception_entry_at(exceptions, instruction)
    while entry is not None and id(entry) not in seen:
        seen.add(id(entry))
        if not chain or entry.depth <= chain[-1].depth:
            chain.append(entry)
        entry = exception_entry_at(exceptions, entry.target)
    return chain[::-1]
