"""Python face of the native part: compiled functions, hook regions, cache entries, the guard tree, compiled graphs.

What comes in: functions, code objects, regions, native guard forms. What goes out: the types and
functions of `_native`, checked at import against the running Python and torch. Used by guards,
graph (tail calls, fragments), hook, convert and api.

A *unit* is (code, globals, builtins, closure, region) with the flat tuple of its bound locals:
positional-only, ordinary, keyword-only arguments, then the `*args` tuple and `**kwargs` dict.
The rewritten code of an entry takes them all as plain positional arguments.
"""

from __future__ import annotations

import atexit
import importlib
import os
import sys
import threading
import types
from typing import Any

SUPPORTED_PYTHON = (3, 11)
SUPPORTED_TORCH = "2.13"

if sys.version_info[:2] != SUPPORTED_PYTHON or sys.implementation.name != "cpython":
    _this = f"{sys.implementation.name} {sys.version.split()[0]}"
    raise ImportError(f"dynamo_nb needs CPython 3.11, this is {_this}: use a 3.11 environment.")

import torch  # noqa: E402  (the extension resolves its symbols against the libraries torch has loaded)

if torch.__version__.split("+")[0].rsplit(".", 1)[0] != SUPPORTED_TORCH:
    raise ImportError(
        f"dynamo_nb is made for torch {SUPPORTED_TORCH}, but torch {torch.__version__} is installed: "
        f"pip install 'torch=={SUPPORTED_TORCH}.0'."
    )

try:
    from . import _native
except ImportError as error:
    raise ImportError(
        f"dynamo_nb's extension module can't be loaded ({error}): build it with `pip install -e . --no-build-isolation`."
    ) from error

from ._native import (  # noqa: E402
    DEFAULT,
    RUN_ONLY,
    SKIP,
    SKIP_RECURSIVE,
    CacheEntry,
    CompiledFunction,
    GuardManager,
    NotPlain,
    Program,
    Region,
    RootGuardManager,
    TailCall,
    TrainedGraph,
    call_disabled,
    code_data,
    codes_with_state,
    compile_lock,
    content_equal,
    dict_item,
    disable_enter,
    disable_exit,
    get_action,
    get_entries,
    global_state,
    insert_entry,
    is_disabled,
    own_memory,
    pool_clear,
    pool_limit,
    pool_state,
    region_depth,
    remove_entry,
    reset_all,
    reset_code,
    run_fragment,
    sequence_item,
    set_action,
    set_disabled,
    share_versions,
    tail_call,
    tail_call_plain,
    tensor_address,
    tensor_meta,
    tensors_overlap,
)

__all__ = [
    "DEFAULT",
    "RUN_ONLY",
    "SKIP",
    "SKIP_RECURSIVE",
    "CacheEntry",
    "CompiledFunction",
    "GuardManager",
    "NotPlain",
    "Program",
    "Region",
    "RootGuardManager",
    "TailCall",
    "TrainedGraph",
    "call_disabled",
    "code_data",
    "codes_with_state",
    "compile_lock",
    "content_equal",
    "dict_item",
    "disable_enter",
    "disable_exit",
    "get_action",
    "get_entries",
    "global_state",
    "insert_entry",
    "is_disabled",
    "own_memory",
    "pool_clear",
    "pool_limit",
    "pool_state",
    "region_depth",
    "remove_entry",
    "reset_all",
    "reset_code",
    "run_fragment",
    "self_test",
    "sequence_item",
    "set_action",
    "set_disabled",
    "share_versions",
    "tail_call",
    "tail_call_plain",
    "tensor_address",
    "tensor_meta",
    "tensors_overlap",
]


def _may_wait() -> bool:
    """False while this thread holds a module's import lock: waiting for the compiler could then deadlock."""
    bootstrap: Any = importlib._bootstrap  # type: ignore[attr-defined]
    me = threading.get_ident()
    for reference in list(bootstrap._module_locks.values()):
        lock = reference()
        if lock is not None and getattr(lock, "owner", None) == me:
            return False
    return True


def _fail(fact: str) -> None:
    raise ImportError(f"dynamo_nb's native part does not fit this environment: {fact}. Reinstall it in this environment.")


def _test_tensors() -> None:
    for tensor in (torch.ones(2, 3), torch.nn.Parameter(torch.zeros(4)), torch.ones(3, dtype=torch.float64)[::2]):
        if _native.tensor_address(tensor) != tensor._cdata:
            _fail("a tensor object is laid out differently")
        keys, _dtype, _type, index, requires_grad, sizes, strides = _native.tensor_meta(tensor)
        expected = (torch._C._dispatch_keys(tensor).raw_repr(), tensor.requires_grad, tuple(tensor.shape), tensor.stride())
        if (keys, requires_grad, sizes, strides) != expected or index != -1:
            _fail("a tensor's metadata reads differently")


def _test_programs() -> None:
    """Runs an operator, lets one raise, and gets an argument back."""
    tensor, other = torch.ones(2), torch.ones(3)
    add = ("aten", "aten::add", "Tensor", (("t", 0), ("t", 1), 1), (2,))
    program = Program((("t", 0), ("t", 1)), 3, 0, [add], (("t", 0), ("t", 2)))
    try:
        same, total = program.call(tensor, tensor)
        program.call(tensor, other)
    except RuntimeError as error:
        if same is tensor and total.tolist() == [2.0, 2.0] and "size of tensor" in str(error):
            return
    _fail("operators can't be called")


def _test_frames() -> None:
    """Runs a function through the hook once, with a converter that hands back its own code."""
    seen = []

    def inner(a: int, *, b: int = 2) -> tuple[int, int]:
        return a, b

    def convert(code: types.CodeType, *rest: object) -> CacheEntry | None:
        if code is not inner.__code__:
            return None
        seen.append(rest)
        flags = code.co_flags & ~0xC
        target = code.replace(co_argcount=2, co_kwonlyargcount=0, co_flags=flags)
        entry = CacheEntry(target, RootGuardManager(), region)
        insert_entry(code, entry)
        return entry

    region = Region(convert, "self test")
    region.enter()
    try:
        result = (inner(1), inner(a=3, b=4))
    finally:
        region.exit()
    reset_code(inner.__code__)
    if result != ((1, 2), (3, 4)) or len(seen) != 1 or seen[0][3] != (1, 2) or region_depth() != 0:
        _fail("frames are laid out differently")


def self_test() -> None:
    """Checks every fact about this Python and torch that the extension relies on; ImportError names the one that fails."""
    if _native.build_facts()["python_minor"] != sys.version_info[1]:
        _fail("it was built for another Python version")
    _test_tensors()
    _test_programs()
    _test_frames()


def _singleton_types() -> tuple[type, ...]:
    return (torch.dtype, torch.layout, torch.memory_format, torch.qscheme)


def _numpy_types() -> tuple[tuple[type, ...], tuple[type, ...]]:
    """NumPy's dtype classes, and its number types."""
    import numpy

    dtypes = [numpy.dtype(code) for code in "?bBhHiIlLqQefdgFDG"]
    return tuple({type(d) for d in dtypes}), tuple({d.type for d in dtypes})


_native.set_tensor_type(torch._C.TensorBase)
_dtypes, _scalars = _numpy_types()
_native.set_content_types(_singleton_types(), (torch.device, *_dtypes), _scalars)
_native.set_may_wait(_may_wait)
atexit.register(_native.set_disabled, True)  # nothing is compiled while the interpreter goes down
os.register_at_fork(after_in_child=_native.after_fork)
self_test()
