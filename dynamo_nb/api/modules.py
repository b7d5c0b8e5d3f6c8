"""Compiled nn.Modules: a second object that shares the module's `__dict__`.

Its class is a subclass made on the fly that only changes how the object is called, copied and pickled;
`isinstance`, `__class__`, state_dict keys and attributes are the module's.
"""

from __future__ import annotations

import copy
import types
import weakref
from typing import Any

import torch
import torch.nn.modules.module as nn_module

from .. import native

_classes: weakref.WeakKeyDictionary[type, dict[Any, Any]] = weakref.WeakKeyDictionary()


class CompiledModuleMixin:
    """Calls go through a compiled `_call_impl`, with all hooks."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """The user's own `__init_subclass__` is not run for these classes."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return type(self)._compiled_call(self, *args, **kwargs)  # type: ignore[attr-defined]

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self)._original_class  # type: ignore[attr-defined]

    def __reduce_ex__(self, protocol: Any) -> Any:
        cls: Any = type(self)
        return _rebuild, (self._original(), cls._region.options)  # type: ignore[attr-defined]

    def __deepcopy__(self, memo: Any) -> Any:
        return compile_module(copy.deepcopy(self._original(), memo), type(self)._region)  # type: ignore[attr-defined]

    def __copy__(self) -> Any:
        return compile_module(copy.copy(self._original()), type(self)._region)  # type: ignore[attr-defined]

    def _original(self) -> Any:
        cls: Any = type(self)
        plain = object.__new__(cls._original_class)
        object.__setattr__(plain, "__dict__", self.__dict__)
        return plain


def _rebuild(module: Any, options: Any) -> Any:
    from .compile import compile

    return compile(
        module, backend=options.name, fullgraph=options.fullgraph, dynamic=options.dynamic, mode=options.mode,
        options=dict(options.backend_options) or None,
    )


def _call_impl(self: Any, *args: Any, **kwargs: Any) -> Any:
    """What nn.Module.__call__ runs, as the frame that is compiled."""
    return self.forward(*args, **kwargs)


def _class_for(cls: type, region: Any) -> type:
    table = _classes.setdefault(cls, {})
    made = table.get(id(region))
    if made is None or made._region is not region:
        plain_forward = getattr(cls, "forward", None)
        namespace = {
            "__slots__": ("_dynamo_nb_view",), "_original_class": cls, "_region": region, "__module__": cls.__module__, "__qualname__": cls.__qualname__,
            "_compiled_call": _CompiledCall(plain_forward, region), "__doc__": cls.__doc__,
        }
        made = type(cls)(cls.__name__, (CompiledModuleMixin, cls), namespace)
        table[id(region)] = made
    return made


class _CompiledCall:
    """Calls the module's own call protocol with its forward compiled.

    Without hooks the compiled forward is all there is; with hooks nn.Module's `_call_impl` runs inside the
    region, so that hooks see eager's order.
    """

    def __init__(self, forward: Any, region: Any) -> None:
        self.region = region
        self.forwards: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self.usual: tuple[Any, Any] = (None, None)      # the class's forward and what it became

    def __call__(self, module: Any, *args: Any, **kwargs: Any) -> Any:
        cls, table = type(module)._original_class, module.__dict__
        usual, compiled = self.usual
        if usual is not None and cls.forward is usual and "forward" not in table and not _has_hooks(table) and cls.__call__ is nn_module.Module.__call__:
            return compiled(module._dynamo_nb_view, *args, **kwargs)
        return self._unusual(module, args, kwargs)

    def _unusual(self, module: Any, args: Any, kwargs: Any) -> Any:
        forward = module.__dict__.get("forward") or type(module)._original_class.forward
        fn = getattr(forward, "__func__", forward)
        compiled = self._compiled(fn)
        if _has_hooks(module.__dict__) or type(module)._original_class.__call__ is not nn_module.Module.__call__:
            return self._with_hooks(module, args, kwargs)
        if "forward" in module.__dict__:
            bound = getattr(forward, "__self__", None)
            return compiled(bound, *args, **kwargs) if bound is not None else compiled(*args, **kwargs)
        if isinstance(forward, types.FunctionType):
            self.usual = (forward, compiled)
        return compiled(module._dynamo_nb_view, *args, **kwargs)

    def _compiled(self, fn: Any) -> Any:
        from .compile import wrap

        try:
            found = self.forwards.get(fn)
        except TypeError:
            return wrap(fn, self.region)
        if found is None:
            found = self.forwards[fn] = wrap(fn, self.region)
        return found

    def _with_hooks(self, module: Any, args: Any, kwargs: Any) -> Any:
        from .compile import wrap

        call = self.forwards.get(_call_whole)
        if call is None:
            call = self.forwards[_call_whole] = wrap(_call_whole, self.region)
        return call(module._dynamo_nb_view, args, kwargs)


def _call_whole(module: Any, args: Any, kwargs: Any) -> Any:
    return module(*args, **kwargs)


def _has_hooks(table: dict[str, Any]) -> bool:
    """Has a module of this `__dict__` hooks, or have all modules?"""
    return bool(
        table.get("_forward_hooks") or table.get("_forward_pre_hooks") or table.get("_backward_hooks") or table.get("_backward_pre_hooks")
        or nn_module._global_forward_hooks or nn_module._global_forward_pre_hooks  # type: ignore[attr-defined]
        or nn_module._global_backward_hooks or nn_module._global_backward_pre_hooks  # type: ignore[attr-defined]
    )


def compile_module(module: torch.nn.Module, region: Any) -> Any:
    """A compiled twin of a module."""
    if isinstance(module, CompiledModuleMixin) or issubclass(type(module), CompiledModuleMixin):
        module = module._original()  # type: ignore[operator]
    made: Any = object.__new__(_class_for(type(module), region))
    object.__setattr__(made, "__dict__", module.__dict__)
    type(made)._dynamo_nb_view.__set__(made, module)
    return made


__all__ = ["compile_module", "native"]
