"""The static page and the widget in a real browser: look, escaping, tabs, keyboard."""

from __future__ import annotations

import json
import pathlib
import sys

import pytest
from page_tools import browser_page, needs_browser, widget_page

sys.path.append(str(pathlib.Path(__file__).parent.parent / "reports"))
import report_samples as samples

from dynamo_nb.reports import Collector, CompileReport
from dynamo_nb.reports.sections import SECTIONS, as_data

pytestmark = needs_browser


def report_of(*records, title="attention") -> CompileReport:
    collector = Collector()
    for record in records:
        collector("compile_end", record)
    return collector.report(title)


def test_page_shows_the_marks(tmp_path):
    path = report_of(*samples.records()).save(tmp_path / "report.html")
    with browser_page() as page:
        page.goto(path.as_uri())
        assert page.title() == "attention: compile report"
        assert page.locator(".dnb-row.break .dnb-g").inner_text() == "✖"
        assert page.locator(".dnb-row.compiled").count() == 6
        assert page.locator("details").first.is_visible()
        page.screenshot(path=str(tmp_path / "report.png"), full_page=True)
        assert not page.problems


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_follows_the_colour_scheme(tmp_path, scheme):
    path = report_of(*samples.records()).save(tmp_path / "report.html")
    with browser_page(color_scheme=scheme) as page:
        page.goto(path.as_uri())
        colour = page.evaluate("getComputedStyle(document.querySelector('.dnb')).backgroundColor")
        assert colour == {"light": "rgb(255, 255, 255)", "dark": "rgb(27, 31, 38)"}[scheme]


def test_hostile_text_stays_text_in_the_page(tmp_path):
    path = report_of(samples.HOSTILE, title="<script>document.title='owned'</script>").save(tmp_path / "report.html")
    # Without the policy that forbids scripts: the escaping alone must hold.
    path.write_text(path.read_text(encoding="utf-8").replace("Content-Security-Policy", "x-none"), encoding="utf-8")
    with browser_page() as page:
        page.goto(path.as_uri())
        assert "compile report" in page.title()
        assert page.locator("script, img, i, u").count() == 0
        assert "</pre><script>" in page.locator(".dnb-row.break").first.inner_text()


def test_hostile_text_stays_text_in_the_widget(tmp_path):
    path = widget_page(tmp_path, "", as_data(report_of(samples.HOSTILE, title="<img src=x onerror=document.title='owned'>")), "none")
    with browser_page() as page:
        page.goto(path.as_uri())
        page.wait_for_selector("[data-done=true]")
        for name in SECTIONS:
            page.click(f"[data-tab={name}]")
        assert page.title() == "widget"
        assert page.locator("#host script, #host img, #host i, #host u").count() == 0


def test_widget_tabs_and_hiding(tmp_path):
    report = report_of(*samples.records())
    path = widget_page(tmp_path, report.html(element_id="dnb-static-1"), as_data(report), "dnb-static-1")
    with browser_page() as page:
        page.goto(path.as_uri())
        page.wait_for_selector("[data-done=true]")
        assert not page.locator("#dnb-static-1").is_visible()
        assert page.locator("[data-panel=source] .dnb-row.break .dnb-g").inner_text() == "✖"
        page.locator("[role=tab][aria-selected=true]").focus()
        seen = []
        for _ in SECTIONS:
            page.keyboard.press("ArrowRight")
            seen.append(page.evaluate("document.activeElement.dataset.tab"))
            assert page.locator("[role=tabpanel]:visible").count() == 1
        names = list(SECTIONS)
        assert seen == names[1:] + names[:1]
        page.keyboard.press("End")
        assert page.locator("[data-panel=timings] .dnb-bar").count() == 5
        page.click("[data-tab=guards]")
        page.screenshot(path=str(tmp_path / "widget.png"))
        changed = as_data(report_of(samples.records()[0], title="changed"))
        page.evaluate(f"window.change({json.dumps(changed)})")
        assert page.locator(".dnb-live .dnb-head b").inner_text() == "changed"
        assert page.locator("[data-panel=guards]").is_visible()
        page.evaluate("window.end()")
        assert page.locator("#dnb-static-1").is_visible()
        assert not page.problems
