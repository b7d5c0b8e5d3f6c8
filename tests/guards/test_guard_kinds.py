"""Every guard kind: what passes, what fails, and why it says so. Strict mode compares the three forms each time."""

from __future__ import annotations

import collections
import enum
import gc
import math
import struct
import weakref
from typing import Any

import numpy
import pytest
import torch
from guard_helpers import assume, check, on, tree
from hypothesis import given, settings
from hypothesis import strategies as st

from dynamo_nb import guards, native
from dynamo_nb.core.source import InstanceDictSource, LocalSource
from dynamo_nb.guards import content

V, W, U = LocalSource("v"), LocalSource("w"), LocalSource("u")


class Plain:
    pass


class Slotted:
    __slots__ = ("a",)


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1


Pair = collections.namedtuple("Pair", "a b")
NAN, OTHER_NAN = float("nan"), struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]

DIFFERENT = [
    0, 1, -1, True, False, None, ..., NotImplemented, 0.0, -0.0, 1.0, NAN, OTHER_NAN, math.inf, 0j, complex(0, -0.0), 1 << 80,
    "", "a", "1", b"", b"a", (), (1,), (True,), (1.0,), ((1,),), (0.0,), (-0.0,), [1], [True], frozenset(), frozenset({1}),
    frozenset({True}), frozenset({1.0}), frozenset({1, 2}), {1}, slice(1), slice(True), slice(0, 1), range(1), range(0, 1, 2), range(2),
    Color.RED, Color.BLUE, Level.LOW, Pair(1, 2), (1, 2), torch.Size([1, 2]), torch.float32, torch.float64, torch.device("cpu"),
    torch.device("cpu", 0), torch.strided, torch.contiguous_format, int, bool, Plain, int.__add__, int.__sub__, float.__add__,
    str.join, vars(Slotted)["a"],
    (3).__add__, (4).__add__, numpy.float32(1), numpy.float64(1), numpy.float32(-0.0), numpy.float32(0.0), numpy.int64(1),
    numpy.bool_(True), numpy.dtype("float32"), numpy.dtype("float64"),
]  # fmt: skip


@pytest.mark.parametrize("i", range(len(DIFFERENT)), ids=lambda i: repr(DIFFERENT[i])[:30])
def test_equals_match_tells_all_these_values_apart(i):
    wrapper = on("EQUALS_MATCH", DIFFERENT[i])
    assert [check(wrapper, v) for v in DIFFERENT] == [j == i for j in range(len(DIFFERENT))]


def test_equals_match_accepts_equal_copies():
    for make in (lambda: 10**30, lambda: "ab" * 100, lambda: (1, ("x" * 3, frozenset({(2, 3.5), "y"}))), lambda: Pair("q" * 9, [1, 2])):
        assert check(on("EQUALS_MATCH", make()), make())
    wrapper = on("EQUALS_MATCH", 3)
    assert wrapper.guards[0].text() == "L['v'] == 3" and wrapper.reason((4,), {}) == "L['v'] == 3 no longer holds: it is 4"
    assert "of type" in on("EQUALS_MATCH", 3).reason((Three(3),), {})


class Three(int):
    def __repr__(self):
        return "3"


def test_equals_match_never_runs_user_code():
    class Evil(int):
        def __eq__(self, other):
            raise AssertionError("ran")

        __hash__ = int.__hash__

    class EvilTuple(tuple):
        def __getitem__(self, i):
            raise AssertionError("ran")

    assert not check(on("EQUALS_MATCH", 1), Evil(1))
    assert not check(on("EQUALS_MATCH", (1,)), EvilTuple((1,)))


def test_equals_match_is_not_moved_by_a_mutated_payload():
    payload = [1, 2]
    wrapper = on("EQUALS_MATCH", payload)
    payload.append(3)
    assert check(wrapper, [1, 2]) and not check(wrapper, payload)


constants = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(width=16)
    | st.text("ab", max_size=2)
    | st.sampled_from([1.0, -0.0, 0.0, 1j, b"a"]),
    lambda inner: st.lists(inner, max_size=2).map(tuple) | st.frozensets(inner.filter(lambda v: not isinstance(v, list)), max_size=2),
    max_leaves=4,
)


@settings(max_examples=300, deadline=None)
@given(constants, constants)
def test_content_comparison_agrees_with_python_form(a, b):
    assert native.content_equal(a, b) == content.pattern(a).check(b) == native.content_equal(b, a)
    assert native.content_equal(a, a)
    if native.content_equal(a, b):
        assert content._const_key(a) == content._const_key(b)


