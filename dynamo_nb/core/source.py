"""Where a value comes from, as plain data (chapter sections 12.9 and 12.40).

A `Source` names the Python expression that yields a value again at the next call. Guards turn it
into native accessors, code generation turns it into bytecode, logs print its `name`. `L` is the
frame's locals (arguments and free variables), `G` its globals.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable
from functools import cached_property


@dataclasses.dataclass(frozen=True)
class Source:
    """Base of all sources. `name` is the Python expression; equality is by structure."""

    def __init_subclass__(cls) -> None:
        cls.__hash__ = Source.__hash__  # type: ignore[method-assign]  # dataclass leaves a class its own

    def __hash__(self) -> int:
        """By structure; computed once, since sources are looked up all the time and chains are long."""
        known: int | None = self.__dict__.get("_hash")
        if known is None:
            known = self.__dict__["_hash"] = hash((type(self), *(getattr(self, f.name) for f in dataclasses.fields(self))))
        return known

    @cached_property
    def name(self) -> str:
        return self._expression()

    def _expression(self) -> str:
        raise NotImplementedError(type(self).__name__)

    @property
    def parent(self) -> Source | None:
        """The source this one is reached through; None for a root."""
        return getattr(self, "base", None)

    @cached_property
    def plain(self) -> Source:
        """The same source without markers that read as their base, anywhere along its chain."""
        base = self.parent
        if base is None or base.plain is base:
            return self
        return dataclasses.replace(self, base=base.plain)  # type: ignore[call-arg]

    @property
    def root(self) -> Source:
        source: Source = self
        while (up := source.parent) is not None:
            source = up
        return source

    def __str__(self) -> str:
        return self.name


@dataclasses.dataclass(frozen=True)
class LocalSource(Source):
    """An argument of the frame, or one of its free variables (then the cell's contents)."""

    local_name: str

    def _expression(self) -> str:
        return f"L[{self.local_name!r}]"


@dataclasses.dataclass(frozen=True)
class LocalCellSource(Source):
    """The cell object behind a free variable of the frame."""

    local_name: str

    def _expression(self) -> str:
        return f"cell(L[{self.local_name!r}])"


@dataclasses.dataclass(frozen=True)
class GlobalSource(Source):
    """A global of the frame's function."""

    global_name: str

    def _expression(self) -> str:
        return f"G[{self.global_name!r}]"


@dataclasses.dataclass(frozen=True)
class GlobalsSource(Source):
    """The namespace itself in which the frame's function looks up globals."""

    def _expression(self) -> str:
        return "G"


@dataclasses.dataclass(frozen=True)
class BuiltinSource(Source):
    """A name found in the frame's builtins because the globals lack it."""

    builtin_name: str

    def _expression(self) -> str:
        return f"__builtins__[{self.builtin_name!r}]"


@dataclasses.dataclass(frozen=True)
class ComputedSource(Source):
    """A float that Python arithmetic gives on other sources: `fn(*leaves)`; `text` is the same as an expression."""

    text: str
    leaves: tuple[Source, ...] = dataclasses.field(compare=False)
    fn: Callable[..., float] = dataclasses.field(compare=False)

    def _expression(self) -> str:
        return self.text


@dataclasses.dataclass(frozen=True)
class ModuleSource(Source):
    """A module of sys.modules, taken as given."""

    module_name: str

    def _expression(self) -> str:
        return f"sys.modules[{self.module_name!r}]"


@dataclasses.dataclass(frozen=True)
class ChainedSource(Source):
    """A source that reaches its value through another one."""

    base: Source


@dataclasses.dataclass(frozen=True)
class AttrSource(ChainedSource):
    """Attribute by ordinary lookup (`getattr`)."""

    member: str

    def _expression(self) -> str:
        return f"{self.base.name}.{self.member}"


@dataclasses.dataclass(frozen=True)
class InstanceDictSource(ChainedSource):
    """The instance `__dict__` of an object; no descriptor runs."""

    def _expression(self) -> str:
        return f"{self.base.name}.__dict__"


@dataclasses.dataclass(frozen=True)
class TypeSource(ChainedSource):
    def _expression(self) -> str:
        return f"type({self.base.name})"


@dataclasses.dataclass(frozen=True)
class TypeDictSource(ChainedSource):
    """The namespace of a class (its own `__dict__`, not its bases')."""

    def _expression(self) -> str:
        return f"{self.base.name}.__dict__"


@dataclasses.dataclass(frozen=True)
class TypeMROSource(ChainedSource):
    """The class at `index` of a class's `__mro__`."""

    index: int

    def _expression(self) -> str:
        return f"{self.base.name}.__mro__[{self.index}]"


@dataclasses.dataclass(frozen=True)
class GetItemSource(ChainedSource):
    """Item of a list, tuple or deque by position, past any overridden `__getitem__`."""

    index: int

    def _expression(self) -> str:
        return f"{self.base.name}[{self.index!r}]"


@dataclasses.dataclass(frozen=True)
class DictGetItemSource(ChainedSource):
    """Value under a constant key, past any overridden `__getitem__` or `__missing__`."""

    key: Hashable

    def _expression(self) -> str:
        return f"{self.base.name}[{self.key!r}]"


@dataclasses.dataclass(frozen=True)
class DictKeySource(ChainedSource):
    """The `index`-th key of a dict, in insertion order."""

    index: int

    def _expression(self) -> str:
        return f"list({self.base.name}.keys())[{self.index}]"


@dataclasses.dataclass(frozen=True)
class DictValueSource(ChainedSource):
    """The value of the `index`-th item of a dict whose key is no plain constant."""

    index: int

    def _expression(self) -> str:
        return f"list({self.base.name}.values())[{self.index}]"


@dataclasses.dataclass(frozen=True)
class CellContentsSource(ChainedSource):
    def _expression(self) -> str:
        return f"{self.base.name}.cell_contents"


@dataclasses.dataclass(frozen=True)
class WeakRefCallSource(ChainedSource):
    """The referent of a weak reference."""

    def _expression(self) -> str:
        return f"{self.base.name}()"


@dataclasses.dataclass(frozen=True)
class NNModuleSource(ChainedSource):
    """Marks that the value is an nn.Module; reads as its base."""

    @cached_property
    def plain(self) -> Source:
        return self.base.plain

    def _expression(self) -> str:
        return self.base.name


@dataclasses.dataclass(frozen=True)
class TensorPropertySource(ChainedSource):
    """One size, stride (with `index`) or the storage offset (index -1) of a tensor."""

    prop: str
    index: int

    def _expression(self) -> str:
        if self.prop == "storage_offset":
            return f"{self.base.name}.storage_offset()"
        return f"{self.base.name}.{self.prop}()[{self.index}]"


@dataclasses.dataclass(frozen=True)
class NumpyTensorSource(ChainedSource):
    """A NumPy array seen as a tensor that shares its memory."""

    def _expression(self) -> str:
        return f"as_tensor({self.base.name})"


@dataclasses.dataclass(frozen=True)
class Assumption:
    """One thing tracing took for granted: `kind` names a guard kind, `payload` its arguments.

    file, line, text: the user's source line that made it.
    """

    source: Source | None
    kind: str
    payload: tuple
    file: str = ""
    line: int = 0

    def key(self) -> tuple:
        return (self.source, self.kind)
