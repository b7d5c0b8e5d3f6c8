"""How each class of tracker is built by bytecode when its value outlives the trace."""

from __future__ import annotations

import collections
import functools
import sys
import types
import weakref
from typing import Any

import torch

from ..cpython.classes import is_python_class
from ..cpython.instruction import call_kw, load_attr
from ..symbolic.numpy_ops import to_array, to_scalar
from ..symbolic.variables import (
    builtin,
    classes,
    dict_methods,
    exceptions,
    functions,
    iterators,
    mappings,
    misc,
    numeric,
    numpy_array,
    sequences,
    tensor,
    user_defined,
    weak,
)
from ..symbolic.variables.base import VariableTracker
from ..symbolic.variables.constant import ConstantVariable
from ..symbolic.variables.hashing import effectful
from .codegen import PyCodegen, builds, cannot_rebuild

V = list[VariableTracker]
FunctionType = types.FunctionType


def _none(vt: Any) -> V:
    return []


# -- values known by themselves -------------------------------------------------------------------
@builds(sequences.RangeVariable, classes.UserDefinedClassVariable, misc.PythonModuleVariable, builtin.CallableValueVariable, functions.UserFunctionVariable, misc.OpaqueVariable, weak.CachedFunctionVariable, children=_none)
def _by_value(cg: PyCodegen, vt: Any) -> None:
    cg.load_const(vt.value)


@builds(tensor.TensorVariable, numeric.SymNodeVariable, children=_none)
def _graph_value(cg: PyCodegen, vt: Any) -> None:
    raise AssertionError(f"{vt} was not made a graph output")


@builds(numpy_array.NumpyNdarrayVariable, children=lambda vt: [vt.tensor])
def _numpy_array(cg: PyCodegen, vt: Any) -> None:
    cg.push_callable(to_scalar if vt.scalar else to_array)
    cg.load(vt.tensor)
    cg.call(1)


# -- sequences --------------------------------------------------------------------------------------
def _items(vt: Any) -> V:
    return list(vt.items)


def _fill_list(cg: PyCodegen, vt: Any) -> None:
    """A list that contains itself is made empty and extended when everything exists."""
    if not vt.deferred:
        return
    cg.load(vt)
    cg.load_many(vt.items)
    cg.emit("BUILD_LIST", len(vt.items))
    cg.emit("LIST_EXTEND", 1)
    cg.emit("POP_TOP")


@builds(sequences.ListVariable, children=_items, fill=_fill_list)
def _list(cg: PyCodegen, vt: Any) -> None:
    items = [] if getattr(vt, "deferred", False) else vt.items
    cg.load_many(items)
    cg.emit("BUILD_LIST", len(items))


@builds(sequences.TupleVariable, children=_items)
def _tuple(cg: PyCodegen, vt: Any) -> None:
    cg.load_many(vt.items)
    cg.emit("BUILD_TUPLE", len(vt.items))


@builds(sequences.SizeVariable, children=_items)
def _size(cg: PyCodegen, vt: Any) -> None:
    cg.push_callable(torch.Size)
    _tuple(cg, vt)
    cg.call(1)


@builds(sequences.NamedTupleVariable, children=_items)
def _namedtuple(cg: PyCodegen, vt: Any) -> None:
    cg.push_callable(tuple.__new__)
    cg.load_const(vt.kind)
    _tuple(cg, vt)
    cg.call(2)


@builds(sequences.StructSequenceVariable, children=_items)
def _structseq(cg: PyCodegen, vt: Any) -> None:
    cg.push_callable(vt.kind)
    _tuple(cg, vt)
    cg.call(1)


@builds(sequences.SliceVariable, children=_items)
def _slice(cg: PyCodegen, vt: Any) -> None:
    cg.load_many(vt.items)
    cg.emit("BUILD_SLICE", 3)


@builds(sequences.DequeVariable, children=_items)
def _deque(cg: PyCodegen, vt: Any) -> None:
    cg.push_callable(collections.deque)
    cg.load_many(vt.items)
    cg.emit("BUILD_LIST", len(vt.items))
    cg.load_const(vt.maxlen)
    cg.call(2)