@pytest.mark.parametrize("value", [Plain(), {}, torch.ones(1), lambda: 0, (1, Plain()), bytearray(b"")], ids=repr)
def test_what_has_no_content_cannot_be_guarded_by_content(value):
    with pytest.raises(guards.GuardBuildError, match=r"EQUALS_MATCH on L\['v'\] can't be guarded .*user.py:7"):
        on("EQUALS_MATCH", value)


def test_type_match():
    wrapper = on("TYPE_MATCH", int)
    assert check(wrapper, 1) and not check(wrapper, True) and not check(wrapper, 1.0)
    wrapper = on("TYPE_MATCH", Plain)
    value = Plain()
    assert check(wrapper, value)
    value.__class__ = type("Plain", (Plain,), {})
    assert not check(wrapper, value)
    assert wrapper.reason((value,), {}).startswith("expected type of L['v'] to be ")
    with pytest.raises(guards.GuardBuildError, match="needs a class"):
        on("TYPE_MATCH", 3)


def test_types_and_objects_are_held_weakly_and_void_when_dead():
    def build():
        class Local:
            pass

        value = Local()
        both = tree(assume(V, "TYPE_MATCH", Local), assume(V, "ID_MATCH", value), assume(V, "CLASS_ATTR_ABSENT", "zz"))
        pinned = tree(assume(V, "EQUALS_MATCH", (Local,)), assume(W, "DICT_KEYS", (Local, "a")))
        assert check(both, value) and check(pinned, (Local,), {Local: 1, "a": 2})
        return both, pinned, weakref.ref(Local), weakref.ref(value)

    both, pinned, kind, value = build()
    gc.collect()
    assert kind() is None and value() is None
    for candidate in (None, 1, (None,), (int,)):
        assert not check(both, candidate) and not check(pinned, candidate, {None: 1, "a": 2})


def test_id_match():
    value = Plain()
    wrapper = on("ID_MATCH", value)
    assert check(wrapper, value) and not check(wrapper, Plain())
    assert check(on("ID_MATCH", len), len) and check(on("ID_MATCH", None), None) and not check(on("ID_MATCH", None), 0)
    with pytest.raises(guards.GuardBuildError, match="ID_MATCH"):
        on("ID_MATCH", 12345678)


def test_constant_match():
    for value in (None, True, False, ..., NotImplemented):
        wrapper = on("CONSTANT_MATCH", value)
        assert [check(wrapper, v) for v in (None, True, False, ..., NotImplemented, 1, 0)].count(True) == 1
        assert check(wrapper, value)
    wrapper = on("CONSTANT_MATCH", "text")
    assert check(wrapper, "te" + "xt") and not check(wrapper, b"text")
    assert on("CONSTANT_MATCH", True).reason((False,), {}) == "L['v'] is True no longer holds: it is False"


def test_attributes():
    value = Plain()
    has, lacks = on("HASATTR", "a"), on("NO_HASATTR", "a")
    assert not check(has, value) and check(lacks, value)
    value.a = 1
    assert check(has, value) and not check(lacks, value)
    assert "an attribute 'a' now" in lacks.reason((value,), {})
    slotted = Slotted()
    assert check(lacks, slotted) and not check(has, slotted)
    slotted.a = None
    assert check(has, slotted)
    tensor = torch.ones(1)
    mark = on("NO_HASATTR", "_dynamo_dynamic_indices")
    assert check(mark, tensor)
    tensor._dynamo_dynamic_indices = {0}
    assert not check(mark, tensor) and not check(on("NO_HASATTR", "grad"), tensor)

    class Dynamic:
        def __getattr__(self, name):
            if name == "a":
                return 1
            raise AttributeError(name)

    assert check(has, Dynamic()) and check(on("NO_HASATTR", "b"), Dynamic())


def test_attribute_that_raises_something_else_is_a_miss():
    class Bad:
        @property
        def a(self):
            raise RuntimeError("no")

    assert not tree(assume(V, "HASATTR", "a")).root.check_flat((Bad(),), {}, {})
    assert not tree(assume(V, "NO_HASATTR", "a")).root.check_flat((Bad(),), {}, {})


def test_sequence_and_dict_length():
    wrapper = on("SEQUENCE_LENGTH", 2, tuple)
    assert check(wrapper, (1, 2)) and not check(wrapper, (1,)) and not check(wrapper, [1, 2]) and not check(wrapper, Pair(1, 2))
    untyped = on("SEQUENCE_LENGTH", 2)
    assert check(untyped, [1, 2]) and check(untyped, collections.deque([1, 2])) and not check(untyped, 3)

    class Liar(list):
        def __len__(self):
            return 99

    assert check(untyped, Liar([1, 2])) and not check(on("SEQUENCE_LENGTH", 99), Liar([1, 2]))
    assert check(on("DICT_LENGTH", 1), {1: 2}) and not check(on("DICT_LENGTH", 1), {})
    assert on("DICT_LENGTH", 1).reason(({},), {}) == "len(L['v']) == 1 no longer holds: it is 0"


