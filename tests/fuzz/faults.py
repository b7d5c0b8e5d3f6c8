"""The seeded faults: deliberate mistakes in dynamo_nb that the fuzzer must find (run by `fault_harness`).

Each is a generator function that breaks the compiler while it is suspended; its docstring says what is wrong. Guard
faults forget one kind of guard; effect faults lose, repeat or reorder what is replayed after a graph; the rest are
wrong values, names and places. dynamo_nb is imported when a fault is applied, in the forked child only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from .fault_harness import FAULTS, fault, patched, run_faults


@contextlib.contextmanager
def without_guards(*kinds: str) -> Iterator[None]:
    """The guard builder forgets every assumption of these kinds."""
    from dynamo_nb.guards.builder import GuardBuilder

    add_all = GuardBuilder.add_all

    def forgetful(self: Any, assumptions: Any) -> None:
        add_all(self, [a for a in assumptions if a.kind not in kinds])

    with patched(GuardBuilder, "add_all", forgetful):
        yield


@fault("guard_equals_off")
def guard_equals_off() -> Iterator[None]:
    """Values of ints, floats and strings are not guarded."""
    with without_guards("EQUALS_MATCH"):
        yield


@fault("guard_tensor_off")
def guard_tensor_off() -> Iterator[None]:
    """dtype, shape and requires_grad of tensors are not guarded."""
    with without_guards("TENSOR_MATCH"):
        yield


@fault("guard_constant_off", needs=r"is (not )?None|flag")
def guard_constant_off() -> Iterator[None]:
    """None, True and False are not guarded."""
    with without_guards("CONSTANT_MATCH", "BOOL_MATCH", "NONE_MATCH"):
        yield


@fault("guard_length_off", needs=r"lst|ts\b|G1")
def guard_length_off() -> Iterator[None]:
    """Lengths of lists and tuples are not guarded."""
    with without_guards("SEQUENCE_LENGTH"):
        yield


@fault("guard_dict_keys_off", needs=r"\bd\b|\bdt\b|G2")
def guard_dict_keys_off() -> Iterator[None]:
    """Keys of dicts and their order are not guarded."""
    with without_guards("DICT_KEYS"):
        yield


@fault("guard_shape_env_off", needs=r"shape|size\(|len\(")
def guard_shape_env_off() -> Iterator[None]:
    """Conditions on symbolic sizes are not guarded."""
    with without_guards("SHAPE_ENV"):
        yield


@fault("guard_aliasing_off", needs=r"(?s)( is (not )?y|[xy]\.\w+_\(|[xy] \+=|[xy]\[.*\] =|lst2?\.).*if k == [123]:.*(= x$|= x\n|= x\[:\]|= lst\n)")
def guard_aliasing_off() -> Iterator[None]:
    """Whether two inputs are the same object is not guarded."""
    with without_guards("OBJECT_ALIASING", "NO_TENSOR_ALIASING", "NO_ALIASING", "STORAGE_OVERLAP", "NO_STORAGE_OVERLAP"):
        yield


@fault("guard_set_off", needs=r"\bse\b")
def guard_set_off() -> Iterator[None]:
    """Members of sets are not guarded."""
    with without_guards("SET_CONTENTS"):
        yield


@fault("default_taken_at_trace", needs=r"__defaults__|dacc|with_default")
def default_taken_at_trace() -> Iterator[None]:
    """Default values are those of the trace: nothing below __defaults__ is guarded."""
    from dynamo_nb.guards.builder import GuardBuilder

    add_all = GuardBuilder.add_all

    def forgetful(self: Any, assumptions: Any) -> None:
        add_all(self, [a for a in assumptions if a.source is None or "defaults__" not in a.source.name])

    with patched(GuardBuilder, "add_all", forgetful):
        yield


@fault("attribute_write_dropped", needs=r"\.n [+]?=|\.calls [+]=")
def attribute_write_dropped() -> Iterator[None]:
    """Attributes of existing objects are not written back."""
    from dynamo_nb.graph import effects_code

    with patched(effects_code, "_store_attr", lambda cg, obj, name, value: None):
        yield


@fault("global_write_dropped", needs=r"G[03] [+]?= ")
def global_write_dropped() -> Iterator[None]:
    """Globals are not written back."""
    from dynamo_nb.graph import effects_code

    with patched(effects_code, "_store_global", lambda cg, written: None):
        yield


@fault("cell_write_lost", needs=r"nonlocal")
def cell_write_lost() -> Iterator[None]:
    """Closure cells are not written back."""
    from dynamo_nb.graph import effects_code

    with patched(effects_code, "_store_cell", lambda cg, cell, value: None):
        yield


@fault("append_doubled", needs=r"\.append\(|\.insert\(")
def append_doubled() -> Iterator[None]:
    """The last element of a list that grew is there twice."""
    from dynamo_nb.graph import effects_code

    def assign(target: list[Any], items: list[Any]) -> None:
        target[:] = items + items[-1:] if len(items) > len(target) else items

    with patched(effects_code, "assign_list", assign):
        yield


@fault("dict_order_reversed", needs=r"\bd\[|\bd\.|G2\[")
def dict_order_reversed() -> Iterator[None]:
    """A changed dict gets its items in reverse order."""
    from dynamo_nb.graph import effects_code

    def assign(target: dict[Any, Any], items: dict[Any, Any]) -> None:
        target.clear()
        target.update(reversed(items.items()))

    with patched(effects_code, "assign_dict", assign):
        yield


@fault("effects_reordered", needs=r"\.extra|\.late|'extra'|'late'")
def effects_reordered() -> Iterator[None]:
    """Attribute writes are replayed last one first."""
    from dynamo_nb.graph import effects_code

    replay = effects_code.emit_replay

    def reordered(cg: Any, side_effects: Any, root_globals: Any) -> None:
        for obj, table in side_effects.attributes.items():
            side_effects.attributes[obj] = dict(reversed(table.items()))
        replay(cg, side_effects, root_globals)

    with patched(effects_code, "emit_replay", reordered):
        yield


@fault("resume_local_wrong", needs=r"hidden|print\(|\.sum\(\) > 0")
def resume_local_wrong() -> Iterator[None]:
    """The first two locals handed to resume code are exchanged."""
    from dynamo_nb.graph.break_code import BreakWriter

    loads = BreakWriter._loads

    def wrong(self: Any, cg: Any, state: Any, layout: Any, kept: Any, fresh: Any) -> Any:
        out = loads(self, cg, state, layout, kept, fresh)
        if len(layout.arg_names) - len(layout.stack_names) >= 2:
            out[0], out[1] = out[1], out[0]
        return out

    with patched(BreakWriter, "_loads", wrong):
        yield


@fault("stack_order_swapped", needs=r"print\('p'|hidden\(|hidden_append|\] = hidden")
def stack_order_swapped() -> Iterator[None]:
    """The two topmost operands of the instruction that breaks are exchanged."""
    from dynamo_nb.graph.break_code import BreakWriter
    from dynamo_nb.symbolic.variables.misc import NullVariable

    push = BreakWriter._push_stack

    def swapped(self: Any, cg: Any, below: Any, operands: Any) -> None:
        operands = list(operands)
        if len(operands) >= 2 and not any(isinstance(v, NullVariable) for v in operands[-2:]):
            operands[-2:] = operands[:-3:-1]
        push(self, cg, below, operands)

    with patched(BreakWriter, "_push_stack", swapped):
        yield


@fault("branches_swapped", needs=r"\.sum\(\) > 0|\.any\(\):")
def branches_swapped() -> Iterator[None]:
    """After a data-dependent jump the wrong side goes on."""
    from dynamo_nb.graph.break_code import BreakWriter

    def both(self: Any, cg: Any, state: Any, jump: Any) -> None:
        after = state.frame.instructions[state.last.index + 1]
        self._continue(cg, state, state.last.target)
        cg.instructions.append(jump.target)
        self._continue(cg, state, after)

    with patched(BreakWriter, "_both_ways", both):
        yield


@contextlib.contextmanager
def graph_changed(before: Any = None, after: Any = None) -> Iterator[None]:
    """`before(graph)` edits every graph before the backend sees it, `after(fn)` wraps what the backend returns."""
    from dynamo_nb import convert

    call = convert._call_backend

    def changed(frame: Any, recorder: Any, name: str, record: Any) -> Any:
        if before is not None:
            before(recorder.graph)
        made = call(frame, recorder, name, record)
        return made if after is None else after(made)

    with patched(convert, "_call_backend", changed):
        yield


@fault("inplace_out_of_place", needs=r"\.(add|mul|sub|neg|tanh|clamp)_\(")
def inplace_out_of_place() -> Iterator[None]:
    """x.add_(1) is done as x.add(1)."""

    def edit(graph: Any) -> None:
        for node in graph.nodes:
            if node.op == "call_method" and node.target in ("add_", "mul_", "sub_", "neg_", "tanh_", "clamp_"):
                node.target = node.target[:-1]

    with graph_changed(before=edit):
        yield


@fault("aliasing_lost", needs=r"\[0\]|\.t\(\)|\.T\b|\[:\]|view")
def aliasing_lost() -> Iterator[None]:
    """What a graph returns is a copy and no longer a view of an input."""

    def wrap(fn: Any) -> Any:
        return lambda *args: tuple(v.clone() if hasattr(v, "clone") and v._is_view() else v for v in fn(*args))

    with graph_changed(after=wrap):
        yield


@fault("stale_constant", needs=r"\bn\b")
def stale_constant() -> Iterator[None]:
    """A number that became symbolic stands in the graph with its value of the trace."""
    import torch
    from torch.fx.node import map_aggregate

    from dynamo_nb import convert

    call = convert._call_backend

    def stale(frame: Any, recorder: Any, name: str, record: Any) -> Any:
        placeholders = [n for n in recorder.graph.nodes if n.op == "placeholder"]
        for entry, node in zip(recorder.inputs, placeholders, strict=False):
            for user in list(node.users) if isinstance(entry.real, torch.SymInt) else ():
                hint = entry.real.node.hint
                user.args = map_aggregate(user.args, lambda a, node=node, hint=hint: hint if a is node else a)  # type: ignore[misc]
        return call(frame, recorder, name, record)

    with patched(convert, "_call_backend", stale):
        yield


@fault("negative_zero_folded", needs=r"-0\.0")
def negative_zero_folded() -> Iterator[None]:
    """The constant -0.0 becomes 0.0."""
    from dynamo_nb.graph.codegen import PyCodegen

    load = PyCodegen.load_const

    def folded(self: Any, value: Any) -> None:
        load(self, 0.0 if type(value) is float and value == 0 else value)

    with patched(PyCodegen, "load_const", folded):
        yield


@fault("rng_advanced")
def rng_advanced() -> Iterator[None]:
    """Compiling draws a random number."""
    import torch

    from dynamo_nb import convert

    def advance(saved: Any) -> None:
        torch.rand(1)

    with patched(convert, "_restore_rng", advance):
        yield


@fault("exception_swallowed", needs=r"except (\(|ValueError|UserError|KeyError|ZeroDivisionError)")
def exception_swallowed() -> Iterator[None]:
    """An `except` clause takes its exception for another one and the other way round."""
    from dynamo_nb.symbolic.handlers.exceptions import ExceptionHandlers
    from dynamo_nb.symbolic.interpreter import InstructionTranslatorBase
    from dynamo_nb.symbolic.variables.constant import boolean

    check = ExceptionHandlers.CHECK_EXC_MATCH

    def wrong(self: Any, inst: Any) -> None:
        check(self, inst)
        self.stack.append(boolean(not self.stack.pop().value))

    with contextlib.ExitStack() as stack:
        todo = [InstructionTranslatorBase]
        while todo:
            cls = todo.pop()
            todo += cls.__subclasses__()
            stack.enter_context(patched(cls, "dispatch_table", [wrong if h is check else h for h in cls.dispatch_table]))
        yield


@fault("prints_doubled", needs=r"print\(|chatty")
def prints_doubled() -> Iterator[None]:
    """An eager call of print after a break happens twice."""
    import builtins

    plain = builtins.print

    def twice(*args: Any, **kwargs: Any) -> None:
        plain(*args, **kwargs)
        plain(*args, **kwargs)

    from dynamo_nb.graph.codegen import PyCodegen

    load = PyCodegen.load_const

    def replaced(self: Any, value: Any) -> None:
        load(self, twice if value is plain else value)

    source = PyCodegen.load_source

    def from_source(self: Any, where: Any) -> None:
        if where is not None and where.name.endswith("print']"):
            self.load_const(twice)
        else:
            source(self, where)

    with patched(PyCodegen, "load_const", replaced), patched(PyCodegen, "load_source", from_source):
        yield


__all__ = ["FAULTS", "run_faults"]
