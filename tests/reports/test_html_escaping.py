"""Nothing the user's program contains can become markup in the static report."""

from __future__ import annotations

import html.parser

import pytest
import report_samples as samples

from dynamo_nb.reports import Collector, CompileReport, FunctionSketch

ALLOWED = {"style", "div", "b", "span", "p", "pre", "code", "details", "summary", "table", "thead", "tbody", "tr", "th", "td",
           "html", "head", "meta", "title", "body", "main"}
ALLOWED_ATTRIBUTES = {"class", "id", "scope", "style", "tabindex", "open", "lang", "charset", "http-equiv", "content", "name"}


def hostile_report() -> CompileReport:
    collector = Collector()
    collector("compile_end", samples.HOSTILE)
    collector("limit", "<script>document.title='owned'</script>")
    return collector.report("<script>document.title='owned'</script>", [FunctionSketch("<b>", "<i>", 1, "x = '<script>'\n")])


class Walker(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"


@pytest.mark.parametrize("form", ["html", "page"])
@pytest.mark.parametrize("hostile", [True, False])
def test_only_our_own_markup(form, hostile):
    if hostile:
        report = hostile_report()
    else:
        collector = Collector()
        for record in samples.records():
            collector("compile_end", record)
        report = collector.report("attention")
    walker = Walker()
    walker.feed(getattr(report, form)())
    walker.close()
    assert not walker.open
    assert {tag for tag, _ in walker.tags} <= ALLOWED
    assert {name for _, attributes in walker.tags for name in attributes} <= ALLOWED_ATTRIBUTES
    assert len([tag for tag, _ in walker.tags if tag == "style"]) == 1


def test_element_id_can_not_break_out():
    assert 'id="&quot;&gt;&lt;script&gt;"' in hostile_report().html(element_id='"><script>')
