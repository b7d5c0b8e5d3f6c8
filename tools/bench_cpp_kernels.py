"""Times printed C++ kernels against eager torch, one thread: `python tools/bench_cpp_kernels.py` prints µs and ratios."""

from __future__ import annotations

import ctypes
import pathlib
import sys
import time
from collections.abc import Callable

import torch

ROOT = pathlib.Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests/backends/triton_cpp")]

from cpp_helpers import Built, buffer, buffers, op, symbol  # noqa: E402
from test_cpp_kernels import layer_norm, reduction, softmax  # noqa: E402

from dynamo_nb.backends.triton_cpp.ir import Const, DType, Expr, Kernel, Load, Phase, Store  # noqa: E402


def constant(value: float) -> Const:
    return Const(DType.f32, value)


def flat(name: str, fn: Callable[[Expr, Expr], Expr]) -> Kernel:
    i, n = symbol("i"), symbol("n")
    loops = ((i, n),)
    statement = Store("y", loops, i, fn(Load(DType.f32, "x0", i), Load(DType.f32, "x1", i)))
    made = buffers(*(buffer(b, (n,)) for b in ("x0", "x1", "y")))
    return Kernel(name, loops, (Phase((), (statement,)),), ("x0", "x1"), ("y",), (n,), made)


def transcendental(x: Expr, y: Expr) -> Expr:
    d = op("add", op("mul", op("exp", op("mul", x, constant(0.1))), op("tanh", y)), op("sigmoid", x))
    return op("erf", op("add", op("log", op("add", op("abs", d), constant(1.0))), op("sin", x)))


def eager_transcendental(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    d = torch.exp(x * 0.1) * torch.tanh(y) + torch.sigmoid(x)
    return torch.erf(torch.log(d.abs() + 1.0) + torch.sin(x))


def chain(x: Expr, y: Expr) -> Expr:
    for _ in range(5):
        x = op("add", op("mul", x, y), constant(0.5))
    return x


def eager_chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    for _ in range(5):
        x = x * y + 0.5
    return x


class Bench:
    def __init__(self, kernels: list[Kernel]) -> None:
        self.built = Built(kernels)
        print(f"compiled in {self.built.library.seconds:.2f} s (0: from the cache)")

    def compare(self, name: str, tensors: dict[str, torch.Tensor], sizes: tuple[int, ...], eager: Callable[[], object], repeat: int = 40) -> None:
        kernel = self.built.kernels[name]
        count = int(self.built.unit.kernels[name].count.subs(dict(zip(kernel.sizes, sizes, strict=True))))
        p = (ctypes.c_void_p * len(tensors))(*[tensors[b].data_ptr() for b in (*kernel.reads, *kernel.writes)])
        s = (ctypes.c_int64 * len(sizes))(*sizes)
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(self.built.library.address(name))
        ours = theirs = float("inf")
        for _ in range(repeat):
            start = time.thread_time()
            call(ctypes.addressof(p), ctypes.addressof(s), 0, count)
            middle = time.thread_time()
            eager()
            ours, theirs = min(ours, middle - start), min(theirs, time.thread_time() - middle)
        print(f"{name:18} {'x'.join(map(str, sizes)):10} {ours * 1e6:9.1f} µs, eager {theirs * 1e6:9.1f} µs: {theirs / ours:.2f} times faster")


def main() -> None:
    torch.set_num_threads(1)
    bench = Bench([
        flat("transcendental", transcendental), flat("chain", chain), softmax(DType.f32, "1"), softmax(DType.f32, "0"), layer_norm(DType.f32, most=False),
        *(reduction(kind, DType.f32, along) for kind, along in (("sum", "0"), ("sum", "1"), ("sum", "all"), ("max", "1"), ("argmax", "1"))),
    ])
    for n in (1000, 100_000, 1_000_000):
        x, y, out = torch.randn(n), torch.randn(n), torch.empty(n)
        bench.compare("transcendental", {"x0": x, "x1": y, "y": out}, (n,), lambda x=x, y=y: eager_transcendental(x, y))  # type: ignore[misc]
        bench.compare("chain", {"x0": x, "x1": y, "y": out}, (n,), lambda x=x, y=y: eager_chain(x, y))  # type: ignore[misc]
    a, out = torch.randn(1024, 1024), torch.empty(1024, 1024)
    for dim in (1, 0):
        bench.compare(f"softmax_{dim}_f32", {"x": a, "y": out}, (1024, 1024), lambda dim=dim: torch.softmax(a, dim))  # type: ignore[misc]
    w, total = torch.rand(1024), torch.empty(1024)
    bench.compare("layer_norm_f32", {"x": a, "w": w, "y": out, "sum": total}, (1024, 1024), lambda: torch.layer_norm(a, (1024,), w))
    b, out, index = torch.randn(2048, 2048), torch.empty(2048), torch.empty(2048, dtype=torch.int64)
    for along, eager in (("0", lambda: b.sum(0)), ("1", lambda: b.sum(1)), ("all", lambda: b.sum())):
        bench.compare(f"sum_{along}", {"x": b, "y": out}, (2048, 2048), eager)
    bench.compare("max_1", {"x": b, "y": out}, (2048, 2048), lambda: b.amax(1))
    bench.compare("argmax_1", {"x": b, "y": index}, (2048, 2048), lambda: b.argmax(1))


if __name__ == "__main__":
    main()