# -- dicts and sets -----------------------------------------------------------------------------------
def _pairs(vt: Any) -> V:
    if effectful(vt.items):
        raise cannot_rebuild(vt)
    return [part for pair in vt.items.values() for part in pair]


def _dict_children(vt: Any) -> V:
    return [*([vt.factory] if vt.kind is collections.defaultdict else []), *_pairs(vt)]


def _push_pairs(cg: PyCodegen, vt: Any) -> None:
    cg.load_many(_pairs(vt))
    cg.emit("BUILD_MAP", len(vt.items))


def _fill_dict(cg: PyCodegen, vt: Any) -> None:
    if not vt.deferred:
        return
    cg.push_callable(dict.update)
    cg.load(vt)
    _push_pairs(cg, vt)
    cg.call(2)
    cg.emit("POP_TOP")


@builds(mappings.ConstDictVariable, children=_dict_children, fill=_fill_dict)
def _dict(cg: PyCodegen, vt: Any) -> None:
    deferred = getattr(vt, "deferred", False)
    if vt.kind is dict:
        if deferred:
            cg.emit("BUILD_MAP", 0)
        else:
            _push_pairs(cg, vt)
        return
    cg.push_callable(vt.kind)
    count = 0
    if vt.kind is collections.defaultdict:
        cg.load(vt.factory)
        count += 1
    if not deferred:
        _push_pairs(cg, vt)
        count += 1
    cg.call(count)


@builds(user_defined.InstanceDictVariable, children=lambda vt: [vt.obj])
def _instance_dict(cg: PyCodegen, vt: Any) -> None:
    cg.load(vt.obj)
    cg.extend(load_attr("__dict__"))


@builds(mappings.DictViewVariable, children=lambda vt: [vt.base.owner])
def _view(cg: PyCodegen, vt: Any) -> None:
    cg.push_callable(getattr(vt.base.kind, vt.which))
    cg.load(vt.base.owner)
    cg.call(1)


@builds(mappings.MappingProxyVariable, children=lambda vt: [vt.base])
def _proxy(cg: PyCodegen, vt: Any) -> None:
    cg.push_callable(types.MappingProxyType)
    cg.load(vt.base)
    cg.call(1)


def _set_members(vt: Any) -> V:
    """In an order of insertion that gives the order of iteration eager has."""
    if effectful(vt.items):
        raise cannot_rebuild(vt)
    if list(set(vt.items)) == list(vt.mirror):
        return list(vt.items.values())
    return [vt.items[k] for k in vt.mirror]


@builds(mappings.SetVariable, children=_set_members)
def _set(cg: PyCodegen, vt: Any) -> None:
    cg.push_callable(vt.kind)
    cg.load_many(_set_members(vt))
    cg.emit("BUILD_LIST", len(vt.items))
    cg.call(1)


# -- iterators ------------------------------------------------------------------------------------------
def _list_iterator_children(vt: Any) -> V:
    if vt._items is None:
        return [vt.origin]
    return vt.remaining()


def _exhausted() -> Any:
    done = iter([])
    next(done, None)
    return done


@builds(iterators.ListIteratorVariable, children=_list_iterator_children)
def _list_iterator(cg: PyCodegen, vt: Any) -> None:
    if vt.exhausted:
        cg.push_callable(_exhausted)
        cg.call(0)
        return
    if vt._items is None:
        cg.load(vt.origin)
        cg.emit("GET_ITER")
        if vt.index:
            cg.emit("COPY", 1)
            cg.emit("LOAD_METHOD", argval="__setstate__")
            cg.load_const(vt.index)
            cg.call(1)
            cg.emit("POP_TOP")
        return
    items = vt.remaining()
    if vt.python_type() in (reversed, type(reversed([]))):
        cg.push_callable(reversed)
        cg.load_many(list(reversed(items)))
        cg.emit("BUILD_LIST", len(items))
        cg.call(1)
        return
    cg.load_many(items)
    cg.emit("BUILD_TUPLE" if vt.python_type() is type(iter(())) else "BUILD_LIST", len(items))
    cg.emit("GET_ITER")


@builds(iterators.RangeIteratorVariable, children=_none)
def _range_iterator(cg: PyCodegen, vt: Any) -> None:
    cg.load_const(vt.value)
    cg.emit("GET_ITER")


