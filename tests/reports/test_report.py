"""Reports made from records written by hand: grouping, marks, text, limits, bounded memory."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import pytest
import report_samples as samples

from dynamo_nb.core import events
from dynamo_nb.core.records import CompileRecord, GuardRecord
from dynamo_nb.reports import Collector, CompileReport, FunctionSketch
from dynamo_nb.reports.assemble import marked_lines
from dynamo_nb.reports.blocks import MAX_ROWS
from dynamo_nb.reports.sections import SECTIONS, as_data, build


def report_of(records, sketches=()) -> CompileReport:
    collector = Collector()
    for record in records:
        collector("compile_end", record)
    return collector.report("attention", sketches)


def test_resume_functions_and_recompiles_join_their_function():
    report = report_of(samples.records())
    assert [f.name for f in report.functions] == ["attention"]
    assert [r.compile_id for r in report.functions[0].records] == ["0/0", "1/0", "0/1"]
    assert (report.graph_count, report.guard_count, report.recompile_count) == (3, 3, 1)
    assert [(item.id, count) for item, count in report.breaks] == [("NB9101", 2)]


def test_marks_follow_statements():
    report = report_of(samples.records())
    marks = {line.number: line.mark for line in marked_lines(report.functions[0], report.functions)}
    assert marks == {1: "", 2: "", 3: "compiled", 4: "compiled", 5: "compiled", 6: "eager", 7: "break", 8: "compiled", 9: "compiled",
                     10: "compiled"}


def test_a_statement_over_several_lines_is_compiled_if_any_of_them_is():
    source = "def f(x):\n    return (\n        x\n        + 1\n    )\n"
    record = CompileRecord("0/0", "f", "f.py", 5, 9, source, compiled_lines={"f.py": [8]})
    report = report_of([record])
    marks = [line.mark for line in marked_lines(report.functions[0], report.functions)]
    assert marks == ["", "compiled", "", "compiled", ""]


def test_indented_methods_and_nested_functions_get_marks():
    source = "    def forward(self, x):\n        def inner(y):\n            return y\n        return inner(x)\n"
    report = report_of([CompileRecord("0/0", "N.forward", "m.py", 3, 6, source, compiled_lines={"m.py": [4, 6]})])
    assert [line.mark for line in marked_lines(report.functions[0], report.functions)] == ["", "compiled", "eager", "compiled"]


def test_never_called_says_so_and_has_no_marks():
    report = report_of([], [FunctionSketch("g", "c.py", 3, "def g(x):\n    return x\n")])
    assert report.text().splitlines()[0] == "attention: not called yet"
    assert "○" not in report.text() and "not called yet" in report.html()


def test_helpers_of_the_user_are_listed(tmp_path):
    helper = tmp_path / "helper.py"
    helper.write_text("import math\n\ndef double(x):\n    y = x * 2\n    return y\n\ndef unused(x):\n    return x\n")
    record = CompileRecord("0/0", "f", "f.py", 1, 2, "def f(x):\n    return double(x)\n", compiled_lines={"f.py": [2], str(helper): [4, 5]})
    report = report_of([record])
    assert [(f.name, f.inlined) for f in report.functions] == [("f", False), ("double", True)]
    assert [line.mark for line in marked_lines(report.functions[1], report.functions)] == ["", "compiled", "compiled"]


def test_library_code_is_not_listed():
    record = CompileRecord("0/0", "f", "f.py", 1, 2, "def f(x):\n    return x\n", compiled_lines={json.__file__: [293, 299]})
    assert [f.name for f in report_of([record]).functions] == ["f"]


def test_library_frames_come_last_and_folded():
    library = CompileRecord("0/0", "loads", json.__file__, 1, 2, "def loads(s):\n    return s\n", compiled_lines={json.__file__: [2]})
    own = CompileRecord("1/0", "f", "f.py", 1, 2, "def f(x):\n    return x\n", compiled_lines={"f.py": [2]})
    report = report_of([library, own])
    text = report.text(("source",))
    assert text.index("f (f.py:1)") < text.index("loads (") and "library code, 1 line in a graph" in text and "return s" not in text
    assert "<details><summary>loads (" in report.html()


def test_text_has_every_part():
    text = report_of(samples.records()).text(tuple(SECTIONS))
    for part in ("3 graphs", "1 graph break", "    7 ✖     if w.sum() > 0:", "fix: w = torch.where", "TENSOR_MATCH", "LOAD_CONST fn",
                 "size[1] expected 3, got 5", "backend", "rest after a graph break", "L['log'].append('x')", "grad mode is on"):
        assert part in text


def test_text_of_chosen_sections_only():
    text = report_of(samples.records()).text(("guards",))
    assert "TENSOR_MATCH" in text and "✖" not in text
    with pytest.raises(ValueError, match="valid ones: source, graphs"):
        report_of(samples.records()).text(("gards",))


def test_long_tables_are_cut_with_the_count_stated():
    guards = [GuardRecord(f"L['x{i}']", "TYPE_MATCH", "int") for i in range(MAX_ROWS + 17)]
    report = report_of([CompileRecord("0/0", "f", "f.py", 1, 1, "def f(): ...\n", guards=guards)])
    assert "17 more rows not shown" in report.text() and "17 more rows not shown" in report.html()
    assert f"L['x{MAX_ROWS}']" not in report.text()
    assert report.guard_count == MAX_ROWS + 17


def test_collector_keeps_a_bounded_number_and_says_so():
    collector = Collector(limit=3)
    for number in range(10):
        collector("compile_end", dataclasses.replace(samples.records()[0], compile_id=f"{number}/0"))
    report = collector.report("many")
    assert len(report.records) == 3 and report.dropped == 7
    assert "7 further compile records left out" in report.text()


def test_collector_listens_only_while_asked():
    collector = Collector()
    with collector.listening():
        events.emit("compile_end", samples.records()[0])
        events.emit("run_failed", "matmul: shapes don't fit")
        events.emit("stage", None)
    events.emit("compile_end", samples.records()[1])
    report = collector.report("x")
    assert len(report.records) == 1
    assert report.notes == ["A compiled graph failed while running, so the original code ran instead: matmul: shapes don't fit"]


def test_failed_and_skipped_frames_say_why():
    record = CompileRecord("0/0", "f", "f.py", 1, 2, "def f(x):\n    return x\n", outcome="skipped", why="generator frames run as they are")
    text = report_of([record]).text()
    assert "1 frame skipped" in text and "generator frames run as they are" in text


def test_data_for_the_widget_is_json():
    data = as_data(report_of(samples.records()))
    assert json.loads(json.dumps(data))["sections"][0]["id"] == "source"
    assert [section["id"] for section in data["sections"]] == list(SECTIONS)


def test_source_that_does_not_parse_is_still_shown():
    report = report_of([CompileRecord("0/0", "f", "f.py", 1, 2, "def f(x:\n    return 'x", compiled_lines={"f.py": [2]})])
    block = build(report)[0].blocks[0]
    assert ["".join(text for _, text in line.spans) for line in block.lines] == ["def f(x:", "    return 'x"]


def test_save_writes_page_or_text(tmp_path):
    report = report_of(samples.records())
    page = report.save(tmp_path / "r.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>") and page.rstrip().endswith("</html>")
    assert report.save(tmp_path / "r.txt").read_text(encoding="utf-8") == str(report) + "\n"


def test_no_notebook_library_is_imported():
    probe = ("import sys, dynamo_nb.reports.html, dynamo_nb.reports.text, dynamo_nb.reports.collect\n"
             "bad = [m for m in ('IPython', 'ipywidgets', 'anywidget', 'traitlets') if m in sys.modules]\n"
             "assert not bad, bad")
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
