"""`Recorder`: everything one trace accumulates (chapter sections 12.7 and 12.31).

Owns the growing FX graph, the fake tensor mode, the ShapeEnv, the guards, the side effects and the
tables that keep one tracker per object. Created by convert for each attempt; the interpreter and the
variables write to it; `graph.output_graph` turns what it holds into code.
"""

from __future__ import annotations

import contextlib
import dataclasses
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from ..core.exc import StepUnsupported
from ..core.reasons import DynamicOutputShape, MutationBeforeFailure, ScalarFromTensor, UnsupportedOperation
from ..core.source import Assumption, Source, TensorPropertySource
from . import op_facts
from .effects import SideEffects
from .global_state import GlobalState
from .lifetimes import Owned
from .real_errors import NO_ANSWER, eager_says
from .variables.base import LazyVariableTracker, VariableTracker

if TYPE_CHECKING:
    from .interpreter import InstructionTranslatorBase as Tx


class GuardsSet:
    """The assumptions of a trace, one per (source, kind, payload), in the order they were made."""

    def __init__(self) -> None:
        self._assumptions: dict[Any, Assumption] = {}
        self._made_at: list[int] = []
        self.step = 0

    def add(self, assumption: Assumption) -> None:
        key: Any = (assumption.source, assumption.kind)
        if assumption.kind in REPEATABLE:
            key = (*key, *(_payload_key(p) for p in assumption.payload))
        if key not in self._assumptions:
            self._assumptions[key] = assumption
            self._made_at.append(self.step)

    def since(self, step: int) -> list[Assumption]:
        """The assumptions made at this step of the trace and later."""
        return [made for made, at in zip(self, self._made_at, strict=True) if at >= step]

    def __iter__(self) -> Iterator[Assumption]:
        return iter(self._assumptions.values())

    def __len__(self) -> int:
        return len(self._assumptions)


REPEATABLE = frozenset({"DICT_CONTAINS", "NO_HASATTR", "HASATTR", "OBJECT_ALIASING", "SHAPE_ENV", "STORAGE_OVERLAP", "CALLBACK", "NO_TENSOR_ALIASING"})


def _payload_key(part: Any) -> Any:
    return part if isinstance(part, (str, int, bool, Source)) else id(part)


@dataclasses.dataclass
class GraphInput:
    """One placeholder: how to load it at run time, what it was at trace time.

    load: 'source' (push source), 'size' (a symbolic size, stride or offset read from a tensor source),
    'call' (a nullary callable evaluated at entry).
    """

    node: torch.fx.Node
    source: Source
    real: Any
    fake: Any
    load: str = "source"