@builds(iterators.DictIteratorVariable, children=lambda vt: [vt.view])
def _dict_iterator(cg: PyCodegen, vt: Any) -> None:
    if vt.size == -1:
        cg.push_callable(_exhausted)
        cg.call(0)
        return
    cg.load(vt.view)
    cg.emit("GET_ITER")
    for _ in range(vt.index):
        cg.emit("COPY", 1)
        name = cg.store_temp()
        cg.push_callable(next)
        cg.load_fast(name)
        cg.call(1)
        cg.emit("POP_TOP")


@builds(iterators.ZipVariable, children=lambda vt: vt.iterators)
def _zip(cg: PyCodegen, vt: Any) -> None:
    cg.push_callable(zip)
    cg.load_many(vt.iterators)
    if vt.strict:
        cg.load_const(True)
        cg.extend(call_kw(len(vt.iterators) + 1, ("strict",)))
    else:
        cg.call(len(vt.iterators))


@builds(iterators.MapVariable, children=lambda vt: [vt.function, *vt.iterators])
def _map(cg: PyCodegen, vt: Any) -> None:
    cg.push_callable(map)
    cg.load_many([vt.function, *vt.iterators])
    cg.call(1 + len(vt.iterators))


@builds(iterators.FilterVariable, children=lambda vt: [vt.function, vt.iterator])
def _filter(cg: PyCodegen, vt: Any) -> None:
    cg.push_callable(filter)
    cg.load_many([vt.function, vt.iterator])
    cg.call(2)


@builds(iterators.EnumerateVariable, children=lambda vt: [vt.iterator, vt.count])
def _enumerate(cg: PyCodegen, vt: Any) -> None:
    cg.push_callable(enumerate)
    cg.load_many([vt.iterator, vt.count])
    cg.call(2)


@builds(iterators.SequenceIteratorVariable, children=lambda vt: [vt.sequence])
def _sequence_iterator(cg: PyCodegen, vt: Any) -> None:
    if vt.index:
        raise cannot_rebuild(vt)
    cg.push_callable(iter)
    cg.load(vt.sequence)
    cg.call(1)


def _generator_children(vt: Any) -> V:
    if vt.started or vt.finished or hasattr(vt, "stands_for") or not hasattr(vt, "call"):
        raise cannot_rebuild(vt)
    fn, bound = vt.call
    return [fn, *bound.values()]


@builds(iterators.GeneratorVariable, children=_generator_children)
def _generator(cg: PyCodegen, vt: Any) -> None:
    """One that has not begun is made by calling its function."""
    fn, bound = vt.call
    code = fn.get_code()
    names = code.co_varnames
    count = code.co_argcount
    cg.emit("PUSH_NULL")
    cg.load(fn)
    cg.load_many([bound[n] for n in names[:count]])
    cg.emit("BUILD_LIST", count)
    position = count + code.co_kwonlyargcount
    if code.co_flags & 4:
        cg.load(bound[names[position]])
        cg.emit("LIST_EXTEND", 1)
        position += 1
    cg.emit("LIST_TO_TUPLE")
    for n in names[count:count + code.co_kwonlyargcount]:
        cg.load_const(n)
        cg.load(bound[n])
    cg.emit("BUILD_MAP", code.co_kwonlyargcount)
    if code.co_flags & 8:
        cg.load(bound[names[position]])
        cg.emit("DICT_UPDATE", 1)
    cg.emit("CALL_FUNCTION_EX", 1)


# -- functions ------------------------------------------------------------------------------------------
def _make_function(code: Any, globals_: Any, closure: Any, defaults: Any, kwdefaults: Any, annotations: Any) -> Any:
    made = types.FunctionType(code, globals_, code.co_name, defaults, closure)
    made.__qualname__ = code.co_qualname
    if kwdefaults:
        made.__kwdefaults__ = kwdefaults
    if annotations:
        made.__annotations__ = dict(zip(annotations[::2], annotations[1::2], strict=True))
    return made


def _function_children(vt: Any) -> V:
    optional = [x for x in (vt.kwdefaults, vt.annotations) if x is not None]
    return [*vt.closure, *vt.default_values, *optional]


