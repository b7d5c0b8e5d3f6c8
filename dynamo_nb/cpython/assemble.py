"""Code objects to lists of instructions and back, byte-identical where nothing was changed.

Comes in: a code object, or instructions with exception entries. Goes out: `Decoded`, or a code object.
Called by the tracer (decode), code generation and resume code (assemble).

Operands are resolved by `argval`: names, locals and cells by name, constants by identity, so that equal
constants of different type or sign (0, False, 0.0, -0.0) never merge. Two things CPython itself does to
constants when a code object is made: exact `str` constants that look like identifiers are interned (in
tuples and frozensets too), and hashing the code object hashes its constants, which fails for unhashable
ones.
"""

from __future__ import annotations

import dataclasses
import types
import weakref
from collections.abc import Sequence
from typing import Any

from dynamo_nb.cpython import analysis, facts, tables
from dynamo_nb.cpython.instruction import BytecodeError, ExceptionEntry, Instruction


@dataclasses.dataclass(frozen=True)
class Decoded:
    """What a code object says. `by_offset` maps the byte offset of every opcode, and of its first EXTENDED_ARG, to its index."""

    instructions: list[Instruction]
    exceptions: list[ExceptionEntry]
    by_offset: dict[int, int]

    def at_offset(self, offset: int) -> Instruction:
        """The instruction at a byte offset such as `f_lasti` or `tb_lasti`."""
        return self.instructions[self.by_offset[offset]]


@dataclasses.dataclass
class CodeOptions:
    """Every field of a code object but the bytes; `assemble` extends consts, names and varnames as needed.

    A fast-local slot exists for each of `varnames` (arguments first: positional, keyword-only, `*args`,
    `**kwargs`), then for each of `cellvars` not among them, then for each of `freevars`.
    stacksize None: computed. flags: as `co_flags`.
    """

    name: str
    qualname: str
    filename: str
    firstlineno: int
    flags: int
    argcount: int = 0
    posonlyargcount: int = 0
    kwonlyargcount: int = 0
    consts: tuple[Any, ...] = ()
    names: tuple[str, ...] = ()
    varnames: tuple[str, ...] = ()
    cellvars: tuple[str, ...] = ()
    freevars: tuple[str, ...] = ()
    stacksize: int | None = None

    @classmethod
    def of(cls, code: types.CodeType) -> CodeOptions:
        """The fields of an existing code object, stacksize left to be computed."""
        fields = (field.name for field in dataclasses.fields(cls) if field.name != "stacksize")
        return cls(**{name: getattr(code, "co_" + name) for name in fields})

    @property
    def localsplus(self) -> tuple[str, ...]:
        """Name of each slot, in slot order."""
        return localsplus_names(self.varnames, self.cellvars, self.freevars)


def localsplus_names(varnames: tuple[str, ...], cellvars: tuple[str, ...], freevars: tuple[str, ...]) -> tuple[str, ...]:
    """Name of each slot of a frame: locals, cells that are not locals (arguments) too, free variables."""
    return (*varnames, *(name for name in cellvars if name not in varnames), *freevars)


_decoded: dict[int, tuple[weakref.ref[types.CodeType], Decoded]] = {}


def decode(code: types.CodeType, fresh: bool = False) -> Decoded:
    """Instructions and exception entries of a code object.

    The answer is shared and kept as long as the code object lives: do not change it. fresh=True gives
    lists of the caller's own, which are not kept. (Keyed by identity: equal code objects may have
    different constants.)
    """
    if fresh:
        return _decode(code)
    key = id(code)
    known = _decoded.get(key)
    if known is not None and known[0]() is code:
        return known[1]
    result = _decode(code)

    def forget(reference: weakref.ref[types.CodeType]) -> None:
        held = _decoded.get(key)
        if held is not None and held[0] is reference:
            del _decoded[key]

    _decoded[key] = (weakref.ref(code, forget), result)
    return result


def clear_cache() -> None:
    """Forget every decoded code object (part of reset())."""
    _decoded.clear()


