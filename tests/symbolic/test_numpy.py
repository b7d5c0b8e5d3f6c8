# mypy: ignore-errors
"""NumPy in compiled functions against plain NumPy: type, dtype, shape, values, shared memory, writes, scalars, what breaks the graph.

PYTEST_DONT_REWRITE: the programs are compiled as they are written.
"""

from __future__ import annotations

import warnings

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import torch

import dynamo_nb
from dynamo_nb.symbolic import numpy_ops
from dynamo_nb.testing import EagerAndRecordGraphs

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "float16", "float32", "float64", "complex64", "complex128"]
SHAPES = [(), (1,), (3,), (2, 3), (3, 1), (0, 2), (2, 1, 3)]
ANY_DTYPE, ANY_SHAPE = st.sampled_from(DTYPES), st.sampled_from(SHAPES)
BACKENDS = st.sampled_from(["eager", "aot_eager"])
FEW = hypothesis.settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(hypothesis.HealthCheck))


def make(shape, dtype, seed, order="C"):
    values = np.random.default_rng(seed).integers(-4, 5, shape) / (2 if np.dtype(dtype).kind in "fc" else 1)
    return np.array(np.asarray(values), order=order).astype(dtype)


def described(value):
    """All that may be compared of a result."""
    if isinstance(value, (list, tuple)):
        return type(value), [described(v) for v in value]
    if isinstance(value, np.ndarray):
        return np.ndarray, value.dtype, value.shape, value.flags.writeable, value.flags.f_contiguous, value.tobytes()
    if isinstance(value, np.generic):
        return type(value), value.tobytes()
    if isinstance(value, torch.Tensor):
        return torch.Tensor, value.dtype, tuple(value.shape), value.tolist()
    return type(value), repr(value)


def outcome(fn, args):
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        try:
            return described(fn(*args)), [described(a) for a in args]
        except Exception as err:
            return type(err), str(err), [described(a) for a in args]


def check(fn, *calls, backend="aot_eager"):
    compiled = dynamo_nb.compile(fn, backend=backend)
    for call in calls:
        assert outcome(compiled, call()) == outcome(fn, call())


KINDS = ["same", "scalar", "number", "row"]


def whole(fn, *calls):
    """Captured in one graph, without a break, under both kinds of backend."""
    for backend in ("aot_eager", EagerAndRecordGraphs()):
        dynamo_nb.reset()
        compiled = dynamo_nb.compile(fn, backend=backend, fullgraph=True)
        for call in calls:
            assert outcome(compiled, call()) == outcome(fn, call())
    assert len(backend.graphs) >= 1


UNARY = [n for n in numpy_ops.ELEMENTWISE if isinstance(getattr(np, n), np.ufunc) and getattr(np, n).nin == 1]
BINARY = [n for n in numpy_ops.ELEMENTWISE if isinstance(getattr(np, n), np.ufunc) and getattr(np, n).nin == 2]
METHODS = "sum prod mean min max any all var std argmax argmin cumsum ravel flatten transpose squeeze copy round conj".split()


@FEW
@hypothesis.given(st.sampled_from(UNARY), ANY_DTYPE, ANY_SHAPE, st.sampled_from("CF"), BACKENDS)
def test_unary_functions(name, dtype, shape, order, backend):
    dynamo_nb.reset()
    fn = getattr(np, name)
    check(lambda a: fn(a), lambda: (make(shape, dtype, 1, order),), backend=backend)


@FEW
@hypothesis.given(st.sampled_from(BINARY), ANY_DTYPE, ANY_DTYPE, ANY_SHAPE, st.sampled_from(KINDS), BACKENDS)
def test_binary_functions(name, left, right, shape, kind, backend):
    dynamo_nb.reset()
    fn = getattr(np, name)
    seconds = {"same": lambda: make(shape, right, 2), "scalar": lambda: make((1,), right, 3)[0], "row": lambda: make(shape[-1:], right, 4)}
    second = seconds.get(kind, lambda: 2)
    check(lambda a, b: fn(a, b), lambda: (make(shape, left, 1), second()), backend=backend)


@FEW
@hypothesis.given(st.sampled_from(METHODS), ANY_DTYPE, ANY_SHAPE, st.sampled_from([None, 0, -1]), st.booleans(), BACKENDS)
def test_methods_and_functions(name, dtype, shape, axis, as_function, backend):
    dynamo_nb.reset()
    extra = () if axis is None or name in ("ravel", "flatten", "copy", "transpose", "round", "conj") else (axis,)
    fn = getattr(np, name, None) if as_function else None

    def program(a):
        return fn(a, *extra) if fn is not None else getattr(a, name)(*extra)

    check(program, lambda: (make(shape, dtype, 1),), backend=backend)