def test_dict_keys():
    key = Plain()
    wrapper = on("DICT_KEYS", ("a", 1, key))
    assert check(wrapper, {"a": 0, 1: 0, key: 0})
    for bad in (
        {"a": 0, True: 0, key: 0},
        {1: 0, "a": 0, key: 0},
        {"a": 0, 1: 0, Plain(): 0},
        {"a": 0, 1: 0},
        [],
        {"a": 0, 1: 0, key: 0, 2: 0},
    ):
        assert not check(wrapper, bad)
    ordered = collections.OrderedDict.fromkeys(("a", 1, key))
    assert check(wrapper, ordered)
    ordered.move_to_end("a")
    assert not check(wrapper, ordered)
    assert "keys of L['v'] changed" in wrapper.reason(({},), {})


def test_dict_contains_and_set_contents():
    wrapper = tree(assume(V, "DICT_CONTAINS", "k", True), assume(V, "DICT_CONTAINS", "z", False))
    assert check(wrapper, {"k": 1}) and not check(wrapper, {}) and not check(wrapper, {"k": 1, "z": 2}) and not check(wrapper, 3)
    assert check(wrapper, {"k"}) and check(wrapper, frozenset({"k"}))
    assert on("DICT_CONTAINS", "z", False).reason(({"z": 1},), {}) == "L['v'] now has the key 'z'"
    marker = Plain()
    members = on("SET_CONTENTS", frozenset({1, "a", marker}))
    assert check(members, {1, "a", marker}) and check(members, frozenset({"a", marker, 1}))
    for bad in ({True, "a", marker}, {1, "a", Plain()}, {1, "a"}, [1, "a", marker], {1, "a", marker, 2}):
        assert not check(members, bad)


def test_key_whose_comparison_raises_is_a_miss():
    class Key:
        def __hash__(self):
            return hash("k")

        def __eq__(self, other):
            raise RuntimeError("no")

    assert not on("DICT_CONTAINS", "k", True).root.check_flat(({Key(): 1},), {}, {})


def test_class_attr_absent():
    class Base:
        pass

    class Derived(Base):
        pass

    wrapper = on("CLASS_ATTR_ABSENT", "late")
    assert check(wrapper, Derived())
    Base.late = 1
    assert not check(wrapper, Derived()) and "now has 'late'" in wrapper.reason((Derived(),), {})
    del Base.late
    assert check(wrapper, Derived())


def _function(text: str, name: str = "f") -> Any:
    space: dict[str, Any] = {}
    exec(compile(text, f"file{len(text)}", "exec"), space)
    return space[name]


def test_function_match_by_content():
    text = "def f(x):\n    def g(y=(1, 2.0)): return y\n    return g() + x"
    wrapper = on("FUNCTION_MATCH", _function(text).__code__)
    same = _function("\n\n# moved down\n" + text)
    assert check(wrapper, same) and check(wrapper, same.__code__)
    for _ in range(60):
        with pytest.raises(TypeError):
            same(1)
    assert check(wrapper, same)  # specialised bytecode is the same program
    for other in (
        text.replace("2.0", "2"),
        text.replace("+ x", "- x"),
        text.replace("y=(1", "z=(1").replace("return y", "return z"),
        text.replace("(1, ", "(True, "),
    ):
        assert not check(wrapper, _function(other))
    assert not check(wrapper, len) and "other code" in wrapper.reason((len,), {})
    with pytest.raises(guards.GuardBuildError, match="needs a code object"):
        on("FUNCTION_MATCH", len)


def test_function_match_keeps_no_code_alive():
    f = _function("def f(): return 1")
    wrapper = on("FUNCTION_MATCH", f.__code__)
    assert check(wrapper, f)
    gone = weakref.ref(f.__code__)
    del f
    gc.collect()
    assert gone() is None and check(wrapper, _function("def f(): return 1"))


def test_weakref_nan_and_iterators():
    value = Plain()
    ref = weakref.ref(value)
    wrapper = on("WEAKREF_ALIVE")
    assert check(wrapper, ref)
    del value
    assert not check(wrapper, ref) and not wrapper.root.check_flat((3,), {}, {})
    assert check(on("FLOAT_IS_NAN"), NAN) and not check(on("FLOAT_IS_NAN"), 1.0) and not check(on("FLOAT_IS_NAN"), None)
    it = iter((1, 2, 3))
    next(it)
    left = on("TUPLE_ITERATOR_LEN", 2)
    assert check(left, it) and not check(left, iter((1,))) and not check(left, iter([1, 2]))
    ranges = iter(range(3, 20, 2))
    next(ranges)
    match = on("RANGE_ITERATOR_MATCH", ranges)
    twin = iter(range(3, 20, 2))
    assert not check(match, twin)
    next(twin)
    assert check(match, twin) and not check(match, iter(range(5))) and not check(match, 3)
    big = iter(range(1 << 70, (1 << 70) + 5))
    assert check(on("RANGE_ITERATOR_MATCH", big), iter(range(1 << 70, (1 << 70) + 5)))


