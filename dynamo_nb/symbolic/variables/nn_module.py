"""nn.Module instances (chapter sections 12.19 and 12.37).

`UnspecializedNNModuleVariable` follows forward into the module with parameters as graph inputs;
`NNModuleVariable` (config.inline_inbuilt_nn_modules = False) keeps the module in the graph.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch

from ...core.source import AttrSource, NNModuleSource
from .base import VariableTracker
from .mappings import ConstDictVariable
from .user_defined import UserDefinedObjectVariable

if TYPE_CHECKING:
    from ..interpreter import InstructionTranslatorBase as Tx

HOOK_TABLES = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
METHODS = frozenset(n for n in dir(torch.nn.Module) if not n.startswith("__"))
GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks", "_global_backward_pre_hooks")


class UnspecializedNNModuleVariable(UserDefinedObjectVariable):
    def __init__(self, value: Any, cls: type, source: Any = None, storage: VariableTracker | None = None) -> None:
        super().__init__(value, cls, source, storage)
        if source is not None and not isinstance(source, NNModuleSource):
            self.source = NNModuleSource(source)

    def guards_absence(self, name: str) -> bool:
        return name == "forward" or not (name.startswith("__") or (is_builtin_module(self.cls) and name in METHODS))

    def modelled_getattr_hook(self, tx: Tx, name: str, hook: Any) -> VariableTracker | None:
        """What nn.Module.__getattr__ does, without running it."""
        if hook is not torch.nn.Module.__getattr__:
            return None
        for table in ("_parameters", "_buffers", "_modules"):
            registry = self.instance_getattr(tx, table)
            if registry is None:
                continue
            registry = registry.realize()
            if not isinstance(registry, ConstDictVariable):
                return None
            found = registry.items.get(name)
            if found is not None:
                return found[1]
        raise tx.raise_(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}", name=name)

    def has_hooks(self, tx: Tx) -> bool:
        """Guards that the module has none when it has none."""
        if not self.existing:
            return True
        for name in HOOK_TABLES:
            table = self.value.__dict__.get(name)
            if table or self.written(tx, name):
                return True
        if self.source is not None and not tx.recorder.config["skip_nnmodule_hook_guards"]:
            for name in HOOK_TABLES:
                tx.recorder.assume(tx, AttrSource(self.source, name), "DICT_LENGTH", 0)
        return tx.global_module_hooks()

    def written(self, tx: Tx, name: str) -> bool:
        return tx.recorder.side_effects.load_attr(self, name)[0]

    def call_function(self, tx: Tx, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        from ..protocol import getattr_, type_lookup

        plain_call = type_lookup(self.cls, "__call__") is torch.nn.Module.__dict__["__call__"]
        if plain_call and not self.has_hooks(tx):
            forward = getattr_(tx, self, "forward").realize()
            tx.forward_boundary(self, forward)
            return forward.call_function(tx, args, kwargs)
        return super().call_function(tx, args, kwargs)


class UnspecializedBuiltinNNModuleVariable(UnspecializedNNModuleVariable):
    """A module whose class comes from torch.nn."""


class NNModuleVariable(UnspecializedNNModuleVariable):
    """A module specialised into the graph: torch.nn's own are call_module nodes, their parameters get_attr."""

    def call_function(self, tx: Tx, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        from .tensor import is_graph_argument

        operands = (*args, *kwargs.values())
        if self.cls.__module__.startswith("torch.nn.modules") and all(is_graph_argument(a) for a in operands) and not self.is_container() and not self.has_hooks(tx):
            name = tx.recorder_module(self)
            return tx.recorder.call(tx, "call_module", name, tuple(args), kwargs, run=lambda *a, **k: self.run_fake(tx, *a, **k))
        return super().call_function(tx, args, kwargs)

    def var_getattr(self, tx: Tx, name: str) -> VariableTracker:
        return super().var_getattr(tx, name)

    def is_container(self) -> bool:
        return issubclass(self.cls, (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.ParameterList, torch.nn.ParameterDict))

    def run_fake(self, tx: Tx, *args: Any, **kwargs: Any) -> Any:
        mode = tx.recorder.fake_mode
        state = {k: mode.from_tensor(v, static_shapes=True) for k, v in (*self.value.named_parameters(), *self.value.named_buffers())}
        return torch.func.functional_call(self.value, state, args, kwargs)


def is_builtin_module(cls: type) -> bool:
    return cls.__module__.startswith(("torch.nn.", "torch.ao."))


def forward_function(value: torch.nn.Module) -> Any:
    fn = type(value).forward
    return fn if isinstance(fn, types.FunctionType) else None