def _decode(code: types.CodeType) -> Decoded:
    raw = code.co_code
    spots = list(code.co_positions())
    instructions: list[Instruction] = []
    by_unit: dict[int, Instruction] = {}
    by_offset: dict[int, int] = {}
    jumps: list[tuple[Instruction, int]] = []
    slots = localsplus_names(code.co_varnames, code.co_cellvars, code.co_freevars)
    pools = {"const": code.co_consts, "name": code.co_names, "slot": slots, "compare": facts.COMPARE_OPERATORS}
    pool_of = [pools.get(kind) for kind in facts.OPERAND_KIND]
    shift_of = facts.OPERAND_SHIFT
    caches, extended_arg, have_argument = facts.INLINE_CACHE, facts.EXTENDED_ARG, facts.HAVE_ARGUMENT
    unit, first, high, units = 0, 0, 0, len(raw) // 2
    while unit < units:
        opcode, number = raw[2 * unit], raw[2 * unit + 1] | high
        if opcode == extended_arg:
            by_offset[2 * unit] = len(instructions)
            high = number << 8
            unit += 1
            continue
        pool = pool_of[opcode]
        arg = number if opcode >= have_argument else None
        argval = arg if pool is None else pool[number >> shift_of[opcode]]
        positions = spots[unit]
        instruction = Instruction(opcode, arg, argval, None if positions[0] is None else positions, None, 2 * unit, len(instructions))
        by_unit[first] = instruction
        by_offset[2 * unit] = instruction.index
        instructions.append(instruction)
        unit += 1 + caches[opcode]
        first, high = unit, 0
        if opcode in facts.JUMPS:
            jumps.append((instruction, unit - number if opcode in facts.BACKWARD else unit + number))
    for instruction, target in jumps:
        instruction.target = by_unit[target]
        instruction.argval = 2 * target
    exceptions = []
    if code.co_exceptiontable:
        ends = dict(zip([*by_unit][1:], instructions, strict=False))
        ends[units] = instructions[-1]
        for start, end, target, depth, lasti in tables.decode_exceptiontable(code.co_exceptiontable):
            exceptions.append(ExceptionEntry(by_unit[start], ends[end], by_unit[target], depth, lasti))
    return Decoded(instructions, exceptions, by_offset)


def encode(
    instructions: Sequence[Instruction], exceptions: Sequence[ExceptionEntry], firstlineno: int,
    args: Sequence[int | None] | None = None,
) -> tuple[bytes, bytes, bytes]:
    """(co_code, co_linetable, co_exceptiontable).

    args: operands in place of the instructions' own `arg`; those of jumps are computed either way.
    Nothing is changed in the instructions. BytecodeError if a jump or entry leaves the list.
    """
    numbers = [(i.arg if args is None else args[index]) or 0 for index, i in enumerate(instructions)]
    where = analysis.positions_in(instructions)
    opcodes = [i.opcode for i in instructions]
    jumps = []
    for index, instruction in enumerate(instructions):
        if instruction.target is not None:
            jumps.append((index, _aim(instruction, index, where, opcodes)))
            numbers[index] = 0
    starts = _settle(opcodes, numbers, jumps)
    code = bytearray()
    for opcode, number in zip(opcodes, numbers, strict=True):
        if number > 255:
            for shift in (24, 16, 8):
                if number >> shift:
                    code += bytes((facts.EXTENDED_ARG, number >> shift & 255))
        code += bytes((opcode, number & 255)) + bytes(2 * facts.INLINE_CACHE[opcode])
    spans = ((i.positions, starts[index + 1] - starts[index]) for index, i in enumerate(instructions))
    rows = _exception_rows(instructions, exceptions, where, starts)
    return bytes(code), tables.encode_linetable(spans, firstlineno), tables.encode_exceptiontable(rows)


def _aim(instruction: Instruction, index: int, where: dict[Instruction, int], opcodes: list[int]) -> int:
    """Index of a jump's target; puts the opcode for its direction in place."""
    assert instruction.target is not None
    target = where.get(instruction.target)
    if target is None:
        raise BytecodeError(f"{instruction!r} jumps outside the list")
    forms = facts.FORWARD_FORM if target > index else facts.BACKWARD_FORM
    if instruction.opcode not in forms:
        raise BytecodeError(f"{instruction!r}: CPython has no {instruction.opname} that jumps {'ahead' if target > index else 'back'}")
    opcodes[index] = forms[instruction.opcode]
    return target


