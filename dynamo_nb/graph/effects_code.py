"""Replay of side effects: attributes, containers, cells, globals, deferred calls (chapter 12.17)."""

from __future__ import annotations

import collections
import types
from typing import Any

from ..cpython.instruction import call_kw
from ..symbolic import protocol
from ..symbolic.variables import functions, mappings, sequences, tensor, user_defined
from ..symbolic.variables.base import VariableTracker
from .codegen import FILLERS, PyCodegen, settle, table_lookup
from .reach import Reach


def targets(side_effects: Any) -> list[VariableTracker]:
    """Everything the replay has to reach: written objects and the values written."""
    out: list[VariableTracker] = []
    for obj in side_effects.mutated_objects():
        owner = getattr(obj, "owner", obj)
        out.append(owner)
        for value in side_effects.attributes.get(obj, {}).values():
            if value is not None:
                out.append(value)
        if obj in side_effects.containers:
            out += contents(obj)
        if obj in side_effects.cells and side_effects.cells[obj] is not None:
            out.append(side_effects.cells[obj])
    out += [w.value for w in side_effects.globals.values() if w.value is not None]
    for call in side_effects.deferred:
        out += [call.function, *call.args, *call.kwargs.values()]
    return out


def contents(obj: Any) -> list[VariableTracker]:
    if isinstance(obj, sequences.SequenceVariable):
        return list(obj.items)
    if isinstance(obj, mappings.ConstDictVariable):
        return [part for pair in obj.items.values() for part in pair]
    if isinstance(obj, mappings.SetVariable):
        return [item for _, _, items in obj.calls for item in items]
    return []


# -- helpers called at run time -------------------------------------------------------------------
def assign_list(target: list[Any], items: list[Any]) -> None:
    list.__setitem__(target, slice(None), items)


def assign_deque(target: collections.deque[Any], items: list[Any]) -> None:
    collections.deque.clear(target)
    collections.deque.extend(target, items)


def assign_dict(target: dict[Any, Any], items: dict[Any, Any]) -> None:
    if isinstance(target, collections.OrderedDict):
        collections.OrderedDict.clear(target)
        for key, value in items.items():
            collections.OrderedDict.__setitem__(target, key, value)
        return
    dict.clear(target)
    dict.update(target, items)


def delete_if_there(target: Any, name: str) -> None:
    if name in getattr(target, "__dict__", {}) or hasattr(type(target), "__slots__"):
        object.__delattr__(target, name)


# -- emission ---------------------------------------------------------------------------------------
def emit_new_objects(cg: PyCodegen, reach: Reach) -> None:
    """Build what the trace made, then fill containers, cells and attributes, so that cycles close."""
    for vt in reach.order:
        cg.build(vt)
        cg.env[vt] = cg.store_temp()
    for vt in reach.order:
        fill = table_lookup(FILLERS, vt)
        if fill is not None:
            fill(cg, vt)
    for vt in (*reach.order, *reach.outputs):
        for name, value in reach.side_effects.attributes.get(vt, {}).items():
            if value is not None:
                _store_new_attr(cg, vt, name, value)


def _store_new_attr(cg: PyCodegen, vt: Any, name: str, value: VariableTracker) -> None:
    if isinstance(vt, (functions.BaseFunctionVariable, functions.PartialVariable, tensor.TensorVariable)):
        cg.load(value)
        cg.load(vt)
        cg.emit("STORE_ATTR", argval=name)
        return
    cg.push_callable(object.__setattr__)
    cg.load(vt)
    cg.load_const(name)
    cg.load(value)
    cg.call(3)
    cg.emit("POP_TOP")


def emit_replay(cg: PyCodegen, side_effects: Any, root_globals: Any) -> None:
    for obj in side_effects.mutated_objects():
        if obj in side_effects.attributes:
            for name, value in side_effects.attributes[obj].items():
                if (obj, name) in side_effects.readded and isinstance(obj, user_defined.UserDefinedObjectVariable):
                    _delete_attr(cg, obj, name)      # stored anew, it stands last in the instance's dict
                _store_attr(cg, obj, name, value)
        if obj in side_effects.containers:
            _assign(cg, obj)
        if obj in side_effects.cells:
            _store_cell(cg, obj, side_effects.cells[obj])
    for written in side_effects.globals.values():
        _store_global(cg, written)
    for call in side_effects.deferred:
        cg.emit("PUSH_NULL")
        cg.load(call.function)
        cg.load_many([*call.args, *call.kwargs.values()])
        if call.kwargs:
            cg.extend(call_kw(len(call.args) + len(call.kwargs), tuple(call.kwargs)))
        else:
            cg.call(len(call.args))
        cg.emit("POP_TOP")


