"""Kernels of the loop IR as Triton source: what the launcher and the ahead-of-time compiler get.

A program handles XBLOCK outer points, flattened. Kernels whose phases have loops use tiles of XBLOCK by RBLOCK points; a phase
is persistent (one tile) where every phase's loops are known to fit in RBLOCK, else a loop over tiles with accumulators.
Equal texts in reach of each other are computed once, so persistent phases share loads and values.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import sympy

from dynamo_nb.backends.triton_cpp import ir
from dynamo_nb.backends.triton_cpp.triton_index import CannotPrint, index_bound, index_text, points, python_function
from dynamo_nb.backends.triton_cpp.triton_locals import elementwise_locals, inline_locals
from dynamo_nb.backends.triton_cpp.triton_operations import POINTER, cast_text, narrowed
from dynamo_nb.backends.triton_cpp.triton_reductions import Fold
from dynamo_nb.backends.triton_cpp.triton_values import Values

HEADER = """import triton
import triton.language as tl

from dynamo_nb.backends.triton_cpp.triton_device import device, libdevice
"""
WIDE = 2**31 - 2**20      # beyond it indices take 64 bits; the margin covers what a last block adds


@dataclasses.dataclass(frozen=True)
class Config:
    """Block sizes (powers of two) and warps a program."""

    xblock: int
    rblock: int = 1
    num_warps: int = 4


@dataclasses.dataclass(frozen=True)
class TritonSource:
    """Source of a kernel file. Arguments: pointers of `buffers`, the `sizes` as i64, then XBLOCK, RBLOCK and INDEX (constexpr)."""

    name: str
    text: str
    buffers: tuple[str, ...]
    types: tuple[str, ...]               # of the pointers, Triton's spelling
    sizes: tuple[str, ...]
    config: Config
    persistent: bool
    checks: bool                         # whether it may stop the device
    outer_points: Callable[..., int]     # of the sizes' values
    index_bound: Callable[..., int]
    origins: tuple[str, ...]
    line_origins: tuple[tuple[int, tuple[str, ...]], ...]    # (line of the text, names of FX nodes stored there)

    def grid(self, *sizes: int) -> tuple[int]:
        """Programs to launch; 0: nothing to do."""
        return (-(-self.outer_points(*sizes) // self.config.xblock),)

    def index_type(self, *sizes: int) -> str:
        return "tl.int32" if self.index_bound(*sizes) < WIDE else "tl.int64"


def print_kernel(kernel: ir.Kernel, config: Config) -> TritonSource:
    persistent = is_persistent(kernel, config)
    if not (persistent and keeps_tiles(kernel)):
        kernel = inline_locals(kernel)
    printer = _Printer(kernel, persistent)
    printer.print()
    pointers = kernel.reads + kernel.writes
    return TritonSource(
        name=identifier(kernel.name), text="\n".join(printer.lines) + "\n", buffers=pointers,
        types=tuple(POINTER[kernel.buffers[b].dtype] for b in pointers), sizes=tuple(map(str, kernel.sizes)), config=config,
        persistent=persistent, checks=bool(kernel.checks), outer_points=python_function(points(kernel.outer), kernel.sizes),
        index_bound=python_function(index_bound(kernel), kernel.sizes),
        origins=tuple(dict.fromkeys(o for p in kernel.phases for s in p.statements for o in s.origins)),
        line_origins=tuple(printer.line_origins),
    )


def identifier(name: str) -> str:
    return re.sub(r"\W", "_", name)


def is_persistent(kernel: ir.Kernel, config: Config) -> bool:
    """Whether every phase's loops fit in one tile, which only constant sizes show (and one point at least, so that no load is idle)."""
    counts = [points(p.loops) for p in kernel.phases if p.loops]
    return all(n.is_Integer and 1 <= n <= config.rblock for n in counts)


