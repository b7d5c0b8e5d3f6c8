"""TENSOR_MATCH and SHAPE_ENV: every property of a tensor, changed in every way there is."""

from __future__ import annotations

import math

import pytest
import torch
from guard_helpers import assume, check, on, tree
from hypothesis import given, settings
from hypothesis import strategies as st

from dynamo_nb import guards
from dynamo_nb.core.source import DictGetItemSource, InstanceDictSource, LocalSource, NNModuleSource, TensorPropertySource
from dynamo_nb.guards.shapes import compile_shape

V, W = LocalSource("v"), LocalSource("w")
x = torch.ones(2, 3)

CHANGED = {
    "size mismatch at index 0. expected 2, actual 4": lambda: torch.ones(4, 3),
    "rank mismatch. expected 2, actual 1": lambda: torch.ones(2),
    "stride mismatch at index 0. expected 3, actual 1": lambda: torch.ones(3, 2).t(),
    "dtype mismatch. expected Float, actual Double": lambda: torch.ones(2, 3, dtype=torch.float64),
    "requires_grad mismatch. expected requires_grad=0": lambda: torch.ones(2, 3, requires_grad=True),
    "dispatch key set mismatch. expected DispatchKeySet(CPU, BackendSelect, ADInplaceOrView, AutogradCPU), actual": lambda: torch.ones(
        2, 3, device="meta"
    ),
}


@pytest.mark.parametrize("reason", CHANGED)
def test_reasons(reason):
    wrapper = on("TENSOR_MATCH", guards.TensorMeta.of(x))
    assert check(wrapper, x) and check(wrapper, torch.zeros(2, 3))
    other = CHANGED[reason]()
    assert not check(wrapper, other)
    assert wrapper.reason((other,), {}).startswith(f"tensor 'v' {reason}")


def test_other_kinds_of_tensor():
    wrapper = on("TENSOR_MATCH", guards.TensorMeta.of(x))

    class Sub(torch.Tensor):
        pass

    conj = torch.ones(2, 3, dtype=torch.complex64).conj()
    for other in (
        torch.nn.Parameter(x, requires_grad=False), x.as_subclass(Sub), x.to_sparse(), torch.quantize_per_tensor(x, 0.1, 0, torch.quint8),
        conj, None, 3, "x", torch.nested.nested_tensor([torch.ones(1)]),
    ):  # fmt: skip
        assert not check(wrapper, other)
    with torch.inference_mode():
        inference = torch.ones(2, 3)
    assert not check(wrapper, inference)
    for tensor in (x.to_sparse(), conj, x.as_subclass(Sub), torch.tensor(3), torch.empty(0, 5), inference):
        own = on("TENSOR_MATCH", guards.TensorMeta.of(tensor))
        assert check(own, tensor) and not check(own, x)
    assert (
        on("TENSOR_MATCH", guards.TensorMeta.of(x)).reason((3,), {})
        == "expected type of 'v' to be a tensor type, torch.Tensor, but found int"
    )


def test_text_as_the_log_has_it():
    (guard,) = on("TENSOR_MATCH", guards.TensorMeta.of(torch.ones(2))).guards
    assert guard.text() == (
        "check_tensor(L['v'], Tensor, DispatchKeySet(CPU, BackendSelect, ADInplaceOrView, AutogradCPU), torch.float32, "
        "device=None, requires_grad=False, size=[2], stride=[1])"
    )


def test_dynamic_dims():
    wrapper = on("TENSOR_MATCH", guards.TensorMeta.of(x, {0}, {0}))
    assert check(wrapper, torch.ones(9, 3)) and not check(wrapper, torch.ones(2, 4)) and not check(wrapper, torch.ones(2, 3, 1))
    assert check(wrapper, torch.ones(9, 6)[:, :3]) and not check(wrapper, torch.ones(9, 6)[:, ::2])
    assert "size=[None, 3], stride=[None, 1]" in str(wrapper)


def _parameter_tree(module, name):
    place = DictGetItemSource(DictGetItemSource(InstanceDictSource(NNModuleSource(V)), "_parameters"), name)
    return tree(
        assume(NNModuleSource(V), "TYPE_MATCH", type(module)), assume(place, "TENSOR_MATCH", guards.TensorMeta.of(getattr(module, name)))
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda m: setattr(m.weight, "data", torch.ones(9, 9)),
        lambda m: m.weight.requires_grad_(False),
        lambda m: m.double(),
        lambda m: torch.utils.swap_tensors(m.weight, torch.nn.Parameter(torch.ones(7, 7))),
        lambda m: torch.no_grad()(m.weight.t_)(),
        lambda m: m.to("meta"),
        lambda m: setattr(m, "weight", torch.nn.Parameter(torch.ones(1))),
        lambda m: setattr(m, "weight", None),
        lambda m: m._parameters.pop("weight"),
        lambda m: m._parameters.clear(),
        lambda m: setattr(m, "_parameters", {}),
        lambda m: setattr(m, "__dict__", {}),
        lambda m: setattr(m, "__class__", torch.nn.Bilinear),
    ],
)
def test_no_change_of_a_parameter_goes_unseen(change):
    module = torch.nn.Linear(3, 2)
    wrapper = _parameter_tree(module, "weight")
    for _ in range(3):
        assert check(wrapper, module)
    change(module)
    assert not check(wrapper, module) and not check(wrapper, module)