def _plain_setattr(obj: Any) -> bool:
    """May STORE_ATTR be used, or would the class's own __setattr__ run?"""
    cls = obj.python_type()
    if isinstance(obj, user_defined.UserDefinedObjectVariable):
        return protocol.type_lookup(cls, "__setattr__") is object.__setattr__
    return True


def _store_attr(cg: PyCodegen, obj: Any, name: str, value: VariableTracker | None) -> None:
    if value is None:
        _delete_attr(cg, obj, name)
    elif _plain_setattr(obj):
        cg.load(value)
        cg.load(obj)
        cg.emit("STORE_ATTR", argval=name)
    else:
        _store_new_attr(cg, obj, name, value)


def _delete_attr(cg: PyCodegen, obj: Any, name: str) -> None:
    if isinstance(obj, user_defined.UserDefinedObjectVariable):
        cg.push_callable(delete_if_there)
        cg.load(obj)
        cg.load_const(name)
        cg.call(2)
        cg.emit("POP_TOP")
        return
    cg.load(obj)
    cg.emit("DELETE_ATTR", argval=name)


def _assign(cg: PyCodegen, obj: Any) -> None:
    owner = getattr(obj, "owner", obj)
    if isinstance(obj, mappings.ConstDictVariable):
        cg.push_callable(assign_dict)
        cg.load(owner)
        cg.load_many(contents(obj))
        cg.emit("BUILD_MAP", len(obj.items))
    elif isinstance(obj, mappings.SetVariable):
        _repeat_set_calls(cg, owner, obj)
        return
    elif isinstance(obj, sequences.ListVariable):
        fn = assign_deque if isinstance(obj, sequences.DequeVariable) else assign_list
        items = contents(obj)
        cg.push_callable(fn)
        cg.load(owner)
        cg.load_many(items)
        cg.emit("BUILD_LIST", len(items))
    else:
        raise TypeError(f"no replay for a changed {type(obj).__name__}: register it in graph/effects_code.py")
    cg.call(2)
    cg.emit("POP_TOP")


def _repeat_set_calls(cg: PyCodegen, owner: VariableTracker, obj: Any) -> None:
    for method, single, items in obj.calls:
        cg.push_callable(getattr(set, method))
        cg.load(owner)
        cg.load_many(items)
        if not single and method != "clear":
            cg.emit("BUILD_LIST", len(items))
        cg.call(1 if method == "clear" else 2)
        cg.emit("POP_TOP")


def _store_cell(cg: PyCodegen, cell: Any, value: VariableTracker | None) -> None:
    if value is None and cell.initial is None:
        return      # empty before and after
    if cell.local_name is not None:
        if value is None:
            cg.emit("DELETE_DEREF", argval=cell.local_name)
        else:
            cg.load(value)
            cg.emit("STORE_DEREF", argval=cell.local_name)
        return
    if value is None:
        cg.load(cell)
        cg.emit("DELETE_ATTR", argval="cell_contents")
    else:
        cg.load(value)
        cg.load(cell)
        cg.emit("STORE_ATTR", argval="cell_contents")


def _store_global(cg: PyCodegen, written: Any) -> None:
    if written.holder is None:
        if written.value is None:
            cg.emit("DELETE_GLOBAL", argval=written.name)
        else:
            cg.load(written.value)
            cg.emit("STORE_GLOBAL", argval=written.name)
        return
    if written.value is not None:
        cg.load(written.value)
    cg.load_source(written.holder)
    cg.load_const(written.name)
    cg.emit("STORE_SUBSCR" if written.value is not None else "DELETE_SUBSCR")


__all__ = ["emit_new_objects", "emit_replay", "settle", "targets", "types"]
