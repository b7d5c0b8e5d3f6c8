# mypy: ignore-errors
"""Arithmetic on floats that vary is Python's: rounding, order, infinities, signed zeros, errors."""

import struct

import hypothesis.strategies as st
import torch
from hypothesis import given, settings

import dynamo_nb
from tests.differ import differ

ATOMS = st.sampled_from(["a", "b", "n", "x.shape[0]", "0.1", "3", "-2", "1e300"])
TEXTS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        inner.map(lambda t: f"(-{t})"),
        inner.map(lambda t: f"abs({t})"),
        inner.map(lambda t: f"({t} ** 2)"),
        inner.map(lambda t: f"({t} ** -0.5)"),
        inner.map(lambda t: f"float({t})"),
        inner.map(lambda t: f"math.sqrt({t})"),
    ),
    max_leaves=6,
)
FLOATS = st.sampled_from([0.1, 0.7, 1.5, -2.25, 3.0, 1e308, 5e-324, -0.0, 0.0, float("inf"), float("nan")])


def bits(value):
    return struct.pack("d", value) if isinstance(value, float) else value


@given(TEXTS, st.lists(st.tuples(FLOATS, FLOATS, st.integers(-3, 5), st.integers(1, 4)), min_size=2, max_size=5))
@settings(max_examples=80, deadline=None, derandomize=True)
def test_bit_equal(text, calls):
    dynamo_nb.reset()
    space = {"math": __import__("math")}
    exec(f"def f(x, a, b, n):\n    v = {text}\n    w = v if isinstance(v, float) and v > 0.5 else 0.25\n    return x * w, v, [v]\n", space)
    compiled = dynamo_nb.compile(space["f"], backend="eager")
    for a, b, n, size in calls:
        results = []
        for fn in (space["f"], compiled):
            try:
                y, v, (w,) = fn(torch.ones(size), a, b, n)
                results.append((y.tolist(), type(v), bits(v), bits(w)))
            except Exception as err:
                results.append((type(err), str(err)))
        assert repr(results[0]) == repr(results[1]), (text, a, b, n, size)


def test_one_graph_serves_all_values():
    def scaled(x, lr, warm):
        factor = lr * min(1.0, warm / 10.0) + 0.1
        return x * factor, factor - 0.1, factor > 0.2

    counter = dynamo_nb.testing.CompileCounter()
    compiled = dynamo_nb.compile(scaled, backend=counter)
    for lr, warm in [(0.3, 1.0), (0.4, 2.0), (0.5, 3.0), (0.6, 4.0), (0.75, 5.0)]:
        got, want = compiled(torch.ones(2), lr, warm), scaled(torch.ones(2), lr, warm)
        assert torch.equal(got[0], want[0]) and got[1:] == want[1:]
    assert counter.frame_count <= 3


def test_errors_come_after_the_effects_before_them():
    def program(x, a, log):
        log.append("before")
        x.add_(1)
        return x * (1.0 / (a - 2.0))

    differ(program, *[(torch.ones(2), a, []) for a in (1.0, 3.0, 4.5, 2.0, 5.0)])
