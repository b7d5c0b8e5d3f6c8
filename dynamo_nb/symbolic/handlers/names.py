"""Loads and stores of locals, cells, globals and attributes; imports."""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

import torch.fx

from ...core import trace_rules
from ...core.exc import StepUnsupported
from ...core.reasons import UnsupportedInstruction, UnsupportedOperation
from ...core.source import AttrSource, BuiltinSource, DictGetItemSource, GlobalSource, GlobalsSource, ModuleSource
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
        if self.recorder.owned is not None:
            self.recorder.owned.dropping(self, self.locals.get(inst.argval))  # type: ignore[arg-type]
        value = self.locals[inst.argval] = self.stack.pop()
        node = getattr(value, "node", None)
        if isinstance(node, torch.fx.Node) and node.op != "placeholder" and "named" not in node.meta:
            node.meta["named"] = True
            node._rename(inst.argval)

    def DELETE_FAST(self, inst: Instruction) -> None:
        if self.recorder.owned is not None:
            self.recorder.owned.dropping(self, self.locals.get(inst.argval))  # type: ignore[arg-type]
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
                if self.cells[name].existing and self.cells[name] not in self.recorder.side_effects.cells:
                    raise StepUnsupported(UnsupportedOperation(f"reading the free variable {name}, which has no value yet"))
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
            return self._builtin(name, hidden=True) if value is None else value
        found = self.globals.get(name, MISSING)
        if found is MISSING:
            return self._builtin(name)
        source = self._global_source(name, found)
        read = self.lazy(found, source)  # type: ignore[attr-defined]
        if source is not None and not isinstance(source, AttrSource):
            self.recorder.needs_presence(self, read, self._namespace(), "DICT_CONTAINS", name, True)
        return read

    def _at_root(self) -> bool:
        return self.depth == 0 or self.is_root_globals or self.globals is self.recorder.root_globals  # type: ignore[attr-defined]

    def _global_source(self, name: str, value: Any) -> Any:
        if self._at_root():
            return GlobalSource(name)
        if self.trusted_global(self.globals, value):  # type: ignore[attr-defined]
            return None
        if self.globals_source is not None:
            return DictGetItemSource(self.globals_source, name)
        module = sys.modules.get(self.globals.get("__name__") or "")
        if module is not None and module.__dict__ is self.globals:
            return AttrSource(ModuleSource(module.__name__), name)
        return None

    def _namespace(self) -> Any:
        """The source of this frame's globals; None where they are trusted or cannot be reached."""
        if self._at_root():
            return GlobalsSource()
        return None if trace_rules.is_trusted_module(self.globals.get("__name__")) else self.globals_source

    def _builtin(self, name: str, hidden: bool = False) -> VariableTracker:
        """hidden: the trace deleted the global of this name, so that there is nothing to guard in the globals."""
        found = self.builtins.get(name, MISSING)
        if found is not MISSING and self._at_root() and not hidden:
            return self.lazy(found, BuiltinSource(name))  # type: ignore[attr-defined]
        space = self._namespace()
        if space is not None and not hidden:
            self.recorder.assume(self, space, "DICT_CONTAINS", name, False)
        if found is MISSING:
            raise self.raise_(NameError, f"name '{name}' is not defined", name=name)  # type: ignore[attr-defined]
        return self.wrap(found)  # type: ignore[attr-defined]

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
