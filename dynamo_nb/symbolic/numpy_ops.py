"""The graph's NumPy operations: one module-level function `np_<name>` per NumPy function, method or operator.

In: tensors standing for arrays, and plain constants. Out: a tensor standing for the result (no
dimensions where NumPy gives a scalar). Run on ordinary tensors, an operation calls NumPy itself on the
tensors' memory, so values, errors and warnings are NumPy's. Seen by a tracer of torch (fake tensors,
functionalisation, a proxy mode) it goes through `torch._numpy`, so that a backend gets torch operations;
where torch rounds otherwise than NumPy, or NumPy often warns, the backend gets one opaque operator
`dynamo_nb::numpy` that runs NumPy. `numpy_trial` decides beforehand whether torch._numpy agrees. Called by
graphs; made here, used by `variables.numpy_array` and `builtins.numpy_`.
"""

from __future__ import annotations

import functools
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch._numpy as tnp
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

DTYPES: dict[torch.dtype, np.dtype[Any]] = {
    getattr(torch, str(d)): d for d in map(np.dtype, ("bool", "int8", "int16", "int32", "int64", "uint8", "float16", "float32", "float64", "complex64", "complex128"))
}
ALL: dict[str, Any] = {}


def map_nested(change: Callable[[Any], Any], value: Any) -> Any:
    """Apply `change` to the leaves of lists, tuples, dicts and slices."""
    if isinstance(value, (list, tuple)):
        return type(value)(map_nested(change, v) for v in value)
    if isinstance(value, dict):
        return {k: map_nested(change, v) for k, v in value.items()}
    if isinstance(value, slice):
        return slice(*(map_nested(change, v) for v in (value.start, value.stop, value.step)))
    return change(value)


def leaves(value: Any) -> list[Any]:
    found: list[Any] = []
    map_nested(found.append, value)
    return found


def to_array(tensor: torch.Tensor) -> Any:
    """The array that a graph output stands for; it shares the tensor's memory."""
    return tensor.detach().numpy()


def to_scalar(tensor: torch.Tensor) -> Any:
    return tensor.detach().numpy()[()]


def from_numpy_result(value: Any) -> Any:
    """A tensor over the memory of NumPy's result; a scalar becomes a tensor without dimensions."""
    if isinstance(value, np.generic):
        return torch.from_numpy(np.array(value))
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def is_traced(values: list[Any]) -> bool:
    """Do the operands, or an active mode, belong to a tracer that must see torch operations?"""
    if _get_current_dispatch_mode_stack() or torch._C._functorch.peek_interpreter_stack() is not None:
        return True
    return any(isinstance(v, torch.Tensor) and type(v) not in (torch.Tensor, torch.nn.Parameter) for v in values)


def _wrap(value: Any) -> Any:
    return tnp.ndarray(value) if isinstance(value, torch.Tensor) else value


def _unwrap(value: Any) -> Any:
    if isinstance(value, tnp.ndarray):
        return value.tensor.resolve_conj().resolve_neg()
    return value


