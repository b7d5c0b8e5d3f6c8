"""Programs: calls, kernels, views, life of tensors, threads, errors."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import warnings
import weakref
from typing import Any

import pytest
import torch
from functorch.compile import aot_function
from hypothesis import given, settings
from hypothesis import strategies as st

from dynamo_nb.native import Program
from tests.native.program_helpers import CPU, Builder, address, aten, kernel, needs_compiler, same

ADD = "float *o = p[0]; const float *a = p[1], *b = p[2]; for (int64_t i = begin; i < end; i++) o[i] = a[i] + b[i];"
NEGATE = aten("neg", (("t", 0),), (1,))


def add_program(**changes: Any) -> Program:
    """a + b of vectors of length ("i", 0), by a kernel."""
    parts: dict[str, Any] = {"count": ("i", 0), "grain": 1000} | changes
    steps = [("alloc", 2, torch.float32, CPU, (("i", 0),), (1,)), ("kernel", kernel("add", ADD), (2, 0, 1), (), parts["count"], parts["grain"])]
    return Program((("t", 0), ("t", 1), ("i", 0)), 3, 1, steps, (("t", 2),))


# -- kernels ------------------------------------------------------------------------------------------
@needs_compiler
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 5000), st.integers(1, 3000))
def test_kernel_adds(n: int, grain: int) -> None:
    a, b = torch.randn(n), torch.randn(n)
    same(add_program(grain=grain).call(a, b, n)[0], a + b)


@needs_compiler
def test_kernel_gets_integers_and_derived_ones() -> None:
    derive = address("void f(int64_t *ints) { ints[1] = ints[0] * 3; ints[2] = -ints[0]; }", "f")
    body = "int64_t *o = p[0]; for (int k = 0; k < 4; k++) o[k] = ints[k]; o[4] = begin; o[5] = end;"
    program = Program((("i", 0),), 1, 3, [
        ("ints", derive), ("alloc", 0, torch.int64, CPU, (6,), (1,)),
        ("kernel", kernel("copy", body), (0,), (7, ("i", 0), ("i", 1), ("i", 2)), ("i", 1), 100)], (("t", 0), ("i", 2), 2.5, None, True, -3))
    out, *rest = program.call(5)
    assert out.tolist() == [7, 5, 15, -5, 0, 15] and rest == [-5, 2.5, None, True, -3]


@needs_compiler
def test_kernel_notes_become_exceptions() -> None:
    """The first check that failed is raised; without a call there is none."""
    body = """int64_t *note = p[1]; const int64_t *x = p[0];
        for (int k = 0; k < 2; k++, note += 3) if (x[k] > 5) { note[0] = 1; note[1] = x[k]; note[2] = 5; }"""
    errors = (("IndexError", "{index} of {size}"), ("RuntimeError", "no number {index}"))
    program = Program((("t", 0), ("i", 0)), 1, 1, [("checked", kernel("noting", body), (0,), (), ("i", 0), 1, errors)], (("t", 0),))
    program.call(torch.tensor([5, 5]), 1)
    program.call(torch.tensor([9, 8]), 0)
    for values, kind, text in (([9, 5], IndexError, "9 of 5"), ([9, 8], IndexError, "9 of 5"), ([-1, 8], RuntimeError, "no number 8")):
        with pytest.raises(kind, match=f"^{text}$"):
            program.call(torch.tensor(values), 1)


@needs_compiler
def test_kernel_is_not_called_for_nothing() -> None:
    crash = kernel("crash", "*(int *)0 = 1;")
    program = Program((("t", 0), ("i", 0)), 1, 1, [("kernel", crash, (0,), (), ("i", 0), 1)], (("t", 0),))
    x = torch.empty(0, 3)
    assert program.call(x, 0)[0] is x and program.call(x, -1)[0] is x


@needs_compiler
def test_kernel_writes_to_inputs_and_through_offsets() -> None:
    x = torch.arange(10.0)
    body = "float *o = p[0]; for (int64_t i = begin; i < end; i++) o[i] += 1;"
    Program((("t", 0),), 1, 0, [("kernel", kernel("bump", body), (0,), (), 3, 1)], ()).call(x[4:])
    assert x.tolist() == [0, 1, 2, 3, 5, 6, 7, 7, 8, 9]
    lazy = x._lazy_clone()
    Program((("t", 0),), 1, 0, [("kernel", kernel("bump", body), (0,), (), 3, 1)], ()).call(lazy)
    assert x.tolist() == [0, 1, 2, 3, 5, 6, 7, 7, 8, 9] and lazy.tolist() == [1, 2, 3, 3, 5, 6, 7, 7, 8, 9]


@needs_compiler
@pytest.mark.parametrize("make", [lambda: torch.randn(3, dtype=torch.complex64).conj().imag, lambda: torch._efficientzerotensor(3),
                                  lambda: torch.ones(3).to_sparse()])
def test_kernel_refuses_what_memory_alone_does_not_tell(make: Any) -> None:
    with pytest.raises((RuntimeError, NotImplementedError)):
        add_program().call(make(), torch.randn(3), 3)


def thread_ids(n: int, grain: int) -> tuple[list[int], list[int]]:
    """Which thread (its own number, and OpenMP's) ran each of n points."""
    source = """#include <unistd.h>
    #include <sys/syscall.h>
    int omp_get_thread_num(void);
    void where(void *const *p, const int64_t *ints, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) { ((int64_t *)p[0])[i] = syscall(SYS_gettid); ((int64_t *)p[1])[i] = omp_get_thread_num(); }
    }"""
    steps = [("alloc", s, torch.int64, CPU, (n,), (1,)) for s in (0, 1)]
    a, b = Program((), 2, 0, [*steps, ("kernel", address(source, "where"), (0, 1), (), n, grain)], (("t", 0), ("t", 1))).call()
    return a.tolist(), b.tolist()


@needs_compiler
def test_threads_are_torch_s() -> None:
    with open("/proc/self/maps") as maps:
        loaded = {line.split()[-1] for line in maps if "libgomp" in line}
    assert len(loaded) == 1
    ctypes.CDLL(loaded.pop(), mode=ctypes.RTLD_GLOBAL)   # so that the kernel of this test finds it
    before = torch.get_num_threads()
    try:
        for threads in (3, 1, 2):
            torch.set_num_threads(threads)
            own, numbers = thread_ids(1200, 100)
            assert len(set(own)) == threads and numbers == [i // (1200 // threads) for i in range(1200)]
            assert set(thread_ids(1200, 100)[0]) == set(own)     # one pool, kept
            torch.randn(1 << 18).exp()
            assert set(thread_ids(1200, 100)[0]) == set(own)
        torch.set_num_threads(3)
        assert set(thread_ids(100, 100)[1]) == {0} and set(thread_ids(150, 100)[1]) == {0, 1}
    finally:
        torch.set_num_threads(before)


# -- memory and views ---------------------------------------------------------------------------------
@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5)), max_size=4), st.integers(0, 3), st.data())
def test_views_and_buffers(dims: list[tuple[int, int]], offset: int, data: st.DataObject) -> None:
    sizes, strides = tuple(d[0] for d in dims), tuple(d[1] for d in dims)
    known = [data.draw(st.booleans()) for _ in dims]
    ints = [d[0] for d in dims] + [d[1] for d in dims]

    def exprs(values: tuple[int, ...], shift: int) -> tuple[Any, ...]:
        return tuple(v if k else ("i", i + shift) for i, (v, k) in enumerate(zip(values, known, strict=True)))

    n = len(dims)
    inputs = (("t", 0), *(("i", i) for i in range(2 * n)))
    program = Program(inputs, 3, 2 * n, [("view", 1, 0, exprs(sizes, 0), exprs(strides, n), offset),
                                         ("alloc", 2, torch.int16, CPU, exprs(sizes, 0), exprs(strides, n))], (("t", 1), ("t", 2)))
    base = torch.arange(data.draw(st.integers(1, 60)))[1:]

    def eager() -> tuple[Any, ...]:
        return (base.as_strided(sizes, strides, base.storage_offset() + offset), torch.empty_strided(sizes, strides, dtype=torch.int16))

    try:
        expected = eager()
    except RuntimeError:
        with pytest.raises(RuntimeError, match="ends outside its storage"):
            program.call(base, *ints)
        return
    view, buffer = program.call(base, *ints)
    same(view, expected[0])
    assert view.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
    assert (buffer.shape, buffer.stride(), buffer.dtype) == (expected[1].shape, expected[1].stride(), torch.int16)


