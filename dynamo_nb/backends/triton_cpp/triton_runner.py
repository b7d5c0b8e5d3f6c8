"""Runs a scheduled graph with Triton kernels: on CUDA tensors, or on the CPU in Triton's interpreter.

In: a lowered graph, its schedule and kernels. Out: a boxed callable. Launches are asynchronous, so that the Python
between them is hidden behind the device's work; under graph capture nothing of it remains.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch.autograd import forward_ad

from ...native import NotPlain
from .assemble import shown_by
from .graph import AtenCall, LoweredGraph, ViewOf
from .ir import Buffer, Kernel
from .schedule import Schedule
from .triton_autotune import AutotunedLauncher
from .triton_index import python_function
from .triton_launch import Launcher

State = dict[str, Any]
Sizes = tuple[int, ...]


class TritonRunner:
    """A graph as a list of Python steps over a table of tensors."""

    _boxed_call = True

    def __init__(
        self, graph: LoweredGraph, schedule: Schedule, kernels: dict[int, Kernel], autotune: bool = False, unguarded: bool = False,
    ) -> None:
        """unguarded: calls may come with arguments of other layouts; they raise NotPlain."""
        self.graph, self.schedule, self.autotune = graph, schedule, autotune
        given = {e: i for i, e in reversed(list(enumerate(graph.inputs))) if isinstance(e, sympy.Symbol)}
        shown = {s: place for s, place in shown_by(graph.inputs).items() if s not in given}
        self.symbols = [*given, *shown]
        self.places, self.measured = list(given.values()), list(shown.values())
        self.steps: list[Callable[[State, Sizes], None]] = []
        self.launchers: list[Launcher | AutotunedLauncher] = []
        self.expected = [
            (b.name, b.dtype.torch, self._numbers(b.sizes), self._numbers(b.strides))
            for b in graph.inputs if unguarded and isinstance(b, Buffer) and b.dtype is not None and b.strided
        ]
        for i, step in enumerate(schedule.steps):
            self._add(step, kernels.get(i))
            done = [n for n, last in schedule.last_use.items() if last == i]
            if done:
                self.steps.append(_freeing(done))
        self.outputs = [(o.name, None) if isinstance(o, Buffer) else (None, self._number(o)) for o in graph.outputs]

    def __call__(self, args: list[Any]) -> list[Any]:
        if forward_ad._current_level >= 0 and any(isinstance(v, torch.Tensor) and forward_ad.unpack_dual(v).tangent is not None for v in args):
            raise NotPlain("an argument carries a tangent of forward-mode differentiation, which kernels would drop")
        state = {b.name: v for b, v in zip(self.graph.inputs, args, strict=False) if isinstance(b, Buffer)}
        sizes = (*(args[i] for i in self.places), *(getattr(args[i], part)(dim) for i, part, dim in self.measured))
        for name, dtype, shape, strides in self.expected:
            if state[name].dtype is not dtype or [*state[name].shape] != shape(sizes) or not _laid_out_so(state[name], strides(sizes)):
                raise NotPlain("an argument has another dtype, other sizes or strides than the graph was compiled for")
        args.clear()
        state.update((b.name, t) for b, t in self.graph.constants)
        for step in self.steps:
            step(state, sizes)
        return [state[name] if name is not None else number(sizes) for name, number in self.outputs]  # type: ignore[misc]

    # -- sizes ----------------------------------------------------------------------------------------
    def _number(self, value: Any) -> Callable[[Sizes], Any]:
        """A function of the input symbols."""
        if not isinstance(value, sympy.Expr):
            return lambda sizes: value
        if value.is_Integer:
            plain = int(value)
            return lambda sizes: plain
        fn = python_function(value, tuple(self.symbols))
        return lambda sizes: fn(*sizes)

    def _numbers(self, values: Any) -> Callable[[Sizes], list[int]]:
        parts = [self._number(sympy.sympify(v)) for v in values]
        return lambda sizes: [p(sizes) for p in parts]

    # -- steps ----------------------------------------------------------------------------------------
    def _add(self, step: Any, kernel: Kernel | None) -> None:
        if isinstance(step, ViewOf):
            self.steps.append(self._view(step))
        elif isinstance(step, AtenCall):
            self.steps.append(self._aten(step))
        elif kernel is not None and kernel.phases:
            self.steps.append(self._kernel(kernel))

    def _view(self, step: ViewOf) -> Callable[[State, Sizes], None]:
        shape, strides, offset = self._numbers(step.buffer.sizes), self._numbers(step.buffer.strides), self._number(step.offset)
        name, base = step.buffer.name, step.base.name

        def run(state: State, sizes: Sizes) -> None:
            whole = state[base]
            state[name] = whole.as_strided(shape(sizes), strides(sizes), whole.storage_offset() + offset(sizes))

        return run

    def _kernel(self, kernel: Kernel) -> Callable[[State, Sizes], None]:
        device = self.graph.buffers[kernel.phases[0].statements[0].buffer].device
        launch: Launcher | AutotunedLauncher = AutotunedLauncher(kernel, device) if self.autotune else Launcher(kernel, device=device)
        names, numbers = (*kernel.reads, *kernel.writes), self._numbers(kernel.sizes)
        self.launchers.append(launch)
        made = [(n, self._numbers(b.sizes), self._numbers(b.strides), b) for n in kernel.writes if (b := self.graph.buffers[n]).kind == "made"]

        def run(state: State, sizes: Sizes) -> None:
            for name, shape, strides, buffer in made:
                if name not in state:
                    state[name] = torch.empty_strided(shape(sizes), strides(sizes), dtype=buffer.dtype.torch, device=buffer.device)
            launch([state[n] for n in names], numbers(sizes))

        return run

    def _aten(self, step: AtenCall) -> Callable[[State, Sizes], None]:
        def template(value: Any) -> Callable[[State, Sizes], Any]:
            if isinstance(value, Buffer):
                return lambda state, sizes: state[value.name]
            if isinstance(value, (list, tuple)):
                parts = [template(v) for v in value]
                return lambda state, sizes: [p(state, sizes) for p in parts]
            number = self._number(value)
            return lambda state, sizes: number(sizes)

        args = [template(a) for a in step.args]
        kwargs = {k: template(v) for k, v in step.kwargs.items()}
        layouts = self._layouts(step.outs)

        def run(state: State, sizes: Sizes) -> None:
            result = step.target(*(a(state, sizes) for a in args), **{k: v(state, sizes) for k, v in kwargs.items()})
            _keep(step.outs, result, state)
            for name, dtype, strides in layouts:
                state[name] = _laid_out(state[name], dtype, strides(sizes))

        return run

    def _layouts(self, outs: Any) -> list[tuple[str, torch.dtype | None, Callable[[Sizes], list[int]]]]:
        if isinstance(outs, tuple):
            return [form for o in outs for form in self._layouts(o)]
        if not isinstance(outs, Buffer) or not outs.strided:
            return []
        return [(outs.name, outs.dtype and outs.dtype.torch, self._numbers(outs.strides))]


def _freeing(names: list[str]) -> Callable[[State, Sizes], None]:
    def run(state: State, sizes: Sizes) -> None:
        for name in names:
            state.pop(name, None)

    return run


def _keep(outs: Any, result: Any, state: State) -> None:
    if isinstance(outs, tuple):
        for out, value in zip(outs, result, strict=True):
            _keep(out, value, state)
    elif isinstance(outs, Buffer):
        state[outs.name] = result


def _laid_out_so(tensor: torch.Tensor, strides: list[int]) -> bool:
    return all(a == b or n <= 1 for a, b, n in zip(tensor.stride(), strides, tensor.shape, strict=True))


def _laid_out(tensor: torch.Tensor, dtype: torch.dtype | None, strides: list[int]) -> torch.Tensor:
    """Kernels have the example's dtype and strides compiled in: another result is copied."""
    dtype = dtype or tensor.dtype
    if tensor.dtype is dtype and _laid_out_so(tensor, strides):
        return tensor
    return torch.empty_strided(tensor.shape, strides, dtype=dtype, device=tensor.device).copy_(tensor)
