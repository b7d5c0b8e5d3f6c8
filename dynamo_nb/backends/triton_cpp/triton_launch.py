"""Launching: a kernel of the loop IR as something to call with tensors and sizes.

On CUDA tensors the kernel runs on the current stream of their device. With TRITON_INTERPRET=1 (set before the first import of triton)
it runs on CPU tensors in Triton's interpreter, for tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from dynamo_nb.backends.triton_cpp import ir, triton_build, triton_files
from dynamo_nb.backends.triton_cpp.triton_printer import Config, TritonSource, print_kernel


class Launcher:
    """`launcher(tensors, sizes)`: tensors in the order of `kernel.reads + kernel.writes`, sizes in that of `kernel.sizes`.

    device: where a kernel without tensors runs, as one that only checks numbers it computes.

    A launch allocates nothing and waits for nothing. The first launch of a variant (device, index width, alignment of the pointers)
    compiles and loads it, which stream capture does not allow: call `prepare` with the same arguments before capturing.
    """

    def __init__(self, kernel: ir.Kernel, config: Config | None = None, device: torch.device | None = None) -> None:
        self.device = device
        self.kernel = kernel
        self.source: TritonSource = print_kernel(kernel, config or triton_build.configs(kernel)[0])
        self.ready: set[tuple[Any, ...]] = set()

    def __call__(self, tensors: Sequence[torch.Tensor], sizes: Sequence[int] = ()) -> None:
        grid = self.source.grid(*sizes)
        if grid[0] > 0:
            device = self._place(tensors)
            if device.type == "cuda":
                self._launch(device, grid, tensors, sizes)
            else:
                self._interpret(grid, tensors, sizes)

    def prepare(self, tensors: Sequence[torch.Tensor], sizes: Sequence[int] = ()) -> None:
        """Compiles and loads what a launch with these arguments would run, without running it."""
        device = self._place(tensors)
        with torch.cuda.device(device):
            compiled = triton_files.function(self.source).warmup(*tensors, *sizes, grid=(1,), **self._options(sizes))
            assert compiled.run is not None     # looking at it loads the module
        self.ready.add(self._variant(device, tensors, sizes))

    def _place(self, tensors: Sequence[torch.Tensor]) -> torch.device:
        return tensors[0].device if tensors or self.device is None else self.device

    def _variant(self, device: torch.device, tensors: Sequence[torch.Tensor], sizes: Sequence[int]) -> tuple[Any, ...]:
        return (device.index, self.source.index_type(*sizes), *(t.data_ptr() % 16 == 0 for t in tensors))

    def _options(self, sizes: Sequence[int]) -> dict[str, Any]:
        import triton.language as tl

        config = self.source.config
        width = tl.int32 if self.source.index_type(*sizes) == "tl.int32" else tl.int64
        return {"XBLOCK": config.xblock, "RBLOCK": config.rblock, "INDEX": width, "num_warps": config.num_warps, **triton_build.options(self.source)}

    def _launch(self, device: torch.device, grid: tuple[int], tensors: Sequence[torch.Tensor], sizes: Sequence[int]) -> None:
        variant = self._variant(device, tensors, sizes)
        with torch.cuda.device(device):
            if variant not in self.ready and torch.cuda.is_current_stream_capturing():
                raise RuntimeError(f"kernel {self.source.name} isn't compiled for these arguments yet, and a stream that captures a graph can't "
                                   "load it; run the function once, or Launcher.prepare, before the capture")
            triton_files.function(self.source)[grid](*tensors, *sizes, **self._options(sizes))
        self.ready.add(variant)

    def _interpret(self, grid: tuple[int], tensors: Sequence[torch.Tensor], sizes: Sequence[int]) -> None:
        import triton
        from triton.runtime.errors import InterpreterError

        if not triton.knobs.runtime.interpret:
            raise RuntimeError(f"kernel {self.source.name} got tensors on {self._place(tensors)}; Triton runs on CUDA tensors, or on CPU tensors "
                               "with TRITON_INTERPRET=1 set before the first import of triton")
        try:
            with np.errstate(all="ignore"):
                triton_files.function(self.source)[grid](*tensors, *sizes, **self._options(sizes))
        except InterpreterError as err:
            if self.source.checks and isinstance(err.__cause__, (IndexError, RuntimeError)):
                raise err.__cause__ from None
            raise


def clear() -> None:
    """Forgets loaded kernel functions; launchers made before load theirs again."""
    triton_files.clear()
