"""Compilation without a device, and the block sizes worth trying.

`compile_ahead` turns a TritonSource into PTX and cubin for an architecture; `configs` lists candidates for a kernel, the best guess first.
"""

from __future__ import annotations

from typing import Any

import sympy

from dynamo_nb.backends.triton_cpp import ir, triton_files
from dynamo_nb.backends.triton_cpp.triton_index import points
from dynamo_nb.backends.triton_cpp.triton_printer import Config, TritonSource

# Eager rounds after every multiplication and keeps subnormals, so neither fusion nor flushing.
OPTIONS = {"enable_fp_fusion": False, "enable_reflect_ftz": False}
CHECKING = {"debug": True, "sanitize_overflow": False}      # device_assert is nothing else; integers may wrap
LARGEST_TILE = 8192


def options(source: TritonSource) -> dict[str, Any]:
    """What the compiler gets besides blocks and warps."""
    return {**OPTIONS, **CHECKING} if source.checks else OPTIONS


def compile_ahead(source: TritonSource, arch: int, wide: bool = False, aligned: bool = True) -> tuple[str, bytes]:
    """(PTX, cubin) for compute capability `arch` (80, 90, …). wide: 64-bit indices. aligned: all pointers are multiples of 16 bytes."""
    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    if triton.knobs.runtime.interpret:
        raise RuntimeError("Triton can't compile in a process that interprets kernels; unset TRITON_INTERPRET before the first import of triton")
    fn = triton_files.function(source)
    pointers, sizes = fn.arg_names[:len(source.types)], fn.arg_names[len(source.types):-3]
    constants: dict[str, Any] = {"XBLOCK": source.config.xblock, "RBLOCK": source.config.rblock, "INDEX": tl.int64 if wide else tl.int32}
    signature = {**dict(zip(pointers, source.types, strict=True)), **dict.fromkeys(sizes, "i64"), **dict.fromkeys(constants, "constexpr")}
    attrs = {(i,): [["tt.divisibility", 16]] for i in range(len(pointers))} if aligned else {}
    code = ASTSource(fn=fn, signature=signature, constexprs=constants, attrs=attrs)
    compiled = triton.compile(code, target=GPUTarget("cuda", arch, 32), options={"num_warps": source.config.num_warps, **options(source)})
    return compiled.asm["ptx"], compiled.asm["cubin"]


def configs(kernel: ir.Kernel) -> list[Config]:
    """Candidate block sizes, the best guess first."""
    outer = points(kernel.outer)
    inner = [points(p.loops) for p in kernel.phases if p.loops]
    if not inner:
        choices = [Config(512, 1, 4), Config(1024, 1, 4), Config(256, 1, 4), Config(1024, 1, 8), Config(128, 1, 2)]
        return _fitting(choices, outer)
    most = max((int(n) for n in inner if n.is_Integer), default=0) if all(n.is_Integer for n in inner) else 0
    if outer_is_contiguous(kernel):
        choices = [Config(32, 32, 4), Config(64, 16, 4), Config(32, 64, 8), Config(16, 128, 8), Config(128, 8, 4)]
        return _fitting(choices, outer)
    if 1 <= most <= LARGEST_TILE:
        block = _power_of_two(most)
        choices = [Config(x, block, _warps(x * block)) for x in (1, 2, 4, 8, 16, 32) if x == 1 or x * block <= LARGEST_TILE]
        return _fitting(sorted(choices, key=lambda c: abs(c.xblock * c.rblock - 1024)), outer)
    return _fitting([Config(1, 2048, 8), Config(1, 1024, 4), Config(1, 4096, 16), Config(4, 512, 8), Config(8, 256, 8)], outer)


def _fitting(choices: list[Config], outer: sympy.Expr) -> list[Config]:
    """Without blocks larger than all outer points, where their number is known."""
    if outer.is_Integer:
        most = _power_of_two(max(1, int(outer)))
        choices = [Config(min(c.xblock, most), c.rblock, c.num_warps) for c in choices]
    return list(dict.fromkeys(choices))


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


def _warps(points: int) -> int:
    return min(16, max(1, _power_of_two(points) // 256))


def outer_is_contiguous(kernel: ir.Kernel) -> bool:
    """Whether neighbouring outer points, not inner ones, are neighbours in memory: a reduction over columns."""
    if not kernel.outer:
        return False
    votes = 0
    for phase in kernel.phases:
        if not phase.loops:
            continue
        for load in ir.loads(*(s.value for s in phase.statements)):
            votes += _unit_step(load.offset, kernel.outer) - _unit_step(load.offset, phase.loops)
    return votes > 0


def _unit_step(offset: sympy.Expr, loops: ir.Loops) -> int:
    return int(any(offset.coeff(v) == 1 for v, n in loops if n != 1))
