"""Symbolic shapes: which sizes and numbers of the inputs are symbols (chapter section 12.16).

torch's ShapeEnv does the algebra. This module decides static or dynamic (assume static first, a value
that changed becomes a symbol at the recompile, marks and `dynamic=` override), makes fake inputs, keeps
the table from symbols to graph nodes and hands out the shape guards.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from ..core.exc import ConstraintViolationError, StepUnsupported
from ..core.logs import artifact_logger
from ..core.reasons import UnsupportedOperation
from ..core.source import AttrSource, ComputedSource, Source, TensorPropertySource

if TYPE_CHECKING:
    from .interpreter import InstructionTranslatorBase as Tx


log = artifact_logger("dynamic")


@dataclasses.dataclass
class SeenValues:
    """What earlier compiles of the same code saw under each source name; lives with the code object."""

    sizes: dict[str, tuple[int | None, ...]] = dataclasses.field(default_factory=dict)
    strides: dict[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    dynamic_dims: dict[str, set[int]] = dataclasses.field(default_factory=dict)
    numbers: dict[str, int | float] = dataclasses.field(default_factory=dict)
    dynamic_numbers: set[str] = dataclasses.field(default_factory=set)
    symbolic: dict[str, bool] = dataclasses.field(default_factory=dict)     # what the last trace made of a number

    def see_tensor(self, name: str, size: tuple[int, ...]) -> set[int]:
        """Record a tensor's size; returns the dimensions that have changed at some compile."""
        before = self.sizes.get(name)
        changed = self.dynamic_dims.setdefault(name, set())
        if before is not None and len(before) == len(size):
            changed.update(i for i, (a, b) in enumerate(zip(before, size, strict=True)) if a != b)
        self.sizes[name] = size
        return changed

    def see_number(self, name: str, value: int | float) -> bool:
        """Record a number; True once it has changed (within its type)."""
        before = self.numbers.get(name)
        if before is not None and type(before) is type(value) and before != value:
            self.dynamic_numbers.add(name)
        self.numbers[name] = value
        return name in self.dynamic_numbers

    def frozen(self) -> SeenValues:
        """What is known now, for a second trace: sees no change that this one doesn't know."""
        return _FrozenSeen(
            dynamic_dims={name: set(dims) for name, dims in self.dynamic_dims.items()}, dynamic_numbers=set(self.dynamic_numbers),
            symbolic=dict(self.symbolic),
        )

    def decided(self, name: str) -> bool | None:
        """For a second trace: was the number symbolic in the first?"""
        return None


class _FrozenSeen(SeenValues):
    def see_tensor(self, name: str, size: tuple[int, ...]) -> set[int]:
        return self.dynamic_dims.get(name, set())

    def see_number(self, name: str, value: int | float) -> bool:
        return name in self.dynamic_numbers

    def decided(self, name: str) -> bool | None:
        return self.symbolic.get(name)


def torch_source(source: Source) -> Any:
    """A torch Source carrying our expression, for ShapeEnv's own bookkeeping."""
    return _TorchSources.wrap(source)


class _TorchSources:
    cls: Any = None

    @classmethod
    def wrap(cls, source: Source) -> Any:
        if cls.cls is None:
            from torch._guards import ChainedSource as TorchSource

            class NamedSource(TorchSource):
                """Only the name matters to ShapeEnv."""

                def __init__(self, ours: Source) -> None:
                    object.__setattr__(self, "ours", ours)
                    object.__setattr__(self, "base", self)

                @property
                def name(self) -> str:
                    return self.ours.name

                _name_template = property(name.fget)  # type: ignore[attr-defined]

                def __hash__(self) -> int:
                    return hash(self.ours.name)

                def __eq__(self, other: object) -> bool:
                    return isinstance(other, NamedSource) and other.ours.name == self.ours.name

                def is_dict_key(self) -> bool:
                    return False

                def is_ephemeral(self) -> bool:
                    return False

                def get_base(self) -> Any:
                    return self

                @property
                def guard_source(self) -> Any:
                    from torch._guards import GuardSource

                    return GuardSource.LOCAL

            cls.cls = NamedSource
        return cls.cls(source)


def make_fake(fake_mode: Any, tensor: torch.Tensor, source: Any, context: Any) -> torch.Tensor:
    """The fake of an input. A float64 without dimensions gets no symbol for its value: AOTAutograd refuses those it never meets."""
    if tensor.dim() == 0 and tensor.dtype is torch.float64:
        source = context = None
    return fake_mode.from_tensor(tensor, static_shapes=context is None, source=source, symbolic_context=context)


