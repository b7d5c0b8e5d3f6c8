"""Which callables and frames are inlined, put in the graph, folded, skipped: readable tables.

`classify(fn)` answers for a Python function; the tables are by module prefix, the longest prefix wins.
`is_foldable(fn)` answers for a callable whose operands are all constants. `should_skip_frame(code)`
answers for frames met by the hook.
"""

from __future__ import annotations

import enum
import functools
import math
import operator
import os
import sys
import sysconfig
import types
from typing import Any


class Rule(enum.Enum):
    INLINE = "inline"        # trace into its bytecode
    IN_GRAPH = "in graph"    # one node
    SKIP = "skip"            # call it eagerly: a graph break
    DISABLED = "disabled"    # marked by disable()


# Python functions by module prefix.
MODULE_RULES: dict[str, Rule] = {
    "torch": Rule.INLINE,
    "torch.functional": Rule.IN_GRAPH,
    "torch.nn.functional": Rule.IN_GRAPH,
    "torch.fft": Rule.IN_GRAPH,
    "torch.linalg": Rule.IN_GRAPH,
    "torch.special": Rule.IN_GRAPH,
    "torch.signal": Rule.IN_GRAPH,
    "torch._tensor": Rule.IN_GRAPH,
    "torch._dynamo": Rule.SKIP,
    "torch._inductor": Rule.SKIP,
    "torch._functorch": Rule.SKIP,
    "torch._higher_order_ops": Rule.SKIP,
    "torch._export": Rule.SKIP,
    "torch.export": Rule.SKIP,
    "torch._subclasses": Rule.SKIP,
    "torch._guards": Rule.SKIP,
    "torch._logging": Rule.SKIP,
    "torch._ops": Rule.SKIP,
    "torch.library": Rule.SKIP,
    "torch._library": Rule.SKIP,
    "torch.fx": Rule.SKIP,
    "torch.jit": Rule.SKIP,
    "torch.onnx": Rule.SKIP,
    "torch.package": Rule.SKIP,
    "torch.multiprocessing": Rule.SKIP,
    "torch.distributed": Rule.SKIP,
    "torch.nn.parallel.distributed": Rule.INLINE,
    "torch.profiler": Rule.SKIP,
    "torch.random": Rule.SKIP,
    "torch.serialization": Rule.SKIP,
    "torch.storage": Rule.SKIP,
    "torch.testing": Rule.SKIP,
    "torch.utils.data": Rule.SKIP,
    "torch.utils.cpp_extension": Rule.SKIP,
    "torch.utils.checkpoint": Rule.SKIP,
    "torch.utils._device": Rule.SKIP,
    "torch.autograd": Rule.SKIP,
    "torch.autograd.grad_mode": Rule.INLINE,
    "torch.autograd.function": Rule.SKIP,
    "torch.autograd.forward_ad": Rule.SKIP,
    "torch.autograd.profiler": Rule.SKIP,
    "torch.cuda": Rule.SKIP,
    "torch.optim": Rule.INLINE,
    "torch.overrides": Rule.SKIP,
    "torch.nn.modules": Rule.INLINE,
    "torch.nn.init": Rule.INLINE,
    "torch.ao": Rule.INLINE,
    "dynamo_nb": Rule.SKIP,
    "dynamo_nb.symbolic.polyfills": Rule.INLINE,
    "kernel_ext": Rule.SKIP,
    "numpy": Rule.SKIP,
    # the standard library runs as it is, except the modules below
    "stdlib": Rule.SKIP,
    "collections": Rule.INLINE,
    "contextlib": Rule.INLINE,
    "copy": Rule.INLINE,
    "dataclasses": Rule.INLINE,
    "enum": Rule.INLINE,
    "functools": Rule.INLINE,
    "operator": Rule.INLINE,
    "types": Rule.INLINE,
    "typing": Rule.INLINE,
    "abc": Rule.INLINE,
    "_collections_abc": Rule.INLINE,
    "_weakrefset": Rule.INLINE,
    "bisect": Rule.INLINE,
    "heapq": Rule.INLINE,
    "string": Rule.INLINE,
    "statistics": Rule.INLINE,
    "fractions": Rule.INLINE,
    "numbers": Rule.INLINE,
    "reprlib": Rule.INLINE,
    "inspect": Rule.INLINE,
    "queue": Rule.SKIP,
    "threading": Rule.SKIP,
    "logging": Rule.SKIP,
    "random": Rule.SKIP,
}

# Pure functions: folded when every operand is constant.
PURE_MODULES = frozenset({
    "math", "cmath", "_operator", "operator", "re", "posixpath", "genericpath", "fnmatch", "textwrap", "unicodedata", "struct", "binascii",
    "html",
})
PURE: frozenset[str] = frozenset(
    """json.dumps json.loads
    builtins.abs builtins.ascii builtins.bin builtins.chr builtins.divmod builtins.format builtins.hash builtins.hex builtins.len
    builtins.max builtins.min builtins.oct builtins.ord builtins.pow builtins.repr builtins.round builtins.sorted builtins.sum
    builtins.any builtins.all builtins.callable
    torch.finfo torch.iinfo torch.promote_types torch.can_cast torch.result_type torch.typename torch.is_storage
    inspect.isfunction inspect.isclass inspect.ismethod sys.intern sys.getsizeof copy.copy copy.deepcopy""".split()
)
# Frames of these modules run with everything beneath them left to Python: what they call runs again later.
OPAQUE_MODULES = frozenset({"torch.utils.checkpoint", "torch._dynamo.eval_frame"})
NOT_PURE = frozenset({"builtins.hash"})
# Third-party code whose module-level functions, classes and modules are taken as given, without guards.
TRUSTED_ROOTS = frozenset({"torch", "dynamo_nb", "numpy"})