def test_same_and_reuse_of_slots() -> None:
    program = Program((("t", 0),), 3, 0, [("same", 2, 0), NEGATE, ("free", 0), ("same", 0, 1), aten("add.Tensor", (("t", 0), ("t", 2)), (0,)),
                                          ("free", 1)], (("t", 0), ("t", 2), ("t", 2)))
    x = torch.randn(3)
    for _ in range(3):
        total, one, two = program.call(x)
        same(total, torch.zeros(3))
        assert one is x and two is x
    total, one, two = program([x])
    assert one is x and sys.getrefcount(x) == 4


def test_operator_that_returns_its_input() -> None:
    program = Program((("t", 0),), 2, 0, [aten("contiguous", (("t", 0),), (1,)), ("free", 0), aten("add_.Tensor", (("t", 1), 1), (1,))], (("t", 1),))
    x = torch.zeros(3)
    (y,) = program([x])
    assert y is x and x.tolist() == [1, 1, 1]
    (z,) = program([torch.zeros(2)])
    assert z.tolist() == [1, 1]


# -- the calling convention ------------------------------------------------------------------------------
def test_boxed_and_plain_calls() -> None:
    program = Program((("t", 0), ("i", 0)), 2, 1, [NEGATE], (("t", 1), ("i", 0)))
    x = torch.randn(3)
    args: list[Any] = [x, 4]
    out, n = program(args)
    same(out, -x)
    assert args == [] and n == 4 and program._boxed_call is True
    assert program.call(x, 4)[1] == 4 and repr(program) == "<Program: 2 inputs, 1 steps, 2 outputs>"
    assert weakref.ref(program)() is program


