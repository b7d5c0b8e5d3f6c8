"""How long kernels take and how fast memory is: for the roofline, only where somebody asks, never while compiling.

Kernels run as they do in the graph, on as many threads, but alone and on zeros of the example's sizes. Bandwidth is that of a
copy which we generate ourselves, of arrays too large for caches; it is measured once a device and number of threads.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import sympy
import torch

from ...native import Program
from . import cpp_build, cpp_printer
from .compiled import CompiledGraph, known
from .ir import Buffer, DType, Kernel, Load, Phase, Store

COPIED = 1 << 24            # f32 elements: 64 MB in, 64 MB out
ENOUGH = 0.02               # seconds of measuring, a kernel
Hints = dict[sympy.Symbol, int]


def kernel_seconds(graph: CompiledGraph) -> dict[str, float]:
    """Kernel -> seconds a run, the best of several. Without those of which a size isn't known, and those that no device here runs."""
    kernels = [k for k in graph.kernels if k.phases]
    run = _cpp_runs(kernels, graph.source, graph.hints) if graph.language == "C++" else _triton_runs(kernels, graph.hints)
    return {name: _best(calls, device) for name, (calls, device) in run.items()}


@functools.cache
def bandwidth(device: torch.device, threads: int) -> float:
    """Bytes a second that a copy moves, reads and writes together; 0 where it can't run."""
    i = sympy.Symbol("i0", integer=True, nonnegative=True)
    loops = ((i, sympy.Integer(COPIED)),)
    flat = {name: Buffer(name, DType.f32, (sympy.Integer(COPIED),), (sympy.Integer(1),), kind, device) for name, kind in (("x", "input"), ("y", "made"))}
    kernel = Kernel("k0", loops, (Phase((), (Store("y", loops, i, Load(DType.f32, "x", i)),)),), ("x",), ("y",), (), flat)
    runs = _cpp_runs([kernel], cpp_printer.print_unit([kernel]).source, {}) if device.type == "cpu" else _triton_runs([kernel], {})
    if not runs:
        return 0.0
    return 2 * 4 * COPIED / _best(*runs["k0"], enough=10 * ENOUGH)


# -- runs -----------------------------------------------------------------------------------------------
Calls = Callable[[int], None]       # runs the kernel so often


def _cpp_runs(kernels: list[Kernel], source: str, hints: Hints) -> dict[str, tuple[Calls, torch.device]]:
    library = cpp_build.load(source)
    if library is None:
        return {}
    found = {}
    for name, launch in cpp_printer.print_unit(kernels).kernels.items():
        kernel = next(k for k in kernels if k.name == name)
        tensors, sizes = _tensors(kernel, hints), [known(s, hints) for s in kernel.sizes]
        count, grain = known(launch.count, hints), known(launch.grain, hints)
        if tensors is None or None in sizes or count is None or grain is None:
            continue
        slots = tuple(range(len(tensors)))
        step = ("kernel", library.address(name), slots, tuple(sizes), count, grain)
        found[name] = (_repeating(step, tensors), torch.device("cpu"))
    return found


def _repeating(step: tuple[object, ...], tensors: list[torch.Tensor]) -> Calls:
    inputs = tuple(("t", k) for k in range(len(tensors)))

    def programs(times: int) -> Program:
        return Program(inputs, len(tensors), 0, [step] * times, ())

    made: dict[int, Program] = {}

    def run(times: int) -> None:
        if times not in made:
            made[times] = programs(times)
        made[times](list(tensors))

    return run


def _triton_runs(kernels: list[Kernel], hints: Hints) -> dict[str, tuple[Calls, torch.device]]:
    from .triton_launch import Launcher

    found = {}
    for kernel in kernels:
        device = next(iter(kernel.buffers.values())).device
        tensors, sizes = _tensors(kernel, hints) if device.type == "cuda" else None, [known(s, hints) for s in kernel.sizes]
        if tensors is not None and None not in sizes:
            found[kernel.name] = (_launching(Launcher(kernel), tensors, [s for s in sizes if s is not None]), device)
    return found


def _launching(launch: Callable[[list[torch.Tensor], list[int]], None], tensors: list[torch.Tensor], sizes: list[int]) -> Calls:
    def run(times: int) -> None:
        for _ in range(times):
            launch(tensors, sizes)

    return run


def _tensors(kernel: Kernel, hints: Hints) -> list[torch.Tensor] | None:
    """Zeros for its arguments; None where a size isn't known."""
    out = []
    for name in (*kernel.reads, *kernel.writes):
        buffer = kernel.buffers[name]
        sizes, strides = [known(n, hints) for n in buffer.sizes], [known(n, hints) for n in buffer.strides]
        shape, steps = [n for n in sizes if n is not None], [n for n in strides if n is not None]
        if len(shape) < len(sizes) or len(steps) < len(strides):
            return None
        extent = 1 + sum((n - 1) * step for n, step in zip(shape, steps, strict=True)) if 0 not in shape else 0
        out.append(torch.zeros(extent, dtype=buffer.dtype.torch, device=buffer.device).as_strided(shape, steps))
    if kernel.checks:
        out.append(torch.zeros(3 * len(kernel.checks), dtype=torch.int64, device=out[0].device))
    return out


# -- the clock --------------------------------------------------------------------------------------------
def _best(run: Calls, device: torch.device, enough: float = ENOUGH) -> float:
    """Seconds of one run: the least over batches long enough for the clock."""
    once = _timed(run, device, 1)
    times = max(1, min(1000, int(1e-4 / max(once, 1e-7))))
    best, spent = once, 0.0
    while spent < enough:
        seconds = _timed(run, device, times)
        best, spent = min(best, seconds / times), spent + max(seconds, 1e-6)
    return best


def _timed(run: Calls, device: torch.device, times: int) -> float:
    _finish(device)
    start = time.perf_counter()
    run(times)
    _finish(device)
    return time.perf_counter() - start


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
