"""The report card of a cell: when it appears, what updates it, in a terminal and in a notebook."""

from __future__ import annotations

import sys
import threading
import time

import pytest
from IPython.core.displaypub import CapturingDisplayPublisher

from dynamo_nb.core import events
from dynamo_nb.core.records import CompileRecord
from kernel_ext import session as sessions

WIDGET = "application/vnd.jupyter.widget-view+json"


class Publisher(CapturingDisplayPublisher):
    """Keeps what is published, with its display id."""

    def publish(self, data, metadata=None, source=None, *, transient=None, update=False, **kwargs):
        self.outputs.append((data, (transient or {}).get("display_id"), update))


@pytest.fixture
def notebook(bare_shell, stand_in):
    """(run, outputs): a shell that looks like a kernel's."""
    bare_shell.kernel = object()
    bare_shell.display_pub = Publisher()
    bare_shell.run_line_magic("load_ext", "kernel_ext")

    def run(cell, cell_id=None):
        bare_shell.display_pub.outputs.clear()
        result = bare_shell.run_cell(cell, cell_id=cell_id)
        return result, list(bare_shell.display_pub.outputs)

    yield run
    bare_shell.run_line_magic("unload_ext", "kernel_ext")


def test_terminal_prints_text(run):
    _, out = run("%%compile\ndef f(x):\n    return x\n")
    assert out.strip() == "f: not called yet"
    _, out = run("y = f(1)")
    assert "    3 ●     return x" in out and "1 guard" in out
    _, out = run("y = f(2)")
    assert out == ""
    _, out = run("y = f('a')")
    assert "1 recompile" in out and "type was int, is str" in out


def test_terminal_options(run):
    _, out = run("%%compile --quiet\ndef f(x):\n    return x\ny = f(1)")
    assert out.startswith("f: 0 graphs") and out.count("\n") == 1
    _, out = run("%%compile --no-report\ndef f(x):\n    return x\ny = f(1)")
    assert out == ""
    _, out = run("%%compile --show guards\ndef f(x):\n    return x\ny = f(1)")
    assert "Guards" in out and "●" not in out


def test_a_cell_that_defines_nothing_says_so(run):
    _, out = run("%%compile\n1 + 1")
    assert "defines nothing to compile" in out


def test_notebook_shows_two_outputs_and_updates_the_first(notebook):
    _, outputs = notebook("%%compile\ndef f(x):\n    return x\n")
    (static, first_id, updated), (view, _, _) = outputs
    assert set(static) == {"text/html", "text/plain"} and not updated and "not called yet" in static["text/html"]
    assert f'id="{first_id}"' in static["text/html"] and WIDGET in view
    _, outputs = notebook("y = f(1)")
    assert [(name, updated) for _, name, updated in outputs] == [(first_id, True)]
    assert "●" in outputs[0][0]["text/html"]
    _, outputs = notebook("y = f(2)")
    assert outputs == []


def test_widget_follows(notebook, bare_shell):
    notebook("%%compile\ndef f(x):\n    return x\n")
    (card,) = sessions._sessions[bare_shell].cards.values()
    assert card._widget.report["headline"] == [("", "not called yet")]
    notebook("f(1)")
    assert ("", "1 guard") in [tuple(part) for part in card._widget.report["headline"]]


def test_rerun_replaces_the_card(notebook, bare_shell):
    session = sessions._sessions[bare_shell]
    notebook("%%compile\ndef f(x):\n    return x\n", cell_id="a")
    (first,) = session.cards.values()
    notebook("%%compile\ndef f(x):\n    return x + 1\n", cell_id="a")
    (second,) = session.cards.values()
    assert first is not second and first._widget is None
    notebook("%%compile\ndef g(x):\n    return x\n", cell_id="b")
    assert len(session.cards) == 2


def test_cards_keep_no_live_object(notebook, bare_shell):
    import gc
    import weakref

    notebook("%%compile\ndef f(x):\n    return x\ny = f(1)")
    old = weakref.ref(bare_shell.user_ns["f"].fn)
    notebook("f = None")
    gc.collect()
    assert old() is None and len(sessions._sessions[bare_shell].cards) == 1


