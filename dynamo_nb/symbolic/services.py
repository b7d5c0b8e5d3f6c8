"""What handlers and trackers ask of the translator: wrapping, folding, raising, assuming, converting."""

from __future__ import annotations

import enum
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ..core import trace_rules
from ..core.exc import ObservedException, RestartAnalysis, StepUnsupported
from ..core.reasons import BreakReason, BudgetExceeded, OpFailed, UnsupportedOperation
from ..core.source import AttrSource, DictGetItemSource, ModuleSource, Source, TypeDictSource, TypeMROSource, TypeSource
from ..cpython.classes import is_python_class
from .variables.base import NOTHING, LazyVariableTracker, VariableTracker, const
from .variables.constant import ConstantVariable
from .variables.exceptions import ExceptionVariable

if TYPE_CHECKING:
    from .recorder import Recorder

SHARED_BY_CHANCE = (int, float, str)      # the same object at two places says nothing


class TranslatorServices:
    """Mixed into the translator; `recorder` and the frame's state come from there."""

    recorder: Recorder
    depth: int

    # -- making trackers ------------------------------------------------------------------------
    def build(self, value: Any, source: Source | None) -> VariableTracker:
        from .builder import VariableBuilder

        return VariableBuilder(self, source)(value)

    def lazy(self, value: Any, source: Source | None) -> VariableTracker:
        """A tracker for a value from outside; unguarded until looked at."""
        known = None if type(value) in SHARED_BY_CHANCE else self.recorder.objects.get(id(value))
        if known is not None and known.existing:
            return self.build(value, source)
        if source is None:
            return self.wrap(value)
        made = LazyVariableTracker(value, source, self)  # type: ignore[arg-type]
        self.recorder.outside.append(made)
        return made

    def wrap(self, value: Any, source: Source | None = None) -> VariableTracker:
        """A tracker for a value the tracer computed, or one from outside whose source may be unknown."""
        from .builder import SourcelessBuilder

        if source is not None:
            return self.build(value, source)
        return SourcelessBuilder(self)(value)

    def cell(self, cell: Any, source: Source | None) -> VariableTracker:
        from ..core.source import CellContentsSource
        from .variables.functions import CellVariable

        known = self.recorder.objects.get(id(cell))
        if known is not None:
            return known
        made = CellVariable(None, source)
        made.existing = True
        made.value = cell
        try:
            contents = cell.cell_contents
        except ValueError:
            made.initial = None
        else:
            made.initial = self.lazy(contents, CellContentsSource(source) if source is not None else None)
        self.remember(cell, made)
        return made

    def remember(self, value: Any, vt: VariableTracker) -> None:
        self.recorder.objects[id(value)] = vt
        self.recorder.keep_alive.append(value)

    def new_instance(self, cls: type, storage: VariableTracker | None) -> VariableTracker:
        from .variables.nn_module import UnspecializedNNModuleVariable
        from .variables.user_defined import MISSING, UserDefinedObjectVariable

        if issubclass(cls, torch.nn.Module):
            return UnspecializedNNModuleVariable(MISSING, cls, None, storage)
        return UserDefinedObjectVariable(MISSING, cls, None, storage)

    # -- computing ------------------------------------------------------------------------------
    def fold(self, fn: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> VariableTracker:
        """Really call a pure function on constants; its exceptions become observed ones."""
        return self.wrap(self.checked(lambda: fn(*args, **kwargs)))

    def checked(self, compute: Callable[[], Any]) -> Any:
        try:
            return compute()
        except ObservedException:
            raise
        except RecursionError:
            raise
        except Exception as err:
            from ..core.exc import Signal

            if isinstance(err, Signal):
                raise
            raise self.raise_instance(err) from None

    def has_index(self, vt: VariableTracker) -> bool:
        from .variables.numeric import SymNodeVariable

        vt = vt.realize()
        if isinstance(vt, SymNodeVariable):
            return vt.python_type() is int
        value = const(vt)
        return value is not NOTHING and hasattr(value, "__index__")

    def concrete_int(self, vt: VariableTracker) -> int:
        """The number behind an int-like tracker; a number that varies is specialised."""
        from .protocol import special
        from .variables.numeric import SymNodeVariable

        vt = vt.realize()
        if isinstance(vt, SymNodeVariable):
            return vt.evaluate(self, int)  # type: ignore[arg-type]
        value = const(vt)
        if value is NOTHING:
            result = special(self, vt, "__index__", [])  # type: ignore[arg-type]
            if result is not None:
                return self.concrete_int(result)
            raise StepUnsupported(UnsupportedOperation(f"a {vt.describe()} where an int is needed"))
        if not hasattr(value, "__index__"):
            raise self.raise_(TypeError, f"{type(value).__name__!r} object cannot be interpreted as an integer")
        return value.__index__()

    def optional_int(self, vt: VariableTracker) -> int | None:
        return None if const(vt) is None else self.concrete_int(vt)

    def specialize_int(self, value: Any) -> int:
        return int(value)

    def count_work(self) -> None:
        """Called once per step of a loop inside a handler."""
        self.recorder.instructions += 1
        if self.recorder.instructions > self.recorder.config["max_traced_instructions"]:
            raise StepUnsupported(BudgetExceeded("too many steps"))

    def call_polyfill(self, fn: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return self.wrap(fn).call_function(self, args, kwargs)  # type: ignore[arg-type]

    # -- raising --------------------------------------------------------------------------------
    def raise_(self, cls: type[BaseException], *args: Any, **fields: Any) -> ObservedException:
        """An exception of a builtin type, raised by C code in eager."""
        made = ExceptionVariable(cls, [ConstantVariable(a) for a in args], attrs={k: ConstantVariable(v) for k, v in fields.items()})
        return self.raise_variable(made)

    def raise_from(self, cls: type[BaseException], args: list[VariableTracker]) -> ObservedException:
        return self.raise_variable(ExceptionVariable(cls, list(args)))

    def raise_instance(self, err: Exception) -> ObservedException:
        from .variables.constant import is_constant_value

        if all(is_constant_value(a) for a in err.args):
            return self.raise_(type(err), *err.args)
        return self.fuzzy_exception(type(err), str(err))

    def raise_variable(self, made: VariableTracker) -> ObservedException:
        made.step = self.recorder.step
        made.raised_at = self.recorder.step  # type: ignore[attr-defined]
        made.raised_path = self.break_path()  # type: ignore[attr-defined]
        made.raised_line = self.user_position()[1]  # type: ignore[attr-defined]
        made.raised_inside = self.depth > 0  # type: ignore[attr-defined]
        self.chain_context(made)
        return ObservedException(made)

    def fuzzy_exception(self, cls: type[BaseException], text: str) -> ObservedException:
        """An error whose exact text only eager can give."""
        made = ExceptionVariable(cls, [ConstantVariable(text)])
        observed = self.raise_variable(made)
        made.fuzzy = True
        return observed

    def op_failed(self, target: Any, op: str, args: Any, kwargs: dict[str, Any], err: Exception) -> Exception:
        """An operation failed on fake tensors: what eager would raise, or a break if eager would not."""
        from . import op_facts
        from .real_errors import eager_error_type

        real = eager_error_type(target, op, args, kwargs)
        if real is None:
            return StepUnsupported(OpFailed(f"{op_facts.name(target)} fails while tracing: {type(err).__name__}: {str(err).splitlines()[0] if str(err) else ''}"))
        return self.fuzzy_exception(real, str(err))

    def call_failed(self, reason: BreakReason) -> Exception:
        return self.fuzzy_exception(TypeError, str(reason))

    def call_failed_text(self, text: str) -> Exception:
        return self.fuzzy_exception(TypeError, text)

    def exception_handled(self, raised: ObservedException) -> None:
        """A handler in the tracer swallowed an exception raised in the trace."""

    def chain_context(self, made: VariableTracker) -> None:
        raise NotImplementedError

    def break_path(self) -> Any:
        raise NotImplementedError

    def exception_argument(self, args: list[VariableTracker]) -> VariableTracker:
        """The exception given to generator.throw(type or instance[, value])."""
        from .variables.classes import UserDefinedClassVariable

        first = args[0].realize()
        if isinstance(first, UserDefinedClassVariable):
            return first.call_function(self, args[1:2], {}).realize()  # type: ignore[arg-type]
        return first

    # -- sources of classes ---------------------------------------------------------------------
    def class_source(self, obj: VariableTracker, cls: type) -> Source | None:
        """Where the class of an object can be read at the next call; None where it is taken as given."""
        from .variables.classes import UserDefinedClassVariable

        if trace_rules.is_trusted_module(cls.__module__) or not is_python_class(cls):
            return None
        known = self.recorder.class_sources.get(cls)
        if known is not None:
            return known
        if isinstance(obj, UserDefinedClassVariable) and obj.value is cls:
            source = obj.source
        elif obj.source is not None and obj.python_type() is cls:
            source = TypeSource(obj.source)
        else:
            source = None
        if source is not None:
            self.recorder.class_sources[cls] = source
        return source

    def class_value_source(self, cls: type) -> Source | None:
        return self.recorder.class_sources.get(cls)

    def raw_class_attr_source(self, obj: VariableTracker, cls: type, name: str) -> Source | None:
        """The attribute as stored in the namespace of the class that holds it."""
        base = self.class_source(obj, cls)
        if base is None:
            return None
        for i, owner in enumerate(cls.__mro__):
            if name in owner.__dict__:
                return DictGetItemSource(TypeDictSource(TypeMROSource(base, i)), name)
        return None

    def is_slot(self, cls: type, attr: Any) -> bool:
        return is_python_class(attr.__objclass__)

    def trusted_global(self, namespace: dict[str, Any], value: Any) -> bool:
        """Module-level functions, classes and modules of torch and the standard library carry no guard."""
        if not trace_rules.is_trusted_module(namespace.get("__name__")):
            return False
        return isinstance(value, (types.FunctionType, type, types.ModuleType, types.BuiltinFunctionType, enum.Enum, torch.dtype)) or callable(value)

    def in_trusted_inline(self) -> bool:
        return False

    def global_module_hooks(self) -> bool:
        """Are there hooks on all modules? Guards that there are none when there are none."""
        from .variables.nn_module import GLOBAL_HOOKS

        module = torch.nn.modules.module
        if any(getattr(module, name) for name in GLOBAL_HOOKS):
            return True
        for name in GLOBAL_HOOKS:
            self.recorder.assume(self, AttrSource(ModuleSource("torch.nn.modules.module"), name), "DICT_LENGTH", 0)  # type: ignore[arg-type]
        return False

    def assume_distinct(self, left: VariableTracker, right: VariableTracker) -> None:
        """Two objects from outside were found to be different ones."""
        if left.source is not None and right.source is not None and left.source != right.source:
            self.recorder.assume(self, left.source, "OBJECT_ALIASING", right.source, False)  # type: ignore[arg-type]

    def weakly_referenced(self, value: Any) -> bool:
        import weakref

        try:
            weakref.ref(value)
        except TypeError:
            return False
        return True

    def recorder_module(self, vt: Any) -> str:
        """The name under which a specialised module hangs on the graph module."""
        name = "L__" + "".join(c if c.isalnum() else "_" for c in vt.source.name.removeprefix("L['").replace("']", "", 1))
        name = name.replace("self", "self_", 1).replace("__modules__", "__").rstrip("_")
        self.recorder.attributes[name] = vt.value
        self.recorder.assume(self, vt.source, "ID_MATCH", vt.value)  # type: ignore[arg-type]
        return name

    def descriptor_polyfill(self, attr: Any, name: str, obj: VariableTracker | None, cls: type, source: Any) -> VariableTracker | None:
        from .polyfills import descriptors

        return descriptors.get(self, attr, name, obj, cls, source)  # type: ignore[arg-type]

    def restart(self, step: int, reason: BreakReason, path: Any) -> RestartAnalysis:
        return RestartAnalysis(step, reason, path)
