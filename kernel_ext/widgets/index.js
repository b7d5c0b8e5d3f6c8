// Entry of the live report: draws the model's report in tabs and hides the static one while it lives.
import { drawBlock } from "./blocks.js";
import { el } from "./dom.js";
import { makeTabs } from "./tabs.js";

const LEGEND = "● in a compiled graph   ○ runs as plain Python   ✖ graph break";

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
      },
    }));
    const notes = report.notes.map((text) => el("p", { class: "dnb-note" }, text));
    root.replaceChildren(header(report), ...notes, makeTabs(sections, selected, (id) => { selected = id; }));
    root.setAttribute("data-done", "true");
  }

  try {
    draw();
    const id = model.get("static_id");
    // A rule, not a property of the element: the notebook replaces that element at every update.
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

export default { render };
