"""`compile()`: what users call; regions by options, functions, methods, modules, generators (chapter 12.2)."""

from __future__ import annotations

import functools
import inspect
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch

from .. import native
from ..backends.registry import DEFAULT_BACKEND, list_backends, lookup_backend
from ..convert import ConvertFrame
from ..core.options import CompileOptions
from .modules import compile_module

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
_regions: weakref.WeakValueDictionary[Any, Any] = weakref.WeakValueDictionary()


def region_for(options: CompileOptions) -> Any:
    """The region of these options; equal options share one while it lives."""
    try:
        key: Any = options.key()
        hash(key)
    except TypeError:
        key = (id(options.backend), *options.key()[1:])
    found = _regions.get(key)
    if found is not None:
        return found
    converter = ConvertFrame(options)
    region = native.Region(converter, options.name)
    converter.region = region
    region.options = options
    region.reduce = functools.partial(_reduce, options)
    _regions[key] = region
    return region


def _reduce(options: CompileOptions, compiled: Any) -> Any:
    """By name where the compiled function is what its name stands for (a decorated one), else the function and its options."""
    fn = compiled.__wrapped__
    found: Any = sys.modules.get(fn.__module__)
    for part in fn.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is compiled:
        return fn.__qualname__
    backend = options.name if options.name in list_backends(exclude_tags=()) else options.backend
    return _rebuild, (fn, backend, options.fullgraph, options.dynamic, options.mode, options.backend_options)


def _rebuild(fn: Any, backend: Any, fullgraph: bool, dynamic: bool | None, mode: str | None, options: Any) -> Any:
    return compile(fn, backend=backend, fullgraph=fullgraph, dynamic=dynamic, mode=mode, options=dict(options) or None)


def make_options(backend: Any, mode: str | None, options: dict[str, Any] | None, fullgraph: bool, dynamic: bool | None) -> CompileOptions:
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if mode is not None and mode not in MODES:
        raise ValueError(f"unknown mode {mode!r}; the modes are {', '.join(MODES)}")
    if dynamic not in (None, True, False):
        raise TypeError(f"dynamic must be True, False or None, not {dynamic!r}")
    if options is not None and not isinstance(options, dict):
        raise TypeError(f"options must be a dict, not {type(options).__name__}")
    compiler = lookup_backend(backend)
    name = backend if isinstance(backend, str) else getattr(backend, "__name__", None) or type(backend).__name__
    return CompileOptions(compiler, name, bool(fullgraph), dynamic, mode, tuple(sorted((options or {}).items())))


def compile(
    model: Any = None, *, fullgraph: bool = False, dynamic: bool | None = None, backend: str | Callable[..., Any] = DEFAULT_BACKEND,
    mode: str | None = None, options: dict[str, Any] | None = None, disable: bool = False, name: str | None = None,
) -> Any:
    """Compile a function, method or nn.Module; the counterpart of torch.compile.

    fullgraph: refuse graph breaks (`exc.Unsupported`). dynamic: True makes sizes symbolic from the start, False
    never, None after a size has changed. backend: a name of `list_backends()` or a callable
    (GraphModule, example inputs) -> callable. mode, options: for the backend. disable: return model as it is.

    Without a model it returns a decorator. A module comes back as a second object that shares `__dict__`.
    """
    if model is None:
        return functools.partial(
            compile, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable, name=name
        )
    if disable:
        return model
    if not callable(model):
        raise TypeError(f"compile() takes a callable, not {type(model).__name__}")
    return wrap(model, region_for(make_options(backend, mode, options, fullgraph, dynamic)))


def compile_in_place(module: torch.nn.Module, **options: Any) -> torch.nn.Module:
    """Make a module itself compiled, hooks and all, and return it; options: those of `compile`.

    The counterpart of `module.compile()` in torch, by torch's own protocol: calls go to `_compiled_call_impl`,
    which copies and pickles leave out. `del module._compiled_call_impl` makes it eager again.
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"compile_in_place() takes an nn.Module, not {type(module).__name__}: use compile() for functions")
    compiled = compile(module._call_impl, **options)
    if options.get("disable"):
        vars(module).pop("_compiled_call_impl", None)
    else:
        module._compiled_call_impl = compiled
    return module


def wrap(model: Any, region: Any) -> Any:
    if isinstance(model, torch.nn.Module):
        return compile_module(model, region)
    if isinstance(model, native.CompiledFunction):
        return native.CompiledFunction(model._torchdynamo_orig_callable, region)
    if isinstance(model, types.MethodType):
        return types.MethodType(wrap(model.__func__, region), model.__self__)
    if isinstance(model, types.FunctionType):
        original = getattr(model, "_torchdynamo_orig_callable", model)
        return compile_function(original if isinstance(original, types.FunctionType) else model, region)
    if isinstance(model, type):
        return model
    return compile_function(_as_function(model), region)


def _as_function(fn: Any) -> types.FunctionType:
    """A Python function around a callable that is none."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    functools.update_wrapper(call, fn, updated=())
    return call  # type: ignore[return-value]


def compile_function(fn: types.FunctionType, region: Any) -> Any:
    from .suspending import drive

    if fn.__code__.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        return drive(fn, region)
    return native.CompiledFunction(fn, region)


def original_of(fn: Any) -> Any:
    """The Python function behind anything compile() takes or returns."""
    while True:
        if isinstance(fn, torch.nn.Module):
            fn = type(fn).forward
        elif isinstance(fn, native.CompiledFunction):
            fn = fn._torchdynamo_orig_callable
        elif isinstance(fn, types.MethodType):
            fn = fn.__func__
        elif isinstance(fn, functools.partial):
            fn = fn.func
        elif isinstance(getattr(fn, "_torchdynamo_orig_callable", None), types.FunctionType):
            fn = fn._torchdynamo_orig_callable
        else:
            return fn


def cache_entries(fn: Any) -> list[Any]:
    """The cache entries of fn's code object, in the order they are tried."""
    code = original_of(fn)
    code = getattr(code, "__code__", code)
    return native.get_entries(code) if isinstance(code, types.CodeType) else []
