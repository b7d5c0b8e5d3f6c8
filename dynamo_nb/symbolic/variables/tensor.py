"""`TensorVariable`: a tensor that lives in the graph; its operations become FX nodes.

`fake` carries shape, strides, dtype, device and requires_grad; identity of the fake tensor is identity
of the tensor, so an in-place operation gives back the tracker it was called on.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

from ...core.exc import StepUnsupported
from ...core.reasons import DataDependentBranching, ScalarFromTensor, UnsupportedOperation
from .base import NOTHING, VariableTracker, const
from .constant import ConstantVariable

if TYPE_CHECKING:
    from ..interpreter import InstructionTranslatorBase as Tx

# attributes that only depend on metadata: read off the fake tensor
METADATA = frozenset(
    """dtype device layout requires_grad is_leaf is_sparse is_quantized is_cuda is_cpu is_meta is_mkldnn is_mps is_xpu is_nested
    is_complex ndim names itemsize is_sparse_csr is_ipu is_ort is_vulkan is_mtia is_maia is_xla""".split()
)
VIEWS = frozenset({"T", "mT", "H", "mH", "real", "imag"})
METADATA_METHODS = frozenset(
    """dim ndimension is_floating_point is_complex is_contiguous is_signed is_inference is_conj is_neg element_size get_device
    is_same_size is_shared is_set_to type_as is_distributed dense_dim sparse_dim has_names""".split()
) - {"type_as", "is_set_to", "is_same_size"}
BINARY_RESULT = torch.Tensor


def wrap_fake(tx: Tx, node: torch.fx.Node, fake: torch.Tensor) -> VariableTracker:
    """The tracker of an operation's result; the existing one if the operation gave back an operand."""
    recorder = tx.recorder
    known = recorder.tensor_by_fake.get(id(fake))
    if known is not None:
        return known
    cls = type(fake)
    if cls is not torch._subclasses.fake_tensor.FakeTensor and not isinstance(fake, (torch._subclasses.fake_tensor.FakeTensor, torch.nn.Parameter)):
        raise StepUnsupported(UnsupportedOperation(f"an operation returned the tensor subclass {cls.__name__}"))
    if fake.layout is not torch.strided:        # fake ones have no strides to trace with, and autograd aborts on some
        raise StepUnsupported(UnsupportedOperation(f"an operation returned a tensor of layout {fake.layout}"))
    made = TensorVariable(node, fake)
    made.step = recorder.step
    recorder.tensor_by_fake[id(fake)] = made
    recorder.keep_alive.append(fake)
    recorder.shapes.bind_sizes(tx, node, fake)
    return made


class TensorVariable(VariableTracker):
    native_specials = True

    def __init__(self, node: torch.fx.Node, fake: torch.Tensor, source: Any = None, cls: type = torch.Tensor) -> None:
        self.node = node
        self.fake = fake
        self.source = source
        self.cls = cls
        self.real: torch.Tensor | None = None

    def python_type(self) -> type:
        return self.cls

    def as_graph_argument(self, tx: Tx) -> tuple[Any, Any]:
        return self.node, self.fake

    # -- attributes -----------------------------------------------------------------------------
    def special_getattr(self, tx: Tx, name: str) -> VariableTracker:
        from . import tensor_methods

        written, value = tx.recorder.side_effects.load_attr(self, name)
        if written:
            if value is None:
                raise tx.raise_(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'", name=name)
            return value
        return tensor_methods.getattr_(tx, self, name)

    def special_setattr(self, tx: Tx, name: str, value: VariableTracker) -> None:
        from . import tensor_methods

        tensor_methods.setattr_(tx, self, name, value)

    # -- operations -----------------------------------------------------------------------------
    def call_method(self, tx: Tx, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        from . import tensor_methods

        return tensor_methods.call(tx, self, name, args, kwargs)

    def function(self, tx: Tx, fn: Any, *args: VariableTracker) -> VariableTracker | None:
        """fn(*args) as one node; None (NotImplemented) if an operand can be no graph argument."""
        if not all(is_graph_argument(a) for a in args):
            return None
        return tx.recorder.call(tx, "call_function", fn, tuple(args), {})

    def binary(self, tx: Tx, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        from ..protocol import BINARY

        fn = BINARY[op][0]
        if op == "divmod":
            return None
        return self.function(tx, fn, other, self) if reflected else self.function(tx, fn, self, other)

    def inplace(self, tx: Tx, op: str, other: VariableTracker) -> VariableTracker | None:
        from ..protocol import INPLACE

        return self.function(tx, INPLACE[op][0], self, other)

    def compare(self, tx: Tx, op: str, other: VariableTracker) -> VariableTracker | None:
        from ..protocol import COMPARE

        other = other.realize()
        value = const(other)
        if value is None and op in ("==", "!="):
            return ConstantVariable(op == "!=")
        return self.function(tx, COMPARE[op][0], self, other)

    def unary(self, tx: Tx, op: str) -> VariableTracker | None:
        from ..protocol import UNARY

        return self.function(tx, UNARY[op][0], self)

    def native_bool(self, tx: Tx) -> bool | None:
        if self.fake.numel() == 0 or (isinstance(self.fake.numel(), int) and self.fake.numel() > 1):
            raise tx.op_failed(torch.Tensor.__bool__, "call_function", (self.fake,), {}, RuntimeError("Boolean value of Tensor is ambiguous"))
        raise StepUnsupported(DataDependentBranching("generic_jump TensorVariable()"))

    def native_len(self, tx: Tx) -> VariableTracker | None:
        if self.fake.dim() == 0:
            raise tx.raise_(TypeError, "len() of a 0-d tensor")
        return tx.recorder.wrap_size(tx, self.fake.size(0))

    def native_iter(self, tx: Tx) -> VariableTracker | None:
        from .iterators import ListIteratorVariable

        if self.fake.dim() == 0:
            raise tx.raise_(TypeError, "iteration over a 0-d tensor")
        length = self.fake.size(0)
        if isinstance(length, torch.SymInt):
            length = tx.specialize_int(length)
        parts = self.call_method(tx, "unbind", [ConstantVariable(0)], {})
        return ListIteratorVariable(list(parts.items), origin=None)  # type: ignore[attr-defined]

    def native_contains(self, tx: Tx, item: VariableTracker) -> VariableTracker | None:
        raise StepUnsupported(DataDependentBranching("`in` on a tensor"))

    def native_getitem(self, tx: Tx, key: VariableTracker) -> VariableTracker | None:
        return self.function(tx, operator.getitem, self, key)

    def native_setitem(self, tx: Tx, key: VariableTracker, value: VariableTracker) -> bool:
        return self.function(tx, operator.setitem, self, key, value) is not None

    def is_same_object(self, tx: Tx, other: VariableTracker) -> bool:
        if isinstance(other, TensorVariable) and self.source is not None and other.source is not None:
            tx.assume_distinct(self, other)
        return False

    def scalar(self, what: str) -> StepUnsupported:
        return StepUnsupported(ScalarFromTensor(what))

    def debug_repr(self) -> str:
        return "TensorVariable()"


def is_graph_argument(vt: VariableTracker) -> bool:
    """Can the value be an argument of a node (tensor, number, constant, or nested containers of such)?"""
    from .numeric import SymNodeVariable

    vt = vt.realize()
    if isinstance(vt, (TensorVariable, SymNodeVariable)):
        return True
    test = getattr(vt, "is_graph_argument", None)
    if test is not None:
        return test()
    return isinstance(vt, ConstantVariable) and const(vt) is not NOTHING
