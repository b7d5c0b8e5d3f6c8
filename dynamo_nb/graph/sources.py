"""Bytecode that reads a source again: one table entry per class of source."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..core import source as s
from ..cpython.instruction import call_function, load_attr, load_global
from ..native import dict_item, sequence_item

if TYPE_CHECKING:
    from .codegen import PyCodegen

TABLE: dict[type, Callable[[Any, Any], None]] = {}


def reads(cls: type) -> Callable[[Any], Any]:
    def register(emit: Any) -> Any:
        TABLE[cls] = emit
        return emit

    return register


def emit(cg: PyCodegen, source: s.Source) -> None:
    try:
        write = TABLE[type(source)]
    except KeyError:
        raise TypeError(f"no bytecode for {type(source).__name__} ({source.name}): register it in graph/sources.py") from None
    write(cg, source)


def shared_bases(found: list[s.Source]) -> list[s.Source]:
    """What several of the sources are reached through, outer ones first; locals aside, which cost nothing to read."""
    children: dict[s.Source, set[s.Source]] = {}
    order: dict[s.Source, None] = {}
    for source in found:
        chain = []
        while isinstance(source, s.ChainedSource):
            children.setdefault(source.base, set()).add(source)
            chain.append(source.base)
            source = source.base
        order.update(dict.fromkeys(reversed(chain)))
    return [base for base in order if len(children[base]) > 1 and isinstance(base, s.ChainedSource)]


@reads(s.LocalSource)
def _local(cg: PyCodegen, source: s.LocalSource) -> None:
    if source.local_name in cg.cell_names:
        cg.emit("LOAD_DEREF", argval=source.local_name)
    else:
        cg.load_fast(source.local_name)


@reads(s.LocalCellSource)
def _cell(cg: PyCodegen, source: s.LocalCellSource) -> None:
    cg.emit("LOAD_CLOSURE", argval=source.local_name)


@reads(s.GlobalSource)
def _global(cg: PyCodegen, source: s.GlobalSource) -> None:
    cg.extend(load_global(source.global_name))


@reads(s.BuiltinSource)
def _builtin(cg: PyCodegen, source: s.BuiltinSource) -> None:
    cg.extend(load_global(source.builtin_name))


@reads(s.ComputedSource)
def _computed(cg: PyCodegen, source: s.ComputedSource) -> None:
    cg.push_callable(source.fn)
    for leaf in source.leaves:
        cg.load_source(leaf)
    cg.call(len(source.leaves))


@reads(s.ModuleSource)
def _module(cg: PyCodegen, source: s.ModuleSource) -> None:
    cg.load_const(sys.modules[source.module_name])


@reads(s.AttrSource)
def _attr(cg: PyCodegen, source: s.AttrSource) -> None:
    cg.load_source(source.base)
    cg.extend(load_attr(source.member))


@reads(s.NNModuleSource)
def _nn_module(cg: PyCodegen, source: s.NNModuleSource) -> None:
    cg.load_source(source.base)


@reads(s.InstanceDictSource)
def _instance_dict(cg: PyCodegen, source: s.InstanceDictSource) -> None:
    cg.load_source(source.base)
    cg.extend(load_attr("__dict__"))


@reads(s.TypeDictSource)
def _type_dict(cg: PyCodegen, source: s.TypeDictSource) -> None:
    cg.load_source(source.base)
    cg.extend(load_attr("__dict__"))


def _call_on(cg: PyCodegen, fn: Any, base: s.Source, *args: Any) -> None:
    cg.push_callable(fn)
    cg.load_source(base)
    for arg in args:
        cg.load_const(arg)
    cg.call(1 + len(args))


@reads(s.TypeSource)
def _type(cg: PyCodegen, source: s.TypeSource) -> None:
    _call_on(cg, type, source.base)


@reads(s.TypeMROSource)
def _mro(cg: PyCodegen, source: s.TypeMROSource) -> None:
    cg.load_source(source.base)
    cg.extend(load_attr("__mro__"))
    cg.load_const(source.index)
    cg.emit("BINARY_SUBSCR")


def _key(mapping: Any, index: int) -> Any:
    return list(dict.keys(mapping))[index]


def _value(mapping: Any, index: int) -> Any:
    return list(dict.values(mapping))[index]


@reads(s.GetItemSource)
def _getitem(cg: PyCodegen, source: s.GetItemSource) -> None:
    _call_on(cg, sequence_item, source.base, source.index)


@reads(s.DictGetItemSource)
def _dict_getitem(cg: PyCodegen, source: s.DictGetItemSource) -> None:
    _call_on(cg, dict_item, source.base, source.key)


@reads(s.DictKeySource)
def _dict_key(cg: PyCodegen, source: s.DictKeySource) -> None:
    _call_on(cg, _key, source.base, source.index)


@reads(s.DictValueSource)
def _dict_value(cg: PyCodegen, source: s.DictValueSource) -> None:
    _call_on(cg, _value, source.base, source.index)


@reads(s.CellContentsSource)
def _cell_contents(cg: PyCodegen, source: s.CellContentsSource) -> None:
    if isinstance(source.base, s.LocalCellSource):
        cg.emit("LOAD_DEREF", argval=source.base.local_name)
        return
    cg.load_source(source.base)
    cg.extend(load_attr("cell_contents"))


@reads(s.WeakRefCallSource)
def _weakref(cg: PyCodegen, source: s.WeakRefCallSource) -> None:
    cg.emit("PUSH_NULL")
    cg.load_source(source.base)
    cg.extend(call_function(0, False))


@reads(s.TensorPropertySource)
def _property(cg: PyCodegen, source: s.TensorPropertySource) -> None:
    cg.emit("PUSH_NULL")
    cg.load_source(source.base)
    cg.extend(load_attr(source.prop))
    if source.prop == "storage_offset":
        cg.extend(call_function(0, False))
        return
    cg.load_const(source.index)
    cg.extend(call_function(1, False))


@reads(s.NumpyTensorSource)
def _numpy(cg: PyCodegen, source: s.NumpyTensorSource) -> None:
    import torch

    _call_on(cg, torch.as_tensor, source.base)
