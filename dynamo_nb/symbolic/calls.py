"""Calling things: argument binding, inlining of Python functions, C methods, handler invocation."""

from __future__ import annotations

import inspect
import types
from typing import TYPE_CHECKING, Any

from ..core import trace_rules
from ..core.exc import RestartAnalysis, StepUnsupported
from ..core.reasons import DisabledFunction, OpFailed, RecursionTooDeep, SkippedFunction
from .variables.base import VariableTracker
from .variables.constant import ConstantVariable

if TYPE_CHECKING:
    from .interpreter import InstructionTranslatorBase as Tx

CO_VARARGS, CO_VARKEYWORDS = inspect.CO_VARARGS, inspect.CO_VARKEYWORDS


class BindingError(Exception):
    """The arguments do not fit the signature."""


def bind_arguments(tx: Tx, code: types.CodeType, args: list[VariableTracker], kwargs: dict[str, VariableTracker], defaults: list[VariableTracker], kwdefaults: dict[str, VariableTracker]) -> dict[str, VariableTracker]:
    """Local names to trackers, as CPython binds them (language reference 6.3.4)."""
    from .variables.mappings import ConstDictVariable
    from .variables.sequences import TupleVariable

    names = code.co_varnames
    positional = code.co_argcount
    total = positional + code.co_kwonlyargcount
    bound: dict[str, VariableTracker] = dict(zip(names[:positional], args, strict=False))
    rest = args[positional:]
    extra: dict[str, VariableTracker] = {}
    by_keyword = set(names[code.co_posonlyargcount:total])
    for name, value in kwargs.items():
        if name in by_keyword:
            if name in bound:
                raise BindingError(f"multiple values for {name}")
            bound[name] = value
        elif code.co_flags & CO_VARKEYWORDS:
            extra[name] = value
        else:
            raise BindingError(f"unexpected keyword argument {name}")
    if rest and not code.co_flags & CO_VARARGS:
        raise BindingError("too many positional arguments")
    first_default = positional - len(defaults)
    for i, name in enumerate(names[:positional]):
        if name not in bound:
            if i < first_default:
                raise BindingError(f"missing argument {name}")
            bound[name] = defaults[i - first_default]
    for name in names[positional:total]:
        if name not in bound:
            if name not in kwdefaults:
                raise BindingError(f"missing keyword argument {name}")
            bound[name] = kwdefaults[name]
    position = total
    if code.co_flags & CO_VARARGS:
        bound[names[position]] = TupleVariable(rest)
        position += 1
    if code.co_flags & CO_VARKEYWORDS:
        bound[names[position]] = ConstDictVariable({k: (ConstantVariable(k), v) for k, v in extra.items()})
    return bound


def call_python_function(tx: Tx, fn: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    """Call a UserFunctionVariable or a NestedUserFunctionVariable."""
    from . import builtins as table
    from .inline import inline_call
    from .variables.functions import UserFunctionVariable

    if isinstance(fn, UserFunctionVariable):
        handler = table.handler_of(fn.fn)
        if handler is not None:
            result = invoke_handler(tx, handler, fn.fn, args, kwargs)
            if result is not None:
                return result
        rule = trace_rules.classify(fn.fn)
        if rule is trace_rules.Rule.DISABLED:
            reason = fn.fn.__dict__.get("_torchdynamo_disable_msg") or ""
            raise StepUnsupported(DisabledFunction(f"call of the disabled function {fn.fn.__qualname__}" + (f" ({reason})" if reason else "")))
        if rule is trace_rules.Rule.SKIP and not tx.in_trusted_inline():
            folded = _fold(tx, fn.fn, args, kwargs)
            if folded is not None:
                return folded
            raise StepUnsupported(SkippedFunction(f"call of {fn.fn.__module__}.{fn.fn.__qualname__}, which is not traced"))
    defaults, kwdefaults = fn.defaults(tx)
    code = fn.get_code()
    try:
        bound = bind_arguments(tx, code, args, kwargs, defaults, kwdefaults)
    except BindingError as err:
        raise tx.call_failed(OpFailed(f"call of {code.co_qualname}: {err}")) from None
    if tx.depth >= tx.recorder.config["max_inline_depth"]:
        raise StepUnsupported(RecursionTooDeep(f"call of {code.co_qualname} at inline depth {tx.depth}"))
    return inline_call(tx, fn, code, bound)


def _fold(tx: Tx, fn: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker | None:
    from .variables.builtin import CallableValueVariable

    return CallableValueVariable(fn).fold_or_none(tx, args, kwargs)


def inline_torch_function(tx: Tx, fn: types.FunctionType, source: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    """An in-graph torch function written in Python, called with operands no node can hold."""
    from .inline import inline_call
    from .variables.functions import UserFunctionVariable

    vt = UserFunctionVariable(fn, source)
    defaults, kwdefaults = vt.defaults(tx)
    try:
        bound = bind_arguments(tx, fn.__code__, args, kwargs, defaults, kwdefaults)
    except BindingError as err:
        raise tx.call_failed(OpFailed(f"call of {fn.__qualname__}: {err}")) from None
    return inline_call(tx, vt, fn.__code__, bound)


def invoke_handler(tx: Tx, handler: Any, fn: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker | None:
    """Call a table handler; arguments that do not fit it mean it does not apply."""
    try:
        handler.signature.bind(tx, *args, **kwargs)
    except TypeError:
        return None
    return handler(tx, *args, **kwargs)


def call_native_method(tx: Tx, method: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    """receiver.name(*args) where name is implemented in C."""
    from . import builtins as table
    from .variables.tensor import TensorVariable

    receiver = method.receiver.realize()
    handler = table.handler_of(method.descriptor) if not isinstance(receiver, TensorVariable) else None
    if handler is not None:
        result = invoke_handler(tx, handler, method.descriptor, [receiver, *args], kwargs)
        if result is not None:
            return result
    return receiver.call_method(tx, method.name, args, kwargs)


def call_descriptor(tx: Tx, descriptor: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    """An unbound C method called with its receiver first: `list.append(xs, 1)`."""
    receiver = args[0].realize()
    owner = descriptor.__objclass__
    if not issubclass(receiver.python_type(), owner):
        raise tx.raise_(TypeError, f"descriptor {descriptor.__name__!r} for {owner.__name__!r} objects doesn't apply to a {receiver.python_type().__name__!r} object")
    storage = getattr(receiver, "storage", None)
    target = storage if storage is not None and owner is not object else receiver
    return target.call_method(tx, descriptor.__name__, args[1:], kwargs)


__all__ = ["BindingError", "RestartAnalysis", "bind_arguments", "call_descriptor", "call_native_method", "call_python_function", "inline_torch_function", "invoke_handler"]
