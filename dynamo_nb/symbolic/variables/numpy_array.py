"""NumPy arrays and numbers in a trace: an array is a tensor of the graph over the same memory.

`NumpyNdarrayVariable` and `NumpyScalarVariable` hold the tensor; what is done with them goes through
`call`, which tries the operation on samples (`numpy_trial`) and records one node (`numpy_ops`), or breaks
the graph where NumPy's result would not be met exactly. NumPy numbers and dtypes known while tracing
are constants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...core.exc import StepUnsupported
from ...core.reasons import DataDependentBranching, ScalarFromTensor, UnsupportedOperation
from ...core.source import AttrSource, NumpyTensorSource
from ...native import tensors_overlap
from .. import numpy_ops
from ..numpy_trial import Differs, Operand, Outcome, hint, run
from .base import NOTHING, VariableTracker, const
from .classes import UserDefinedClassVariable
from .constant import NONE, ConstantVariable
from .misc import NativeMethodVariable, OpaqueVariable
from .numeric import SymNodeVariable, wrap_number
from .sequences import ListVariable, SliceVariable, TupleVariable
from .tensor import TensorVariable

if TYPE_CHECKING:
    from ..builder import VariableBuilder
    from ..interpreter import InstructionTranslatorBase as Tx

PLAIN = (bool, int, float, complex, str, type(None), type(Ellipsis))
NUMBERS = (bool, int, float, complex)
REFUSED_KEYWORDS = frozenset({"out", "where", "like", "subok", "casting", "signature", "weights", "overwrite_input"})
CONVERSIONS = frozenset({"item", "tolist", "__int__", "__float__", "__bool__", "__index__", "__complex__"})
NEEDS_GRAD = "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."


def refuse(what: str) -> StepUnsupported:
    return StepUnsupported(UnsupportedOperation(what))


# -- trackers ---------------------------------------------------------------------------------------
class NumpyNdarrayVariable(VariableTracker):
    """An ndarray; `tensor` shares its memory."""

    native_specials = True
    scalar = False

    def __init__(self, tensor: TensorVariable, source: Any = None) -> None:
        self.tensor = tensor
        self.source = source

    @property
    def dtype(self) -> np.dtype[Any]:
        return numpy_ops.DTYPES[self.tensor.fake.dtype]

    def python_type(self) -> type:
        return np.ndarray

    def special_getattr(self, tx: Tx, name: str) -> VariableTracker:
        fake, wrap = self.tensor.fake, tx.recorder.wrap_size
        if name == "shape":
            return TupleVariable([wrap(tx, s) for s in fake.size()])
        if name == "size":
            return wrap_number(fake.numel())
        if name == "nbytes":
            return wrap_number(fake.numel() * fake.element_size())
        if name in ("ndim", "itemsize"):
            return ConstantVariable(fake.dim() if name == "ndim" else fake.element_size())
        if name == "dtype":
            return NumpyDtypeVariable(self.dtype)
        if name == "__class__":
            return self.class_variable(tx)
        if name in numpy_ops.ATTRIBUTES:
            return call(tx, numpy_ops.ATTRIBUTES[name], [self], {})
        found = getattr(self.python_type(), name, NOTHING)
        if found is NOTHING:
            raise tx.raise_(AttributeError, f"'{_type_title(self)}' object has no attribute '{name}'", name=name)
        if name in numpy_ops.METHODS or name in CONVERSIONS or name == "astype":
            return NativeMethodVariable(self, name, found)
        raise refuse(f"attribute {name!r} of a NumPy {_type_title(self)}")

    def special_setattr(self, tx: Tx, name: str, value: VariableTracker) -> None:
        raise refuse(f"assignment to attribute {name!r} of a NumPy array")

    def call_method(self, tx: Tx, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        if name in CONVERSIONS:
            raise StepUnsupported(ScalarFromTensor(f"{_type_title(self)}.{name}()"))
        if name == "astype" and len(args) + len(kwargs) == 1 and (args or "dtype" in kwargs):
            return call(tx, numpy_ops.astype, [self, args[0] if args else kwargs["dtype"]], {})
        if name == "fill":
            self._writable()
        op = numpy_ops.METHODS.get(name)
        if op is None:
            raise refuse(f"ndarray.{name}() in a compiled function")
        return call(tx, op, [self, *args], kwargs)

    def binary(self, tx: Tx, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        found = numpy_ops.OPERATORS.get(op)
        if found is None or not is_operand(other):
            raise refuse(f"{op} of a NumPy array and a {other.describe()}")
        return call(tx, found, [other, self] if reflected else [self, other], {})

    compare_binary = binary

    def compare(self, tx: Tx, op: str, other: VariableTracker) -> VariableTracker | None:
        return self.compare_binary(tx, op, other, False)

    def inplace(self, tx: Tx, op: str, other: VariableTracker) -> VariableTracker | None:
        found = numpy_ops.INPLACE.get(op)
        if found is None or not is_operand(other):
            raise refuse(f"{op} of a NumPy array and a {other.describe()}")
        self._writable()
        return call(tx, found, [self, other], {})

    def unary(self, tx: Tx, op: str) -> VariableTracker | None:
        return call(tx, numpy_ops.UNARY[op], [self], {})

    def native_bool(self, tx: Tx) -> bool | None:
        raise StepUnsupported(DataDependentBranching("the truth of a NumPy value"))

    def native_len(self, tx: Tx) -> VariableTracker | None:
        if self.tensor.fake.dim() == 0:
            raise tx.raise_(TypeError, "len() of unsized object")
        return tx.recorder.wrap_size(tx, self.tensor.fake.size(0))

    def native_iter(self, tx: Tx) -> VariableTracker | None:
        from .iterators import SequenceIteratorVariable

        if self.tensor.fake.dim() == 0:
            raise tx.raise_(TypeError, "iteration over a 0-d array")
        return SequenceIteratorVariable(self)

    def native_contains(self, tx: Tx, item: VariableTracker) -> VariableTracker | None:
        raise StepUnsupported(DataDependentBranching("`in` on a NumPy array"))

    def native_getitem(self, tx: Tx, key: VariableTracker) -> VariableTracker | None:
        key = key.realize()
        index = const(key)
        if type(index) is int and self.tensor.fake.dim() > 0:
            size = int(self.tensor.fake.size(0))
            if not -size <= index < size:
                raise tx.raise_(IndexError, f"index {index} is out of bounds for axis 0 with size {size}")
        return call(tx, numpy_ops.getitem_at if picks_elements(key) else numpy_ops.getitem, [self, key], {}, keys=(1,))

    def native_setitem(self, tx: Tx, key: VariableTracker, value: VariableTracker) -> bool:
        if not is_operand(value):
            raise refuse(f"a {value.describe()} stored into a NumPy array")
        self._writable()
        call(tx, numpy_ops.setitem_at if picks_elements(key) else numpy_ops.setitem, [self, key, value], {}, keys=(1,))
        return True

    def _writable(self) -> None:
        """Elements that lie on one another are written in NumPy's order, which a graph need not keep."""
        fake = self.tensor.fake
        reached = 0
        for stride, size in sorted((hint(t), hint(s)) for t, s in zip(fake.stride(), fake.size(), strict=True)):
            if size > 1:
                if stride <= reached:
                    raise refuse("a write to a NumPy array whose elements share memory")
                reached += stride * (size - 1)

    def debug_repr(self) -> str:
        return f"{type(self).__name__}()"