def _prefixes(number: int) -> int:
    """How many EXTENDED_ARG an operand needs."""
    return 0 if number < 256 else 1 if number < 65536 else 2 if number < 1 << 24 else 3


def _settle(opcodes: list[int], numbers: list[int], jumps: list[tuple[int, int]]) -> list[int]:
    """Fill in jump distances until no instruction changes its size; returns start units, and the end."""
    caches = facts.INLINE_CACHE
    sizes = [1 + caches[op] + _prefixes(number) for op, number in zip(opcodes, numbers, strict=True)]
    while True:
        starts = [0] * (len(sizes) + 1)
        total = 0
        for index, size in enumerate(sizes):
            total += size
            starts[index + 1] = total
        changed = False
        for index, target in jumps:
            number = abs(starts[target] - starts[index + 1])
            numbers[index] = number
            size = 1 + caches[opcodes[index]] + _prefixes(number)
            if size > sizes[index]:
                sizes[index] = size
                changed = True
        if not changed:
            return starts


def _exception_rows(
    instructions: Sequence[Instruction], exceptions: Sequence[ExceptionEntry], where: dict[Instruction, int], starts: list[int]
) -> list[tuple[int, int, int, int, bool]]:
    """Disjoint ascending rows in units; nested entries are cut so that the innermost one wins."""
    rows = []
    last = -1
    for entry in exceptions:
        try:
            start, end, target = where[entry.start], where[entry.end], where[entry.target]
        except KeyError:
            break
        if start <= last or end < start:
            break
        rows.append((starts[start], starts[end + 1], starts[target], entry.depth, entry.lasti))
        last = end
    else:
        return rows
    rows = []
    current: ExceptionEntry | None = None
    begin = 0
    for index, innermost in enumerate([*analysis.innermost_entries(instructions, exceptions, where), None]):
        if innermost is not current:
            if current is not None:
                rows.append((starts[begin], starts[index], starts[where[current.target]], current.depth, current.lasti))
            current, begin = innermost, index
    return rows


def assemble(
    instructions: Sequence[Instruction], exceptions: Sequence[ExceptionEntry], *, template: types.CodeType | CodeOptions
) -> types.CodeType:
    """Make a code object; everything but the bytes comes from `template`. Instructions stay unchanged.

    BytecodeError if an opcode names a cell the template lacks, a jump or exception entry leaves the list,
    paths disagree about the stack, or control runs off the end.
    """
    options = CodeOptions.of(template) if isinstance(template, types.CodeType) else template
    args, consts, names, varnames = _resolve(instructions, options)
    code, linetable, exceptiontable = encode(instructions, exceptions, options.firstlineno, args)
    stacksize = analysis.stack_depth(instructions, exceptions) if options.stacksize is None else options.stacksize
    return types.CodeType(
        options.argcount, options.posonlyargcount, options.kwonlyargcount, len(varnames), stacksize, options.flags,
        code, consts, names, varnames, options.filename, options.name, options.qualname, options.firstlineno,
        linetable, exceptiontable, tuple(options.freevars), tuple(options.cellvars),
    )