def test_events_find_their_card(notebook, bare_shell):
    session = sessions._sessions[bare_shell]
    notebook("%%compile\ndef f(x):\n    return x\n", cell_id="a")
    notebook("%%compile\ndef g(call):\n    return call()\n", cell_id="b")
    first, second = session.cards.values()
    assert session.card_for(CompileRecord("0/0", "f", first.file, 2, 3)) is first
    wrapper = CompileRecord("0/0", "wrapper", "elsewhere.py", 1, 2, compiled_lines={"lib.py": [1], second.file: [3]})
    assert session.card_for(wrapper) is second
    assert session.card_for(CompileRecord("0/0", "other", "elsewhere.py", 1, 2)) is None
    bare_shell.user_ns["emit"] = lambda: events.emit("compile_end", CompileRecord("9/0", "below", "elsewhere.py", 1, 2, outcome="compiled"))
    _, outputs = notebook("g(emit)")
    assert "below" in [record.function for record in second.collector.records]
    assert len(outputs) == 1


def test_a_fault_in_the_display_does_not_reach_the_compiler(notebook, bare_shell, monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError("display is broken")

    monkeypatch.setattr(sessions.Session, "card_for", fail)
    result, _ = notebook("%%compile --no-report\ndef f(x):\n    return x\nf(7)")
    assert result.result == 7 and "display is broken" in caplog.text


def test_progress_shows_for_a_long_compile_and_is_emptied(notebook, bare_shell, monkeypatch):
    from kernel_ext import progress

    monkeypatch.setattr(progress, "DELAY", 0.02)
    monkeypatch.setattr(progress, "PERIOD", 0.02)
    record = CompileRecord("0/0", "big", "x.py", 1, 2)

    def slow():
        events.emit("compile_start", record)
        time.sleep(0.1)
        record.stages["trace"] = 0.1
        events.emit("stage", record)
        time.sleep(0.1)
        events.emit("compile_end", record)
        for thread in threading.enumerate():
            if thread.name == "dynamo_nb progress":
                thread.join(5)

    bare_shell.user_ns["slow"] = slow
    _, outputs = notebook("slow()")
    texts = [data["text/plain"] for data, _, _ in outputs]
    assert texts[0].startswith("compiling big …") and any("after trace" in text for text in texts) and texts[-1] == ""
    assert len({name for _, name, _ in outputs}) == 1


def test_unload_undoes_everything(bare_shell, stand_in):
    def state():
        return (list(bare_shell.input_transformers_cleanup), list(bare_shell.ast_transformers),
                {name: list(calls) for name, calls in bare_shell.events.callbacks.items()},
                sorted(bare_shell.magics_manager.magics["cell"]), list(bare_shell.Completer.custom_matchers), len(events._listeners),
                sorted(bare_shell.user_ns))

    before = state()
    bare_shell.run_line_magic("load_ext", "kernel_ext")
    bare_shell.run_line_magic("load_ext", "kernel_ext")
    from kernel_ext import load_ipython_extension, unload_ipython_extension

    load_ipython_extension(bare_shell)
    assert state() != before and "compile" in bare_shell.magics_manager.magics["cell"]
    assert len(bare_shell.ast_transformers) == len(before[1]) + 1
    bare_shell.run_line_magic("unload_ext", "kernel_ext")
    assert state() == before
    unload_ipython_extension(bare_shell)
    assert state() == before


def test_help_lsmagic_and_completion(shell, capsys):
    assert "compile" in shell.magics_manager.lsmagic()["cell"]
    assert "--backend NAME" in shell.find_cell_magic("compile").__doc__
    shell.run_cell("%%compile?")
    out = capsys.readouterr().out
    assert "--fullgraph" in out

    def complete(text):
        return [item.text for item in shell.Completer.completions(text, len(text))]

    with pytest.warns(Warning):
        assert complete("%%compile --b") == ["--backend"]
        assert complete("%%compile --backend ") == ["aot_eager", "eager"]
        assert complete("%%compile --backend ea") == ["eager"]
        assert complete("%%compile --show source,gra") == ["graphs"]
        assert "--dynamic" not in complete("x = 1 --d")


def test_terminal_waits_for_the_rest_of_the_cell(shell):
    assert shell.check_complete("%%compile --quiet")[0] == "incomplete"
    assert shell.check_complete("%%compile\ndef f(x):\n    return x\n\n")[0] == "complete"


def test_import_of_the_package_is_light():
    import subprocess

    probe = "import sys, kernel_ext; assert 'IPython' not in sys.modules and 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0
