"""Splits Python source into coloured spans, line by line.

In: source text. Out: for each line a list of (class, text), class one of '', 'k' keyword, 's' string,
'c' comment, 'n' number, 'd' defined name. Used by `sections`.
"""

from __future__ import annotations

import io
import keyword
import tokenize

Spans = list[tuple[str, str]]


def highlight(source: str) -> list[Spans]:
    """One list of spans a line; the texts of a line joined are the line itself, whatever the source."""
    lines = source.splitlines()
    marks: list[list[tuple[int, int, str]]] = [[] for _ in lines]
    previous = ""
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            kind = _kind(token, previous)
            previous = token.string
            if kind:
                _spread(marks, lines, token, kind)
    except (tokenize.TokenError, SyntaxError):
        pass  # an unfinished piece of source keeps the colours found so far
    return [_cut(line, found) for line, found in zip(lines, marks, strict=True)]


def _kind(token: tokenize.TokenInfo, previous: str) -> str:
    if token.type == tokenize.COMMENT:
        return "c"
    if token.type == tokenize.STRING:
        return "s"
    if token.type == tokenize.NUMBER:
        return "n"
    if token.type == tokenize.NAME:
        if previous in ("def", "class"):
            return "d"
        return "k" if keyword.iskeyword(token.string) else ""
    return ""


def _spread(marks: list[list[tuple[int, int, str]]], lines: list[str], token: tokenize.TokenInfo, kind: str) -> None:
    (first, start), (last, end) = token.start, token.end
    for row in range(first, last + 1):
        if row - 1 < len(lines):
            stop = end if row == last else len(lines[row - 1])
            marks[row - 1].append((start if row == first else 0, stop, kind))


def _cut(line: str, found: list[tuple[int, int, str]]) -> Spans:
    spans: Spans = []
    position = 0
    for start, stop, kind in found:
        if start < position:
            continue
        if start > position:
            spans.append(("", line[position:start]))
        spans.append((kind, line[start:stop]))
        position = stop
    if position < len(line):
        spans.append(("", line[position:]))
    return spans
