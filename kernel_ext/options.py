"""The options of `%%compile`: one table from which parsing, help and completion come.

In: the text after `%%compile`. Out: `Options`; `UsageError` naming the valid choices otherwise. Called
by `session` and `magic`.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import shlex
from collections.abc import Sequence
from typing import Any, NoReturn

from IPython.core.error import UsageError

from dynamo_nb.api.compile import MODES
from dynamo_nb.reports.sections import SECTIONS

# flag -> (value's name in the help, '' for a switch; help)
FLAGS: dict[str, tuple[str, str]] = {
    "--backend": ("NAME", "backend that turns graphs into code; dynamo_nb.list_backends(None) lists them"),
    "--dynamic": ("", "treat tensor sizes as symbolic from the first compile"),
    "--static": ("", "compile again for every new size instead"),
    "--fullgraph": ("", "a graph break is an error"),
    "--mode": ("MODE", "one of " + ", ".join(MODES)),
    "--tiered": ("", "run on ATen while the kernels are built"),
    "--verify": ("", "compare every call with ATen, and name the first operation that differs"),
    "--show": ("SECTIONS", "report sections to unfold, with commas between: " + ", ".join(SECTIONS)),
    "--quiet": ("", "a one-line report"),
    "--no-report": ("", "no report"),
    "--no-widget": ("", "the static report only"),
}


@dataclasses.dataclass(frozen=True)
class Options:
    """What the magic line asks for; None where nothing was said."""

    backend: str | None = None
    dynamic: bool | None = None
    fullgraph: bool = False
    mode: str | None = None
    show: tuple[str, ...] | None = None
    quiet: bool = False
    report: bool = True
    widget: bool = True
    tiered: bool = False
    verify: bool = False

    def compile_keywords(self) -> dict[str, Any]:
        """Keywords for `dynamo_nb.compile`, only those that were asked for."""
        given = {"backend": self.backend, "dynamic": self.dynamic, "mode": self.mode}
        keywords: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if self.fullgraph:
            keywords["fullgraph"] = True
        generator = {name: True for name in ("tiered", "verify") if getattr(self, name)}
        return keywords | ({"options": generator} if generator else {})


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"%%compile: {message}; valid options: {', '.join(FLAGS)}")


def _parser() -> _Parser:
    parser = _Parser(prog="%%compile", add_help=False, allow_abbrev=False)
    for flag, (value, text) in FLAGS.items():
        if value:
            parser.add_argument(flag, metavar=value, help=text)
        else:
            parser.add_argument(flag, action="store_true", help=text)
    return parser


def parse(line: str, backends: Sequence[str]) -> Options:
    """Options of a magic line; UsageError for an unknown option, backend, mode or section."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        raise UsageError(f"%%compile: {error} in {line!r}") from None
    found, rest = _parser().parse_known_args(words)
    if rest:
        near = difflib.get_close_matches(rest[0], FLAGS, 1)
        hint = f", did you mean {near[0]}?" if near else ""
        raise UsageError(f"%%compile: unknown option {rest[0]!r}{hint}; valid options: {', '.join(FLAGS)}")
    _choice("backend", found.backend, backends)
    _choice("mode", found.mode, MODES)
    show = tuple(name.strip() for name in found.show.split(",") if name.strip()) if found.show is not None else None
    for name in show or ():
        _choice("report section", name, tuple(SECTIONS))
    if found.dynamic and found.static:
        raise UsageError("%%compile: --dynamic and --static exclude each other")
    if (found.tiered or found.verify) and (found.mode or found.backend not in (None, "triton_cpp")):
        raise UsageError("%%compile: --tiered and --verify are for the backend triton_cpp without a --mode")
    dynamic = True if found.dynamic else False if found.static else None
    return Options(
        found.backend, dynamic, found.fullgraph, found.mode, show, found.quiet, not found.no_report, not found.no_widget, found.tiered, found.verify,
    )


def _choice(noun: str, value: str | None, valid: Sequence[str]) -> None:
    if value is not None and value not in valid:
        raise UsageError(f"%%compile: unknown {noun} {value!r}; valid ones: {', '.join(valid)}")


def help_text() -> str:
    """The magic's docstring."""
    width = max(len(f"{flag} {value}") for flag, (value, _) in FLAGS.items())
    lines = [f"  {f'{flag} {value}'.ljust(width)}  {text}" for flag, (value, text) in FLAGS.items()]
    return "\n".join([
        "%%compile [options]",
        "",
        "Compile the functions and nn.Module classes this cell defines, and report what happened.",
        "",
        "They stay compiled in later cells, and the report is kept up to date. Everything else in the",
        "cell runs as in a plain cell. Classes that are no nn.Module and async functions are left alone.",
        "",
        *lines,
    ])


def complete(text: str, backends: Sequence[str]) -> tuple[str, list[str]]:
    """(fragment being typed, candidates) for the magic line up to the cursor."""
    words = text.split(" ")
    fragment, previous = words[-1], words[-2] if len(words) > 1 else ""
    if previous == "--show":
        done, _, fragment = fragment.rpartition(",")
        candidates: Sequence[str] = [name for name in SECTIONS if name not in done.split(",")]
    else:
        candidates = {"--backend": tuple(backends), "--mode": MODES}.get(previous) or [flag for flag in FLAGS if flag not in words[:-1]]
    return fragment, [name for name in candidates if name.startswith(fragment)]