class Shapes:
    """The shape side of one trace. dynamic: True, False or None (automatic)."""

    def __init__(self, seen: SeenValues, config: dict[str, Any], dynamic: bool | None, fullgraph: bool) -> None:
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        whole = fullgraph
        self.shape_env = ShapeEnv(
            allow_scalar_outputs=config["capture_scalar_outputs"] or whole,
            allow_dynamic_output_shape_ops=config["capture_dynamic_output_shape_ops"] or whole,
            assume_static_by_default=config["assume_static_by_default"],
        )
        self.seen = seen
        self.config = config
        self.dynamic = dynamic
        self.symbol_nodes: dict[Any, torch.fx.Node] = {}
        self.symbol_sources: dict[Any, tuple[Any, Source]] = {}
        self.contexts: dict[Source, Any] = {}
        self.tracked: list[tuple[Any, Source, Any]] = []
        self.strict_dims: list[tuple[Source, int, Any]] = []
        self.computed: dict[ComputedSource, Any] = {}

    @contextlib.contextmanager
    def suppress_guard_logging(self) -> Iterator[None]:
        yield

    # -- decisions ----------------------------------------------------------------------------
    def dims(self, tensor: torch.Tensor, source: Source) -> list[Any]:
        from torch.fx.experimental.symbolic_shapes import DimDynamic

        strict = getattr(tensor, "_dynamo_dynamic_indices", set())
        weak = getattr(tensor, "_dynamo_weak_dynamic_indices", set())
        static = getattr(tensor, "_dynamo_static_indices", set())
        unbacked = getattr(tensor, "_dynamo_unbacked_indices", set())
        changed = self.seen.see_tensor(source.name, tuple(tensor.size()))
        parameter = isinstance(tensor, torch.nn.Parameter) and self.config["force_parameter_static_shapes"]
        automatic = self.config["automatic_dynamic_shapes"] and self.dynamic is not False
        out = []
        for i in range(tensor.dim()):
            if i in unbacked:
                out.append(DimDynamic.SIZE_LIKE_UNBACKED)
            elif i in strict:
                out.append(DimDynamic.DYNAMIC)
            elif i in static or parameter:
                out.append(DimDynamic.STATIC)
            elif i in weak or self.dynamic is True or (automatic and i in changed):
                out.append(DimDynamic.DYNAMIC if i in weak or self.dynamic is True else DimDynamic.DUCK)
            else:
                out.append(DimDynamic.STATIC if self.dynamic is False or self.config["assume_static_by_default"] else DimDynamic.DUCK)
        return out

    def number_is_dynamic(self, value: int | float, source: Source) -> bool:
        decided = self.seen.decided(source.name)
        if decided is None:
            decided = self.seen.symbolic[source.name] = self._decide(value, source)
        return decided

    def _decide(self, value: int | float, source: Source) -> bool:
        changed = self.seen.see_number(source.name, value)
        if isinstance(value, float):
            if self.config["specialize_float"] or value == 0.0 or value != value or value in (float("inf"), float("-inf")):
                return False
        elif self.config["specialize_int"] or value in (0, 1) or not -(2**62) < value < 2**62:
            return False
        if self.dynamic is True:
            return isinstance(value, int)
        return changed and self.dynamic is not False and self.config["automatic_dynamic_shapes"]

    # -- fake inputs --------------------------------------------------------------------------
    def fakify(self, fake_mode: Any, tensor: torch.Tensor, source: Source) -> torch.Tensor:
        from torch.fx.experimental.symbolic_shapes import StatefulSymbolicContext

        def context_of(tensor: torch.Tensor, source: Source) -> Any:
            # Without a context of its own a view's base gets symbols for sizes, and with them a base that is an input too.
            base = context_of(tensor._base, AttrSource(source, "_base")) if tensor._is_view() and tensor._base is not None else None
            return StatefulSymbolicContext(
                dynamic_sizes=self.dims(tensor, source), view_base_context=base, tensor_source=torch_source(source), shape_env_to_source_to_symbol_cache={},
            )

        ours, context = torch_source(source), context_of(tensor, source)
        fake = make_fake(fake_mode, tensor, ours, context)
        self.contexts[source] = context
        strict = getattr(tensor, "_dynamo_dynamic_indices", set())
        for i in strict:
            if i < tensor.dim():
                self.strict_dims.append((source, i, fake.size(i)))
        self.note_dynamic_input(fake, source)
        return fake

    def note_dynamic_input(self, fake: torch.Tensor, source: Source) -> None:
        """Remember where each symbol of a fake input can be read at run time."""
        self.tracked.append((fake, source, None))
        for prop, values in (("size", fake.size()), ("stride", fake.stride()), ("storage_offset", (fake.storage_offset(),))):
            for i, value in enumerate(values):
                if isinstance(value, torch.SymInt) and value.node.maybe_as_int() is None:
                    symbol = value.node.expr
                    if symbol.is_Symbol and symbol not in self.symbol_sources:
                        place = TensorPropertySource(source, prop, i)
                        log.info("create_symbol %s = %s for %s", symbol, value.node.hint, place.name)
                        self.symbol_sources[symbol] = (value, TensorPropertySource(source, prop, -1 if prop == "storage_offset" else i))

    def symbolic_number(self, value: int | float, source: Source) -> Any:
        """A fresh SymInt or SymFloat for a number that varies."""
        from torch.fx.experimental.symbolic_shapes import DimDynamic

        ours = torch_source(source)
        env = self.shape_env
        if isinstance(value, int):
            symbol = env.create_unspecified_symbol(value, source=ours, dynamic_dim=DimDynamic.DYNAMIC)
            number: Any = env.create_symintnode(symbol, hint=value, source=ours)
        else:
            symbol = env.create_unspecified_symbol(value, source=ours, dynamic_dim=DimDynamic.DYNAMIC)
            number = env.create_symfloatnode(symbol, hint=value, source=ours)
        self.symbol_sources[symbol] = (number, source)
        if not isinstance(source, ComputedSource):
            self.tracked.append((number, source, value))
        return number

    def computed_float(self, template: str, operands: tuple[Any, ...], value: float) -> Any:
        """A SymFloat of its own for Python's arithmetic on floats that vary; None if an operand can't be read from the inputs.

        Rewriting is exact for integers only: as expressions of one another floats would lose infinities,
        NaN, signed zeros and the order of rounding. template: a Python expression with one {} an operand.
        """
        from . import computed

        source = computed.source(self, template, operands)
        if source is None:
            return None
        known = self.computed.get(source)
        if known is None:
            known = self.computed[source] = self.symbolic_number(value, source)
        return known

    # -- symbols in the graph -------------------------------------------------------------------
    def bind_unbacked(self, value: Any, node: torch.fx.Node) -> None:
        """A number computed by `node` (an item, a data-dependent size) stands for its symbol from now on."""
        expr = value.node.expr
        if expr.is_Symbol and expr not in self.symbol_sources:
            self.symbol_nodes.setdefault(expr, node)

    def bind_sizes(self, tx: Tx, node: torch.fx.Node, fake: torch.Tensor) -> None:
        """Unbacked sizes of a result are read off it."""
        if not self.shape_env.allow_dynamic_output_shape_ops and not self.shape_env.allow_scalar_outputs:
            return
        for i, size in enumerate(fake.size()):
            if isinstance(size, torch.SymInt) and size.node.maybe_as_int() is None:
                expr = size.node.expr
                if expr.is_Symbol and expr not in self.symbol_sources and expr not in self.symbol_nodes:
                    recorder = tx.recorder
                    read = recorder.create_node(tx, "call_function", torch.ops.aten.sym_size.int, (node, i), {})
                    read.meta["example_value"] = size
                    self.symbol_nodes[expr] = read

    def node_of(self, tx: Tx, value: Any) -> torch.fx.Node:
        """The graph node that computes a symbolic number."""
        return self._expression(tx, value.node.expr)

    def _expression(self, tx: Tx, expr: Any) -> Any:
        import sympy

        known = self.symbol_nodes.get(expr)
        if known is not None:
            return known
        if isinstance(expr, (sympy.Integer, int)):
            return int(expr)
        if isinstance(expr, sympy.Float):
            return float(expr)
        if expr.is_Symbol:
            return self._symbol_input(tx, expr)
        from .sym_nodes import build

        node = build(tx, expr, lambda e: self._expression(tx, e))
        self.symbol_nodes[expr] = node
        return node

    def _symbol_input(self, tx: Tx, symbol: Any) -> torch.fx.Node:
        entry = self.symbol_sources.get(symbol)
        if entry is None:
            raise StepUnsupported(UnsupportedOperation(f"symbol {symbol} has no source"))
        value, source = entry
        load = "size" if isinstance(source, TensorPropertySource) else "source"
        made = tx.recorder.add_input(str(symbol), source, value, value, load)
        self.symbol_nodes[symbol] = made.node
        return made.node

    # -- guards -------------------------------------------------------------------------------
    def guard_expressions(self) -> list[tuple[str, tuple[tuple[str, Source], ...]]]:
        """Python expressions over L/G names that must hold; raises ConstraintViolationError."""
        env = self.shape_env
        env.freeze()
        for source, dim, size in self.strict_dims:
            plain = size if isinstance(size, int) else size.node.maybe_as_int()
            if plain is not None and not self.config["allow_ignore_mark_dynamic"]:
                raise ConstraintViolationError(
                    f"{source}.size()[{dim}] was marked dynamic, but the code specialises it to {plain}. "
                    "Remove the mark, use maybe_mark_dynamic, or avoid branching on the exact size."
                )
        from . import shape_guards

        return shape_guards.expressions(self)
