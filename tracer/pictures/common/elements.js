// Elements, their words, and the keys and the mouse of a reader. Text is only ever textContent.

/**
 * A new element at the end of `parent`.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {string} [className]
 * @param {string | number | null} [text]
 * @param {{ append: (node: Node) => void } | null} [parent]
 * @returns {HTMLElementTagNameMap[Tag]}
 */
function element(tag, className, text, parent) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text != null) node.textContent = `${text}`;
  parent?.append(node);
  return node;
}

/** @type {(className: string, text: string | null, parent: any, onclick?: () => void) => HTMLButtonElement} */
const button = (className, text, parent, onclick) =>
  Object.assign(element("button", className, text, parent), { type: "button", onclick });

/** Hands the reader a file. @param {string} name @param {Blob} content */
function saveAs(name, content) {
  const url = URL.createObjectURL(content);
  Object.assign(element("a"), { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 30_000);
}

const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
const isModified = (event) => event.altKey || event.ctrlKey || event.metaKey;
/** The way of an arrow key as rows down and columns right. @returns {[number, number] | undefined} */
const arrowOf = (event) => (isModified(event) ? undefined : ARROWS[event.key]);
/** The way of an arrow key along a list: 1, -1, or 0. */
const alongOf = (event) => arrowOf(event)?.find(Boolean) ?? 0;

/** Where the pointer is in a node. */
function pointIn(node, event) {
  const box = node.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

const CELL_HINT = globalThis.matchMedia?.("(hover: none)").matches
  ? "Tap a cell to read and pin it."
  : "Point at a cell to read it, click to pin it.";

/** A token in quotes, with its position. */
function quote(node, token, position) {
  element("code", "", "“", node).append(element("bdi", "", token), "”");
  node.append(` (${position})`);
}

/** A row of buttons of which one is pressed (`press`). @param {(i: number) => void} choose */
function choice(className, name, options, parent, choose) {
  const group = Object.assign(element("div", className, null, parent), { role: "group", ariaLabel: name });
  return options.map((option, i) => button("", option, group, () => choose(i)));
}
const press = (buttons, which) => {
  for (const [i, one] of buttons.entries()) one.ariaPressed = `${i === which}`;
};

/** A tooltip that is not shown yet. */
const tipIn = (area) => Object.assign(element("div", "tip", null, area), { hidden: true });

/** Shows a tooltip beside what it names in its area, a place or a box of some size, or `under` it: never over it. */
function showTip(tip, area, x, y, fill, [wide, high] = [0, 0], under = false) {
  tip.replaceChildren();
  fill(tip);
  tip.hidden = false;
  const { offsetWidth: width, offsetHeight: height } = tip;
  const after = x + wide + 14;
  const left = after + width > area.clientWidth ? x - width - 14 : after;
  const beside = !under && high > 0 && (left === after || left >= 0);
  const above = y - height - 12;
  tip.style.left = `${clamp(left, 0, area.clientWidth - width)}px`;
  tip.style.top = `${beside ? y : under || above < 0 ? y + high + 18 : above}px`;
}

/** Terms and what they are, in a tooltip: [term, value, class name]. */
function factsIn(node, facts) {
  const list = element("dl", "", null, node);
  for (const [term, value, className] of facts) {
    element("dt", className, term, list);
    element("dd", className, value, list);
  }
}

/** A ramp with its name, some of its values and a note. @param {Scale} scale @param {Ramp} lut */
function legend(node, scale, lut, { root = (v) => v, ticks = [scale.lo, scale.hi], note = "", brief = false } = {}) {
  node.replaceChildren();
  element("span", "name", titleOf(scale), node);
  const bar = element("span", "bar", null, node);
  element("span", "fill", null, bar).style.background = lut.css;
  for (const v of ticks) {
    const digits = v && Math.abs(v) < 0.1 ? 2 : Number.isInteger(v) ? 0 : scale.digits;
    const tick = element("span", "tick", brief ? briefOf(v) : numberOf(v, { digits }), bar);
    tick.style.left = `${100 * root((v - scale.lo) / (scale.hi - scale.lo))}%`;
  }
  if (note) element("span", "note", note, node);
}

/** The legend of attention, whose colours go with the root of the share. */
function attentionLegend(node, lut, { label = "Attention", top = 1, note = "" } = {}) {
  const scale = { label, unit: "", lo: 0, hi: top, digits: 2 };
  legend(node, scale, lut, { root: Math.sqrt, ticks: [0, 0.05, 0.25, 1].map((share) => share * top), note });
}

/** The picture as a table, built when it is opened. @param {Table} whole what a file of it holds */
function tableOf(node, summary, columns, rows, whole = { columns, rows }) {
  node.replaceChildren();
  node.table = whole;
  element("summary", "", summary, node);
  const fill = () => {
    node.querySelector(".scroll")?.remove();
    if (!node.open) return;
    const scroll = Object.assign(element("div", "scroll", null, node), {
      tabIndex: 0,
      role: "region",
      ariaLabel: summary
    });
    const table = element("table", "", null, scroll);
    const top = element("tr", "", null, element("thead", "", null, table));
    const body = element("tbody", "", null, table);
    for (const column of columns) element("th", "", column, top).scope = "col";
    for (const row of rows()) {
      const line = element("tr", "", null, body);
      row.forEach((cell, i) => {
        element(i ? "td" : "th", "", cell, line);
      });
    }
  };
  node.ontoggle = fill;
  if (node.open) fill();
}
