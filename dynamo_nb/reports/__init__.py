"""Compile reports: what was compiled, what was not, and why; plain data, text and static HTML.

`report(fn, *args)` runs a function and returns its `CompileReport`; kernel_ext makes the same from a
notebook cell. No notebook library is imported here.
"""

from __future__ import annotations

from dynamo_nb.reports.collect import Collector
from dynamo_nb.reports.model import CompileReport, FunctionReport, FunctionSketch
from dynamo_nb.reports.run import report

__all__ = ["Collector", "CompileReport", "FunctionReport", "FunctionSketch", "report"]
