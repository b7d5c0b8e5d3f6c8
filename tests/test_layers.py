"""The import direction: core < cpython < native < guards < symbolic < graph, and what else may use which.

Imports are read from the sources, those inside functions too, so a circle hidden in a function is found.
"""

from __future__ import annotations

import ast
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

import pytest

import dynamo_nb
import kernel_ext

ROOTS = {"dynamo_nb": pathlib.Path(dynamo_nb.__path__[0]), "kernel_ext": pathlib.Path(kernel_ext.__path__[0])}

# What each part may use beside itself.
LOWER = ["core", "cpython", "native", "guards", "symbolic", "graph"]
MAY_USE = {part: set(LOWER[:place]) for place, part in enumerate(LOWER)}
MAY_USE["hook"] = {"core", "cpython", "native"}
MAY_USE["backends"] = {"core", "native"}
MAY_USE["convert"] = {*LOWER, "hook", "backends"}
MAY_USE["api"] = MAY_USE["convert"] | {"convert"}
# The public modules are thin faces over core and api.
MAY_USE["exc"] = MAY_USE["config"] = {"core"}
MAY_USE["utils"] = {"core"}
MAY_USE["decorators"] = MAY_USE["debug"] = MAY_USE["api"] | {"api"}
MAY_USE["testing"] = MAY_USE["api"] | {"api", "utils"}
FACES = {"exc", "config", "utils", "decorators", "debug", "testing"}
MAY_USE["reports"] = MAY_USE["api"] | {"api"}
MAY_USE["dynamo_nb"] = MAY_USE["reports"] | {"reports"} | FACES
MAY_USE["kernel_ext"] = MAY_USE["dynamo_nb"] | {"dynamo_nb"}

# Layers whose modules may import one another inside functions, and why.
CALLS_BACK = {
    "symbolic": "variable kinds make one another",
    "api": "compile() hands modules to modules, which compile a forward",
    "reports": "CompileReport.text() and html() call the renderers, which take a CompileReport",
}
KERNEL_EXT_IMPORTERS = {"load_ipython_extension", "unload_ipython_extension"}


class Import(NamedTuple):
    importer: str
    target: str
    function: str
    where: str


def modules() -> dict[str, pathlib.Path]:
    """Dotted name of every module of the two packages."""
    found = {}
    for name, root in ROOTS.items():
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join([name, *(part for part in parts if part != "__init__")])] = path
    return found


MODULES = modules()


def imports_in(importer: str, source: str, is_package: bool) -> Iterator[Import]:
    """Every import of the two packages in `source`, with the function it stands in ('' at module level)."""
    package = importer if is_package else importer.rpartition(".")[0]

    def targets(node: ast.AST) -> list[str]:
        if isinstance(node, ast.Import):
            return [alias.name for alias in node.names]
        if not isinstance(node, ast.ImportFrom):
            return []
        base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        stem = ".".join([*base, *([node.module] if node.module else [])])
        return [name if (name := f"{stem}.{alias.name}") in MODULES else stem for alias in node.names]

    def walk(node: ast.AST, function: str) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if _is_type_checking(child):
                continue
            inside = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
            for target in targets(child):
                if target.split(".")[0] in ROOTS:
                    yield Import(importer, target, inside, f"{importer}:{child.lineno}")  # type: ignore[attr-defined]
            yield from walk(child, inside)

    yield from walk(ast.parse(source), "")


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def part_of(module: str) -> str:
    """The layer of a module: `symbolic` for dynamo_nb.symbolic.builder, `kernel_ext` for all of kernel_ext."""
    head, _, rest = module.partition(".")
    return head if head == "kernel_ext" or not rest else rest.split(".")[0]


def all_imports() -> list[Import]:
    return [
        found
        for module, path in MODULES.items()
        for found in imports_in(module, path.read_text(encoding="utf-8"), path.name == "__init__.py")
    ]


IMPORTS = all_imports()