OPERATORS = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b, "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b, "pow": lambda a, b: a ** b, "lt": lambda a, b: a < b, "eq": lambda a, b: a == b, "and": lambda a, b: a & b,
    "rsub": lambda a, b: 3 - a, "rpow": lambda a, b: 2 ** a, "neg": lambda a, b: -a, "invert": lambda a, b: ~a, "abs": lambda a, b: abs(a),
    "matmul": lambda a, b: a @ b, "shift": lambda a, b: a << 1,
}


@FEW
@hypothesis.given(st.sampled_from(sorted(OPERATORS)), ANY_DTYPE, st.sampled_from([*DTYPES, "int", "float"]), ANY_SHAPE, BACKENDS)
def test_operators(name, left, right, shape, backend):
    dynamo_nb.reset()
    second = {"int": lambda: 2, "float": lambda: 1.5}.get(right, lambda: make(shape, right, 2))
    check(OPERATORS[name], lambda: (make(shape, left, 1), second()), backend=backend)


KEYS = [0, -1, 5, slice(None), slice(1, None), slice(None, None, 2), slice(None, None, -1), Ellipsis, None,
        (0, 0), (slice(None), 0), (Ellipsis, 0), [0, 1], (), (None, 0)]


@FEW
@hypothesis.given(st.sampled_from(KEYS), ANY_SHAPE, st.sampled_from(["int64", "float32"]), st.booleans(), BACKENDS)
def test_subscripts_are_views_where_numpys_are(key, shape, dtype, store, backend):
    dynamo_nb.reset()

    def program(a):
        if store:
            a[key] = 7
            return a
        part = a[key]
        if isinstance(part, np.ndarray):
            part += 1
        return part

    check(program, lambda: (make(shape, dtype, 1),), backend=backend)


@FEW
@hypothesis.given(ANY_DTYPE, ANY_DTYPE, st.sampled_from(["astype", "array", "asarray"]), BACKENDS)
def test_conversions(left, right, how, backend):
    dynamo_nb.reset()
    programs = {"astype": lambda a: a.astype(right), "array": lambda a: np.array(a, dtype=right), "asarray": lambda a: np.asarray(a, dtype=right)}
    check(programs[how], lambda: (np.abs(make((2, 3), left, 1)),), backend=backend)


def test_through_numpy_and_back():
    whole(lambda x: torch.from_numpy(np.sin(x.numpy())), lambda: (torch.ones(3),))
    whole(lambda x: np.array(x) + 1, lambda: (torch.ones(3),))

    def shared(x):
        a = x.numpy()
        a[0] = 5.0
        x.add_(1)
        return x.numpy(), torch.from_numpy(a), a is x.numpy()

    whole(shared, lambda: (torch.arange(3.0),), lambda: (torch.zeros(4),))


def test_writes_reach_the_callers_array():
    def program(a):
        view = a.reshape(-1)
        view[1] = 9
        a += 1
        a[a > 4] = 0
        return view, a.T, a[0], a[0, 1]

    whole(program, lambda: (np.arange(6.0).reshape(2, 3),))


def test_arrays_over_one_memory():
    def program(a, b):
        a += 1
        return b * 2, a is b

    def overlapping():
        base = np.arange(8.0)
        return base[:6], base[2:]

    def same():
        a = np.arange(6.0)
        return a, a

    def distinct():
        return np.ones(6), np.ones(6)

    check(program, distinct, overlapping, same, distinct)
    check(program, overlapping, distinct, same)
    check(program, same, distinct)


def test_a_tensor_and_its_array():
    def program(x, a):
        x.add_(1)
        return a * 2, x

    def shared():
        x = torch.arange(3.0)
        return x, x.numpy()

    check(program, shared, lambda: (torch.arange(3.0), np.ones(3, dtype=np.float32)), shared)
    check(lambda a, x: program(x, a), lambda: shared()[::-1], lambda: (np.ones(3, dtype=np.float32), torch.arange(3.0)), lambda: shared()[::-1])


def test_arrays_no_tensor_can_lie_over():
    def read_only():
        a = np.arange(3.0)
        a.flags.writeable = False
        return (a,)

    check(
        lambda a: a + 1, lambda: (np.arange(3.0),), read_only, lambda: (np.arange(3.0)[::-1],), lambda: (np.arange(3, dtype=">f8"),),
        lambda: (np.matrix([[1, 2]]),), lambda: (np.array(2.0),), lambda: (np.array([1], dtype=np.uint16),), lambda: (np.array(["a"]),),
    )