@builds(functions.NestedUserFunctionVariable, children=_function_children)
def _nested_function(cg: PyCodegen, vt: Any) -> None:
    cg.push_callable(_make_function)
    cg.load_const(vt.code)
    _push_globals(cg, vt)
    if vt.closure:
        cg.load_many(vt.closure)
        cg.emit("BUILD_TUPLE", len(vt.closure))
    else:
        cg.load_const(None)
    if vt.default_values:
        cg.load_many(vt.default_values)
        cg.emit("BUILD_TUPLE", len(vt.default_values))
    else:
        cg.load_const(None)
    for extra in (vt.kwdefaults, vt.annotations):
        if extra is None:
            cg.load_const(None)
        else:
            cg.load(extra)
    cg.call(6)


def _push_globals(cg: PyCodegen, vt: Any) -> None:
    frame = vt.globals_owner
    if vt.globals is frame.recorder.root_globals:
        cg.push_callable(globals)
        cg.call(0)
    elif frame.globals_source is not None:
        cg.load_source(frame.globals_source)
    else:
        cg.load_const(vt.globals)


@builds(functions.UserMethodVariable, children=lambda vt: [vt.fn, vt.receiver])
def _method(cg: PyCodegen, vt: Any) -> None:
    cg.push_callable(types.MethodType)
    cg.load_many([vt.fn, vt.receiver])
    cg.call(2)


@builds(functions.PartialVariable, children=lambda vt: [vt.fn, *vt.args, *vt.keywords.values()])
def _partial(cg: PyCodegen, vt: Any) -> None:
    cg.push_callable(functools.partial)
    cg.load_many([vt.fn, *vt.args, *vt.keywords.values()])
    if vt.keywords:
        cg.extend(call_kw(1 + len(vt.args) + len(vt.keywords), tuple(vt.keywords)))
    else:
        cg.call(1 + len(vt.args))


@builds(misc.NativeMethodVariable, children=lambda vt: [vt.receiver])
def _native_method(cg: PyCodegen, vt: Any) -> None:
    if isinstance(vt, misc.SuperMethodVariable):
        raise cannot_rebuild(vt)
    cg.load(vt.receiver)
    cg.extend(load_attr(vt.name))


def _fill_cell(cg: PyCodegen, vt: Any) -> None:
    if vt.initial is None or vt.existing:
        return
    cg.load(vt.initial)
    cg.load(vt)
    cg.emit("STORE_ATTR", argval="cell_contents")


@builds(functions.CellVariable, children=lambda vt: [], fill=_fill_cell)
def _cell(cg: PyCodegen, vt: Any) -> None:
    if vt.local_name is not None and cg.in_root:
        cg.emit("LOAD_CLOSURE", argval=vt.local_name)
        return
    cg.push_callable(types.CellType)
    cg.call(0)


# -- objects ----------------------------------------------------------------------------------------------
BASES = (list, dict, set, tuple, collections.deque)


def _object_children(vt: Any) -> V:
    return [i for i in vt.storage.items] if isinstance(vt.storage, sequences.NamedTupleVariable) else []


def _new_function(cls: type) -> Any:
    for base in cls.__mro__:
        if not is_python_class(base):
            return base.__new__
    return object.__new__


def _fill_object(cg: PyCodegen, vt: Any) -> None:
    """Inherited contents; attributes are set by the side-effects replay."""
    storage = vt.storage
    if isinstance(storage, mappings.ConstDictVariable) and storage.items:
        cg.push_callable(storage.kind.update if storage.kind is not collections.OrderedDict else collections.OrderedDict.update)
        cg.load(vt)
        _push_pairs(cg, storage)
        cg.call(2)
        cg.emit("POP_TOP")
    elif isinstance(storage, sequences.ListVariable) and storage.items:
        cg.push_callable(storage.kind.extend)
        cg.load(vt)
        cg.load_many(storage.items)
        cg.emit("BUILD_LIST", len(storage.items))
        cg.call(2)
        cg.emit("POP_TOP")
    elif isinstance(storage, mappings.SetVariable) and storage.items:
        cg.push_callable(set.update)
        cg.load(vt)
        cg.load_many(list(storage.items.values()))
        cg.emit("BUILD_LIST", len(storage.items))
        cg.call(2)
        cg.emit("POP_TOP")