@functools.lru_cache(maxsize=1)
def stdlib_names() -> frozenset[str]:
    return frozenset(sys.stdlib_module_names)


@functools.lru_cache(maxsize=4096)
def rule_of_module(name: str) -> Rule:
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        rule = MODULE_RULES.get(".".join(parts[:count]))
        if rule is not None:
            return rule
    return MODULE_RULES["stdlib"] if parts[0] in stdlib_names() else Rule.INLINE


def is_trusted_module(name: str | None) -> bool:
    root = (name or "").split(".")[0]
    return root in TRUSTED_ROOTS or (root in stdlib_names() and root != "__main__")


def behind_torch_dynamo(fn: types.FunctionType) -> types.FunctionType:
    """Once torch._dynamo has run, it wraps nn.Module.__init__ and __setstate__ to number modules for itself: the function wrapped."""
    if fn.__module__ == "torch._dynamo.mutation_guard" and fn.__name__.startswith("patched_"):
        for cell in fn.__closure__ or ():
            if isinstance(cell.cell_contents, types.FunctionType):
                return cell.cell_contents
    return fn


def classify(fn: types.FunctionType) -> Rule:
    if fn.__dict__.get("_torchdynamo_disable"):
        return Rule.DISABLED
    if fn.__dict__.get("_dynamo_nb_in_graph"):
        return Rule.IN_GRAPH
    module = fn.__globals__.get("__name__") or fn.__module__ or ""
    if not isinstance(module, str):
        return Rule.INLINE
    if module == "torch" and fn.__code__.co_filename.endswith("torch/__init__.py"):
        return Rule.IN_GRAPH if fn.__name__ in TORCH_TOP_LEVEL_OPS else Rule.SKIP
    return rule_of_module(module)


TORCH_TOP_LEVEL_OPS = frozenset({"sym_int", "sym_float", "sym_max", "sym_min", "sym_not", "sym_ite", "sym_sum", "sym_fresh_size"})


def qualified(fn: Any) -> str:
    return f"{getattr(fn, '__module__', None)}.{getattr(fn, '__qualname__', None) or getattr(fn, '__name__', '')}"


def is_foldable(fn: Any) -> bool:
    name = qualified(fn)
    if name in NOT_PURE:
        return False
    module = getattr(fn, "__module__", None)
    if module in PURE_MODULES or name in PURE:
        return True
    if isinstance(fn, types.BuiltinMethodType) and not isinstance(fn.__self__, types.ModuleType):
        by_name = fn.__name__ in ("fromhex", "maketrans", "from_bytes", "fromkeys", "join", "format")
        return by_name and type(fn.__self__) in (str, bytes, int, float, complex, bool, type)
    return False


PACKAGE_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_STDLIB_PATHS = tuple({sysconfig.get_paths()[k] for k in ("stdlib", "platstdlib")})


@functools.lru_cache(maxsize=1)
def _torch_root() -> str:
    import torch

    return os.path.dirname(torch.__file__)


def should_skip_frame(code: types.CodeType, module: str | None) -> str | None:
    """Why a frame met by the hook is left to Python; None if it may be compiled."""
    if code.co_flags & 0x2A0:
        return "generators, coroutines and async generators run as they are"
    name = code.co_name
    if name in ("<module>", "<genexpr>", "__setattr__", "__getattr__", "__del__"):
        return f"{name} frames are not compiled on their own"
    if isinstance(module, str) and module:
        root = module.split(".")[0]
        if rule_of_module(module) is Rule.SKIP:
            return f"module {module} is skipped"
        if root in stdlib_names() and root != "__main__":
            return f"module {module} is part of the standard library"
        if root == "torch" and not module.startswith(("torch.nn.modules", "torch.optim", "torch.ao")):
            return f"module {module} is part of torch"
        if root in ("IPython", "ipykernel", "pytest", "_pytest", "pluggy", "hypothesis", "traitlets", "jupyter_client", "zmq", "tornado"):
            return f"module {module} is a tool"
    elif code.co_filename.startswith(_torch_root()):        # what AOTAutograd generates has no module
        return "generated by torch"
    if code.co_filename.startswith(PACKAGE_ROOT):
        return "the compiler's own code"
    if code.co_filename.startswith("<frozen"):
        return "frozen module"
    return None


ARITHMETIC = {name: getattr(operator, name) for name in dir(operator) if not name.startswith("_")}
MATH = {name: getattr(math, name) for name in dir(math) if not name.startswith("_")}