def test_numpy_numbers():
    def program(a, s):
        return a * s, s * 2, s + 1.5, s > 1, 1 / s, a.sum(), a.max() - s, a.mean(), a[0]

    kinds = [np.float64, np.float32, np.int64, np.int8, np.bool_, np.uint16]
    for kind in kinds:
        dynamo_nb.reset()
        check(program, *[lambda v=v, kind=kind: (np.arange(3, dtype=np.float32), kind(v)) for v in (2, 3, 4, 1)])
    whole(lambda x: (x * np.sqrt(2.0), x.reshape(np.prod((2, 3))), np.float32(1.5)), lambda: (torch.ones(2, 3),))


def test_a_float64_without_dimensions_is_an_ordinary_input():
    whole(lambda s: s * 2, lambda: (torch.tensor(3.0, dtype=torch.float64),), lambda: (torch.tensor(4.0, dtype=torch.float64),))


def test_values_left_alone_are_not_guessed_at():
    def program(a):
        try:
            return a == 1.5, a == 1, bool(a.flat[0]), a + 1, -a
        except TypeError:
            return "no"

    check(program, lambda: (np.array([1, 0], dtype=np.uint16),))
    check(lambda a: (a == 0, not a, a + 1), lambda: (np.uint16(0),))
    check(lambda a: np.minimum(a, np.bool_(True)), lambda: (np.array(False),))


def test_sizes_that_vary():
    def program(a):
        return a.sum(axis=0), a.reshape(-1), np.ones(a.shape[0]), a * 2.5, len(a), a.size, a.ndim

    check(program, *[lambda n=n: (make((n, 3), "float32", n),) for n in (2, 4, 7, 1, 0, 5000, 5001)])


def test_dtypes_are_objects_of_their_own():
    def program(x):
        dtype = x.numpy().dtype
        return [dtype == np.float32, np.float32 == dtype, np.int64 != dtype, dtype == "float32", dtype.itemsize, x + 1]

    whole(program, lambda: (torch.ones(2),))


def test_iteration_reads_as_it_goes():
    def program(a):
        seen = []
        for v in a:
            a[-1] = 40
            seen.append(v)
        return seen, sum(a), list(a)

    check(program, lambda: (np.arange(3.0),), lambda: (np.arange(6).reshape(3, 2),))


def test_errors_are_numpys():
    def outside(a):
        try:
            return a[10]
        except IndexError as err:
            return str(err)

    def narrowing(a):
        a += 1.5
        return a

    def needs_grad(x):
        try:
            return x.numpy()
        except RuntimeError as err:
            return str(err)

    check(outside, lambda: (np.arange(3),), lambda: (np.arange(20),))
    check(narrowing, lambda: (np.arange(3),))
    check(needs_grad, lambda: (torch.ones(2, requires_grad=True),), lambda: (torch.ones(2),))
    check(lambda a, i: a[i], lambda: (np.arange(3), np.array([0, 2])), lambda: (np.arange(3), np.array([5])))


def test_a_break_keeps_arrays_one_object():
    def program(a):
        b = a * 2
        c = b
        print(end="")
        b += a
        return b, c is b, b.T, [b, {"k": b}]

    check(program, lambda: (np.ones((2, 3)),))


def test_warnings_stay():
    def program(a):
        return np.log(a), a / a

    for backend in ("eager", "aot_eager"):
        dynamo_nb.reset()
        compiled = dynamo_nb.compile(program, backend=backend, fullgraph=True)
        with pytest.warns(RuntimeWarning, match="divide by zero"):
            compiled(np.arange(3.0))
        with warnings.catch_warnings(), pytest.raises(RuntimeWarning):
            warnings.simplefilter("error")
            compiled(np.arange(3.0))


def test_a_function_bound_to_another_name_is_guarded():
    def program(a):
        return chosen(a)

    chosen = np.sin
    backend = EagerAndRecordGraphs()
    compiled = dynamo_nb.compile(program, backend=backend, fullgraph=True)
    assert np.array_equal(compiled(np.ones(2)), np.sin(np.ones(2)))
    chosen = np.cos
    assert np.array_equal(compiled(np.ones(2)), np.cos(np.ones(2)))
    assert len(backend.graphs) == 2


def test_trace_numpy_off_leaves_numpy_to_eager():
    backend = EagerAndRecordGraphs()
    with dynamo_nb.config.patch(trace_numpy=False):
        assert np.array_equal(dynamo_nb.compile(lambda a: np.sin(a) + 1, backend=backend)(np.ones(2)), np.sin(np.ones(2)) + 1)
    assert not backend.graphs
