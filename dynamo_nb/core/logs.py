"""Log tags as in TORCH_LOGS (chapter 12.26): one logger a tag, written to stderr with a prefix.

`configure(tags)` switches them; `DYNAMO_NB_LOGS=+dynamo,graph_breaks` does so at import. A line reads
`[frame/attempt] [__tag] text`.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from typing import Any

TAGS = (
    "dynamo", "recompiles", "recompiles_verbose", "graph_breaks", "bytecode", "trace_bytecode", "output_code", "aot_graphs", "aot", "guards",
    "graph_code", "graph", "graph_sizes", "dynamic", "trace_source", "trace_call", "side_effects", "verbose_guards", "perf_hints", "inductor",
)
ALWAYS = logging.getLogger("dynamo_nb")
_current_id = "-/-"


def set_compile_id(compile_id: str) -> str:
    """The id that log lines carry from now on; returns the one before."""
    global _current_id
    before, _current_id = _current_id, compile_id
    return before


class _Stderr(logging.Handler):
    """Writes to the process's present stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        tag = record.name.rpartition(".")[2]
        stamp = time.strftime("%m%d %H:%M:%S", time.localtime(record.created))
        mark = f" [__{tag}]" if tag != "dynamo_nb" else ""
        prefix = f"{record.levelname[0]}{stamp} {os.getpid()} dynamo_nb] [{_current_id}]{mark} "
        try:
            for line in record.getMessage().split("\n"):
                sys.stderr.write(prefix + line + "\n")
            sys.stderr.flush()
        except (ValueError, OSError):
            self.handleError(record)


def artifact_logger(tag: str) -> logging.Logger:
    return logging.getLogger(f"dynamo_nb.{tag}")


def _prepare() -> None:
    if not any(isinstance(h, _Stderr) for h in ALWAYS.handlers):
        ALWAYS.addHandler(_Stderr())
    ALWAYS.setLevel(logging.WARNING)
    for tag in TAGS:
        artifact_logger(tag).setLevel(logging.WARNING)


def configure(tags: dict[str, Any]) -> None:
    """tag -> True, False or a logging level; `all` means every tag. Others are switched off. ValueError names unknown ones."""
    unknown = [t for t in tags if t not in TAGS and t not in ("all", "log_level", "modules", "default")]
    if unknown:
        raise ValueError(f"unknown log tag {', '.join(map(repr, unknown))}; known: {', '.join((*TAGS, 'all'))}")
    _prepare()
    for tag in TAGS:
        wanted = tags.get(tag, tags.get("all"))
        if wanted is None or wanted is False:
            continue
        level = logging.INFO if wanted is True else logging.getLevelName(wanted.upper()) if isinstance(wanted, str) else int(wanted)
        artifact_logger(tag).setLevel(level)


def parse(text: str) -> dict[str, Any]:
    """'+dynamo,graph_breaks' -> {'dynamo': DEBUG, 'graph_breaks': True}."""
    out: dict[str, Any] = {}
    for word in text.split(","):
        word = word.strip()
        if not word:
            continue
        if word[0] == "+":
            out[word[1:]] = logging.DEBUG
        elif word[0] == "-":
            out[word[1:]] = logging.ERROR
        else:
            out[word] = True
    return out


_prepare()
if os.environ.get("DYNAMO_NB_LOGS"):
    configure(parse(os.environ["DYNAMO_NB_LOGS"]))