class Recorder:
    def __init__(self, config: dict[str, Any], *, fullgraph: bool, shapes: Any) -> None:
        from torch._subclasses.fake_tensor import FakeTensorMode

        self.config = config
        self.fullgraph = fullgraph
        self.shapes = shapes
        self.shape_env = shapes.shape_env
        self.fake_mode = FakeTensorMode(shape_env=self.shape_env, allow_non_fake_inputs=False, export=False)
        self.graph = torch.fx.Graph()
        self.guards = GuardsSet()
        self.side_effects = SideEffects(self)
        self.inputs: list[GraphInput] = []
        self.input_by_source: dict[Source, GraphInput] = {}
        self.input_by_id: dict[int, VariableTracker] = {}
        self.objects: dict[int, VariableTracker] = {}
        self.keep_alive: list[Any] = []
        self.outside: list[VariableTracker] = []      # trackers that hold the user's objects
        self.owned: Owned | None = None     # in a resumed frame
        self.merged: set[tuple[Source | None, Source]] = set()      # places found to hold one object
        self.tensor_by_fake: dict[int, VariableTracker] = {}
        self.frames: list[Any] = []
        self.attributes: dict[str, Any] = {}
        self.step = 0
        self.version = 0
        self.effects = 0
        self.instructions = 0
        self.mutated_inputs: set[int] = set()
        self.storage_owner: dict[int, int] = {}
        self.may_raise = False
        self.consumes_rng = False
        self.traced_lines: dict[str, set[int]] = {}
        self.state = GlobalState()
        self.generators: list[Any] = []
        self.unlooked: list[tuple[LazyVariableTracker, Assumption]] = []
        self.last_frame: Any = None
        self.next_graph: Callable[[], int] = lambda: 0
        self.root_globals: dict[str, Any] | None = None
        self.class_sources: dict[type, Source] = {}
        self.break_at = 0
        self.trace_log: Any = None
        self._last_placeholder: torch.fx.Node | None = None

    # -- guards -------------------------------------------------------------------------------
    def assume(self, tx: Tx | None, source: Source | None, kind: str, *payload: Any) -> None:
        file, line = tx.user_position() if tx is not None else ("", 0)
        self.guards.add(Assumption(source, kind, payload, file, line))

    def assume_storage_offset(self, tx: Tx, fake: torch.Tensor) -> None:
        """The offsets of inputs that this tensor's own is worked out from, which TENSOR_MATCH leaves open; where they are symbols, those are guarded."""
        memory = fake.untyped_storage()._cdata
        for entry in self.inputs:
            if isinstance(entry.real, torch.Tensor) and entry.fake.untyped_storage()._cdata == memory and isinstance(offset := entry.fake.storage_offset(), int):
                place = TensorPropertySource(entry.source, "storage_offset", -1)
                self.assume(tx, None, "SHAPE_ENV", f"{place.name} == {offset}", ((place.name, place),))

    def needs_presence(self, tx: Tx, read: VariableTracker, holder: Source | None, kind: str, *payload: Any) -> None:
        """That `read` was found is an assumption of its own as long as nobody looks at it."""
        if holder is not None and isinstance(read, LazyVariableTracker) and not read.is_realized:
            self.unlooked.append((read, Assumption(holder, kind, payload, *tx.user_position())))

    def presence(self) -> list[Assumption]:
        return [assumption for read, assumption in self.unlooked if not read.is_realized]

    def changed(self) -> None:
        """The program changed something: an instruction that did cannot be broken in place."""
        self.version += 1
        self.effects += 1

    # -- inputs -------------------------------------------------------------------------------
    def add_input(self, name: str, source: Source, real: Any, fake: Any, load: str = "source") -> GraphInput:
        known = self.input_by_source.get(source)
        if known is not None:
            return known
        with self._at_placeholders():
            node = self.graph.placeholder(name)
        self._last_placeholder = node
        node.meta["example_value"] = fake
        self.version += 1
        entry = GraphInput(node, source, real, fake, load)
        self.inputs.append(entry)
        self.input_by_source[source] = entry
        if isinstance(fake, torch.Tensor):
            with contextlib.suppress(RuntimeError, NotImplementedError):
                self.storage_owner[fake.untyped_storage()._cdata] = len(self.inputs) - 1
        return entry

    def is_written(self, entry: GraphInput) -> bool:
        """Does the graph change this tensor's memory?"""
        owners = self.mutated_inputs
        if not owners or not isinstance(entry.real, torch.Tensor) or entry.real.layout is not torch.strided:
            return False
        return self.storage_owner.get(entry.fake.untyped_storage()._cdata) in owners

    def writes_unversioned(self) -> bool:
        """Does the graph change memory of inputs other than those `is_written` knows?"""
        known = {self.storage_owner[i.fake.untyped_storage()._cdata] for i in self.inputs if self.is_written(i)}
        return not self.mutated_inputs <= known

    @contextlib.contextmanager
    def _at_placeholders(self) -> Iterator[None]:
        last = self._last_placeholder
        if last is None:
            first = next(iter(self.graph.nodes), None)
            if first is None or first.op == "root":
                yield
                return
            with self.graph.inserting_before(first):
                yield
        else:
            with self.graph.inserting_after(last):
                yield

    # -- nodes --------------------------------------------------------------------------------
    def call(self, tx: Tx, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], run: Callable[..., Any] | None = None) -> VariableTracker:
        """Record one operation on trackers and return the tracker of its result.

        Raises StepUnsupported where fake tensors cannot say what comes out, and an observed exception
        where the operation itself fails.
        """
        fx_args, fake_args = self._lower(tx, list(args))
        fx_kwargs, fake_kwargs = self._lower(tx, dict(kwargs))
        facts = op_facts.facts(op, target)
        may_raise = facts.may_raise and op_facts.depends_on_values(target, fake_args)
        if may_raise and self.mutated_inputs:
            raise StepUnsupported(MutationBeforeFailure(f"{op_facts.name(target)} after an in-place change"))
        eager = NO_ANSWER if facts.random or facts.effect or run is not None else eager_says(op, target, fake_args, fake_kwargs, facts.may_raise)
        outs = [(t, t.size()) for t in op_facts.given_results(fake_kwargs)]
        fake = self.run_fake(tx, op, target, fake_args, fake_kwargs, run)
        if why := eager.differs(fake):
            raise StepUnsupported(UnsupportedOperation(f"{op_facts.name(target)}: {why}"))
        if any(size.numel() and t.size() != size for t, size in outs):      # AOTAutograd would broadcast into it
            raise StepUnsupported(UnsupportedOperation(f"{op_facts.name(target)} gives its out= another size"))
        node = self.create_node(tx, op, target, tuple(fx_args), fx_kwargs)
        self.may_raise |= may_raise
        self.consumes_rng |= facts.random
        written = list(op_facts.mutated_operands(facts, fake_args, fake_kwargs))
        for tensor in written:
            self.note_mutated_tensor(tensor)
        if written or facts.mutates:
            node.meta["impure"] = True
        if facts.random or may_raise or facts.effect:
            node.meta["impure"] = True
        return self.wrap_result(tx, node, fake)

    def create_node(self, tx: Tx, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None = None) -> torch.fx.Node:
        node = self.graph.create_node(op, target, args, kwargs, name)
        node.meta["where"] = tx.position_key()
        self.version += 1
        return node

    def _lower(self, tx: Tx, value: Any) -> tuple[Any, Any]:
        """(FX argument, fake argument) of trackers nested in plain lists, tuples and dicts."""
        if isinstance(value, VariableTracker):
            return value.realize().as_graph_argument(tx)  # type: ignore[attr-defined]
        if isinstance(value, (list, tuple)):
            pairs = [self._lower(tx, v) for v in value]
            return type(value)(p[0] for p in pairs), type(value)(p[1] for p in pairs)
        if isinstance(value, dict):
            named = {k: self._lower(tx, v) for k, v in value.items()}
            return {k: p[0] for k, p in named.items()}, {k: p[1] for k, p in named.items()}
        return value, value

    def run_fake(self, tx: Tx, op: str, target: Any, args: Any, kwargs: dict[str, Any], run: Callable[..., Any] | None = None) -> Any:
        from torch._subclasses import fake_tensor as ft
        from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

        if run is None:
            run = target if op == "call_function" else lambda *a, **k: getattr(a[0], target)(*a[1:], **k)
        try:
            with self.fake_mode, self.shapes.suppress_guard_logging():
                return run(*args, **kwargs)
        except (ft.DataDependentOutputException, GuardOnDataDependentSymNode) as err:
            raise StepUnsupported(ScalarFromTensor(f"{op_facts.name(target)}: {_first_line(err)}")) from None
        except ft.DynamicOutputShapeException:
            raise StepUnsupported(DynamicOutputShape(f"{op_facts.name(target)} gives a data-dependent size")) from None
        except (ft.UnsupportedFakeTensorException, ft.UnsupportedOperatorException) as err:
            raise StepUnsupported(UnsupportedOperation(f"{op_facts.name(target)}: {_first_line(err)}")) from None
        except Exception as err:
            raise tx.op_failed(target, op, args, kwargs, err) from None

    # -- results ------------------------------------------------------------------------------
    def wrap_result(self, tx: Tx, node: torch.fx.Node, fake: Any) -> VariableTracker:
        from .variables.constant import ConstantVariable, is_constant_value
        from .variables.sequences import ListVariable, SizeVariable, StructSequenceVariable, TupleVariable
        from .variables.tensor import wrap_fake

        node.meta["example_value"] = fake
        if isinstance(fake, torch.Tensor):
            return wrap_fake(tx, node, fake)
        if isinstance(fake, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            from .variables.numeric import SymNodeVariable

            self.shapes.bind_unbacked(fake, node)
            return SymNodeVariable(fake, node)
        if isinstance(fake, torch.Size):
            return SizeVariable([self.wrap_size(tx, s) for s in fake])
        if isinstance(fake, (tuple, list)):
            items = [self._result_item(tx, node, i, v) for i, v in enumerate(fake)]
            if isinstance(fake, list):
                return ListVariable(items)
            if type(fake) is not tuple:
                return StructSequenceVariable(items, type(fake))
            return TupleVariable(items)
        if fake is None or is_constant_value(fake):
            return ConstantVariable(fake)
        raise StepUnsupported(UnsupportedOperation(f"{op_facts.name(node.target)} returned {type(fake).__name__}"))

    def _result_item(self, tx: Tx, node: torch.fx.Node, index: int, fake: Any) -> VariableTracker:
        from .variables.constant import ConstantVariable

        if fake is None:
            return ConstantVariable(None)
        if isinstance(fake, torch.Tensor) and id(fake) in self.tensor_by_fake:
            return self.tensor_by_fake[id(fake)]
        item = self.create_node(tx, "call_function", operator.getitem, (node, index), {})
        return self.wrap_result(tx, item, fake)

    def wrap_size(self, tx: Tx, size: Any) -> VariableTracker:
        from .variables.constant import ConstantVariable
        from .variables.numeric import SymNodeVariable

        if isinstance(size, torch.SymInt):
            plain = size.node.maybe_as_int()
            return ConstantVariable(plain) if plain is not None else SymNodeVariable(size, None)
        return ConstantVariable(size)

    # -- mutation of inputs ---------------------------------------------------------------------
    def note_mutated_tensor(self, fake: torch.Tensor) -> None:
        with contextlib.suppress(RuntimeError, NotImplementedError):
            owner = self.storage_owner.get(fake.untyped_storage()._cdata)
            if owner is not None:
                self.mutated_inputs.add(owner)

    # -- for the backend ------------------------------------------------------------------------
    def graph_module(self, name: str) -> torch.fx.GraphModule:
        root: Any = torch.nn.Module()
        for attr, value in self.attributes.items():
            setattr(root, attr, value)
        gm = torch.fx.GraphModule(root, self.graph)
        gm.meta["dynamo_nb_name"] = name
        gm.meta["dynamo_nb_written"] = [i for i, entry in enumerate(self.inputs) if isinstance(entry.real, torch.Tensor) and self.is_written(entry)]
        return gm

    def fresh_fakes(self) -> list[Any]:
        """Fake inputs in placeholder order, with the trace's symbols but untouched by what the trace did to its own."""
        from torch._subclasses.fake_tensor import FakeTensorConverter

        mode, kept = self.fake_mode, self.fake_mode.fake_tensor_converter
        mode.fake_tensor_converter = FakeTensorConverter(copy_data=False, export=False)
        try:
            return [self._fresh(entry) for entry in self.inputs]
        finally:
            mode.fake_tensor_converter = kept

    def _fresh(self, entry: GraphInput) -> Any:
        from .shapes import make_fake, torch_source

        if not isinstance(entry.real, torch.Tensor):
            return entry.fake
        return make_fake(self.fake_mode, entry.real, torch_source(entry.source), self.shapes.contexts[entry.source])

    # -- reads --------------------------------------------------------------------------------
    def has_operations(self) -> bool:
        return any(n.op.startswith("call_") for n in self.graph.nodes)

    def operation_count(self) -> int:
        return len(self.graph.nodes) - len(self.inputs)


def _first_line(err: BaseException) -> str:
    text = str(err).strip()
    return text.splitlines()[0] if text else type(err).__name__