class NumpyScalarVariable(NumpyNdarrayVariable):
    """A NumPy number whose value is computed by the graph; `tensor` has no dimensions."""

    scalar = True
    inplace = None  # type: ignore[assignment]

    def python_type(self) -> type:
        return self.dtype.type

    def native_len(self, tx: Tx) -> VariableTracker | None:
        return None

    def native_iter(self, tx: Tx) -> VariableTracker | None:
        return None

    def native_setitem(self, tx: Tx, key: VariableTracker, value: VariableTracker) -> bool:
        return False


class NumpyConstantVariable(ConstantVariable):
    """A NumPy number known while tracing."""

    def as_graph_argument(self, tx: Tx) -> tuple[Any, Any]:
        if isinstance(self.value, (np.int64, np.float64)):
            plain = self.value.item()
            return plain, plain
        raise refuse(f"a {type(self.value).__name__} as an operand of a tensor operation")

    def is_graph_argument(self) -> bool:
        return isinstance(self.value, (np.int64, np.float64))

    def binary(self, tx: Tx, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        if isinstance(other, NumpyNdarrayVariable):
            return None
        raise refuse(f"{op} of a {type(self.value).__name__} and a {other.describe()}")

    def compare(self, tx: Tx, op: str, other: VariableTracker) -> VariableTracker | None:
        from ..protocol import COMPARE

        theirs = const(other)
        if isinstance(theirs, (*NUMBERS, np.generic)):
            return tx.fold(COMPARE[op][0], [self.value, theirs], {})
        if isinstance(other.realize(), NumpyNdarrayVariable):
            return None
        raise refuse(f"{op} of a {type(self.value).__name__} and a {other.describe()}")

    def unary(self, tx: Tx, op: str) -> VariableTracker | None:
        from ..protocol import UNARY

        return tx.fold(UNARY[op][0], [self.value], {})


class NumpyDtypeVariable(ConstantVariable):
    """A dtype object."""

    def compare(self, tx: Tx, op: str, other: VariableTracker) -> VariableTracker | None:
        other = other.realize()
        theirs = other.value if isinstance(other, UserDefinedClassVariable) else const(other)
        if theirs is NOTHING or op not in ("==", "!="):
            raise refuse(f"a dtype compared with a {other.describe()}")
        return tx.fold(lambda: (self.value == theirs) == (op == "=="), [], {})

    def is_same_object(self, tx: Tx, other: VariableTracker) -> bool:
        return getattr(other, "value", None) is self.value


def _type_title(vt: NumpyNdarrayVariable) -> str:
    return f"numpy.{vt.python_type().__name__}"


def is_operand(vt: VariableTracker) -> bool:
    """A value that NumPy's own operators take as it is: arrays and numbers."""
    vt = vt.realize()
    if isinstance(vt, (NumpyNdarrayVariable, NumpyConstantVariable)):
        return True
    return isinstance(vt, SymNodeVariable) or isinstance(const(vt), NUMBERS)


def picks_elements(key: VariableTracker) -> bool:
    """Does the subscript hold arrays or lists of positions, which may lie outside the array?"""
    key = key.realize()
    parts = [p.realize() for p in (key.items if isinstance(key, TupleVariable) else [key])]
    return any(isinstance(p, ListVariable) or (isinstance(p, NumpyNdarrayVariable) and p.dtype.kind != "b") for p in parts)


# -- operations -------------------------------------------------------------------------------------
def lower(tx: Tx, value: VariableTracker, operands: dict[VariableTracker, Operand], index: bool = False) -> tuple[Any, Any]:
    """(argument of the node with trackers in it, argument of the trial with Operands in it)."""
    value = value.realize()
    if isinstance(value, SymNodeVariable):
        value = value.specialize(tx)
    if isinstance(value, NumpyNdarrayVariable):
        operand = operands.setdefault(value, Operand(value.tensor.fake, value.scalar, index))
        return value.tensor, operand
    if isinstance(value, UserDefinedClassVariable) and (value.value in NUMBERS or issubclass(value.value, np.generic)):
        return _dtype_name(np.dtype(value.value))
    if isinstance(value, NumpyDtypeVariable):
        return _dtype_name(value.value)
    if type(value) is SliceVariable:
        pairs = [lower(tx, v, operands, index) for v in value.items]
        return slice(*(p[0] for p in pairs)), slice(*(p[1] for p in pairs))
    if isinstance(value, TupleVariable) or type(value) is ListVariable:
        kind = list if type(value) is ListVariable else tuple
        pairs = [lower(tx, v, operands, index) for v in value.items]
        return kind(p[0] for p in pairs), kind(p[1] for p in pairs)
    plain = const(value)
    if type(plain) in PLAIN:
        return plain, plain
    if isinstance(plain, np.generic):
        tensor = number_tensor(tx, plain)
        return tensor, operands.setdefault(value, Operand(tensor.fake, True, index))
    raise refuse(f"a NumPy operation with a {value.describe()} operand")


def _dtype_name(dtype: np.dtype[Any]) -> tuple[str, str]:
    if dtype not in numpy_ops.DTYPES.values():
        raise refuse(f"arrays of dtype {dtype}")
    return dtype.name, dtype.name


def number_tensor(tx: Tx, value: np.generic) -> TensorVariable:
    """A NumPy number as a tensor without dimensions, made in the graph."""
    _dtype_name(value.dtype)
    made = tx.recorder.call(tx, "call_function", torch.tensor, (value.item(),), {"dtype": getattr(torch, value.dtype.name)})
    assert isinstance(made, TensorVariable)
    return made


def call(tx: Tx, op: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker], keys: tuple[int, ...] = ()) -> VariableTracker:
    """One NumPy operation; breaks the graph where the result would not be NumPy's. keys: which arguments are subscripts."""
    if not tx.recorder.config["trace_numpy"]:
        raise refuse("NumPy (trace_numpy is off)")
    refused = sorted(REFUSED_KEYWORDS & set(kwargs))
    if refused:
        raise refuse(f"{op.__name__} with {refused[0]}=")
    folded = fold(tx, op, args, kwargs)
    if folded is not None:
        return folded
    operands: dict[VariableTracker, Operand] = {}
    pairs = [lower(tx, a, operands, i in keys) for i, a in enumerate(args)]
    named = {k: lower(tx, v, operands) for k, v in kwargs.items()}
    if len({id(o.fake) for o in operands.values()}) < len(operands) and op.writes:
        raise refuse(f"{op.__name__} on two arrays over one memory")
    try:
        outcome = run(op, tuple(p[1] for p in pairs), {k: v[1] for k, v in named.items()})
    except Differs as err:
        raise refuse(f"{op.__name__}: {err}") from None
    if outcome.same is not None and not op.writes:
        return next(vt for vt, operand in operands.items() if operand is outcome.same)
    result = tx.recorder.call(tx, "call_function", op, tuple(p[0] for p in pairs), {k: v[0] for k, v in named.items()})
    if op.returns_first:
        return args[0].realize()
    return wrap_result(tx, op, result, outcome)


