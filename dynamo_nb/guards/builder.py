"""GuardBuilder: from assumptions to guards and their native tree.

In: the tracer's `Assumption`s and the frame's names. Out: `Guard`s (what each one keeps, for the
readable forms) and a RootGuardManager with one node per source. Used by manager.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from .. import native
from ..core.source import Assumption, LocalSource, Source
from . import relations, shapes, tensors
from .accessors import Names, accessor
from .kinds import Kind, find_kind, registry
from .relations import Relation, State

__all__ = ["Guard", "GuardBuildError", "GuardBuilder", "relations", "shapes", "tensors"]


class GuardBuildError(Exception):
    """An assumption that can't be turned into a guard; the frame must not be cached."""


@dataclasses.dataclass(frozen=True, eq=False)
class Guard:
    """One guard, without anything of the user's kept alive. `sources`: its own first, then those it is related to."""

    kind: Kind
    sources: tuple[Source, ...]
    kept: Any
    file: str
    line: int

    @property
    def source_name(self) -> str:
        return self.sources[0].name if self.sources else ""

    def python(self, exprs: list[str]) -> str:
        if isinstance(self.kind, Relation):
            return self.kind.python_of(self.kept, exprs)
        return self.kind.python(self.kept, exprs[0] if exprs else "")

    def text(self) -> str:
        """The guard as logs show it."""
        exprs = [source.name for source in self.sources]
        return self.python(exprs) if isinstance(self.kind, Relation) else self.kind.text(self.kept, exprs[0] if exprs else "")

    def reason(self, values: list[Any]) -> str | None:
        """Why the guard fails for these values of its sources; None when it holds."""
        short = self.kind.name in ("TENSOR_MATCH", "STORAGE_OVERLAP", "NO_STORAGE_OVERLAP", "NO_TENSOR_ALIASING")
        labels = [label_of(source) if short else source.plain.name for source in self.sources]
        if isinstance(self.kind, Relation):
            return self.kind.reason_of(self.kept, values, labels)
        return self.kind.reason(self.kept, values[0] if values else None, labels[0] if labels else "")


def label_of(source: Source) -> str:
    """A name for messages: `x` for the local x, the source's expression for anything else."""
    source = source.plain
    return source.local_name if type(source) is LocalSource else source.name


class GuardBuilder:
    """Adds guards to a tree. Each registered kind is also an attribute under its name."""

    def __init__(self, arg_names: tuple[str, ...], free_names: tuple[str, ...]) -> None:
        self.names = Names(arg_names, free_names)
        self.root = native.RootGuardManager()
        self.guards: list[Guard] = []
        self._nodes: dict[Source, Any] = {}

    def node(self, source: Source) -> Any:
        """The native node of a source, made with its parents when it is new."""
        source = source.plain
        found = self._nodes.get(source)
        if found is not None:
            return found
        parent = self.root if source.parent is None else self.node(source.parent)
        fetch, key, shown = accessor(source).native(source, self.names)
        node = parent.child(fetch, key, source.name, shown)
        self._nodes[source] = node
        return node

    def add_all(self, assumptions: Iterable[Assumption]) -> None:
        """Adds guards for the assumptions, equal ones once; cheap and decisive leaves first."""
        pairs: list[tuple[Guard, tuple[Any, ...]]] = []
        seen = set()
        for assumption in assumptions:
            key = _dedupe_key(assumption)
            if key in seen:
                continue
            seen.add(key)
            pairs.append((self._prepare(assumption), assumption.payload))
        self._place(guard for guard, _ in pairs)
        for guard, payload in sorted(pairs, key=lambda pair: pair[0].kind.rank):
            self._install(guard, payload)
        self.guards = [guard for guard, _ in pairs]

    def _place(self, guards: Iterable[Guard]) -> None:
        """Makes the nodes of the guards' own sources: arguments first, in their order, then as they were met."""
        sources = [guard.sources[0] for guard in guards if guard.kind.scope == "value"]
        position = {name: i for i, name in enumerate(self.names.args)}

        def rank(source: Source) -> int:
            root = source.root
            return position.get(root.local_name, len(position)) if type(root) is LocalSource else len(position)

        for source in sorted(sources, key=rank):
            try:
                self.node(source)
            except (TypeError, ValueError) as error:
                raise GuardBuildError(f"{source.name} can't be guarded ({error})") from error

    def _prepare(self, assumption: Assumption) -> Guard:
        try:
            kind = find_kind(assumption.kind)
            others = kind.others(assumption.payload) if isinstance(kind, Relation) else ()
            own = () if assumption.source is None or isinstance(kind, shapes.ShapeEnv | State) else (assumption.source,)
            if kind.scope == "value" and not own:
                raise ValueError("the kind needs a source")
            return Guard(
                kind, tuple(source.plain for source in (*own, *others)), kind.prepare(assumption.payload), assumption.file, assumption.line
            )
        except (TypeError, ValueError) as error:
            raise _build_error(assumption, error) from error

    def _install(self, guard: Guard, payload: tuple[Any, ...]) -> None:
        kind, text = guard.kind, guard.text()
        if guard.line:
            text += f"  # {guard.file}:{guard.line}"
        try:
            if isinstance(kind, Relation):
                slots = tuple(self.node(kind.slot_source(source)).need_slot() for source in guard.sources)
                self.root.add_epilogue_leaf(kind.name, text, kind.native_form(guard.kept, slots, guard.sources))
            elif isinstance(kind, State):
                self.root.add_leaf(kind.name, text, kind.native(guard.kept))
            else:
                self.node(guard.sources[0]).add_leaf(kind.name, text, kind.native_of(guard.kept, payload))
        except (TypeError, ValueError) as error:
            raise GuardBuildError(f"{kind.name} on {guard.source_name} can't be guarded ({error}), at {guard.file}:{guard.line}") from error


def _build_error(assumption: Assumption, error: Exception) -> GuardBuildError:
    where = f", at {assumption.file}:{assumption.line}" if assumption.line else ""
    name = assumption.source.name if assumption.source is not None else "the frame"
    return GuardBuildError(f"{assumption.kind} on {name} can't be guarded ({error}){where}")


def _dedupe_key(assumption: Assumption) -> Any:
    if isinstance(registry.get(assumption.kind), relations.GlobalState):
        return "GLOBAL_STATE"
    source = None if assumption.source is None else assumption.source.plain
    return (source, assumption.kind, tuple(map(_payload_key, assumption.payload)))


def _payload_key(part: Any) -> Any:
    """Equal only for payload parts that are equal type by type."""
    if isinstance(part, (tuple, frozenset)):
        return (type(part), type(part)(map(_payload_key, part)) if type(part) in (tuple, frozenset) else tuple(map(_payload_key, part)))
    if isinstance(part, (Source, tensors.TensorMeta)) or type(part) in (str, int, bool, bytes, type(None)):
        return (type(part), part)
    return id(part)


for _name, _kind in registry.items():
    setattr(GuardBuilder, _name, _kind)
