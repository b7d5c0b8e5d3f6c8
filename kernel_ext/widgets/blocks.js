// Draws the blocks of a section; the same blocks as the static report (dynamo_nb/reports/sections.py).
import { el } from "./dom.js";

const MARKS = { compiled: "●", eager: "○", break: "✖", "": " " };
const MEANING = { compiled: "in a compiled graph", eager: "runs as plain Python", break: "graph break" };

export function drawBlock(block) {
  const draw = DRAW[block.kind];
  return draw ? draw(block) : el("p", { class: "dnb-note" }, `unknown block ${block.kind}`);
}

const title = (text) => (text ? el("p", { class: "dnb-title" }, text) : "");
const note = (text) => el("p", { class: "dnb-note" }, text);
const more = (count, noun) =>
  count ? note(`… ${count.toLocaleString("en")} more ${noun}${count === 1 ? "" : "s"} not shown`) : "";

function source(block) {
  const rows = el("span", { class: "dnb-rows" });
  for (const line of block.lines) {
    const [indent, spans] = splitIndent(line.spans);
    const text = spans.map(([kind, part]) => (kind ? el("span", { class: kind }, part) : part));
    const mark = el("span", { class: "dnb-g", title: MEANING[line.mark], "aria-label": MEANING[line.mark] }, MARKS[line.mark]);
    if (line.mark) mark.setAttribute("role", "img");
    rows.append(
      el("span", { class: `dnb-row ${line.mark}` },
        el("span", { class: "dnb-no" }, `${String(line.number).padStart(5)} `), mark, ` ${indent}`,
        el("span", { class: "dnb-t" }, ...text), "\n"),
    );
    for (const item of line.breaks) rows.append(inlineBreak(item));
  }
  const pre = block.lines.length ? el("pre", { tabindex: "0" }, rows) : "";
  if (!block.folded) return el("div", {}, title(block.title), pre, more(block.omitted, "line"));
  const fold = el("details", {}, el("summary", {}, block.title), pre, more(block.omitted, "line"));
  fold.open = block.lines.some((line) => line.breaks.length);
  return fold;
}

// The white space a line starts with stays outside what a break underlines.
function splitIndent(spans) {
  if (!spans.length || spans[0][0]) return ["", spans];
  const rest = spans[0][1].trimStart();
  const indent = spans[0][1].slice(0, spans[0][1].length - rest.length);
  return [indent, rest ? [["", rest], ...spans.slice(1)] : spans.slice(1)];
}

function inlineBreak(item) {
  const texts = [`${item.reason} [${item.id}]: ${item.what}`];
  if (item.why) texts.push(`why: ${item.why}`);
  if (item.hint) texts.push(`fix: ${item.hint}`);
  return el("span", { class: "dnb-row why" }, texts.map((text) => `${text}\n`).join(""));
}

function code(block) {
  const pre = el("div", { class: "dnb-code" }, el("pre", { tabindex: "0" }, block.text));
  if (block.folded) return el("details", {}, el("summary", {}, block.title), pre, more(block.omitted, "line"));
  return el("div", {}, title(block.title), pre, more(block.omitted, "line"));
}

function pair(block) {
  return el("div", {}, title(block.title), el("div", { class: "dnb-pair" }, code(block.left), code(block.right)));
}

function table(block) {
  const head = el("tr", {}, ...block.columns.map(([name, style]) => el("th", { scope: "col", class: style }, name)));
  const body = el("tbody", {}, ...block.rows.map((row) =>
    el("tr", {}, ...row.map((cell, index) => drawCell(cell, block.columns[index][1])))));
  const wrap = el("div", { class: "dnb-wrap", tabindex: "0" }, el("table", {}, el("thead", {}, head), body));
  return el("div", {}, title(block.title), wrap, more(block.omitted, "row"));
}

function drawCell(cell, style) {
  if (style !== "bar") return el("td", { class: style }, cell);
  const filled = el("span", {});
  filled.style.width = `${(Number(cell) * 100).toFixed(1)}%`;
  return el("td", {}, el("span", { class: "dnb-bar" }, filled));
}

function graphBreak(block) {
  const times = block.count > 1 ? ` (met ${block.count} times)` : "";
  const where = block.code ? [`${block.where}: `, el("code", {}, block.code.trim())] : [block.where];
  const box = el("div", { class: "dnb-brk" },
    el("p", {}, el("b", {}, block.reason), ` [${block.id}]${times}: ${block.what}`),
    el("p", { class: "dnb-title" }, ...where));
  if (block.why) box.append(el("p", {}, `Why: ${block.why}`));
  if (block.hint) box.append(el("p", {}, "Fix:"), el("pre", {}, block.hint));
  if (block.stack.length > 1) {
    box.append(el("details", {}, el("summary", {}, "called from"), el("pre", {}, block.stack.join("\n"))));
  }
  return box;
}

const DRAW = { source, code, pair, table, break: graphBreak, note: (block) => note(block.text) };