def _resolve(
    instructions: Sequence[Instruction], options: CodeOptions
) -> tuple[list[int | None], tuple[Any, ...], tuple[str, ...], tuple[str, ...]]:
    """Operands by argval, and the constants, names and local names that result."""
    varnames = _local_names(instructions, options)
    fast, free = _slots(varnames, options)
    doubled = _doubled(options, len(varnames))
    constants, names = _Pool(options.consts, by_identity=True), _Pool(options.names, by_identity=False)
    args: list[int | None] = []
    wanted = -1
    for instruction in instructions:
        opcode, arg, argval = instruction.opcode, instruction.arg, instruction.argval
        if opcode != wanted and (wanted >= 0 or opcode in facts.MUST_FOLLOW):
            _refuse_parted(instruction, wanted)
        wanted = facts.MUST_PRECEDE.get(opcode, -1)
        if opcode < facts.HAVE_ARGUMENT:
            args.append(None)
        elif opcode in facts.HAS_CONST:
            args.append(constants.index(argval, arg))
        elif opcode in facts.HAS_NAME:
            shift = facts.NAME_SHIFT[opcode]
            flags = (arg or 0) & ((1 << shift) - 1)
            args.append(names.index(argval, None if arg is None else arg >> shift) << shift | flags)
        elif opcode in facts.HAS_LOCAL:
            args.append(fast[argval])
        elif opcode in facts.HAS_FREE:
            if argval not in free:
                raise BytecodeError(f"{instruction!r}: {argval!r} is neither a cell nor a free variable of {options.name}")
            args.append(_doubled_slot(instruction, doubled, options) if argval in doubled else free[argval])
        elif opcode in facts.HAS_COMPARE:
            args.append(facts.COMPARE_OPERATORS.index(argval))
        elif arg is None and instruction.target is None:
            raise BytecodeError(f"{instruction!r} needs an argument")
        else:
            args.append(arg)
    return args, tuple(constants.items), tuple(names.items), varnames


def _refuse_parted(instruction: Instruction, wanted: int) -> None:
    """Such code would crash the interpreter once it specialises the call; KW_NAMES may be absent."""
    if wanted < 0 and instruction.opcode in facts.MUST_PRECEDE:
        return
    expected = facts.OPNAME[wanted] if wanted >= 0 else "what it belongs to"
    raise BytecodeError(f"{instruction!r} stands where {expected} must: the parts of a call cannot be separated")


def _local_names(instructions: Sequence[Instruction], options: CodeOptions) -> tuple[str, ...]:
    names = dict.fromkeys(options.varnames)
    others = set(options.cellvars)
    for instruction in instructions:
        if instruction.opcode in facts.HAS_LOCAL and instruction.argval not in others:
            names.setdefault(instruction.argval)
    if len(names) < len(options.varnames):
        raise BytecodeError(f"{options.name}: a local name occurs twice in {options.varnames}")
    return tuple(names)


def _slots(varnames: tuple[str, ...], options: CodeOptions) -> tuple[dict[str, int], dict[str, int]]:
    """Slot by name for opcodes on locals, and for opcodes on cells and free variables."""
    fast = {name: slot for slot, name in enumerate(varnames)}
    free: dict[str, int] = {}
    slot = len(varnames)
    for name in options.cellvars:
        free[name] = fast.setdefault(name, slot)
        slot += free[name] == slot
    for name in options.freevars:
        free[name] = slot
        slot += 1
    return fast, free


def _doubled(options: CodeOptions, nlocals: int) -> dict[str, tuple[int, ...]]:
    """Names that are cell and free variable at once (`__class__` in a class body that assigns it), with both slots.

    Empty slots if locals were added: then the old operands say nothing.
    """
    names = set(options.cellvars).intersection(options.freevars)
    layout = options.localsplus
    return {name: tuple(i for i, n in enumerate(layout) if n == name and nlocals == len(options.varnames)) for name in names}


def _doubled_slot(instruction: Instruction, doubled: dict[str, tuple[int, ...]], options: CodeOptions) -> int:
    if instruction.arg not in doubled[instruction.argval]:
        raise BytecodeError(f"{instruction!r}: {instruction.argval!r} is both a cell and a free variable of {options.name}")
    return instruction.arg


class _Pool:
    """A growing table of constants (by identity) or names (by equality)."""

    def __init__(self, items: Sequence[Any], by_identity: bool) -> None:
        self.items = list(items)
        self.by_identity = by_identity
        self.known: dict[Any, int] | None = None

    def index(self, item: Any, hint: int | None) -> int:
        """Index of the item, appended if new; `hint` wins where it names the item."""
        if hint is not None and hint < len(self.items):
            found = self.items[hint]
            if found is item or (not self.by_identity and found == item):
                return hint
        if self.known is None:
            self.known = {}
            for position, known in enumerate(self.items):
                self.known.setdefault(id(known) if self.by_identity else known, position)
        key = id(item) if self.by_identity else item
        if key not in self.known:
            self.known[key] = len(self.items)
            self.items.append(item)
        return self.known[key]
