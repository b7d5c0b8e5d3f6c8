"""Programs of fallbacks only, against eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dynamo_nb.native import Program
from tests.native.program_helpers import CPU, aten, fallback, needs_compiler, same

F = torch.nn.functional
ops = torch.ops.aten


def floats(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(hash(shape) % 1000))


def ids(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(3))


def in_place(x: torch.Tensor, y: torch.Tensor) -> tuple[Any, ...]:
    x.add_(y, alpha=2)
    z = x * 2
    z[1] = 7.0
    y.clamp_(min=0)
    return x, z, z.relu_()


GRAPHS: dict[str, tuple[Any, list[Any]]] = {
    "addmm": (lambda b, x, w: (torch.addmm(b, x, w), torch.addmm(b, x, w, beta=0.5, alpha=2)), [floats(4), floats(3, 5), floats(5, 4)]),
    "conv": (lambda x, w, b: (F.conv2d(x, w, b, padding=1), F.conv2d(x, w, None, 2)), [floats(2, 3, 8, 8), floats(4, 3, 3, 3), floats(4)]),
    "conv_transpose": (lambda x, w: (F.conv_transpose1d(x, w, stride=2),), [floats(2, 3, 8), floats(3, 4, 3)]),
    "topk": (lambda x: tuple(torch.topk(x, 3, dim=1, largest=False)), [floats(4, 9)]),
    "split": (lambda x: (*x.split([2, 3, 4], 1), *x.chunk(2), x.unbind(0)[3]), [floats(4, 9)]),
    "index": (lambda x, i, m: (x[i], x[:, i], x[m], x[None, i, 1]), [floats(4, 9), ids(4, 5), floats(4, 9) > 0]),
    "index_put": (lambda x, i: (x.index_put((i,), x[i] + 1, accumulate=True), ops.index_put(x, [None, i], x[0, 0])), [floats(4, 9), ids(4, 5)]),
    "sort": (lambda x: (*x.sort(dim=0, stable=True, descending=True), x.argsort()), [floats(4, 9)]),
    "embedding": (lambda w, i: (F.embedding(i, w, padding_idx=0), F.embedding_bag(i, w)), [floats(7, 3), ids(7, 2, 5)]),
    "layer_norm": (lambda x, w, b: (F.layer_norm(x, (9,), w, b), F.layer_norm(x, [4, 9])), [floats(4, 9), floats(9), floats(9)]),
    "sdpa": (lambda q, k, v: (F.scaled_dot_product_attention(q, k, v, is_causal=True), F.scaled_dot_product_attention(q, k, v, scale=0.3)),
             [floats(1, 2, 5, 8), floats(1, 2, 5, 8), floats(1, 2, 5, 8)]),
    "in_place": (in_place, [floats(4, 9), floats(4, 9)]),
    "cat": (lambda x, y: (torch.cat([x, y, x], 1), torch.stack((x, y), -1), torch.einsum("ab,cb->ac", x, y)), [floats(4, 9), floats(4, 9)]),
    "foreach": (lambda x, y: (*torch._foreach_add([x, y], 1.5), *torch._foreach_mul([x, y], [2, 3.0])), [floats(4), floats(2, 3)]),
    "optional": (lambda x: (x.sum((0, 1)), x.sum(0, True), torch.clamp(x, None, 0.5), x.var(1, correction=0), x.std(), x.mean(dtype=torch.float64)),
                 [floats(4, 9)]),
    "dtype": (lambda x: (x.to(torch.bfloat16), x.to(torch.int8, copy=True), torch.zeros_like(x, dtype=torch.complex64), x.to("cpu", torch.half)),
              [floats(4, 9)]),
    "create": (lambda x: (torch.arange(2, 9, 2), torch.full((2, 3), 1.5, dtype=torch.double), torch.eye(3, device=x.device), torch.ones(0),
                          torch.empty(2, 3, 4, 5, memory_format=torch.channels_last).fill_(1), x.contiguous(memory_format=torch.channels_last)),
               [floats(1, 2, 3, 4)]),
    "numbers": (lambda x, i: (x + 2, x * 1.5, i / 2, i + 2.5, x ** 2, 2 - x, i // 2, torch.where(x > 0, x, 0), x * (1 + 2j)), [floats(3), ids(9, 3)]),
    "strings": (lambda x, y: (torch.div(x, y, rounding_mode="floor"), F.gelu(x, approximate="tanh"), torch.searchsorted(x.sort()[0], y, side="right")),
                [floats(9), floats(9)]),
    "upsample": (lambda x: (F.interpolate(x, scale_factor=2.5, mode="bilinear"), F.interpolate(x, size=(5, 7), mode="nearest")),
                 [floats(1, 2, 3, 4)]),
    "pool": (lambda x: (*F.max_pool2d(x, 2, 1, return_indices=True), F.avg_pool2d(x, 3, count_include_pad=False), F.adaptive_avg_pool2d(x, 2)),
             [floats(1, 2, 6, 6)]),
    "views": (lambda x: (x.t()[1:].reshape(-1), x.expand(2, 4, 9).select(0, 1), x.unfold(1, 3, 2), x.diagonal(), x.flip(0), x.view(torch.int32)),
              [floats(4, 9)]),
    "linalg": (lambda x: (*torch.linalg.qr(x), torch.linalg.svdvals(x), torch.linalg.norm(x), torch.fft.fft(x)), [floats(4, 4)]),
    "batch_norm": (lambda x, w, b, m, v: (F.batch_norm(x, m, v, w, b, True), m, v), [floats(4, 3, 5), floats(3), floats(3), floats(3), floats(3) ** 2]),
    "scatter": (lambda x, i: (x.scatter(1, i, 2.0), x.scatter_add(1, i, x), x.scatter_reduce(1, i, x, "amax"), x.gather(1, i)),
                [floats(4, 9), ids(9, 4, 9)]),
    "random": (lambda x: (F.dropout(x, 0.4), torch.rand_like(x), torch.randint(5, (3,)), torch.multinomial(x.abs(), 2)), [floats(4, 9)]),
    "lstm": (lambda x, h, *w: torch.lstm(x, (h, h), w, True, 1, 0.0, False, False, False),
             [floats(5, 2, 3), floats(1, 2, 4), floats(16, 3), floats(16, 4), floats(16), floats(16)]),
    "empty": (lambda x: (x.sum(0), x + 1, torch.cat([x, x]), x.t() @ x, F.softmax(x, 1)), [floats(0, 3)]),
    "alias": (lambda x: (x.contiguous(), x, x.to(torch.float32), x[:0], x.expand_as(x)), [floats(3)]),
    "nan": (lambda x: (x.max(0)[0], x.nan_to_num(1.0, -1, None), x.isnan(), x.log()), [torch.tensor([1.0, float("nan"), -float("inf")])]),
    "constant": (lambda x: (x + torch.tensor([1.0, 2.0, 3.0]),), [floats(3)]),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_graph_equals_eager(name: str) -> None:
    fn, args = GRAPHS[name]
    with torch.no_grad():
        run, graph = fallback(fn, args)
        for boxed in (False, True):
            ours, theirs = [a.clone() for a in args], [a.clone() for a in args]
            torch.manual_seed(5)
            expected = graph(*theirs)
            torch.manual_seed(5)
            result = run(list(ours), boxed)
            assert len(result) == len(expected)
            for a, b in zip((*result, *ours), (*expected, *theirs), strict=True):
                same(a, b)
        torch.manual_seed(5)
        for a, b in zip(run([a.clone() for a in args], True), expected, strict=True):    # nobody else has its arguments
            same(a, b)


@needs_compiler
@pytest.mark.parametrize("rows,columns", [(3, 4), (1, 7), (0, 4), (9, 2)])
def test_symbolic_integers(rows: int, columns: int) -> None:
    def fn(x: torch.Tensor, n: int) -> tuple[Any, ...]:
        a, b = x.shape
        return x.view(b, a), x.new_zeros(a + 1, b * 2), x.expand(n, a, b), torch.arange(a), x * n, x.narrow(1, b - 1, 1), x.reshape(a * b), a * n, x / b

    run, _ = fallback(fn, [floats(5, 6), 3], "symbolic")
    x = floats(rows, columns)
    for ours, theirs in zip(run([x, 4]), fn(x, 4), strict=True):
        same(ours, theirs)


CHAIN: dict[str, Any] = {
    "add": lambda a, b: (a + b, b), "mul": lambda a, b: (a, a * 0.5), "sub": lambda a, b: (b, b - a), "max": lambda a, b: (torch.maximum(a, b), b),
    "neg": lambda a, b: (a, -b), "sigmoid": lambda a, b: (a.sigmoid(), b), "t": lambda a, b: (a.t().contiguous().t(), b),
    "sum": lambda a, b: (a, b + a.sum()), "add_": lambda a, b: (a.clone().add_(b), b), "cat": lambda a, b: (torch.cat([a, b])[: a.shape[0]], b),
}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(sorted(CHAIN)), min_size=1, max_size=12), st.integers(0, 4), st.integers(0, 4))
def test_random_chains(names: list[str], rows: int, columns: int) -> None:
    def fn(a: torch.Tensor, b: torch.Tensor) -> tuple[Any, ...]:
        for name in names:
            a, b = CHAIN[name](a, b)
        return a, b

    args = [floats(rows, columns), floats(rows, columns) * 2]
    for ours, theirs in zip(fallback(fn, args)[0](args), fn(*args), strict=True):
        same(ours, theirs)


def test_all_forms_of_lists() -> None:
    x = floats(2, 1, 6, 6)
    program = Program((("t", 0), ("i", 0)), 5, 2, [
        aten("sym_size.int", (("t", 0), 2), (("i", 1),)),
        aten("avg_pool2d", (("t", 0), ("i", 0)), (1,)),                                   # one integer for both
        aten("constant_pad_nd", (("t", 0), [("i", 0), 1], ("i", 1)), (2,)),               # an integer as a number
        aten("upsample_nearest2d.vec", (("t", 0), None, [("i", 0), 1.5]), (3,)),          # an integer as a float
        aten("mul.Tensor", (("t", 0), ("i", 0)), (4,)),                                   # an integer as a tensor
    ], (("t", 1), ("t", 2), ("t", 3), ("t", 4), ("i", 1)))
    expected = (F.avg_pool2d(x, 2), F.pad(x, (2, 1), value=6), F.interpolate(x, scale_factor=(2, 1.5)), x * 2, 6)
    for ours, theirs in zip(program.call(x, 2), expected, strict=True):
        same(ours, theirs)
    half = Program((("t", 0), ("i", 0)), 2, 1, [aten("mul.Tensor", (("t", 0), ("i", 0)), (1,))], (("t", 1),))
    assert half.call(x.bool(), 2)[0].dtype == torch.int64 and half.call(x.half(), 2)[0].dtype == torch.half


def test_undefined_results_are_none() -> None:
    x, w, g = floats(1, 2, 5, 5), floats(3, 2, 3, 3), floats(1, 3, 3, 3)
    args = (("t", 0), ("t", 1), ("t", 2), [3], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, False, True])
    program = Program((("t", 0), ("t", 1), ("t", 2)), 6, 0, [aten("convolution_backward", args, (3, 4, 5))], (("t", 3), ("t", 4), ("t", 5)))
    expected = ops.convolution_backward(g, x, w, [3], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, False, True])
    for ours, theirs in zip(program.call(g, x, w), expected, strict=True):
        same(ours, theirs)


def test_below_autograd_and_autocast() -> None:
    x, w = floats(3, 3).requires_grad_(), floats(3, 3).requires_grad_()
    program = Program((("t", 0), ("t", 1)), 3, 0, [aten("mm", (("t", 0), ("t", 1)), (2,))], (("t", 2), ("t", 0)))
    with torch.autocast("cpu", torch.bfloat16):
        y, back = program.call(x, w)
    assert back is x and y.dtype == torch.float32 and not y.requires_grad and y.grad_fn is None
    with torch.inference_mode():
        assert program.call(x, w)[0].is_inference()


CASES: list[tuple[str, tuple[Any, ...], list[Any]]] = [
    ("mm", (("t", 0), ("t", 1)), [floats(2, 3), floats(2, 3)]),
    ("add.Tensor", (("t", 0), ("t", 1)), [floats(2), floats(3)]),
    ("select.int", (("t", 0), 0, 7), [floats(2), floats(3)]),
    ("linalg_cholesky", (("t", 0),), [-torch.eye(3), floats(3)]),
    ("index.Tensor", (("t", 0), [("t", 1)]), [floats(2), torch.tensor([9])]),
    ("to.dtype", (("t", 0), torch.float8_e4m3fn), [floats(2), floats(2)]),
    ("_foreach_add.List", ([("t", 0)], [("t", 1), ("t", 1)]), [floats(2), floats(2)]),
    ("_local_scalar_dense", (("t", 0),), [floats(2), floats(2)]),
    ("reflection_pad1d", (("t", 0), [9, 9]), [floats(2, 3), floats(2)]),
]


@pytest.mark.parametrize("name,args,tensors", CASES, ids=[c[0] for c in CASES])
def test_errors_are_eager_s(name: str, args: tuple[Any, ...], tensors: list[torch.Tensor]) -> None:
    packet, _, overload = name.partition(".")
    op = getattr(getattr(ops, packet), overload or "default")

    def value(form: Any) -> Any:
        if isinstance(form, list):
            return [value(f) for f in form]
        return tensors[form[1]] if isinstance(form, tuple) else form

    def outcome(call: Any) -> Any:
        try:
            return call()
        except Exception as error:
            return type(error), str(error)

    step = aten(name, args, ())
    program = Program((("t", 0), ("t", 1)), 2, 0, [(*step[:4], (None,))], ())
    expected = outcome(lambda: op(*map(value, args)))
    result = outcome(lambda: program.call(*tensors))
    if isinstance(expected, tuple):
        assert result == expected
    else:
        assert result == ()


def test_devices() -> None:
    meta = torch.device("meta")
    program = Program((("i", 0),), 3, 1, [
        ("alloc", 0, torch.float16, meta, (2, ("i", 0)), (("i", 0), 1)), ("alloc", 1, torch.bool, CPU, (("i", 0),), (2,)),
        aten("empty.memory_format", ([2], torch.int64, torch.strided, meta, False), (2,))], (("t", 0), ("t", 1), ("t", 2)))
    a, b, c = program.call(3)
    assert (a.device, a.dtype, a.shape, a.stride()) == (meta, torch.float16, (2, 3), (3, 1))
    assert (b.device, b.dtype, b.shape, b.stride()) == (CPU, torch.bool, (3,), (2,))
    assert (c.device, c.dtype) == (meta, torch.int64)


BAD = [
    (ValueError, "aten::nothing.here", ("aten", "aten::nothing", "here", (), ())),
    (ValueError, "aten::neg has 1 arguments, 2 are given", ("aten", "aten::neg", "", (("t", 0), 1), (1,))),
    (ValueError, "returns 1 values, but outs has 2", ("aten", "aten::neg", "", (("t", 0),), (1, 2))),
    (TypeError, "argument 'dim': expected a value of type", ("aten", "aten::softmax", "int", (("t", 0), "x", None), (1,))),
    (TypeError, "argument 'dim': a tensor can't be", ("aten", "aten::softmax", "int", (("t", 0), ("t", 0), None), (1,))),
    (TypeError, "argument 'tensors': expected", ("aten", "aten::cat", "", (3, 0), (1,))),
    (TypeError, "can't go where", ("aten", "aten::neg", "", (("t", 0),), (("i", 0),))),
    (TypeError, "can't go where", ("aten", "aten::neg", "", (("t", 0),), ((1, 2),))),
    (TypeError, "must be str", ("aten", 3, "", (("t", 0),), (1,))),
]


@pytest.mark.parametrize("kind,text,step", BAD)
def test_operators_that_do_not_fit(kind: type[Exception], text: str, step: tuple[Any, ...]) -> None:
    with pytest.raises(kind) as caught:
        Program((("t", 0),), 3, 1, [step], ())
    assert text in str(caught.value) and "step 0 (aten)" in str(caught.value)


def test_wrong_number_of_tensors() -> None:
    program = Program((("t", 0),), 3, 0, [aten("split.Tensor", (("t", 0), 2), ((1, 2),))], (("t", 1), ("t", 2)))
    assert [t.shape[0] for t in program.call(floats(4))] == [2, 2]
    with pytest.raises(RuntimeError, match="aten::split.Tensor returned 3 tensors, but the program expects 2"):
        program.call(floats(6))


def test_results_laid_out_otherwise_are_copied():
    x = torch.arange(6.0).reshape(2, 3).t()
    expected = Program((("t", 0),), 2, 0, [("aten", "aten::clone", "", (("t", 0), None), (1,)), ("layout", 1, torch.float32, (3, 2), (2, 1))], (("t", 1),))
    (got,) = expected([x])
    assert got.stride() == (2, 1) and torch.equal(got, x)
    kept = Program((("t", 0),), 2, 0, [("aten", "aten::clone", "", (("t", 0), None), (1,)), ("layout", 1, None, (3, 2), (1, 3))], (("t", 1),))
    assert kept([x])[0].stride() == (1, 3)
    cast = Program((("t", 0),), 2, 0, [("aten", "aten::clone", "", (("t", 0), None), (1,)), ("layout", 1, torch.float64, (3, 2), (1, 3))], (("t", 1),))
    (got,) = cast([x])
    assert got.dtype is torch.float64 and got.stride() == (1, 3) and torch.equal(got, x.double())
    wrong = Program((("t", 0),), 2, 0, [("aten", "aten::clone", "", (("t", 0), None), (1,)), ("layout", 1, torch.float32, (2, 3), (1, 3))], (("t", 1),))
    with pytest.raises(RuntimeError, match="were expected"):
        wrong([x])
