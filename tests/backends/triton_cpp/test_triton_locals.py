"""inline_locals: what is recomputed, and what is refused because recomputing would read something else. No Triton needed."""

from __future__ import annotations

import pytest

from dynamo_nb.backends.triton_cpp import ir
from dynamo_nb.backends.triton_cpp.ir import DType, Phase, Store
from dynamo_nb.backends.triton_cpp.triton_index import CannotPrint
from dynamo_nb.backends.triton_cpp.triton_locals import inline_locals
from dynamo_nb.backends.triton_cpp.triton_printer import Config, is_persistent, keeps_tiles, print_kernel
from tests.backends.triton_cpp.triton_building import I0, I1, I2, I3, S0, buffer, kernel, load, loops, op
from tests.backends.triton_cpp.triton_cases import CASES, softmax_kernel

F32 = DType.f32
OUTER = loops((I0, 4))


def test_softmax_recomputes() -> None:
    inlined = inline_locals(softmax_kernel(F32, 4, 9))
    assert inlined.local == ("top", "total") and "e" not in inlined.buffers and len(inlined.phases) == 3
    assert ir.statement_text(inlined.phases[2].statements[0]) == "o[9*i0 + i3] = div(exp(sub(a[9*i0 + i3], top[0])), total[0])"


def test_tiles_serve_where_positions_agree() -> None:
    assert keeps_tiles(softmax_kernel(F32, 4, 9)) and not keeps_tiles(CASES["local_in_another_shape"]().kernel)
    assert is_persistent(softmax_kernel(F32, 4, 9), Config(1, 16)) and not is_persistent(softmax_kernel(F32, 4, 17), Config(1, 16))
    assert not is_persistent(softmax_kernel(F32, 4, S0, (S0,)), Config(1, 1024))


def overwritten(write_offset: object, last: bool) -> ir.Kernel:
    """A local computed from a; a is overwritten before or while the local is read."""
    p, q, r = loops((I1, 9)), loops((I2, 9)), loops((I3, 9))
    write = Store("a", OUTER + q, write_offset, load("b", F32, 9 * I0 + I2))      # type: ignore[arg-type]
    if last:
        write = Store("a", OUTER + r, write_offset, load("t", F32, I3))      # type: ignore[arg-type]
    phases = [
        Phase(p, (Store("t", OUTER + p, I1, op("exp", load("a", F32, 9 * I0 + I1))),)),
        *([] if last else [Phase(q, (write,))]),
        Phase(r, (Store("o", OUTER + r, 9 * I0 + I3, op("neg", load("t", F32, I3))), *([write] if last else []))),
    ]
    buffers = [buffer(n, F32, [4, 9]) for n in "abo"] + [buffer("t", F32, [9], kind="local")]
    return kernel("overwritten", OUTER, phases, buffers, ["a", "o"])


def test_refuses_to_recompute_from_what_changed() -> None:
    with pytest.raises(CannotPrint, match="overwrites in between; put that write into a kernel of its own"):
        inline_locals(overwritten(9 * I0 + I2, last=False))
    with pytest.raises(CannotPrint, match="overwrites"):
        inline_locals(overwritten(9 * I0 + 8 - I3, last=True))


def test_in_one_tile_nothing_is_recomputed() -> None:
    text = print_kernel(overwritten(9 * I0 + I2, last=False), Config(1, 16)).text
    assert text.count("libdevice.exp") == 1 and text.index("tl.load(a_ptr") < text.index("tl.store(a_ptr")
    with pytest.raises(CannotPrint):
        print_kernel(overwritten(9 * I0 + I2, last=False), Config(1, 4))


def test_the_same_position_may_be_overwritten() -> None:
    inlined = inline_locals(overwritten(9 * I0 + I3, last=True))
    text = print_kernel(inlined, Config(1, 4)).text
    assert text.count("tl.load(a_ptr") == 1 and text.index("tl.load(a_ptr") < text.index("tl.store(a_ptr")


def test_unknown_symbols_are_named() -> None:
    k = softmax_kernel(F32, 4, S0)
    with pytest.raises(CannotPrint, match="s0 is neither a loop variable nor a size"):
        print_kernel(k, Config(1, 16))
