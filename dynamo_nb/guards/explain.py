"""What a guard tree says to people: the tree, a Python function, the first failing guard, records."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..core.records import GuardRecord, Location
from ..core.source import Source
from .accessors import Scope, accessor
from .builder import Guard, label_of
from .relations import State
from .shapes import ShapeEnv

if TYPE_CHECKING:
    from .manager import GuardManagerWrapper


class Unreadable(Exception):
    """A source could not be read; the text says which and why."""


class Reader:
    """Values of sources in one scope, each read once, as the native tree reads them."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.values: dict[Source, Any] = {}

    def value(self, source: Source) -> Any:
        source = source.plain
        if source in self.values:
            return self.values[source]
        parent = source.parent
        base = None if parent is None else self.value(parent)
        try:
            value = accessor(source).read(source, base, self.scope)
        except Exception as error:
            raise Unreadable(f"{label_of(source)} can't be read any more: {type(error).__name__}: {error}") from error
        self.values[source] = value
        return value

    def of(self, guard: Guard) -> list[Any]:
        return [self.value(source) for source in guard.sources]


class _Names(dict[str, Any]):
    """Names of a guard's Python form; a name nobody defines (a dispatch key) stands for itself."""

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, name)


def evaluate(guard: Guard, values: list[Any]) -> bool:
    """Whether the guard's Python form is true for these values; an exception in it counts as false."""
    if isinstance(guard.kind, ShapeEnv):
        return guard.kept.holds(values)
    names = {f"v{i}": value for i, value in enumerate(values)}
    space = {**guard.kind.names(guard.kept), **names}
    try:
        return bool(eval(guard.python(list(names)), space, _Names(space)))
    except Exception:
        return False


def in_tree_order(guards: list[Guard]) -> list[Guard]:
    """State first, then by source with parents before children, then guards over several values."""
    place: dict[Source, int] = {}

    def visit(source: Source) -> tuple[int, ...]:
        source = source.plain
        above = () if source.parent is None else visit(source.parent)
        return (*above, place.setdefault(source, len(place)))

    def key(guard: Guard) -> tuple[int, tuple[int, ...], int]:
        if isinstance(guard.kind, State):
            return (0, (), guard.kind.rank)
        if guard.kind.scope == "values":
            return (2, (), 0)
        return (1, visit(guard.sources[0]), guard.kind.rank)

    return sorted(guards, key=key)


def failures(wrapper: GuardManagerWrapper, scope: Scope) -> Iterator[tuple[Guard | None, str]]:
    """Guards that fail in this scope with the reason, in tree order; after an unreadable source no more."""
    reader = Reader(scope)
    for guard in wrapper.guards:
        try:
            reason = guard.reason(reader.of(guard))
        except Unreadable as error:
            yield guard, str(error)
            return
        except Exception as error:
            reason = f"{guard.text()} can't be checked: {type(error).__name__}: {error}"
        if reason is not None:
            yield guard, reason


def python_text(wrapper: GuardManagerWrapper) -> str:
    """The guards as one readable Python function of locals and globals."""
    lines = [guard.python([source.name for source in guard.sources]) for guard in wrapper.guards]
    if not lines:
        return "def guards(L, G):\n    return True\n"
    body = "\n        and ".join(lines)
    return f"def guards(L, G):\n    return (\n        {body}\n    )\n"


def tree_text(wrapper: GuardManagerWrapper) -> str:
    """The tree as logs print it, one node or leaf a line."""
    lines = ["TREE_GUARD_MANAGER:", "+- RootGuardManager"]

    def visit(node: Any, depth: int) -> None:
        indent = "| " * depth
        lines.extend(f"{indent}+- {kind}: {text}" for kind, text in node.get_leaf_guards())
        for child in node.get_child_managers():
            shown = wrapper.types.get(child.get_source())
            kind = f", type={shown}" if shown else ""
            lines.append(f"{indent}+- GuardManager: source={child.get_source()}, accessed_by={child.get_accessor()}{kind}")
            visit(child, depth + 1)

    visit(wrapper.root, 1)
    lines.extend(f"| +- {kind}: {text}" for kind, text in wrapper.root.get_epilogue_lambda_guards())
    return "\n".join(lines) + "\n"


def records(wrapper: GuardManagerWrapper) -> list[GuardRecord]:
    return [
        GuardRecord(
            guard.source_name,
            guard.kind.name,
            guard.text(),
            Location(guard.file, guard.line, wrapper.function) if guard.line else None,
        )
        for guard in wrapper.guards
    ]