def wrap_result(tx: Tx, op: Any, result: VariableTracker, outcome: Outcome) -> VariableTracker:
    if op.writes:
        return NONE
    if not isinstance(result, TensorVariable) or numpy_ops.DTYPES.get(result.fake.dtype) != outcome.dtype or result.fake.dim() != outcome.ndim:
        raise refuse(f"{op.__name__}: the captured result has another type")
    if outcome.shape is not None and tuple(hint(s) for s in result.fake.size()) != outcome.shape:
        raise refuse(f"{op.__name__}: the captured result has another shape")
    made = (NumpyScalarVariable if outcome.scalar else NumpyNdarrayVariable)(result)
    made.step = tx.recorder.step
    return made


def fold(tx: Tx, op: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker | None:
    """NumPy's own answer where every operand is a constant and the answer is a number."""
    import warnings

    def plain(vt: VariableTracker) -> Any:
        vt = vt.realize()
        if isinstance(vt, SymNodeVariable):
            return plain(vt.specialize(tx))
        if isinstance(vt, TupleVariable) or type(vt) is ListVariable:
            items = [plain(v) for v in vt.items]
            return NOTHING if any(i is NOTHING for i in items) else items if type(vt) is ListVariable else tuple(items)
        value = const(vt)
        return value if isinstance(value, (*PLAIN, np.generic, np.dtype)) else NOTHING

    values, named = [plain(a) for a in args], {k: plain(v) for k, v in kwargs.items()}
    if op.writes or any(v is NOTHING for v in (*values, *named.values())):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = op.numpy_fn(*values, **named)
    except Exception as err:
        raise refuse(f"{op.__name__} of constants: {err}") from None
    return NumpyConstantVariable(result) if isinstance(result, np.generic) and result.dtype in numpy_ops.DTYPES.values() else None


# -- from and to tensors ----------------------------------------------------------------------------
def from_tensor(tx: Tx, x: Any, force: VariableTracker | None = None) -> VariableTracker:
    """x.numpy(): an array over the tensor's memory."""
    fake = x.fake
    if force is not None and const(force) is not False:
        raise refuse("Tensor.numpy(force=True)")
    if not tx.recorder.config["trace_numpy"]:
        raise refuse("Tensor.numpy() (trace_numpy is off)")
    if fake.requires_grad:
        raise tx.raise_(RuntimeError, NEEDS_GRAD)
    if fake.device.type != "cpu" or fake.layout is not torch.strided or fake.dtype not in numpy_ops.DTYPES or fake.is_conj() or fake.is_neg():
        raise refuse(f"Tensor.numpy() of a tensor of {fake.dtype} on {fake.device}")
    made = NumpyNdarrayVariable(x)
    made.step = tx.recorder.step
    return made


def to_tensor(tx: Tx, array: NumpyNdarrayVariable) -> VariableTracker:
    """A new tensor over the array's memory."""
    return tx.recorder.call(tx, "call_method", "detach", (array.tensor,), {})


def as_array(tx: Tx, value: VariableTracker) -> VariableTracker:
    """What NumPy makes of a tensor given as an operand of np.array or np.asarray."""
    value = value.realize()
    return from_tensor(tx, value) if isinstance(value, TensorVariable) else value


# -- from outside -----------------------------------------------------------------------------------
def wrap_input(builder: VariableBuilder, value: Any) -> VariableTracker:
    source, recorder = builder.source, builder.tx.recorder
    builder.guard("TYPE_MATCH", type(value))
    opaque = OpaqueVariable(value, source, UnsupportedOperation(f"a NumPy {type(value).__name__} of dtype {value.dtype}"))
    if isinstance(value, np.generic):
        if value.dtype not in numpy_ops.DTYPES.values() or type(value) is not value.dtype.type or not recorder.config["trace_numpy"]:
            return opaque
        varies = source is not None and recorder.shapes.seen.see_number(source.name, value)
        if source is None or not (varies or value != value):
            builder.guard("EQUALS_MATCH", value)
            return NumpyConstantVariable(value, source)
        return NumpyScalarVariable(input_tensor(builder, value), source)
    if source is not None and type(value) is np.ndarray:
        builder.guard("EQUALS_MATCH", value.flags.writeable, source=AttrSource(AttrSource(source, "flags"), "writeable"))
    if source is None or not usable(value) or not recorder.config["trace_numpy"]:
        return opaque
    if any(isinstance(i.real, torch.Tensor) and shares_memory(i.real, torch.as_tensor(value)) for i in recorder.inputs):
        return OpaqueVariable(value, source, UnsupportedOperation("a NumPy array whose memory is part of another input"))
    return NumpyNdarrayVariable(input_tensor(builder, value), source)


def usable(value: np.ndarray[Any, Any]) -> bool:
    """Can a tensor lie over this array's memory?"""
    return (
        type(value) is np.ndarray and value.dtype in numpy_ops.DTYPES.values() and value.dtype.isnative and value.flags.writeable
        and value.flags.aligned and all(s >= 0 and s % value.itemsize == 0 for s in value.strides)
    )


def shares_memory(left: torch.Tensor, right: torch.Tensor) -> bool:
    return left.layout is torch.strided and left.device.type == "cpu" and tensors_overlap(left, right)


def lies_over_array(recorder: Any, tensor: torch.Tensor) -> bool:
    """Is the tensor's memory that of an array among the inputs? The graph would take the two for unrelated."""
    return any(isinstance(i.source, NumpyTensorSource) and i.real.dim() and shares_memory(tensor, i.real) for i in recorder.inputs)


def input_tensor(builder: VariableBuilder, value: Any) -> TensorVariable:
    """The placeholder over the array's memory, guarded like a tensor."""
    from .. import tensor_inputs

    recorder = builder.tx.recorder
    assert builder.source is not None
    source = NumpyTensorSource(builder.source)
    real = torch.as_tensor(value)
    fake = recorder.shapes.fakify(recorder.fake_mode, real, source)
    recorder.keep_alive += [real, fake]
    open_sizes = [i for i, s in enumerate(fake.size()) if isinstance(s, torch.SymInt)]
    open_strides = [i for i, s in enumerate(fake.stride()) if isinstance(s, torch.SymInt)]
    builder.guard("TENSOR_MATCH", tensor_inputs.TensorMeta.of(real, open_sizes, open_strides), source=source)
    entry = recorder.add_input(tensor_inputs.input_name(builder.source), source, real, fake)
    made = TensorVariable(entry.node, fake)
    recorder.tensor_by_fake[id(fake)] = made
    return made