def test_values_replaced_by_fitting_ones_still_pass():
    module, other = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    wrapper = _parameter_tree(module, "weight")
    for change in (
        lambda: setattr(module, "weight", torch.nn.Parameter(torch.zeros(2, 3))),
        lambda: setattr(module, "_parameters", dict(other._parameters)),
        lambda: module.register_buffer("extra", torch.ones(1)),
        lambda: setattr(module, "anything", 3),
        lambda: module.__dict__.update(_parameters={"weight": other.weight}),
    ):
        assert check(wrapper, module)
        change()
        assert check(wrapper, module) and check(wrapper, other)


def size(source, i=0):
    return (f"{source.name}.size()[{i}]", TensorPropertySource(source, "size", i))


def test_shape_guards_read_tensors_and_numbers():
    a, b = size(V), size(W, 1)
    wrapper = tree(assume(None, "SHAPE_ENV", f"{a[0]} == 2*{b[0]} and 4 <= {a[0]} < 100", (a, b)))
    assert check(wrapper, torch.ones(4), torch.ones(1, 2)) and not check(wrapper, torch.ones(2), torch.ones(1, 1))
    assert (
        not check(wrapper, torch.ones(4), torch.ones(1, 3))
        and not check(wrapper, 3, torch.ones(1, 2))
        and not check(wrapper, torch.ones(4), torch.ones(1))
    )
    assert wrapper.reason((torch.ones(4), torch.ones(1, 3)), {}).endswith("no longer holds: L['v'].size()[0] = 4, L['w'].size()[1] = 3")
    stride = ("s0", TensorPropertySource(V, "stride", 0))
    offset = ("s1", TensorPropertySource(V, "storage_offset", -1))
    number = ("n", W)
    wrapper = tree(assume(None, "SHAPE_ENV", "s0 + s1 == n", (stride, offset, number)))
    view = torch.ones(20)[5::3]
    assert check(wrapper, view, 8) and check(wrapper, view, 8.0) and not check(wrapper, view, 9) and not check(wrapper, view, "8")
    assert not check(wrapper, view, 1 << 70)


@pytest.mark.parametrize(
    "text", ["f(s)", "s if s else 1", "s.x", "s[0]", "s @ s", "'a' == s", "s in (1,)", "lambda: s", "s <", "unknown > 3", "min()", "s << 1"]
)
def test_shape_expressions_that_cannot_be_compiled(text):
    with pytest.raises(guards.GuardBuildError, match="SHAPE_ENV"):
        tree(assume(None, "SHAPE_ENV", text, (("s", V),)))


def _expression(atoms):
    numbers = st.sampled_from([*atoms, "0", "1", "2", "3", "-7", "0.5", "2.0", "64", "4611686018427387904"])

    def grow(inner):
        pair = st.tuples(inner, inner)
        return st.one_of(
            st.tuples(st.sampled_from(["+", "-", "*", "//", "%", "/"]), pair).map(lambda t: f"({t[1][0]} {t[0]} {t[1][1]})"),
            st.tuples(st.sampled_from(["min", "max", "Max", "FloorDiv", "PythonMod"]), pair).map(lambda t: f"{t[0]}({t[1][0]}, {t[1][1]})"),
            inner.map(lambda e: f"(-{e})"),
            inner.map(lambda e: f"abs({e})"),
            inner.map(lambda e: f"math.floor({e})"),
            inner.map(lambda e: f"math.ceil({e})"),
            inner.map(lambda e: f"int({e})"),
            inner.map(lambda e: f"({e} ** 2)"),
        )

    value = st.recursive(numbers, grow, max_leaves=6)
    compare = st.tuples(value, st.sampled_from(["<", "<=", "==", "!=", ">", ">="]), value).map(" ".join)
    return st.recursive(
        compare,
        lambda inner: (
            st.tuples(inner, st.sampled_from([" and ", " or "]), inner).map(lambda t: f"({t[0]}{t[1]}{t[2]})")
            | inner.map(lambda e: f"(not {e})")
        ),
        max_leaves=3,
    )


@settings(max_examples=400, deadline=None)
@given(_expression(["a", "b"]), st.one_of(st.integers(-5, 70), st.floats(-4, 70)), st.integers(-5, 70))
def test_shape_arithmetic_never_passes_where_python_says_no(text, a, b):
    symbols = (("a", V), ("b", W))
    expression = compile_shape(text, symbols)
    with guards.strict.enabled(False):
        wrapper = tree(assume(None, "SHAPE_ENV", text, symbols))
    native_answer = wrapper.root.check_flat((a, b, None), {}, {})
    try:
        python_answer = bool(
            eval(text, {"math": math, "Max": max, "FloorDiv": lambda p, q: p // q, "PythonMod": lambda p, q: p % q, "a": a, "b": b})
        )
    except (ArithmeticError, ValueError):
        python_answer = False
    assert expression.holds([a, b]) == python_answer
    if native_answer != python_answer:
        assert (python_answer and "4611686018427387904" in text) or "**" in text or isinstance(a, float) or "/" in text, (text, a, b)
        assert not native_answer, (text, a, b)
