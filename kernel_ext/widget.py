"""The live view of a report: an anywidget with the report's data and the bundled ES module.

In: a `CompileReport`. Out: a widget whose front end draws the same sections in tabs. The module travels
over the widget's own connection: nothing is installed in the browser and nothing is fetched. Used by `card`.
"""

from __future__ import annotations

import functools
import importlib.resources
from collections.abc import Sequence
from typing import Any

import anywidget
import traitlets

from dynamo_nb.reports import CompileReport
from dynamo_nb.reports.sections import as_data
from dynamo_nb.reports.style import CSS


@functools.cache
def bundle_text() -> str:
    """The built ES module, as one string: a file path would pin every widget instance."""
    return (importlib.resources.files("kernel_ext") / "static" / "report.js").read_text(encoding="utf-8")


class ReportWidget(anywidget.AnyWidget):
    """report: data of `sections.as_data`; static_id: element of the static report that a live view hides;
    tab: the section in front."""

    _esm = traitlets.Unicode().tag(sync=True)
    _css = traitlets.Unicode(CSS).tag(sync=True)
    report = traitlets.Dict().tag(sync=True)
    static_id = traitlets.Unicode().tag(sync=True)
    tab = traitlets.Unicode("source").tag(sync=True)

    def update(self, report: CompileReport) -> None:
        self.report = as_data(report)

    def bundle(self) -> dict[str, Any]:
        """What to publish to show the widget."""
        return {
            "application/vnd.jupyter.widget-view+json": {"version_major": 2, "version_minor": 0, "model_id": self.model_id},
        }


def widget_for(report: CompileReport, static_id: str, show: Sequence[str] | None) -> ReportWidget:
    """A widget for the report, with the first section of `show` in front."""
    return ReportWidget(_esm=bundle_text(), report=as_data(report), static_id=static_id, tab=show[0] if show else "source")
