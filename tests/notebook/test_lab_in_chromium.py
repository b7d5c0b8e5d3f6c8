"""Notebook 01 in a real JupyterLab in a real browser: it runs, and its reports are drawn."""

from __future__ import annotations

import pathlib
import re

import nbformat
import pytest
from lab import lab, open_notebook, run_all, shut_down_kernels
from page_tools import browser_page, needs_browser

NOTEBOOK = pathlib.Path(__file__).parents[2] / "notebooks" / "01_first_compile.ipynb"
pytestmark = needs_browser


@pytest.fixture
def folder(tmp_path):
    target = tmp_path / "work"
    target.mkdir()
    notebook = nbformat.read(NOTEBOOK, 4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    nbformat.write(notebook, target / "nb.ipynb")
    return target


def scroll_through(page):
    """Bring every cell into view: Lab draws what is out of sight only when it has time."""
    for index in range(page.locator(".jp-Cell").count()):
        page.locator(".jp-Cell").nth(index).scroll_into_view_if_needed()
        page.wait_for_timeout(100)


def report_card(page, name):
    """The live report whose title is `name`, drawn and in view."""
    card = page.locator(".dnb-live[data-done=true]", has=page.locator(f".dnb-head b:text-is('{name}')"))
    card.wait_for(state="attached", timeout=30_000)
    card.scroll_into_view_if_needed()
    card.locator("[data-panel=source] pre").first.wait_for(state="visible", timeout=10_000)
    return card


def test_first_notebook(tmp_path, folder):
    with lab(folder, tmp_path / "private") as server, browser_page() as page:
        open_notebook(server, page, "nb.ipynb")
        assert run_all(page) == []
        scroll_through(page)

        first = report_card(page, "standardize")
        assert "1 recompile" in first.locator(".dnb-head").text_content()
        assert first.locator(".dnb-row.compiled").count() == 3
        page.screenshot(path=str(tmp_path / "standardize.png"))

        broken = report_card(page, "to_unit_range")
        assert broken.locator(".dnb-row.break .dnb-t").text_content().strip() == "if brightest > 1:"
        assert "fix:" in broken.locator(".dnb-row.why").text_content()
        page.screenshot(path=str(tmp_path / "break.png"))
        broken.locator("[data-tab=graphs]").click()
        assert broken.locator("[data-panel=graphs] table").count() == 2
        page.screenshot(path=str(tmp_path / "graphs.png"))

        # While the live report is there, the static one below it in the saved notebook is hidden.
        assert page.locator(".dnb-static").count() >= 5
        assert page.locator(".dnb-static:visible").count() == 0

        page.evaluate("window.jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Dark' }).then(() => true)")
        page.wait_for_function("document.body.dataset.jpThemeLight === 'false'")
        page.locator("#jupyterlab-splash").wait_for(state="detached")
        report_card(page, "SmallCNN.forward")
        page.screenshot(path=str(tmp_path / "dark.png"))
        background = page.evaluate("getComputedStyle(document.querySelector('.dnb-live')).backgroundColor")
        assert sum(int(part) for part in re.findall(r"\d+", background)[:3]) < 200

        # Reopened without its kernel, the notebook shows the static form instead of the dead widget.
        page.evaluate("window.jupyterapp.commands.execute('docmanager:save').then(() => true)")
        assert not page.problems
        shut_down_kernels(server)
        open_notebook(server, page, "nb.ipynb")
        static = page.locator(".dnb-static", has=page.locator(".dnb-head b:text-is('to_unit_range')"))
        static.wait_for(state="attached", timeout=30_000)
        static.scroll_into_view_if_needed()
        static.locator(".dnb-row.break").wait_for(state="visible", timeout=30_000)
        assert page.get_by_text("Loading widget").locator("visible=true").count() == 0
        page.screenshot(path=str(tmp_path / "reopened.png"))