def via_numpy(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    def change(value: Any) -> Any:
        return to_array(value) if isinstance(value, torch.Tensor) else value

    result = op.numpy_fn(*map_nested(change, args), **map_nested(change, kwargs))
    return args[0] if op.returns_first else from_numpy_result(result)


def via_torch(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if op.raw:
        return op.torch_fn(*args, **kwargs)
    return map_nested(_unwrap, op.torch_fn(*map_nested(_wrap, args), **map_nested(_wrap, kwargs)))


# -- the opaque operator --------------------------------------------------------------------------
class Slot(int):
    """Where a tensor stands in the arguments: its place in the operator's list of tensors."""


def via_operator(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensors: list[torch.Tensor] = []

    def change(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        tensors.append(value)
        return Slot(len(tensors) - 1)

    plain = (map_nested(change, args), map_nested(change, kwargs))
    return torch.ops.dynamo_nb.numpy(op.__name__.removeprefix("np_"), pickle.dumps(plain).hex(), tensors)


def _restored(spec: str, tensors: list[torch.Tensor]) -> Any:
    plain = pickle.loads(bytes.fromhex(spec))
    return (map_nested(lambda v: tensors[v] if isinstance(v, Slot) else v, part) for part in plain)


LIBRARY = torch.library.Library("dynamo_nb", "FRAGMENT")
LIBRARY.define("numpy(str name, str arguments, Tensor[] tensors) -> Tensor")


@torch.library.impl(LIBRARY, "numpy", "CPU")
def _numpy_operator(name: str, arguments: str, tensors: list[torch.Tensor]) -> torch.Tensor:
    return via_numpy(ALL[name], *_restored(arguments, tensors))


@torch.library.register_fake("dynamo_nb::numpy", lib=LIBRARY)
def _numpy_fake(name: str, arguments: str, tensors: list[torch.Tensor]) -> torch.Tensor:
    return via_torch(ALL[name], *_restored(arguments, tensors))


def make(name: str, numpy_fn: Callable[..., Any], torch_fn: Callable[..., Any], *, capped: bool = False, raw: bool = False, writes: bool = False, returns_first: bool = False, may_raise: bool = False, opaque: bool = False) -> Any:
    """Define and register `np_<name>`.

    capped: what it does depends on sizes only through broadcasting, so a trial may shrink them. raw: torch_fn
    takes tensors. writes: changes its first operand. returns_first: its result is its first operand. opaque:
    a backend gets it whole, since torch would round otherwise; its result must be new memory.
    """

    computes = capped and not raw and name.removeprefix("method_") not in ("real", "imag", "conj", "conjugate")

    def op(*args: Any, **kwargs: Any) -> Any:
        operands = [*leaves(args), *leaves(kwargs)]
        if not is_traced(operands):
            return via_numpy(op, args, kwargs)
        tensors = [v for v in operands if isinstance(v, torch.Tensor)]
        whole = bool(tensors) and (opaque or (computes and any(t.is_complex() for t in tensors)))      # of complex numbers the signs of zeros differ
        return via_operator(op, args, kwargs) if whole else via_torch(op, args, kwargs)

    op.__name__ = op.__qualname__ = f"np_{name}"
    op.numpy_fn, op.torch_fn, op.capped, op.raw = numpy_fn, torch_fn, capped, raw  # type: ignore[attr-defined]
    op.writes, op.returns_first = writes, returns_first  # type: ignore[attr-defined]
    op.dynamo_nb_facts = {"may_raise": may_raise, "mutates": (0,) if writes else ()}  # type: ignore[attr-defined]
    globals()[op.__name__] = ALL[name] = op
    return op


# -- functions ------------------------------------------------------------------------------------
ELEMENTWISE = """sin cos tan arcsin arccos arctan arctan2 sinh cosh tanh arcsinh arccosh arctanh exp exp2 expm1 log log2 log10 log1p
    sqrt square absolute fabs negative positive reciprocal sign floor ceil trunc rint add subtract multiply true_divide power float_power
    floor_divide remainder fmod maximum minimum fmax fmin greater greater_equal less less_equal equal not_equal logical_and logical_or
    logical_xor logical_not isnan isinf isfinite bitwise_and bitwise_or bitwise_xor invert hypot where clip real imag conjugate signbit
    copysign deg2rad rad2deg isclose nan_to_num round""".split()
REDUCTIONS = "sum prod mean min max amin amax any all var std argmax argmin cumsum cumprod count_nonzero ptp median average nansum nanmean".split()
CONTRACTIONS = "dot matmul inner outer vdot tensordot".split()
SHAPES = """reshape ravel transpose swapaxes moveaxis squeeze expand_dims concatenate stack vstack hstack dstack column_stack flip fliplr flipud
    tile repeat roll diag diagonal trace triu tril atleast_1d atleast_2d broadcast_to rot90 sort argsort diff kron pad""".split()
CREATION = "zeros ones full arange linspace eye identity zeros_like ones_like full_like".split()
FUNCTIONS: dict[int, Any] = {}
KEEP: list[Any] = []


# The same bits in torch as in NumPy, and NumPy hardly ever warns.
EXACT = frozenset(
    """square absolute fabs negative positive sign floor ceil trunc rint add subtract multiply maximum minimum fmax fmin greater greater_equal
    less less_equal equal not_equal logical_and logical_or logical_xor logical_not isnan isinf isfinite bitwise_and bitwise_or bitwise_xor
    invert where clip real imag conjugate signbit copysign nan_to_num min max amin amax any all count_nonzero argmax argmin""".split()
)
SMALL_FLOATS = {torch.bool: torch.float16, torch.int8: torch.float16, torch.uint8: torch.float16, torch.int16: torch.float32, torch.int32: torch.float64, torch.int64: torch.float64}


def _floating(fn: Callable[..., Any], table: dict[torch.dtype, torch.dtype]) -> Callable[..., Any]:
    """fn on arrays of integers, which NumPy computes in floating point of a certain size."""

    def change(value: Any) -> Any:
        if isinstance(value, tnp.ndarray) and value.tensor.dtype in table:
            return tnp.ndarray(value.tensor.to(table[value.tensor.dtype]))
        return value

    return lambda *args, **kwargs: fn(*map_nested(change, args), **map_nested(change, kwargs))


DOUBLE = dict.fromkeys(SMALL_FLOATS, torch.float64)
FLOATING = dict.fromkeys(ELEMENTWISE[:ELEMENTWISE.index("square")], SMALL_FLOATS) | dict.fromkeys(("true_divide", "mean", "var", "std", "average", "median"), DOUBLE)


def _register(names: list[str], capped: bool, exact: bool) -> None:
    for name in names:
        numpy_fn, torch_fn = getattr(np, name), getattr(tnp, name, None)
        if torch_fn is not None and id(numpy_fn) not in FUNCTIONS:
            if name in FLOATING:
                torch_fn = _floating(torch_fn, FLOATING[name])
            FUNCTIONS[id(numpy_fn)] = make(name, numpy_fn, torch_fn, capped=capped, opaque=not (exact or name in EXACT))
            KEEP.append(numpy_fn)


_register([*ELEMENTWISE, *REDUCTIONS, *CONTRACTIONS], True, False)
_register([*SHAPES, *CREATION], False, True)


# -- copies ---------------------------------------------------------------------------------------
def _copy(value: Any, dtype: Any = None) -> Any:
    """np.array(value, dtype): always new memory, in the order of the original."""
    if not isinstance(value, torch.Tensor):
        made = _unwrap(tnp.array(map_nested(_wrap, value)))
        return made if dtype is None else made.to(getattr(torch, str(np.dtype(dtype))))
    wanted = value.dtype if dtype is None else getattr(torch, str(np.dtype(dtype)))
    return value.to(wanted, copy=True, memory_format=torch.preserve_format)


array = make("array", np.array, _copy, raw=True)
astype = make("astype", lambda a, dtype: a.astype(dtype), _copy, raw=True, capped=True)
contiguous = make("ascontiguousarray", np.ascontiguousarray, lambda a: a.contiguous(), raw=True)


# -- methods --------------------------------------------------------------------------------------
def _method(name: str) -> Callable[..., Any]:
    return lambda a, *args, **kwargs: getattr(a, name)(*args, **kwargs)


METHODS: dict[str, Any] = {
    name: make(f"method_{name}", _method(name), _floating(_method(name), DOUBLE) if name in FLOATING else _method(name), capped=capped, opaque=capped and name not in EXACT and not name.startswith("conj"))
    for names, capped in (
        ("sum prod mean min max any all var std argmax argmin cumsum cumprod dot clip round conjugate conj", True),
        ("reshape ravel flatten transpose swapaxes squeeze copy repeat diagonal trace argsort", False),
    )
    for name in names.split()
}
ATTRIBUTES: dict[str, Any] = {name: make(f"attribute_{name}", operator.attrgetter(name), operator.attrgetter(name)) for name in ("T", "real", "imag")}


def _fill(a: Any, value: Any) -> None:
    a.fill_(value)


METHODS["fill"] = make("method_fill", _method("fill"), _fill, raw=True, writes=True)

# -- operators ------------------------------------------------------------------------------------
OPERATORS: dict[str, Any] = {
    symbol: make(f"operator_{fn.__name__.rstrip('_')}", fn, _floating(fn, DOUBLE) if symbol == "/" else fn, capped=True, opaque=symbol in ("/", "//", "%", "**", "@"))
    for symbol, fn in {
        "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv, "%": operator.mod,
        "**": operator.pow, "@": operator.matmul, "&": operator.and_, "|": operator.or_, "^": operator.xor, "<<": operator.lshift,
        ">>": operator.rshift, "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
    }.items()
}
UNARY: dict[str, Any] = {
    symbol: make(f"operator_{name}", fn, fn, capped=True)
    for symbol, (name, fn) in {"-": ("neg", operator.neg), "+": ("pos", operator.pos), "~": ("invert", operator.invert), "abs": ("abs", abs)}.items()
}


def _inplace(fn: Any, a: Any, b: Any) -> Any:
    """a op= b as a new result copied into a. fn: the operation that computes the result."""
    a.copy_(fn(a, b) if is_traced([a, b]) else via_torch(fn, (a, b), {}))
    return a


INPLACE: dict[str, Any] = {
    f"{symbol}=": make(
        f"operator_i{fn.__name__.rstrip('_')}", getattr(operator, f"i{fn.__name__.rstrip('_')}"), functools.partial(_inplace, OPERATORS[symbol]),
        capped=True, raw=True, writes=True, returns_first=True,
    )
    for symbol, fn in {
        "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv, "%": operator.mod,
        "**": operator.pow, "&": operator.and_, "|": operator.or_, "^": operator.xor,
    }.items()
}


# -- subscripts -----------------------------------------------------------------------------------
def _getitem(a: Any, key: Any) -> Any:
    found = a[key]
    parts = key if isinstance(key, tuple) else (key,)
    if found.ndim == 0 and not any(p is Ellipsis for p in parts):
        return found.clone()      # NumPy gives a scalar, which shares no memory
    return found


def _setitem(a: Any, key: Any, value: Any) -> None:
    a[key] = value


getitem = make("getitem", operator.getitem, _getitem, raw=True)
setitem = make("setitem", operator.setitem, _setitem, raw=True, writes=True)
getitem_at = make("getitem_at", operator.getitem, _getitem, raw=True, may_raise=True)
setitem_at = make("setitem_at", operator.setitem, _setitem, raw=True, writes=True, may_raise=True)
