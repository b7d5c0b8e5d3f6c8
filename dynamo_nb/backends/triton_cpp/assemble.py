"""From a schedule to a native `Program`: slots, integers, steps.

In: a lowered graph, its schedule, the kernels' printed unit and where the compiled functions are. Out: the program's
arguments. Sizes that are expressions are computed by one generated function, `derived`, from the inputs' integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy
import torch

from .graph import AtenCall, LoweredGraph, NotLowered, ViewOf, buffers_in
from .ir import Buffer, Kernel
from .schedule import Schedule

Address = Callable[[str], int]
Measure = tuple[int, str, int]      # (input, "size" or "stride", dimension)


def shown_by(inputs: list[Any]) -> dict[sympy.Symbol, Measure]:
    """Symbols that stand alone as a size or stride of an input tensor."""
    shown: dict[sympy.Symbol, Measure] = {}
    for part in ("size", "stride"):
        for i, value in enumerate(inputs):
            if isinstance(value, Buffer):
                for d, n in enumerate(getattr(value, f"{part}s")):
                    if n.is_Symbol:
                        shown.setdefault(n, (i, part, d))
    return shown


class Integers:
    """Where every size expression stands among the program's integers."""

    def __init__(self, inputs: list[Any]) -> None:
        self.places: dict[sympy.Expr, int] = {}
        self.inputs: dict[int, int] = {}
        self.derived: list[sympy.Expr] = []
        self.measured: dict[sympy.Symbol, Measure] = {}     # symbols that only an input tensor's shape gives, those in use
        self._shown = shown_by(inputs)
        for i, value in enumerate(inputs):
            if isinstance(value, sympy.Expr):
                key = sympy.Dummy() if value.is_Integer else value      # a number that the guards hold still takes its place
                self.inputs[i] = self.places.setdefault(key, len(self.places))

    def of(self, value: Any) -> Any:
        """An integer of a step: a Python int, or ("i", place)."""
        value = sympy.sympify(value)
        if value.is_Integer:
            return int(value)
        place = self.places.get(value)
        if place is None:
            for symbol in sorted(value.free_symbols - self.places.keys(), key=str):
                if symbol not in self._shown:
                    raise NotLowered(f"the size {value}, whose {symbol} no input gives")
                self.places[symbol] = len(self.places)
                self.measured[symbol] = self._shown[symbol]
            if value not in self.places:
                self.places[value] = len(self.places)
                self.derived.append(value)
            place = self.places[value]
        return ("i", place)

    def all(self, values: Any) -> tuple[Any, ...]:
        return tuple(map(self.of, values))


