"""Loads and stores of locals, cells, globals and attributes; imports."""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

import torch.fx

from ...core.exc import StepUnsupported
from ...core.reasons import UnsupportedInstruction, UnsupportedOperation
from ...core.source import BuiltinSource, DictGetItemSource, GlobalSource, ModuleSource
from .. import protocol
from ..variables.base import VariableTracker, const
from ..variables.misc import NullVariable, PythonModuleVariable

if TYPE_CHECKING:
    from ...cpython.instruction import Instruction

MISSING: Any = object()


class NameHandlers:
    stack: list[Any]
    locals: dict[str, VariableTracker]
    cells: dict[str, Any]
    globals: dict[str, Any]
    builtins: dict[str, Any]
    recorder: Any
    globals_source: Any
    code: types.CodeType
    is_root_globals = False

    # -- locals -----------------------------------------------------------------------------------
    def LOAD_FAST(self, inst: Instruction) -> None:
        name = inst.argval
        value = self.locals.get(name)
        if value is None:
            if name in self.cells:
                self.stack.append(self.cells[name])
                return
            raise self.raise_(UnboundLocalError, f"cannot access local variable '{name}' where it is not associated with a value")  # type: ignore[attr-defined]
        self.stack.append(value)

    def STORE_FAST(self, inst: Instruction) -> None:
        value = self.locals[inst.argval] = self.stack.pop()
        node = getattr(value, "node", None)
        if isinstance(node, torch.fx.Node) and node.op != "placeholder" and "named" not in node.meta:
            node.meta["named"] = True
            node._rename(inst.argval)

    def DELETE_FAST(self, inst: Instruction) -> None:
        if self.locals.pop(inst.argval, None) is None:
            raise self.raise_(UnboundLocalError, f"cannot access local variable '{inst.argval}' where it is not associated with a value")  # type: ignore[attr-defined]

    # -- cells ------------------------------------------------------------------------------------
    def LOAD_CLOSURE(self, inst: Instruction) -> None:
        self.stack.append(self.cells[inst.argval])

    def LOAD_DEREF(self, inst: Instruction) -> None:
        name = inst.argval
        value = self.cells[name].load(self)
        if value is None:
            if name in self.code.co_freevars:
                raise self.raise_(NameError, f"cannot access free variable '{name}' where it is not associated with a value in enclosing scope")  # type: ignore[attr-defined]
            raise self.raise_(UnboundLocalError, f"cannot access local variable '{name}' where it is not associated with a value")  # type: ignore[attr-defined]
        self.stack.append(value)

    def STORE_DEREF(self, inst: Instruction) -> None:
        self.cells[inst.argval].store(self, self.stack.pop())

    def DELETE_DEREF(self, inst: Instruction) -> None:
        cell = self.cells[inst.argval]
        if cell.load(self) is None:
            raise self.raise_(NameError, f"cannot access free variable '{inst.argval}' where it is not associated with a value in enclosing scope")  # type: ignore[attr-defined]
        cell.store(self, None)

    def LOAD_CLASSDEREF(self, inst: Instruction) -> None:
        raise StepUnsupported(UnsupportedInstruction("LOAD_CLASSDEREF"))

    # -- globals ----------------------------------------------------------------------------------
    def _global(self, name: str) -> VariableTracker:
        written, value = self.recorder.side_effects.load_global(id(self.globals), name)
        if written:
            if value is None:
                return self._builtin(name)
            return value
        found = self.globals.get(name, MISSING)
        if found is MISSING:
            return self._builtin(name)
        return self.lazy(found, self._global_source(name, found))  # type: ignore[attr-defined]

    def _global_source(self, name: str, value: Any) -> Any:
        if self.depth == 0 or self.is_root_globals or self.globals is self.recorder.root_globals:  # type: ignore[attr-defined]
            return GlobalSource(name)
        if self.trusted_global(self.globals, value):  # type: ignore[attr-defined]
            return None
        if self.globals_source is not None:
            return DictGetItemSource(self.globals_source, name)
        module = sys.modules.get(self.globals.get("__name__") or "")
        if module is not None and module.__dict__ is self.globals:
            from ...core.source import AttrSource

            return AttrSource(ModuleSource(module.__name__), name)
        return None

    def _builtin(self, name: str) -> VariableTracker:
        found = self.builtins.get(name, MISSING)
        if found is MISSING:
            raise self.raise_(NameError, f"name '{name}' is not defined", name=name)  # type: ignore[attr-defined]
        return self.wrap(found) if self.depth or not self.recorder.builtins_guarded(found) else self.lazy(found, BuiltinSource(name))  # type: ignore[attr-defined]

    def LOAD_GLOBAL(self, inst: Instruction) -> None:
        value = self._global(inst.argval)
        if inst.push_null:
            self.stack.append(NullVariable())
        self.stack.append(value)

    LOAD_NAME = LOAD_GLOBAL

    def STORE_GLOBAL(self, inst: Instruction) -> None:
        self._write_global(inst.argval, self.stack.pop())

    def DELETE_GLOBAL(self, inst: Instruction) -> None:
        self._global(inst.argval)
        self._write_global(inst.argval, None)

    def _write_global(self, name: str, value: VariableTracker | None) -> None:
        holder = None
        if self.depth and self.globals is not self.recorder.root_globals:  # type: ignore[attr-defined]
            holder = self.globals_source
            if holder is None:
                raise StepUnsupported(UnsupportedOperation(f"writing the global {name} of another module"))
        self.recorder.side_effects.store_global(id(self.globals), name, holder, value)

    def STORE_NAME(self, inst: Instruction) -> None:
        raise StepUnsupported(UnsupportedInstruction("STORE_NAME"))

    DELETE_NAME = STORE_NAME

    # -- attributes -------------------------------------------------------------------------------
    def LOAD_ATTR(self, inst: Instruction) -> None:
        obj = self.stack.pop()
        self.stack.append(protocol.getattr_(self, obj, inst.argval))  # type: ignore[arg-type]

    def LOAD_METHOD(self, inst: Instruction) -> None:
        obj = self.stack.pop()
        found = protocol.getattr_(self, obj, inst.argval)  # type: ignore[arg-type]
        self.stack.append(NullVariable())
        self.stack.append(found)

    def STORE_ATTR(self, inst: Instruction) -> None:
        obj = self.stack.pop()
        value = self.stack.pop()
        protocol.setattr_(self, obj, inst.argval, value)  # type: ignore[arg-type]

    def DELETE_ATTR(self, inst: Instruction) -> None:
        protocol.delattr_(self, self.stack.pop(), inst.argval)  # type: ignore[arg-type]

    # -- imports ----------------------------------------------------------------------------------
    def IMPORT_NAME(self, inst: Instruction) -> None:
        """Modules that are loaded already are taken from sys.modules; importing for the first time breaks."""
        fromlist, level = const(self.stack.pop()) if not hasattr(self.stack[-1], "items") else self.stack.pop().as_python_constant(), const(self.stack.pop())
        name = inst.argval
        package = self.globals.get("__package__") or self.globals.get("__name__", "")
        full = importlib.util.resolve_name("." * level + name, package) if level else name
        if full not in sys.modules:
            raise StepUnsupported(UnsupportedOperation(f"first import of {full}"))
        chosen = full if fromlist or level else full.split(".")[0]
        module = sys.modules[chosen]
        self.stack.append(PythonModuleVariable(module, ModuleSource(chosen)))

    def IMPORT_FROM(self, inst: Instruction) -> None:
        module = self.stack[-1].realize()
        name = inst.argval
        if isinstance(module, PythonModuleVariable) and not hasattr(module.value, name):
            full = f"{module.value.__name__}.{name}"
            if full in sys.modules:
                self.stack.append(PythonModuleVariable(sys.modules[full], ModuleSource(full)))
                return
            raise self.raise_(ImportError, f"cannot import name {name!r} from {module.value.__name__!r}")  # type: ignore[attr-defined]
        self.stack.append(protocol.getattr_(self, module, name))  # type: ignore[arg-type]

    def IMPORT_STAR(self, inst: Instruction) -> None:
        raise StepUnsupported(UnsupportedInstruction("IMPORT_STAR"))

    def SETUP_ANNOTATIONS(self, inst: Instruction) -> None:
        raise StepUnsupported(UnsupportedInstruction("SETUP_ANNOTATIONS"))

    def LOAD_ASSERTION_ERROR(self, inst: Instruction) -> None:
        self.stack.append(self.wrap(AssertionError))  # type: ignore[attr-defined]

    def LOAD_BUILD_CLASS(self, inst: Instruction) -> None:
        self.stack.append(self.wrap(self.builtins["__build_class__"]))  # type: ignore[attr-defined]