def keeps_tiles(kernel: ir.Kernel) -> bool:
    """Whether all reads of element-wise locals are at the very position of the write, so that a tile in registers serves."""
    tiled, stored = elementwise_locals(kernel), set()
    for phase in kernel.phases:
        numbered = {v: sympy.Symbol(f"position{i}") for i, (v, _) in enumerate(phase.loops)}
        shape = tuple(n for _, n in phase.loops)
        for load in ir.loads(*(s.value for s in phase.statements)):
            if load.buffer in tiled and (load.buffer, shape, load.offset.subs(numbered)) not in stored:
                return False
        stored |= {(s.buffer, shape, s.offset.subs(numbered)) for s in phase.statements if s.buffer in tiled}
    return True


class _Printer:
    """Prints one kernel: header, outer point, phases."""

    def __init__(self, kernel: ir.Kernel, persistent: bool) -> None:
        self.kernel, self.persistent = kernel, persistent
        self.tiled = any(p.loops for p in kernel.phases)
        self.lines: list[str] = []
        self.indent = 1
        self.line_origins: list[tuple[int, tuple[str, ...]]] = []
        self.read: set[str] = set()         # since the last barrier
        self.written: set[str] = set()
        self.values = Values(kernel, self.line, "(1, 1)" if self.tiled else "(1,)")

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def print(self) -> None:
        k = self.kernel
        sizes = [f"size_{s}" for s in k.sizes]
        arguments = [f"{identifier(b)}_ptr" for b in k.reads + k.writes] + [f"{s}: tl.int64" for s in sizes]
        arguments += [f"{c}: tl.constexpr" for c in ("XBLOCK", "RBLOCK", "INDEX")]
        self.lines = HEADER.split("\n") + ["", f"@triton.jit(do_not_specialize={sizes!r})", f"def {identifier(k.name)}({', '.join(arguments)}):"]
        for s in sizes:
            self.line(f"{s} = {s}.to(tl.int64)")
        self.values.name_sizes()
        self.outer_point()
        for phase in k.phases:
            self.barrier(phase)
            if not phase.loops:
                self.statements(phase, "x")
            elif self.persistent:
                self.tile("tl.arange(0, RBLOCK)[None, :]", phase)
                self.statements(phase, "xr")
            else:
                self.loop(phase)

    def outer_point(self) -> None:
        column = "[:, None]" if self.tiled else ""
        self.line(f"x = tl.program_id(0).to(INDEX) * XBLOCK + tl.arange(0, XBLOCK){column}.to(INDEX)")
        self.line(f"x_inside = x < {self.values.size_text(points(self.kernel.outer))}")
        self.values.known["x"] = self.values.known["x_inside"] = frozenset("x")
        self.values.masks["x"] = "x_inside"
        self.values.name_loops(self.kernel.outer, "x")

    def tile(self, r: str, phase: ir.Phase) -> None:
        name = self.values.emit(f"({r}).to(INDEX)", frozenset("r"), "r")
        self.values.masks["r"] = self.values.emit(f"{name} < {self.values.size_text(points(phase.loops))}", frozenset("r"), "r_inside")
        self.values.name_loops(phase.loops, name)

    def barrier(self, phase: ir.Phase) -> None:
        """Other threads of the program may have written what this phase reads, or still read what it writes."""
        local = set(self.kernel.local)
        reads = {e.buffer for e in ir.loads(*(s.value for s in phase.statements))} - local
        writes = {s.buffer for s in phase.statements} - local
        if reads & self.written or writes & (self.written | self.read):
            self.line("tl.debug_barrier()")
            self.read, self.written = set(), set()
        self.read |= reads
        self.written |= writes
        self.values.start_phase()

    def loop(self, phase: ir.Phase) -> None:
        folds = [self.fold(s) for s in phase.statements if isinstance(s, ir.Reduce)]
        for fold in folds:
            for line in fold.start():
                self.line(line)
        self.line(f"for r_start in range(0, {self.values.size_text(points(phase.loops))}, RBLOCK):")
        self.indent += 1
        self.values.push()
        self.tile("r_start + tl.arange(0, RBLOCK)[None, :]", phase)
        computed = [self.values.evaluate(s.value) for s in phase.statements]
        full, r = self.full_mask("xr"), self.values.flat
        waiting = iter(folds)
        for statement, value in zip(phase.statements, computed, strict=True):
            if isinstance(statement, ir.Check):
                self.check(statement, value, "xr")
            elif isinstance(statement, ir.Store):
                self.store(statement, value, "xr")
            else:
                for line in next(waiting).step(self.folded(statement, value), r, full):
                    self.line(line)
        self.values.pop()
        self.indent -= 1
        waiting = iter(folds)
        for statement in phase.statements:
            if isinstance(statement, ir.Reduce):
                self.finish(statement, next(waiting).finish())

    def statements(self, phase: ir.Phase, axes: str) -> None:
        """A phase on one tile: all values first, then what is stored."""
        computed = [self.values.evaluate(s.value) for s in phase.statements]
        for statement, value in zip(phase.statements, computed, strict=True):
            if isinstance(statement, ir.Check):
                self.check(statement, value, axes)
            elif isinstance(statement, ir.Store):
                self.store(statement, value, axes)
            elif axes == "x":
                raise CannotPrint(f"a Reduce of {self.kernel.name} in a phase without loops; it is a Store of its value")
            else:
                self.finish(statement, self.fold(statement).whole(self.folded(statement, value), self.values.flat, self.full_mask(axes)))

    def full_mask(self, axes: str) -> str:
        return self.values.mask(frozenset(axes))

    def shape(self, axes: str) -> str:
        return "(XBLOCK, RBLOCK)" if axes == "xr" else "(XBLOCK, 1)" if self.tiled else "(XBLOCK,)"

    def fold(self, statement: ir.Reduce) -> Fold:
        return Fold(statement.kind, statement.value.dtype, self.kernel.buffers[statement.buffer].dtype, self.values.fresh("fold"))

    def folded(self, statement: ir.Reduce, value: str) -> str:
        return self.values.emit(self.fold(statement).operand(value), self.values.known[value])

    def finish(self, statement: ir.Reduce, result: str) -> None:
        name = self.values.emit(result, frozenset("x"), "folded")
        self.write(statement, name, self.kernel.buffers[statement.buffer].dtype, "x")

    def check(self, statement: ir.Check, value: str, axes: str) -> None:
        size = self.values.emit(f"tl.full({self.values.one}, {self.values.size_text(statement.size)}, tl.int64)", frozenset(), "limit")
        kind, text = statement.error
        self.line(f"device.check({value}, {size}, {self.full_mask(axes)}, {kind!r}, {text!r}, {statement.wraps})")

    def store(self, statement: ir.Store, value: str, axes: str) -> None:
        dtype = self.kernel.buffers[statement.buffer].dtype
        if statement.value.dtype is not dtype:
            value = self.values.emit(cast_text(value, statement.value.dtype, dtype), self.values.known[value])
        self.write(statement, value, dtype, axes)

    def write(self, statement: ir.Statement, value: str, dtype: ir.DType, axes: str) -> None:
        offset = self.values.offset(statement.offset, ())
        if statement.buffer not in self.kernel.local:
            place = offset[0]
            if offset[1] != frozenset(axes):
                place = f"tl.broadcast_to({place}, {self.shape(axes)})"
            self.line(f"tl.store({identifier(statement.buffer)}_ptr + {place}, {narrowed(value, dtype)}, mask={self.full_mask(axes)})")
            if statement.origins:
                self.lines[-1] += "  # " + ", ".join(statement.origins)
                self.line_origins.append((len(self.lines), statement.origins))
        self.values.wrote(statement.buffer, offset[0], value)


__all__ = ["CannotPrint", "Config", "TritonSource", "index_text", "inline_locals", "is_persistent", "print_kernel"]
