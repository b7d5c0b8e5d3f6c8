// Tabs with the keyboard behaviour of the ARIA pattern: arrows, Home and End move, one tab stop.
import { el } from "./dom.js";

let serial = 0;

/** sections: [{id, title, count, draw()}]; panels are drawn when first shown. */
export function makeTabs(sections, selected, onSelect) {
  const prefix = `dnb-tab-${++serial}`;
  const list = el("div", { class: "dnb-tabs", role: "tablist", "aria-label": "Sections of the compile report" });
  const root = el("div", {}, list);
  const entries = sections.map((section, index) => {
    const tab = el("button", {
      type: "button", role: "tab", id: `${prefix}-${section.id}`, "aria-controls": `${prefix}-${section.id}-panel`, "data-tab": section.id,
    }, section.title, section.count ? " " : "", section.count ? el("span", { class: "dnb-count" }, section.count) : "");
    const panel = el("div", {
      role: "tabpanel", id: `${prefix}-${section.id}-panel`, "aria-labelledby": `${prefix}-${section.id}`, tabindex: "0", "data-panel": section.id,
    });
    tab.addEventListener("click", () => show(index, false));
    tab.addEventListener("keydown", (event) => {
      const to = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: sections.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      show((to + sections.length) % sections.length, true);
    });
    list.append(tab);
    root.append(panel);
    return { section, tab, panel, drawn: false };
  });

  function show(index, focus) {
    entries.forEach((entry, other) => {
      const active = other === index;
      entry.tab.setAttribute("aria-selected", String(active));
      entry.tab.tabIndex = active ? 0 : -1;
      entry.panel.hidden = !active;
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
