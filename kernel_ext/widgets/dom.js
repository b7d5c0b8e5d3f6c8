// One helper to build elements. Text only ever enters through textContent.

/** el("td", { class: "code", role: "cell" }, "text" | node, ...) */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== "" && value !== undefined) node.setAttribute(name, value);
  }
  for (const child of children) {
    if (child instanceof Node) {
      node.append(child);
    } else if (child !== "" && child !== undefined && child !== null) {
      const text = document.createTextNode("");
      text.textContent = String(child);
      node.append(text);
    }
  }
  return node;
}
