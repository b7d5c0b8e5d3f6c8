// dom.js
function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== "" && value !== void 0) node.setAttribute(name, value);
  }
  for (const child of children) {
    if (child instanceof Node) {
      node.append(child);
    } else if (child !== "" && child !== void 0 && child !== null) {
      const text = document.createTextNode("");
      text.textContent = String(child);
      node.append(text);
    }
  }
  return node;
}

// blocks.js
var MARKS = { compiled: "●", eager: "○", break: "✖", "": " " };
var MEANING = { compiled: "in a compiled graph", eager: "runs as plain Python", break: "graph break" };
function drawBlock(block) {
  const draw = DRAW[block.kind];
  return draw ? draw(block) : el("p", { class: "dnb-note" }, `unknown block ${block.kind}`);
}
var title = (text) => text ? el("p", { class: "dnb-title" }, text) : "";
var note = (text) => el("p", { class: "dnb-note" }, text);
var more = (count, noun) => count ? note(`… ${count.toLocaleString("en")} more ${noun}${count === 1 ? "" : "s"} not shown`) : "";
function source(block) {
  const rows = el("span", { class: "dnb-rows" });
  for (const line of block.lines) {
    const [indent, spans] = splitIndent(line.spans);
    const text = spans.map(([kind, part]) => kind ? el("span", { class: kind }, part) : part);
    const mark = el("span", { class: "dnb-g", title: MEANING[line.mark], "aria-label": MEANING[line.mark] }, MARKS[line.mark]);
    if (line.mark) mark.setAttribute("role", "img");
    rows.append(
      el(
        "span",
        { class: `dnb-row ${line.mark}` },
        el("span", { class: "dnb-no" }, `${String(line.number).padStart(5)} `),
        mark,
        ` ${indent}`,
        el("span", { class: "dnb-t" }, ...text),
        "\n"
      )
    );
    for (const item of line.breaks) rows.append(inlineBreak(item));
  }
  const pre = block.lines.length ? el("pre", { tabindex: "0" }, rows) : "";
  if (!block.folded) return el("div", {}, title(block.title), pre, more(block.omitted, "line"));
  const fold = el("details", {}, el("summary", {}, block.title), pre, more(block.omitted, "line"));
  fold.open = block.lines.some((line) => line.breaks.length);
  return fold;
}
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
  return el("span", { class: "dnb-row why" }, texts.map((text) => `${text}
`).join(""));
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
  const body = el("tbody", {}, ...block.rows.map((row) => el("tr", {}, ...row.map((cell, index) => drawCell(cell, block.columns[index][1])))));
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
  const box = el(
    "div",
    { class: "dnb-brk" },
    el("p", {}, el("b", {}, block.reason), ` [${block.id}]${times}: ${block.what}`),
    el("p", { class: "dnb-title" }, ...where)
  );
  if (block.why) box.append(el("p", {}, `Why: ${block.why}`));
  if (block.hint) box.append(el("p", {}, "Fix:"), el("pre", {}, block.hint));
  if (block.stack.length > 1) {
    box.append(el("details", {}, el("summary", {}, "called from"), el("pre", {}, block.stack.join("\n"))));
  }
  return box;
}
var DRAW = { source, code, pair, table, break: graphBreak, note: (block) => note(block.text) };

// tabs.js
var serial = 0;
function makeTabs(sections, selected, onSelect) {
  const prefix = `dnb-tab-${++serial}`;
  const list = el("div", { class: "dnb-tabs", role: "tablist", "aria-label": "Sections of the compile report" });
  const root = el("div", {}, list);
  const entries = sections.map((section, index) => {
    const tab = el("button", {
      type: "button",
      role: "tab",
      id: `${prefix}-${section.id}`,
      "aria-controls": `${prefix}-${section.id}-panel`,
      "data-tab": section.id
    }, section.title, section.count ? " " : "", section.count ? el("span", { class: "dnb-count" }, section.count) : "");
    const panel = el("div", {
      role: "tabpanel",
      id: `${prefix}-${section.id}-panel`,
      "aria-labelledby": `${prefix}-${section.id}`,
      tabindex: "0",
      "data-panel": section.id
    });
    tab.addEventListener("click", () => show(index, false));
    tab.addEventListener("keydown", (event) => {
      const to = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: sections.length - 1 }[event.key];
      if (to === void 0) return;
      event.preventDefault();
      event.stopPropagation();
      show((to + sections.length) % sections.length, true);
    });
    list.append(tab);
    root.append(panel);
    return { section, tab, panel, drawn: false };
  });
  function show(index, focus) {
    entries.forEach((entry2, other) => {
      const active = other === index;
      entry2.tab.setAttribute("aria-selected", String(active));
      entry2.tab.tabIndex = active ? 0 : -1;
      entry2.panel.hidden = !active;
    });
    const entry = entries[index];
    if (!entry.drawn) {
      entry.panel.append(...entry.section.draw());
      entry.drawn = true;
    }
    if (focus) entry.tab.focus();
    onSelect(entry.section.id);
  }
  show(Math.max(0, sections.findIndex((section) => section.id === selected)), false);
  return root;
}

// index.js
var LEGEND = "● in a compiled graph   ○ runs as plain Python   ✖ graph break";
function header(report) {
  const chips = report.headline.map(([style, text]) => el("span", { class: `dnb-chip ${style}` }, text));
  return el("div", { class: "dnb-head" }, el("b", {}, report.title), ...chips);
}
function render({ model, el: host }) {
  let selected = model.get("tab");
  const root = el("div", { class: "dnb dnb-live", role: "region", "aria-label": "Compile report" });
  const hide = el("style");
  host.append(hide, root);
  function draw() {
    const report = model.get("report");
    root.removeAttribute("data-done");
    const sections = report.sections.map((section) => ({
      ...section,
      draw: () => {
        const blocks = section.blocks.map(drawBlock);
        if (section.id === "source") blocks.push(el("div", { class: "dnb-legend" }, LEGEND));
        return blocks;
      }
    }));
    const notes = report.notes.map((text) => el("p", { class: "dnb-note" }, text));
    root.replaceChildren(header(report), ...notes, makeTabs(sections, selected, (id) => {
      selected = id;
    }));
    root.setAttribute("data-done", "true");
  }
  try {
    draw();
    const id = model.get("static_id");
    if (/^[\w-]+$/.test(id)) hide.textContent = `#${id}, .jp-OutputArea-child:has(#${id}) { display: none; }`;
  } catch (error) {
    root.replaceChildren(el("p", { class: "dnb-note", role: "alert" }, `The live report could not be drawn: ${error}`));
    root.setAttribute("data-done", "failed");
  }
  model.on("change:report", draw);
  return () => {
    model.off("change:report", draw);
    host.replaceChildren();
  };
}
var index_default = { render };
export {
  index_default as default
};