def object_fill_children(vt: Any) -> V:
    storage = vt.storage
    if isinstance(storage, mappings.ConstDictVariable):
        return [*_pairs(storage), *([storage.factory] if storage.kind is collections.defaultdict else [])]
    if isinstance(storage, sequences.SequenceVariable):
        return list(storage.items)
    if isinstance(storage, mappings.SetVariable):
        return list(storage.items.values())
    return []


@builds(user_defined.UserDefinedObjectVariable, children=_object_children, fill=_fill_object)
def _object(cg: PyCodegen, vt: Any) -> None:
    if isinstance(vt.storage, mappings.ConstDictVariable) and vt.storage.kind is collections.defaultdict:
        raise cannot_rebuild(vt)
    cg.push_callable(_new_function(vt.cls))
    _push_class(cg, vt)
    if isinstance(vt.storage, sequences.NamedTupleVariable):
        _tuple(cg, vt.storage)
        cg.call(2)
    else:
        cg.call(1)


def _push_class(cg: PyCodegen, vt: Any) -> None:
    cls_vt = getattr(vt, "class_tracker", None)
    if cls_vt is not None:
        cg.load(cls_vt)
    else:
        cg.load_const(vt.cls)


def _exception_children(vt: Any) -> V:
    """What was raised in an inlined frame is raised again by the original code: its traceback has frames only that makes."""
    if vt.fuzzy or vt.raised_inside:
        raise cannot_rebuild(vt)
    return list(vt.args)


def _new_exception(cls: type, args: tuple[Any, ...], attrs: dict[str, Any]) -> BaseException:
    made = cls.__new__(cls, *args)
    if issubclass(cls, (OSError, SyntaxError, ImportError, UnicodeError, StopIteration, SystemExit, AttributeError, NameError)) and "__init__" not in cls.__dict__:
        BaseException.__init__(made, *args) if attrs else made.__init__(*args)  # type: ignore[misc]
    made.args = args
    for name, value in attrs.items():
        setattr(made, name, value)
    return made


def _set_exception_fields(exc: BaseException, cause: Any, context: Any, suppress: bool, line: int) -> None:
    """line: where it was raised, 0 if it was not. A raised exception has a traceback; `with` relies on it."""
    if line and exc.__traceback__ is None:
        frame = sys._getframe(1)
        exc.__traceback__ = types.TracebackType(None, frame, frame.f_lasti, line)
    exc.__context__ = context
    exc.__cause__ = cause
    exc.__suppress_context__ = suppress


def _fill_exception(cg: PyCodegen, vt: Any) -> None:
    cg.push_callable(_set_exception_fields)
    cg.load_many([vt, vt.fields["__cause__"], vt.fields["__context__"], vt.fields["__suppress_context__"]])
    cg.load_const(vt.raised_line)
    cg.call(5)
    cg.emit("POP_TOP")


@builds(exceptions.ExceptionVariable, children=_exception_children, fill=_fill_exception)
def _exception(cg: PyCodegen, vt: Any) -> None:
    cg.push_callable(_new_exception)
    cg.load_const(vt.cls)
    cg.load_many(vt.args)
    cg.emit("BUILD_TUPLE", len(vt.args))
    for name, value in vt.attrs.items():
        cg.load_const(name)
        cg.load(value)
    cg.emit("BUILD_MAP", len(vt.attrs))
    cg.call(3)


@builds(misc.PreviousExceptionVariable, children=lambda vt: [vt.handled])
def _previous(cg: PyCodegen, vt: Any) -> None:
    cg.load(vt.handled)


@builds(weak.WeakRefVariable, children=lambda vt: [vt.referent])
def _weakref(cg: PyCodegen, vt: Any) -> None:
    cg.push_callable(weakref.ref)
    cg.load(vt.referent)
    cg.call(1)


def fill_children(vt: Any) -> V:
    """What the filling stage of a value needs beyond its `children`."""
    if isinstance(vt, functions.CellVariable):
        return [] if vt.initial is None or vt.existing else [vt.initial]
    if isinstance(vt, user_defined.UserDefinedObjectVariable):
        return object_fill_children(vt)
    if isinstance(vt, exceptions.ExceptionVariable):
        return [vt.fields["__cause__"], vt.fields["__context__"]]
    return []


__all__ = ["ConstantVariable", "dict_methods", "fill_children"]
