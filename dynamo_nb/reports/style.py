"""Style sheet of the static report and the widget.

Colours come from JupyterLab's or VS Code's variables where they exist, so that a report follows the
notebook's theme; doubled class names outweigh the notebook's own rules for tables and listings, and one
rule hides what a reopened notebook says in place of a widget that has gone. `PAGE_CSS` adds what a
stand-alone page needs. Used by `html` and kernel_ext.
"""

from __future__ import annotations

CSS = """
.dnb { --dnb-bg: var(--jp-layout-color1, var(--vscode-editor-background, #ffffff));
  --dnb-bg2: var(--jp-layout-color2, var(--vscode-sideBar-background, #f4f5f7));
  --dnb-fg: var(--jp-content-font-color1, var(--vscode-editor-foreground, #1c2026));
  --dnb-dim: var(--jp-content-font-color2, var(--vscode-descriptionForeground, #59616d));
  --dnb-line: var(--jp-border-color2, var(--vscode-panel-border, #d5d9df));
  --dnb-accent: var(--jp-brand-color1, #1769c9);
  --dnb-good: var(--jp-success-color1, #2b7d3c); --dnb-bad: var(--jp-error-color1, #c0392b);
  --dnb-warn: var(--jp-warn-color1, #b25b00);
  --dnb-key: var(--jp-mirror-editor-keyword-color, #7a2fb5); --dnb-str: var(--jp-mirror-editor-string-color, #a3302b);
  --dnb-com: var(--jp-mirror-editor-comment-color, #5d6b6b); --dnb-num: var(--jp-mirror-editor-number-color, #0b6e4f);
  --dnb-def: var(--jp-mirror-editor-def-color, #1250c4);
  --dnb-tint-good: rgba(46, 160, 67, .12); --dnb-tint-bad: rgba(210, 60, 40, .13); --dnb-tint-dim: rgba(128, 128, 128, .10);
  --dnb-mono: var(--jp-code-font-family, ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace);
  color: var(--dnb-fg); background: var(--dnb-bg); border: 1px solid var(--dnb-line); border-radius: 6px;
  font: 13px/1.5 var(--jp-content-font-family, system-ui, 'DejaVu Sans', sans-serif); margin: 4px 0; overflow: hidden; }
.dnb * { box-sizing: border-box; }
.dnb-head { display: flex; flex-wrap: wrap; gap: 6px 8px; align-items: center; padding: 8px 12px; background: var(--dnb-bg2);
  border-bottom: 1px solid var(--dnb-line); }
.dnb-head b { font: 600 13px/1.5 var(--dnb-mono); margin-right: 6px; }
.dnb-chip { border: 1px solid var(--dnb-line); border-radius: 10px; padding: 0 8px; font-size: 12px; background: var(--dnb-bg); }
.dnb-chip.good { border-color: var(--dnb-good); } .dnb-chip.bad { border-color: var(--dnb-bad); background: var(--dnb-tint-bad); }
.dnb-note { margin: 0; padding: 6px 12px; color: var(--dnb-dim); }
.dnb-title { margin: 0; padding: 6px 12px 2px; font-size: 12px; color: var(--dnb-dim); }
.dnb-title code, .dnb-brk code { background: none; padding: 0; color: inherit; font-family: var(--dnb-mono); }
.dnb.dnb pre { margin: 0; padding: 4px 0; background: none; color: inherit; font: 12.5px/1.55 var(--dnb-mono); white-space: pre;
  overflow-x: auto; tab-size: 8; border: 0; }
.dnb.dnb .dnb-code pre { padding: 4px 12px; max-height: 34em; overflow: auto; }
.dnb-rows { display: inline-block; min-width: 100%; }
.dnb-row { display: block; border-left: 3px solid transparent; padding-right: 12px; }
.dnb-row.compiled { background: var(--dnb-tint-good); border-left-color: var(--dnb-good); }
.dnb-row.eager { background: var(--dnb-tint-dim); }
.dnb-row.break { background: var(--dnb-tint-bad); border-left-color: var(--dnb-bad); }
.dnb-row.why { background: var(--dnb-tint-bad); border-left-color: var(--dnb-bad); white-space: pre-wrap;
  padding-left: 12ch; word-break: normal; overflow-wrap: anywhere; }
.dnb-no { color: var(--dnb-dim); user-select: none; }
.dnb-g { user-select: none; } .compiled > .dnb-g { color: var(--dnb-good); } .break > .dnb-g { color: var(--dnb-bad); }
.eager > .dnb-g { color: var(--dnb-dim); }
.break > .dnb-t { text-decoration: underline wavy var(--dnb-bad) 1px; text-underline-offset: 3px; }
.dnb .k { color: var(--dnb-key); font-weight: 600; } .dnb .s { color: var(--dnb-str); }
.dnb .c { color: var(--dnb-com); font-style: italic; } .dnb .n { color: var(--dnb-num); } .dnb .d { color: var(--dnb-def); }
.dnb-legend { padding: 2px 12px 8px; color: var(--dnb-dim); font-size: 12px; white-space: pre-wrap; }
.dnb details { border-top: 1px solid var(--dnb-line); }
.dnb-static > details > summary { font-weight: 600; }
.dnb details details, .dnb [role=tabpanel] details { border: 0; padding-left: 12px; }
.dnb summary { cursor: pointer; padding: 5px 12px; font-weight: 600; }
.dnb details details > summary, .dnb [role=tabpanel] details > summary { font-weight: 400; color: var(--dnb-dim); }
.dnb summary:focus-visible, .dnb [role=tab]:focus-visible, .dnb [tabindex]:focus-visible { outline: 2px solid var(--dnb-accent);
  outline-offset: -2px; }
.dnb-wrap { overflow: auto; max-height: 34em; padding: 2px 12px 8px; }
.dnb.dnb table { border-collapse: collapse; margin: 0; font-size: 12px; border: 0; width: auto; }
.dnb.dnb tr { background: none; }
.dnb.dnb th, .dnb.dnb td { text-align: left; padding: 2px 14px 2px 0; vertical-align: top; border: 0; background: none;
  white-space: pre-wrap; max-width: 60em; overflow-wrap: anywhere; color: inherit; }
.dnb.dnb th { color: var(--dnb-dim); font-weight: 400; border-bottom: 1px solid var(--dnb-line); }
.dnb.dnb tbody tr:hover td { background: var(--dnb-tint-dim); }
.dnb.dnb td.code { font-family: var(--dnb-mono); } .dnb.dnb td.number, .dnb.dnb th.number { text-align: right; }
.dnb.dnb td.text { white-space: nowrap; }
.dnb-bar { display: inline-block; width: 120px; height: 9px; background: var(--dnb-tint-dim); border-radius: 2px; }
.dnb-bar > span { display: block; height: 100%; min-width: 1px; background: var(--dnb-accent); border-radius: 2px; }
.dnb-brk { margin: 6px 12px 10px; padding: 8px 12px; border-left: 3px solid var(--dnb-bad); background: var(--dnb-tint-bad);
  border-radius: 0 4px 4px 0; }
.dnb-brk p { margin: 0 0 4px; } .dnb-brk .dnb-title { padding: 0; }
.dnb.dnb .dnb-brk pre { padding: 4px 8px; background: var(--dnb-bg); border-radius: 3px; }
.dnb-tabs { display: flex; flex-wrap: wrap; background: var(--dnb-bg2); border-bottom: 1px solid var(--dnb-line); padding: 0 6px; }
.dnb-tabs button { appearance: none; border: 0; border-bottom: 2px solid transparent; background: none; color: var(--dnb-dim);
  font: inherit; padding: 5px 10px; cursor: pointer; }
.dnb-tabs button:hover { color: var(--dnb-fg); }
.dnb-tabs button[aria-selected=true] { color: var(--dnb-fg); border-bottom-color: var(--dnb-accent); }
.dnb-count { font-size: 11px; padding: 0 5px; border-radius: 8px; background: var(--dnb-tint-dim); }
.dnb [role=tabpanel] { padding: 4px 0; } .dnb [role=tabpanel][hidden] { display: none; }
.jp-OutputArea-child:has(.dnb-static) + .jp-OutputArea-child:has(> .lm-Panel.jp-OutputArea-output):not(:has(.dnb-live)) {
  display: none; }
.dnb-pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(360px, 1fr)); gap: 8px; }
"""

PAGE_CSS = """
:root { color-scheme: light dark; }
body { margin: 0; padding: 24px; background: #ffffff; }
main { max-width: 1100px; margin: 0 auto; }
@media (prefers-color-scheme: dark) {
  body { background: #14171c; }
  .dnb { --dnb-bg: #1b1f26; --dnb-bg2: #232830; --dnb-fg: #e3e7ed; --dnb-dim: #9aa5b4; --dnb-line: #363d48; --dnb-accent: #6cb0ff;
    --dnb-good: #4fbf67; --dnb-bad: #ff7b6b; --dnb-warn: #ffb454; --dnb-key: #c89bff; --dnb-str: #ff9e8f; --dnb-com: #8fa0a0;
    --dnb-num: #7fd6b5; --dnb-def: #7fb6ff; --dnb-tint-good: rgba(79, 191, 103, .14); --dnb-tint-bad: rgba(255, 110, 90, .15); }
}
"""
