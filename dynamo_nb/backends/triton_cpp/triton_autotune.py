"""`options={"max_autotune": True}`, or mode="max-autotune": which blocks a Triton kernel gets is found by timing the candidates.

The first launch for a class of sizes times every candidate of `triton_build.configs` on copies of what the kernel writes; nothing is timed
while a stream captures a graph, nor in the interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import ir, triton_build
from .triton_launch import Launcher
from .triton_printer import TritonSource

Timer = Callable[[Callable[[], None]], float]


def device_milliseconds(run: Callable[[], None]) -> float:
    """Median time on the device, caches cleared between runs."""
    from triton.testing import do_bench

    return float(do_bench(run, warmup=5, rep=20, return_mode="median"))


class AutotunedLauncher:
    """Called as a `Launcher`. timer: seconds or whatever compares; by default the device's clock, for CUDA tensors only."""

    def __init__(self, kernel: ir.Kernel, device: torch.device | None = None, timer: Timer | None = None) -> None:
        self.kernel, self.timer = kernel, timer
        self.launchers = [Launcher(kernel, config, device) for config in triton_build.configs(kernel)]
        self.chosen: dict[Any, Launcher] = {}

    @property
    def source(self) -> TritonSource:
        """The latest choice's, before one the best guess's."""
        return next(reversed(self.chosen.values()), self.launchers[0]).source

    def __call__(self, tensors: Sequence[torch.Tensor], sizes: Sequence[int] = ()) -> None:
        if not tensors:
            return self.launchers[0](tensors, sizes)
        key = (tensors[0].device, *(int(n).bit_length() for n in sizes), *(t.data_ptr() % 16 == 0 for t in tensors))
        launcher = self.chosen.get(key)
        if launcher is None:
            launcher = self._choose(tensors, sizes)
            if launcher is None:
                return self.launchers[0](tensors, sizes)
            self.chosen[key] = launcher
        launcher(tensors, sizes)

    def _choose(self, tensors: Sequence[torch.Tensor], sizes: Sequence[int]) -> Launcher | None:
        """None where this can't be found out now."""
        on_device = tensors[0].device.type == "cuda"
        timer = self.timer or (device_milliseconds if on_device else None)
        if timer is None or (on_device and torch.cuda.is_current_stream_capturing()):
            return None
        reads = len(self.kernel.reads)
        trial = [*tensors[:reads], *(_copy(t) for t in tensors[reads:])]
        times = []
        for launcher in self.launchers:
            try:
                times.append(timer(lambda launcher=launcher: launcher(trial, sizes)))  # type: ignore[misc]
            except (RuntimeError, ValueError):      # more shared memory or registers than there are
                times.append(float("inf"))
        return self.launchers[times.index(min(times))]


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)
