"""Why a graph broke: one class a kind, with a stable id, the cause and a fix to paste.

`str(reason)` is the short form that logs, counters and explain() print; `what`, `why` and `hint` make
the report. Register a new kind with `@register` where its code stands.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

REASONS: dict[str, type[BreakReason]] = {}


def register(cls: type[BreakReason]) -> type[BreakReason]:
    if cls.id in REASONS:
        raise ValueError(f"break reason {cls.id} is registered twice")
    REASONS[cls.id] = cls
    return cls


@dataclasses.dataclass(frozen=True)
class BreakReason:
    """what: the thing that could not be captured, with its values."""

    what: str
    id: ClassVar[str] = ""
    title: ClassVar[str] = ""
    why: ClassVar[str] = ""
    hint: ClassVar[str] = ""

    def __str__(self) -> str:
        return self.what

    @property
    def shown(self) -> str:
        """The thing in words for reports."""
        return self.what

    @property
    def explanation(self) -> str:
        return f"{self.what}: {self.why}" if self.why else self.what


@register
@dataclasses.dataclass(frozen=True)
class DataDependentBranching(BreakReason):
    id: ClassVar[str] = "NB0001"
    title: ClassVar[str] = "Data-dependent branching"
    why: ClassVar[str] = "the branch depends on a tensor's value, which is known only when the graph has run"
    hint: ClassVar[str] = "use torch.where for element-wise choices or torch.cond(pred, true_fn, false_fn, operands) for whole branches"

    @property
    def shown(self) -> str:
        return "a branch on the value of a tensor" if self.what.startswith("generic_jump") else self.what


@register
@dataclasses.dataclass(frozen=True)
class UnsupportedBuiltin(BreakReason):
    id: ClassVar[str] = "NB0002"
    title: ClassVar[str] = "Unsupported builtin"
    why: ClassVar[str] = "the builtin is implemented in C and has effects or operands that cannot be captured"
    hint: ClassVar[str] = "move the call out of the compiled function, or make its operands constants"


@register
@dataclasses.dataclass(frozen=True)
class PrintCall(BreakReason):
    id: ClassVar[str] = "NB0003"
    title: ClassVar[str] = "Printing"
    why: ClassVar[str] = "printed text must appear in order with the surrounding computation"
    hint: ClassVar[str] = "move it out, or add the function to config.reorderable_logging_functions to run it after the graph"


@register
@dataclasses.dataclass(frozen=True)
class SkippedFunction(BreakReason):
    id: ClassVar[str] = "NB0004"
    title: ClassVar[str] = "Call of a skipped or C function"
    why: ClassVar[str] = "its body is not Python bytecode that may be captured"
    hint: ClassVar[str] = "move the call out of the compiled function, or wrap it as a custom operator (torch.library.custom_op)"


@register
@dataclasses.dataclass(frozen=True)
class DisabledFunction(BreakReason):
    id: ClassVar[str] = "NB0005"
    title: ClassVar[str] = "Call of a disabled function"
    why: ClassVar[str] = "the function is marked with disable()"
    hint: ClassVar[str] = "remove the disable() mark if the function may be compiled"


@register
@dataclasses.dataclass(frozen=True)
class RequestedBreak(BreakReason):
    id: ClassVar[str] = "NB0006"
    title: ClassVar[str] = "graph_break() was called"
    why: ClassVar[str] = "the program asks for a break here"
    hint: ClassVar[str] = "remove the graph_break() call"


@register
@dataclasses.dataclass(frozen=True)
class ScalarFromTensor(BreakReason):
    id: ClassVar[str] = "NB0007"
    title: ClassVar[str] = "Tensor value read as a Python number"
    why: ClassVar[str] = "the number is known only when the graph has run"
    hint: ClassVar[str] = "keep it a tensor, or set config.capture_scalar_outputs = True"


@register
@dataclasses.dataclass(frozen=True)
class DynamicOutputShape(BreakReason):
    id: ClassVar[str] = "NB0008"
    title: ClassVar[str] = "Output size depends on tensor values"
    why: ClassVar[str] = "the size of the result is known only when the graph has run"
    hint: ClassVar[str] = "use torch.where or a mask, or set config.capture_dynamic_output_shape_ops = True"


@register
@dataclasses.dataclass(frozen=True)
class OpFailed(BreakReason):
    id: ClassVar[str] = "NB0009"
    title: ClassVar[str] = "The operation raises"
    why: ClassVar[str] = "the operation fails on these operands; it runs eagerly so that you see eager's own error"
    hint: ClassVar[str] = "fix the operands of the operation"


@register
@dataclasses.dataclass(frozen=True)
class RaisedException(BreakReason):
    id: ClassVar[str] = "NB0010"
    title: ClassVar[str] = "An exception leaves the function"
    why: ClassVar[str] = "the exception is raised by the original code so that type, text and traceback are eager's"
    hint: ClassVar[str] = "nothing to do unless the exception is unexpected"


@register
@dataclasses.dataclass(frozen=True)
class UnsupportedOperation(BreakReason):
    id: ClassVar[str] = "NB0011"
    title: ClassVar[str] = "Unsupported operation"
    why: ClassVar[str] = "the tracer has no model of this operation on these operands"
    hint: ClassVar[str] = "rewrite it with plain Python or torch operations, or accept the break"


@register
@dataclasses.dataclass(frozen=True)
class UnsupportedInstruction(BreakReason):
    id: ClassVar[str] = "NB0012"
    title: ClassVar[str] = "Unsupported bytecode instruction"
    why: ClassVar[str] = "the tracer cannot follow this instruction"
    hint: ClassVar[str] = "move the construct out of the compiled function"


@register
@dataclasses.dataclass(frozen=True)
class OpaqueIteration(BreakReason):
    id: ClassVar[str] = "NB0013"
    title: ClassVar[str] = "Iteration over an opaque iterator"
    why: ClassVar[str] = "the next item comes from code that is not captured; the loop runs in Python and its body is compiled"
    hint: ClassVar[str] = "nothing to do for data loaders; for short sequences iterate over a list or tuple"


@register
@dataclasses.dataclass(frozen=True)
class BudgetExceeded(BreakReason):
    id: ClassVar[str] = "NB0014"
    title: ClassVar[str] = "Tracing budget used up"
    why: ClassVar[str] = "unrolling further would make a giant graph; the loop runs in Python and its body is compiled"
    hint: ClassVar[str] = "raise config.max_unrolled_ops if one large graph is wanted"


@register
@dataclasses.dataclass(frozen=True)
class RecursionTooDeep(BreakReason):
    id: ClassVar[str] = "NB0015"
    title: ClassVar[str] = "Inlining is too deep"
    why: ClassVar[str] = "calls nest deeper than config.max_inline_depth; from here on they are real calls"
    hint: ClassVar[str] = "turn the recursion into a loop, or raise config.max_inline_depth"


@register
@dataclasses.dataclass(frozen=True)
class AutogradInFrame(BreakReason):
    id: ClassVar[str] = "NB0016"
    title: ClassVar[str] = "Backward pass inside the function"
    why: ClassVar[str] = "the autograd engine runs outside the graph"
    hint: ClassVar[str] = "compile the forward pass and call backward() and the optimizer outside"


@register
@dataclasses.dataclass(frozen=True)
class CannotReconstruct(BreakReason):
    id: ClassVar[str] = "NB0017"
    title: ClassVar[str] = "A traced value cannot be rebuilt"
    why: ClassVar[str] = "the value lives on past the graph but exists only in the trace; it is made by the original code instead"
    hint: ClassVar[str] = "do not let it outlive the compiled region"


@register
@dataclasses.dataclass(frozen=True)
class MutationBeforeFailure(BreakReason):
    id: ClassVar[str] = "NB0018"
    title: ClassVar[str] = "An operation that may raise follows an in-place change of an input"
    why: ClassVar[str] = "if it raised inside the graph the change could not be undone"
    hint: ClassVar[str] = "do the in-place change after the operation"
