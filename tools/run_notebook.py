"""Runs a notebook headless, prints what its cells printed and its compile reports, and writes the reports as one page.

In: a notebook and the page to write. Out: text on the terminal, the page, exit status 1 with the
notebook's own error where a cell raises. Called by ./tutorial.
"""

from __future__ import annotations

import argparse
import html
import logging
import pathlib
import sys
import time

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from dynamo_nb.reports.style import PAGE_CSS

SECONDS_PER_CELL = 600


def execute(path: pathlib.Path) -> nbformat.NotebookNode:
    """The notebook with its outputs; the file itself is left as it is. CellExecutionError where a cell raises."""
    notebook = nbformat.read(path, 4)
    client = NotebookClient(notebook, timeout=SECONDS_PER_CELL, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}})
    client.execute()
    return notebook


def texts(notebook: nbformat.NotebookNode) -> list[str]:
    """What a reader without a browser sees, output by output."""
    found = []
    for output in (output for cell in notebook.cells for output in cell.get("outputs", [])):
        if output.output_type == "stream":
            found.append(output.text)
        elif "text/plain" in output.get("data", {}) and "application/vnd.jupyter.widget-view+json" not in output.data:
            found.append(output.data["text/plain"])
    return [text.rstrip() for text in found]


def page(notebook: nbformat.NotebookNode, title: str) -> str:
    """One document with every report card; as in a single report, its policy forbids scripts and requests."""
    cards = [output.data["text/html"] for cell in notebook.cells for output in cell.get("outputs", []) if "text/html" in output.get("data", {})]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{html.escape(title)}: compile reports</title>\n</head>\n<body>\n<main>\n"
        + "\n<p></p>\n".join(cards)
        + f"\n</main>\n<style>{PAGE_CSS}</style>\n</body>\n</html>\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebook", type=pathlib.Path)
    parser.add_argument("page", type=pathlib.Path)
    arguments = parser.parse_args()
    logging.getLogger("traitlets").setLevel(logging.ERROR)
    start = time.perf_counter()
    print(f"== running {arguments.notebook}", flush=True)
    try:
        notebook = execute(arguments.notebook)
    except CellExecutionError as error:
        print(error, file=sys.stderr)
        return 1
    print("\n\n".join(texts(notebook)))
    arguments.page.write_text(page(notebook, arguments.notebook.stem), encoding="utf-8")
    print(f"\n== done in {time.perf_counter() - start:.0f} s; the reports as a page: {arguments.page.resolve().as_uri()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
