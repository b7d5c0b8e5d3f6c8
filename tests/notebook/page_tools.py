"""Chromium through Playwright, and a page that shows the widget with a model of its own.

The browser is the system's `chromium`; where there is none, or no playwright, the browser tests are
skipped and say so.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(
    CHROMIUM is None or importlib.util.find_spec("playwright") is None, reason="needs Chromium and the playwright package"
)


@contextlib.contextmanager
def browser_page(**options: Any) -> Iterator[Any]:
    """A fresh page; `page.problems` lists uncaught script errors."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        try:
            page: Any = browser.new_page(viewport={"width": 1100, "height": 1000}, **options)
            page.problems = []
            page.on("pageerror", lambda error: page.problems.append(str(error)))
            yield page
        finally:
            browser.close()


def widget_page(folder: pathlib.Path, static_html: str, data: dict, static_id: str, tab: str = "source") -> pathlib.Path:
    """An HTML file with the static report and, beneath, the widget on a model held by the page."""
    from kernel_ext.widget import CSS, bundle_text

    module = bundle_text().replace("</", "<\\/")
    state = json.dumps({"report": data, "static_id": static_id, "tab": tab}).replace("</", "<\\/")
    target = folder / "widget.html"
    target.write_text(f"""<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>widget</title><style>{CSS}</style></head><body>
<div class="jp-OutputArea-child">{static_html}</div><div id="host"></div>
<script type="application/json" id="state">{state}</script>
<script type="application/json" id="module">{json.dumps(module)}</script>
<script type="module">
const state = JSON.parse(document.getElementById("state").textContent);
const source = JSON.parse(document.getElementById("module").textContent);
const widget = (await import(URL.createObjectURL(new Blob([source], {{ type: "text/javascript" }})))).default;
const listeners = new Set();
const model = {{ get: (name) => state[name], on: (name, call) => listeners.add(call), off: (name, call) => listeners.delete(call) }};
window.change = (report) => {{ state.report = report; listeners.forEach((call) => call()); }};
window.end = widget.render({{ model, el: document.getElementById("host") }});
</script></body></html>""", encoding="utf-8")
    return target