def test_arguments_that_do_not_fit() -> None:
    program: Any = Program((("t", 0), ("i", 0)), 2, 1, [NEGATE], (("t", 1),))
    x = torch.randn(3)
    for args, text in [((), "expected 2 arguments, got 0"), ((x, 1, 2), "expected 2 arguments, got 3"), ((1, 1), "argument 0 must be a Tensor, got int"),
                       ((x, x), "argument 1 must be an int, got Tensor"), ((x, 1.5), "argument 1 must be an int, got float"),
                       ((None, 1), "argument 0 must be a Tensor, got NoneType")]:
        with pytest.raises(TypeError, match=text):
            program.call(*args)
        boxed = list(args)
        with pytest.raises(TypeError, match=text):
            program(boxed)
        assert len(boxed) == len(args)
    with pytest.raises(OverflowError):
        program.call(x, 2**63)
    for wrong in ((x, 1), (), ((x, 1),)):
        with pytest.raises(TypeError, match="one list"):
            program(*wrong)
    with pytest.raises(TypeError):
        program([x, 1], name=3)
    with torch._subclasses.FakeTensorMode(), pytest.raises(TypeError, match="argument 0 is a FakeTensor"):
        program.call(torch.empty(3), 1)
    assert sys.getrefcount(x) == 3


