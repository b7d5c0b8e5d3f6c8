"""Runs every operator of torch's OpInfo database through the lowering and the scheduler, kernels by their meaning (reference.py).

In: names and dtypes. Out: what differs from eager; how many calls were generated. Used by the tests and by hand: `python -m … NAME`.
"""

from __future__ import annotations

import collections
import itertools
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

from dynamo_nb.backends.aot import decompositions
from dynamo_nb.backends.triton_cpp import backend  # noqa: F401  (registers the lowerings)
from dynamo_nb.backends.triton_cpp.graph import LOWERINGS, NotLowered

from .reference import run_graph

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool)
RANDOM = ("rand", "bernoulli", "normal", "multinomial", "dropout", "empty", "cauchy", "exponential", "geometric", "uniform", "svd", "eig", "linalg", "fft")


def operators() -> list[Any]:
    return [op for op in op_db if not any(r in op.name for r in RANDOM)]


def samples(op: Any, dtype: torch.dtype, limit: int) -> Iterator[tuple[Any, ...]]:
    if dtype not in op.supported_dtypes("cpu"):
        return
    for sample in itertools.islice(op.sample_inputs("cpu", dtype), limit):
        yield sample.input, *sample.args, sample.kwargs


def graph_of(op: Any, args: Any, kwargs: Any) -> tuple[Any, list[Any], Any]:
    """An ATen graph of the call, its tensors, and what eager gives."""
    flat, spec = pytree.tree_flatten((args, kwargs))
    places = [i for i, v in enumerate(flat) if isinstance(v, torch.Tensor)]

    def call(*tensors: torch.Tensor) -> list[torch.Tensor]:
        values = list(flat)
        for i, t in zip(places, tensors, strict=True):
            values[i] = t
        a, k = pytree.tree_unflatten(values, spec)
        return [v for v in pytree.tree_leaves(op(*a, **k)) if isinstance(v, torch.Tensor)]

    tensors = [flat[i].detach() for i in places]
    with torch.no_grad():
        want = call(*[t.clone() if t._is_view() is False else t for t in tensors])
        gm = make_fx(call, decomposition_table=decompositions(), tracing_mode="fake")(*tensors)
    gm.graph.eliminate_dead_code()
    return gm, tensors, want


def check(op: Any, args: Any, kwargs: Any) -> tuple[str, int]:
    """What differs ('' for nothing) and how many operators of the graph have a lowering."""
    try:
        gm, tensors, want = graph_of(op, args, kwargs)
    except Exception:
        return "", 0
    count = sum(n.target in LOWERINGS for n in gm.graph.nodes if n.op == "call_function")
    if not count:
        return "", 0
    try:
        got = run_graph(gm, [t.clone() for t in tensors] if all(t.is_contiguous() for t in tensors) else tensors)
    except NotLowered:
        return "", 0
    for w, g in zip(want, got, strict=True):
        try:
            wide = _tolerance(w.dtype)
            torch.testing.assert_close(g, w, equal_nan=True, check_stride=False, rtol=wide, atol=wide)
        except AssertionError as err:
            return str(err).replace("\n", " ")[:300], count
    return "", count


def _tolerance(dtype: torch.dtype) -> float:
    return {torch.float16: 5e-3, torch.bfloat16: 3e-2, torch.float32: 2e-5, torch.float64: 1e-7}.get(dtype, 0)


def main(names: list[str]) -> None:
    generated: collections.Counter[str] = collections.Counter()
    for op in operators():
        if names and op.name not in names:
            continue
        for dtype in DTYPES:
            try:
                for first, *rest in samples(op, dtype, 6):
                    *args, kwargs = rest
                    why, count = check(op, (first, *args), kwargs)
                    generated[op.name] += count
                    if why:
                        print(f"{op.name} {op.variant_test_name} {dtype}: {why}", flush=True)
            except Exception as err:
                print(f"{op.name} {dtype}: {type(err).__name__}: {err}"[:300], flush=True)
    print(sum(v > 0 for v in generated.values()), "operators with generated parts of", len(generated))


if __name__ == "__main__":
    main(sys.argv[1:])