class Assembler:
    def __init__(
        self, graph: LoweredGraph, schedule: Schedule, kernels: dict[int, Kernel], counts: dict[str, tuple[Any, int]], unguarded: bool = False,
    ) -> None:
        """kernels: by step; counts: name -> (parallel range, grain); unguarded: calls may come with arguments of other layouts."""
        self.unguarded = unguarded
        self.graph, self.schedule, self.kernels, self.counts = graph, schedule, kernels, counts
        self.integers = Integers(graph.inputs)
        self.slots: dict[str, int] = {}
        self.steps: list[Any] = []

    def slot(self, buffer: Buffer | str) -> int:
        name = buffer if isinstance(buffer, str) else buffer.name
        return self.slots.setdefault(name, len(self.slots))

    def assemble(self) -> None:
        """Write all steps; generated functions stand in them by name."""
        self.inputs()
        if self.unguarded:
            self._expect()
        for i, step in enumerate(self.schedule.steps):
            if isinstance(step, ViewOf):
                b = step.buffer
                self.steps.append((
                    "view", self.slot(b), self.slot(step.base), self.integers.all(b.sizes), self.integers.all(b.strides), self.integers.of(step.offset),
                ))
            elif isinstance(step, AtenCall):
                self._aten(i, step)
            elif self.kernels[i].phases:
                self._kernel(self.kernels[i])
            self._free(i)
        self.outputs()
        if self.integers.derived:
            self.steps.insert(0, ("ints", "derived"))

    def _expect(self) -> None:
        for b in self.graph.inputs:
            if isinstance(b, Buffer) and b.dtype is not None and b.strided:
                self.steps.append(("expect", self.slot(b), b.dtype.torch, self.integers.all(b.sizes), self.integers.all(b.strides)))

    def with_addresses(self, address: Address) -> list[Any]:
        """The steps with functions by address."""
        return [(step[0], address(step[1]), *step[2:]) if step[0] in ("ints", "kernel", "checked") else step for step in self.steps]

    def _kernel(self, kernel: Kernel) -> None:
        for name in kernel.writes:
            b = self.graph.buffers[name]
            if b.kind == "made" and name not in self.slots:
                sizes, strides = self.integers.all(b.sizes), self.integers.all(b.strides)
                self.steps.append(("alloc", self.slot(b), b.dtype.torch, b.device, sizes, strides))
        count, grain = self.counts[kernel.name]
        slots = tuple(self.slot(n) for n in (*kernel.reads, *kernel.writes))
        parts = (kernel.name, slots, self.integers.all(kernel.sizes), self.integers.of(count), self.integers.of(grain))
        errors = tuple(c.error for c in kernel.checks)
        self.steps.append(("checked", *parts, errors) if errors else ("kernel", *parts))

    def _free(self, at: int) -> None:
        done = [n for n, last in self.schedule.last_use.items() if last == at and n in self.slots]
        if done:
            self.steps.append(("free", *(self.slots[n] for n in done)))

    # -- ATen -----------------------------------------------------------------------------------------
    def _aten(self, at: int, step: AtenCall) -> None:
        schema = step.target._schema
        args = []
        for i, argument in enumerate(schema.arguments):
            if i < len(step.args):
                value = step.args[i]
            elif argument.name in step.kwargs:
                value = step.kwargs[argument.name]
            else:
                value = argument.default_value
            args.append(self._argument(value))
        self.steps.append(("aten", schema.name, schema.overload_name, tuple(args), self._outs(step.outs, len(schema.returns))))
        for b in buffers_in(step.outs):
            if self.schedule.last_use[b.name] > at and b.strided:
                self.steps.append(("layout", self.slot(b), b.dtype and b.dtype.torch, self.integers.all(b.sizes), self.integers.all(b.strides)))

    def _argument(self, value: Any) -> Any:
        if isinstance(value, Buffer):
            return ("t", self.slot(value))
        if isinstance(value, sympy.Expr):
            return self.integers.of(value)
        if isinstance(value, (list, tuple)):
            return [self._argument(v) for v in value]
        if isinstance(value, (torch.Tensor, torch.Generator)):
            raise NotLowered(f"an argument of type {type(value).__name__}")
        return value

    def _outs(self, outs: Any, returns: int) -> Any:
        """One item a value that the operator returns; a list of tensors is one value."""

        def one(out: Any) -> Any:
            if isinstance(out, Buffer):
                return self.slot(out)
            if isinstance(out, tuple):
                return tuple(map(one, out))
            if isinstance(out, sympy.Expr) and not out.is_Integer:
                raise NotLowered("an operator that returns a number")
            return None

        return tuple(map(one, outs)) if isinstance(outs, tuple) and returns == len(outs) != 1 else () if returns == 0 else (one(outs),)

    # -- ends -----------------------------------------------------------------------------------------
    def inputs(self) -> tuple[Any, ...]:
        out: list[Any] = []
        for i, value in enumerate(self.graph.inputs):
            if value is not None:
                out.append(("t", self.slot(value)) if isinstance(value, Buffer) else ("i", self.integers.inputs[i]))
        measured = (("i", self.integers.places[s]) for s in self.integers.measured)
        return (*out, *(("t", self.slot(b)) for b, _ in self.graph.constants), *measured)

    def outputs(self) -> tuple[Any, ...]:
        return tuple(
            ("t", self.slot(o)) if isinstance(o, Buffer) else self.integers.of(o) if isinstance(o, sympy.Expr) else o for o in self.graph.outputs
        )


def needed_after(schedule: Schedule, step: int) -> Callable[[str], bool]:
    """Is a buffer of this step used by a later one?"""
    later = {n for n, last in schedule.last_use.items() if last > step}
    return later.__contains__