@pytest.mark.parametrize("dynamic", [False, True])
def test_as_compiler_of_aot_autograd(dynamic: bool) -> None:
    def fn(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        b.mul_(0.5)
        y = torch.nn.functional.layer_norm(x @ w + b, (w.shape[1],)).relu()
        return y, y.t(), x.view(-1)

    compiled = aot_function(fn, lambda gm, _: Builder(gm).build(), lambda gm, _: Builder(gm).build(), dynamic=dynamic)
    for rows in (3, 3, 5) if dynamic else (3, 3):
        x, w, b = torch.randn(rows, 4), torch.randn(4, 6), torch.randn(6)
        results = []
        for run in (fn, compiled):
            args = [x.clone().requires_grad_(), w.clone().requires_grad_(), b.clone()]
            y, t, v = run(*args)
            (y.sum() + (t * 2).sum() + v.sum()).backward()
            results.append([y, t, v, args[0].grad, args[1].grad, args[2]])
        for ours, theirs in zip(*reversed(results), strict=True):
            torch.testing.assert_close(ours, theirs)


def test_parameters_and_subclasses_without_operators() -> None:
    program = Program((("t", 0),), 2, 0, [NEGATE], (("t", 0), ("t", 1)))
    p = torch.nn.Parameter(torch.ones(2))
    back, out = program.call(p)
    assert back is p and type(out) is torch.Tensor and not out.requires_grad


ONE = (("t", 0),)
BAD: list[tuple[type[Exception], str, tuple[Any, ...]]] = [
    (ValueError, "step 0 (same): slot 1 is read while it holds no tensor", (ONE, 2, 0, [("same", 0, 1)], ())),
    (ValueError, "step 1 (aten): aten::neg, argument 'self': slot 0 is read", (ONE, 2, 0, [("free", 0), NEGATE], ())),
    (ValueError, "step 1 (free): slot 0 is read", (ONE, 2, 0, [("free", 0), ("free", 0)], ())),
    (ValueError, "slot 1 is read", (ONE, 2, 0, [], (("t", 1),))),
    (ValueError, "there is no slot 2: the program has 2", (ONE, 2, 0, [("same", 2, 0)], ())),
    (ValueError, "there is no slot -1", (ONE, 2, 0, [("same", -1, 0)], ())),
    (ValueError, "there is no integer 0", (ONE, 2, 0, [("view", 1, 0, (("i", 0),), (1,), 0)], ())),
    (ValueError, "two inputs share slot 0", ((("t", 0), ("t", 0)), 2, 0, [], ())),
    (ValueError, "address is 0", (ONE, 2, 0, [("kernel", 0, (), (), 1, 1)], ())),
    (ValueError, "step 0 (checked): an error must be an IndexError or", (ONE, 2, 0, [("checked", 1, (), (), 1, 1, (("KeyError", ""),))], ())),
    (ValueError, "an error must be the exception's name and its text", (ONE, 2, 0, [("checked", 1, (), (), 1, 1, (("IndexError",),))], ())),
    (ValueError, "grain must be 1 or more", (ONE, 2, 0, [("kernel", 1, (), (), 1, 0)], ())),
    (ValueError, "step 0 (alloc): as many strides as sizes", (ONE, 2, 0, [("alloc", 1, torch.float32, CPU, (1,), ())], ())),
    (ValueError, "step 0 (views): unknown kind of step", (ONE, 2, 0, [("views", 1)], ())),
    (ValueError, "step 0 (ints): expected 2 items, got 1", (ONE, 2, 0, [("ints",)], ())),
    (TypeError, "expected a torch.dtype, got type", (ONE, 2, 0, [("alloc", 1, float, CPU, (1,), (1,))], ())),
    (TypeError, "expected a torch.device, got str", (ONE, 2, 0, [("alloc", 1, torch.half, "cpu", (1,), (1,))], ())),
    (TypeError, "expected an int or ('i', k), got float", (ONE, 2, 0, [("view", 1, 0, (1.5,), (1,), 0)], ())),
    (TypeError, "a slot must be an int, got str", (ONE, 2, 0, [("same", "x", 0)], ())),
    (TypeError, "a step must be a tuple", (ONE, 2, 0, [3], ())),
    (TypeError, "an input must be", ((3,), 2, 0, [], ())),
    (TypeError, "output 0 must be", (ONE, 2, 0, [], ("x",))),
    (TypeError, "must be tuples", ([], 2, 0, [], ())),
    (ValueError, "slots must be 0 or more", (ONE, -1, 0, [], ())),
    (OverflowError, "", (ONE, 2**70, 0, [], ())),
]


@pytest.mark.parametrize("kind,text,parts", BAD)
def test_programs_that_can_not_be(kind: type[Exception], text: str, parts: tuple[Any, ...]) -> None:
    with pytest.raises(kind) as caught:
        Program(*parts)
    assert text in str(caught.value)


# -- life of tensors ----------------------------------------------------------------------------------
def python_operator(name: str, fn: Any) -> Any:
    """A custom operator on one tensor, implemented in Python."""
    def implementation(x: torch.Tensor) -> torch.Tensor:
        return fn(x)

    return torch.library.custom_op(f"dynamo_nb_tests::{name}", implementation, mutates_args=())


def call_step(name: str, source: int, target: int) -> tuple[Any, ...]:
    return ("aten", f"dynamo_nb_tests::{name}", "", (("t", source),), (target,))


@pytest.mark.parametrize("retained", [False, True])
def test_inputs_die_when_freed(retained: bool) -> None:
    seen: list[bool] = []
    refs: list[Any] = []

    def look(x: torch.Tensor) -> torch.Tensor:
        seen.append(refs[0]() is None)
        return x.clone()

    keep = python_operator(f"look_{retained}", look)
    used = [aten("neg", (("t", 0),), (3,))] if retained else []
    steps = [*used, call_step(f"look_{retained}", 1, 2), ("free", 0), call_step(f"look_{retained}", 1, 2)]
    program = Program((("t", 0), ("t", 1)), 4, 0, steps, (("t", 2),))
    x, y = torch.randn(3), torch.randn(3)
    refs.append(weakref.ref(x))
    args = [x, y]
    del x
    program(args)
    assert seen == [False, True] and keep is not None
    x = torch.randn(3)
    refs[0] = weakref.ref(x)
    seen.clear()
    program([x, y])
    program.call(x, y)
    assert seen == [False] * 4 and sys.getrefcount(x) == 2 and sys.getrefcount(y) == 2
    assert x.add(1).shape == (3,)


def test_nothing_is_kept_after_an_exception() -> None:
    seen: list[Any] = []

    def fail(x: torch.Tensor) -> torch.Tensor:
        seen.append(weakref.ref(x))
        raise KeyError("own exception")

    python_operator("fail", fail)
    program = Program((("t", 0), ("t", 1)), 4, 0, [aten("neg", (("t", 0),), (2,)), call_step("fail", 2, 3)], (("t", 3),))
    x, y = torch.randn(3), torch.randn(3)
    for boxed in (False, True):
        with pytest.raises(KeyError, match="own exception"):
            if boxed:
                program([x, y])
            else:
                program.call(x, y)
        gc.collect()
        assert all(r() is None for r in seen) and sys.getrefcount(x) == 2 and sys.getrefcount(y) == 2
    mine = [torch.randn(3), torch.randn(3)]
    refs = [weakref.ref(t) for t in mine]
    with pytest.raises(KeyError):
        program(mine)
    gc.collect()
    assert mine == [] and all(r() is None for r in refs)


def live_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


@needs_compiler
def test_no_leak() -> None:
    program = add_program()
    failing = Program((("t", 0), ("t", 1)), 4, 0, [aten("neg", (("t", 0),), (2,)), aten("mm", (("t", 2), ("t", 1)), (3,))], (("t", 3),))
    a, b = torch.randn(10_000), torch.randn(10_000)

    def work(n: int) -> None:
        for _ in range(n):
            program([a.clone(), b, 10_000])
            with pytest.raises(RuntimeError):
                failing.call(a, b)

    work(50)
    before = live_bytes()
    work(500)
    assert live_bytes() - before < 4 << 20 and sys.getrefcount(a) == 2
    for _ in range(50):
        Program(ONE, 2, 0, [NEGATE], (("t", 1), 2.5))


# -- warnings, threads, nesting -----------------------------------------------------------------------------
def test_warnings_reach_python() -> None:
    program = Program(ONE, 2, 0, [aten("numpy_T", (("t", 0),), (1,))], (("t", 1),))

    def outcome(call: Any) -> Any:
        torch.set_warn_always(True)
        try:
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                call()
            with warnings.catch_warnings(), pytest.raises(UserWarning):
                warnings.simplefilter("error")
                call()
        finally:
            torch.set_warn_always(False)
        return [(w.category, str(w.message).split("(Triggered")[0]) for w in seen]

    x = torch.randn(2, 3, 4)
    expected = outcome(lambda: torch.randn(2, 3, 4).T)
    assert expected and outcome(lambda: program.call(x)) == expected and sys.getrefcount(x) == 2


def test_nested_programs() -> None:
    inner = Program(ONE, 2, 0, [NEGATE], (("t", 1),))
    outer: Program

    def nest(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 1:
            return torch.cat([outer([x[1:]])[0], inner.call(x[:1])[0]])
        return inner([x.clone()])[0]

    python_operator("nest", nest)
    outer = Program(ONE, 2, 0, [call_step("nest", 0, 1)], (("t", 1),))
    x = torch.arange(6.0)
    same(outer.call(x)[0], -x.flip(0))
    assert sys.getrefcount(x) == 2


@needs_compiler
def test_many_threads_and_no_gil() -> None:
    started, stop = threading.Event(), ctypes.c_int64(0)
    body = "volatile int64_t *stop = (volatile int64_t *)ints[0]; while (!*stop) ; ((int64_t *)p[0])[0] = 1;"
    waiting = Program(ONE, 1, 0, [("kernel", kernel("spin", body), (0,), (ctypes.addressof(stop),), 1, 1)], ())
    done = torch.zeros(1, dtype=torch.int64)

    def wait() -> None:
        started.set()
        waiting.call(done)

    spinning = threading.Thread(target=wait)
    spinning.start()
    started.wait()
    stop.value = 1                      # gets here only while the kernel doesn't hold the GIL
    spinning.join(20)
    assert done.item() == 1

    program = Program((("t", 0), ("t", 1), ("i", 0)), 4, 1, [
        ("alloc", 2, torch.float32, CPU, (("i", 0),), (1,)), ("kernel", kernel("add", ADD), (2, 0, 1), (), ("i", 0), 1 << 20), ("free", 0),
        aten("mul.Tensor", (("t", 2), ("t", 1)), (3,)), ("free", 1, 2)], (("t", 3),))
    wrong: list[Any] = []

    def work(seed: int) -> None:
        for n in range(1, 150):
            a, b = torch.full((n,), float(seed)), torch.full((n,), 2.0)
            (out,) = program([a.clone(), b.clone(), n]) if n % 2 else program.call(a, b, n)
            if not torch.equal(out, (a + b) * b):
                wrong.append((seed, n))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
