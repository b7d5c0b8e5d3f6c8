"""An IPython shell with the extension loaded, and a stand-in for the compiler.

The stand-in marks what it was given and reports every first call for a new argument type the way the
compiler does; the real compiler runs in tests/kernel_ext/test_real_compiler.py and tests/notebook.
"""

from __future__ import annotations

import functools
import linecache
import types

import pytest
from IPython.core.interactiveshell import InteractiveShell

import dynamo_nb
from dynamo_nb.core import events
from dynamo_nb.core.records import CompileRecord, GuardRecord


class CompiledFunction:
    """Has the name by which reports know a compiled function."""

    def __init__(self, fn, **keywords):
        functools.update_wrapper(self, fn)
        self.fn, self.keywords, self.seen = fn, keywords, []

    def __get__(self, instance, owner=None):
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *args, **kwargs):
        key = ", ".join(type(value).__name__ for value in args)
        if key not in self.seen:
            self._report(key)
            self.seen.append(key)
        return self.fn(*args, **kwargs)

    def _report(self, key):
        code = self.fn.__code__
        lines = sorted({line for _, _, line in code.co_lines() if line})
        source = "".join(linecache.getlines(code.co_filename)[code.co_firstlineno - 1 : lines[-1]])
        record = CompileRecord(f"0/{len(self.seen)}", self.fn.__qualname__, code.co_filename, code.co_firstlineno, lines[-1], source,
                               compiled_lines={code.co_filename: lines}, guards=[GuardRecord("L['x']", "TYPE_MATCH", key)])
        events.emit("compile_start", record)
        if self.seen:
            record.recompile_reasons.append(f"type was {self.seen[-1]}, is {key}")
        record.outcome = "compiled"
        events.emit("compile_end", record)


@pytest.fixture
def stand_in(monkeypatch):
    monkeypatch.setattr(dynamo_nb, "compile", CompiledFunction, raising=False)
    monkeypatch.setattr(dynamo_nb, "list_backends", lambda exclude_tags=(): ["aot_eager", "eager"], raising=False)


@pytest.fixture
def bare_shell():
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    shell.history_manager.enabled = False
    shell.colors = "nocolor"
    yield shell
    shell.history_manager.end_session()
    InteractiveShell.clear_instance()


@pytest.fixture
def shell(bare_shell, stand_in):
    bare_shell.run_line_magic("load_ext", "kernel_ext")
    yield bare_shell
    bare_shell.run_line_magic("unload_ext", "kernel_ext")


@pytest.fixture
def run(shell, capsys):
    """run(cell) -> (result, what was printed)."""

    def run_cell(cell, ok=True):
        capsys.readouterr()
        result = shell.run_cell(cell)
        out = capsys.readouterr().out
        assert result.success is ok, out
        return result, out

    return run_cell
