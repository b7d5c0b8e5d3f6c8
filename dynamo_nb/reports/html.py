"""The report as static HTML, without JavaScript: what survives in a saved notebook, nbconvert and nbviewer.

In: a `CompileReport`. Out: a fragment (`render`) or a complete document (`page`). Every text that comes
from the user is escaped. Called by `CompileReport.html`/`page` and kernel_ext.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from html import escape

from dynamo_nb.reports import sections as parts
from dynamo_nb.reports.model import CompileReport
from dynamo_nb.reports.style import CSS, PAGE_CSS
from dynamo_nb.reports.text import MARKS

LEGEND = "● in a compiled graph   ○ runs as plain Python   ✖ graph break"
UNFOLDED = ("breaks",)


def render(report: CompileReport, sections: Sequence[str] | None = None, element_id: str = "") -> str:
    """sections: those shown unfolded beside the source, by default the breaks; ValueError for an unknown one."""
    unfolded = UNFOLDED if sections is None else parts.check_names(sections)
    return f"<style>{CSS}</style>{_body(report, unfolded, element_id or f'dnb-{uuid.uuid4().hex[:12]}')}"


def page(report: CompileReport) -> str:
    """A document of its own; its policy forbids scripts and any request to another address."""
    title = escape(f"{report.title}: compile report")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{CSS}{PAGE_CSS}</style>\n</head>\n<body>\n<main>\n"
        f"{_body(report, ('source', 'graphs', 'breaks', 'recompiles'), 'report')}\n</main>\n</body>\n</html>\n"
    )


def _body(report: CompileReport, unfolded: Sequence[str], element_id: str) -> str:
    out = [f'<div class="dnb dnb-static" id="{escape(element_id)}">', _head(report)]
    out += [f'<p class="dnb-note">{escape(note)}</p>' for note in parts.notes(report)]
    for section in parts.build(report):
        if section.id == "source":
            out.append("".join(_block(block) for block in section.blocks))
            if report.records:
                out.append(f'<div class="dnb-legend">{LEGEND}</div>')
        elif report.records and section.count != "0":
            count = f" ({escape(section.count)})" if section.count else ""
            opened = " open" if section.id in unfolded else ""
            inner = "".join(_block(block) for block in section.blocks)
            out.append(f"<details{opened}><summary>{escape(section.title)}{count}</summary>{inner}</details>")
    out.append("</div>")
    return "".join(out)


def _head(report: CompileReport) -> str:
    chips = "".join(f'<span class="dnb-chip {style}">{escape(text)}</span> ' for style, text in parts.headline(report))
    return f'<div class="dnb-head"><b>{escape(report.title)}</b> {chips}</div>'


def _block(block: parts.Block) -> str:
    if isinstance(block, parts.SourceBlock):
        return _source(block)
    if isinstance(block, parts.TableBlock):
        return _table(block)
    if isinstance(block, parts.BreakBlock):
        return _break(block)
    if isinstance(block, parts.PairBlock):
        return f'{_title(block.title)}<div class="dnb-pair">{_code(block.left)}{_code(block.right)}</div>'
    if isinstance(block, parts.CodeBlock):
        if block.folded:
            return f"<details><summary>{escape(block.title)}</summary>{_pre(block)}</details>"
        return _code(block)
    return f'<p class="dnb-note">{escape(block.text)}</p>'


def _title(text: str) -> str:
    return f'<p class="dnb-title">{escape(text)}</p>' if text else ""


def _code(block: parts.CodeBlock) -> str:
    return f"<div>{_title(block.title)}{_pre(block)}</div>"


def _pre(block: parts.CodeBlock) -> str:
    return f'<div class="dnb-code"><pre tabindex="0">{escape(block.text)}</pre></div>{_omitted(block.omitted, "line")}'


def _omitted(count: int, noun: str) -> str:
    return f'<p class="dnb-note">… {parts.plural(count, "more " + noun)} not shown</p>' if count else ""


def _source(block: parts.SourceBlock) -> str:
    rows = []
    for line in block.lines:
        indent, spans = parts.split_indent(line.spans)
        text = "".join(f'<span class="{kind}">{escape(part)}</span>' if kind else escape(part) for kind, part in spans)
        rows.append(
            f'<span class="dnb-row {line.mark}"><span class="dnb-no">{line.number:5d} </span>'
            f'<span class="dnb-g">{MARKS[line.mark]}</span> {indent}<span class="dnb-t">{text}</span>\n</span>'
        )
        rows += [_inline_break(item) for item in line.breaks]
    pre = f'<pre tabindex="0"><span class="dnb-rows">{"".join(rows)}</span></pre>' if rows else ""
    if block.folded:
        opened = " open" if any(line.breaks for line in block.lines) else ""
        return f"<details{opened}><summary>{escape(block.title)}</summary>{pre}{_omitted(block.omitted, 'line')}</details>"
    return f"{_title(block.title)}{pre}{_omitted(block.omitted, 'line')}"


def _inline_break(item: parts.BreakBlock) -> str:
    texts = [f"{item.reason} [{item.id}]: {item.what}"]
    texts += [f"{name}: {text}" for name, text in (("why", item.why), ("fix", item.hint)) if text]
    body = "".join(f"{escape(row)}\n" for text in texts for row in text.splitlines())
    return f'<span class="dnb-row why">{body}</span>'


def _break(block: parts.BreakBlock) -> str:
    times = f" (met {block.count} times)" if block.count > 1 else ""
    out = [f'<div class="dnb-brk"><p><b>{escape(block.reason)}</b> [{escape(block.id)}]{times}: {escape(block.what)}</p>']
    code = f": <code>{escape(block.code.strip())}</code>" if block.code else ""
    out.append(f'<p class="dnb-title">{escape(block.where)}{code}</p>')
    if block.why:
        out.append(f"<p>Why: {escape(block.why)}</p>")
    if block.hint:
        out.append(f"<p>Fix:</p><pre>{escape(block.hint)}</pre>")
    if len(block.stack) > 1:
        frames = escape("\n".join(block.stack))
        out.append(f"<details><summary>called from</summary><pre>{frames}</pre></details>")
    return "".join(out) + "</div>"


def _table(block: parts.TableBlock) -> str:
    head = "".join(f'<th scope="col" class="{style}">{escape(name)}</th>' for name, style in block.columns)
    rows = "".join(
        "<tr>" + "".join(_cell(cell, style) for cell, (_, style) in zip(row, block.columns, strict=True)) + "</tr>" for row in block.rows
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'{_title(block.title)}<div class="dnb-wrap" tabindex="0">{table}</div>{_omitted(block.omitted, "row")}'


def _cell(cell: str, style: str) -> str:
    if style == "bar":
        return f'<td><span class="dnb-bar"><span style="width:{float(cell) * 100:.1f}%"></span></span></td>'
    return f'<td class="{style}">{escape(cell)}</td>'