def test_dynamic_indices_and_callback():
    tensor = torch.ones(2, 3)
    wrapper = on("DYNAMIC_INDICES", frozenset({0}))
    assert check(wrapper, tensor)
    tensor._dynamo_dynamic_indices = {0}
    assert check(wrapper, tensor)
    tensor._dynamo_dynamic_indices = {0, 1}
    assert not check(wrapper, tensor) and not check(on("DYNAMIC_INDICES", frozenset()), tensor)
    odd = on("CALLBACK", lambda v: v % 2, "v is odd")
    assert check(odd, 3) and not check(odd, 4) and odd.reason((4,), {}) == "v is odd no longer holds for L['v']"
    assert not odd.root.check_flat(("x",), {}, {})


def test_object_aliasing():
    same, different = tree(assume(V, "OBJECT_ALIASING", W, True)), tree(assume(V, "OBJECT_ALIASING", W, False))
    a, b = [1], [1]
    assert check(same, a, a) and not check(same, a, b) and check(different, a, b) and not check(different, a, a)
    assert different.reason((a, a), {}) == "L['v'] and L['w'] are now the same object"
    through = tree(assume(InstanceDictSource(V), "OBJECT_ALIASING", InstanceDictSource(W), False))
    p, q = Plain(), Plain()
    assert check(through, p, q)
    q.__dict__ = p.__dict__
    assert not check(through, p, q)


def test_tensor_aliasing_and_overlap():
    base = torch.zeros(10)
    a, b, c = base[:5], base[5:], base[3:7]
    distinct = tree(assume(V, "NO_TENSOR_ALIASING", (W, U)))
    assert check(distinct, a, b, c) and not check(distinct, a, b, a)
    disjoint = tree(assume(V, "NO_STORAGE_OVERLAP", (W, U)))
    assert check(disjoint, a, b, torch.ones(2)) and not check(disjoint, a, b, c)
    overlap = tree(assume(V, "STORAGE_OVERLAP", (W,), True))
    assert check(overlap, a, c) and not check(overlap, a, b)
    apart = tree(assume(V, "STORAGE_OVERLAP", W, False))
    assert check(apart, a, b) and not check(apart, base, b) and check(apart, torch.empty(0), base)
    assert apart.reason((a, a), {}) == "memory of v and w now overlaps"


def test_global_state():
    wrapper = tree(assume(None, "GLOBAL_STATE"), assume(None, "GRAD_MODE"))
    assert len(wrapper.guards) == 1 and check(wrapper)
    with torch.no_grad():
        assert not check(wrapper) and "grad_mode was True, is False" in wrapper.reason((None, None, None), {})
    for context in (torch.inference_mode(), torch.autocast("cpu"), torch._C.DisableTorchFunction()):
        with context:
            assert not check(wrapper)
        assert check(wrapper)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = tree(assume(None, "GLOBAL_STATE"))
        assert check(inside)
        with torch.autocast("cpu", dtype=torch.float16):
            assert not check(inside)
    torch.set_default_dtype(torch.float64)
    try:
        assert not check(wrapper)
    finally:
        torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(True)
    try:
        assert not check(wrapper)
    finally:
        torch.use_deterministic_algorithms(False)

    class Mode(torch.overrides.TorchFunctionMode):
        pass

    with Mode():
        assert not check(wrapper)
        inside = tree(assume(None, "TORCH_FUNCTION_STATE"))
        assert check(inside)
    assert not check(inside) and check(wrapper)


def test_default_device():
    wrapper = tree(assume(None, "DEFAULT_DEVICE"))
    assert check(wrapper)
    torch.set_default_device("meta")
    try:
        assert not check(wrapper) and "default device changed: expected None" in wrapper.reason((None,) * 3, {})
    finally:
        torch.set_default_device(None)
    assert check(wrapper)


def test_at_least_24_kinds_are_attributes_of_the_builder():
    names = [name for name in dir(guards.GuardBuilder) if name.isupper()]
    assert len(names) >= 24
    assert {"TENSOR_MATCH", "SHAPE_ENV", "TYPE_MATCH", "ID_MATCH", "EQUALS_MATCH", "CONSTANT_MATCH"} <= set(names)
    with pytest.raises(guards.GuardBuildError, match="unknown guard kind"):
        on("NO_SUCH_KIND")
    with pytest.raises(guards.GuardBuildError, match="needs a source"):
        tree(assume(None, "TYPE_MATCH", int))