def upward(imports: list[Import]) -> list[str]:
    """The imports that leave the allowed direction."""
    wrong = []
    for found in imports:
        source, target = part_of(found.importer), part_of(found.target)
        if source == target or target in MAY_USE.get(source, set()):
            continue
        if source == "dynamo_nb" and target == "kernel_ext" and found.function in KERNEL_EXT_IMPORTERS:
            continue
        wrong.append(f"{found.where}: {source} imports {found.target}")
    return wrong


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Groups of nodes that reach each other (Tarjan), each sorted."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for following in sorted(edges.get(node, ())):
            if following not in index:
                visit(following)
                low[node] = min(low[node], low[following])
            elif following in stack:
                low[node] = min(low[node], index[following])
        if low[node] == index[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return found


def edges_of(imports: list[Import], by_part: bool, inner_functions: bool) -> dict[str, set[str]]:
    """Who imports whom. A package that loads its own modules (tables filled by decorators) is no edge."""
    edges: dict[str, set[str]] = {}
    for found in imports:
        if not inner_functions and found.function:
            continue
        if part_of(found.importer) == "dynamo_nb" and part_of(found.target) == "kernel_ext":
            continue  # the one hand-over, checked in upward()
        source, target = (part_of(found.importer), part_of(found.target)) if by_part else (found.importer, found.target)
        if source != target and not target.startswith(f"{source}."):
            edges.setdefault(source, set()).add(target)
    return edges


def test_every_module_belongs_to_a_layer() -> None:
    assert {part_of(module) for module in MODULES} <= set(MAY_USE)
    assert len(IMPORTS) > 300, "the walk found too few imports to mean anything"


def test_no_upward_import() -> None:
    assert upward(IMPORTS) == []


def test_no_circle_between_layers() -> None:
    assert circles(edges_of(IMPORTS, by_part=True, inner_functions=True)) == []


def test_no_circle_between_modules() -> None:
    """At module level nowhere; inside functions only within the layers of CALLS_BACK."""
    assert circles(edges_of(IMPORTS, by_part=False, inner_functions=False)) == []
    outside = [found for found in IMPORTS if part_of(found.importer) not in CALLS_BACK]
    assert circles(edges_of(outside, by_part=False, inner_functions=True)) == []


@pytest.mark.parametrize(
    ("importer", "source", "expected"),
    [
        ("dynamo_nb.core.logs", "from ..symbolic import builder", "core imports dynamo_nb.symbolic.builder"),
        ("dynamo_nb.guards.kinds", "def f():\n    import dynamo_nb.symbolic.entry", "guards imports dynamo_nb.symbolic.entry"),
        ("dynamo_nb.hook.policy", "from dynamo_nb.guards import kinds", "hook imports dynamo_nb.guards.kinds"),
        ("dynamo_nb", "def other():\n    import kernel_ext", "dynamo_nb imports kernel_ext"),
        ("dynamo_nb", "import kernel_ext", "dynamo_nb imports kernel_ext"),
        ("dynamo_nb.backends.aot", "try:\n    from .. import convert\nexcept ImportError:\n    raise", "backends imports dynamo_nb.convert"),
    ],
)
def test_an_upward_import_is_found(importer: str, source: str, expected: str) -> None:
    is_package = importer == "dynamo_nb"
    assert [line.split(": ", 1)[1] for line in upward(list(imports_in(importer, source, is_package)))] == [expected]


def test_the_hand_over_to_the_notebook_side_is_allowed() -> None:
    source = "def load_ipython_extension(ipython):\n    import kernel_ext"
    assert upward(list(imports_in("dynamo_nb", source, True))) == []


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    assert circles({"a": {"b"}, "b": {"c"}}) == []


def test_importing_dynamo_nb_stays_light() -> None:
    """No torch._dynamo, torch._inductor or notebook library comes along, and no compiler of theirs."""
    program = (
        "import sys, dynamo_nb\n"
        "heavy = ('torch._dynamo', 'torch._inductor', 'IPython', 'ipywidgets', 'anywidget', 'kernel_ext')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
