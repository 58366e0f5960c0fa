// A button that takes the whole page along: it tells Python what stands here, in which order, and saves the file that comes back.
export default function ({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".part");
  let me = TAKERS.get(root);
  if (!me) {
    const button = Object.assign(el("button", "take", "", root), { type: "button" }), said = el("p", "said", "", root);
    said.setAttribute("role", "status");
    me = { button, said, saved: 0 };
    TAKERS.set(root, me);
  }
  me.button.textContent = data.label;
  me.button.onclick = () => {
    me.button.disabled = true; me.said.textContent = "Putting it together …";
    setTriggerValue("take", { time: Date.now(), blocks: standing() });
  };
  if (data.html && data.time !== me.saved) {
    const link = el("a"), url = URL.createObjectURL(new Blob([data.html], { type: "text/html" }));
    me.saved = data.time;
    Object.assign(link, { href: url, download: data.name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 30_000);
    me.said.textContent = `Saved ${data.name}, ${(data.html.length / 1e6).toFixed(1)} MB.`;
  }
  me.button.disabled = false;
  return () => {};
}

const TAKERS = new WeakMap();
const ours = (...ids) => ids.map((id) => `[data-testid="${id}"]`).join();
const LEFT_OUT = `${ours("stPopover")}, .st-key-heading, .st-key-tour_place, .st-key-take_place, .st-key-frame, .st-key-all_parts, [class*="st-key-health_look"], .st-key-specimen-contents, .st-key-all_cards`;
const FOLDED = '[class*="st-key-card_"]'; // cards whose line says what is in them
const PLACES = '[class*="st-key-health_step"], [class*="st-key-health_head"]'; // buttons that say when and where
const SAID = ours("stMarkdown", "stHtml", "stAlert", "stText");
const keyed = (node) => [...node.classList].find((name) => name.startsWith("st-key-"))?.slice(7);
const words = (node) => (node?.innerText ?? node?.textContent ?? "").trim();
const living = (key) => HUB.parts.get(key)?.size > 0;
const holds = (node) => [...node.querySelectorAll('[class*="st-key-"]')].some((one) => living(keyed(one)));
const tableRows = (table) => Array.from(table.querySelectorAll("tr"), (row) => Array.from(row.querySelectorAll("th, td"), words));

function columnOf(node, rows) { // which row of columns it stands in, the outermost, and in which of them
  let column = null;
  for (let up = node.closest(ours("stColumn")); up; up = up.parentElement.closest(ours("stColumn"))) column = up;
  if (!column) return null;
  const row = column.parentElement;
  if (!rows.has(row)) rows.set(row, rows.size);
  return [rows.get(row), [...row.children].indexOf(column)];
}
const isTitle = (one) => one.querySelector("strong") && [...one.childNodes].every((part) => part.tagName === "STRONG" || part.matches?.('[class*="adge"]') || !part.textContent.trim()); // bold, and at most a badge beside it
function saidIn(node) { // paragraphs, points and tables of a text
  const found = [...node.querySelectorAll("h2, h3, h4, p, li, table, pre")].filter((one) => !one.parentElement.closest("li, table, pre") || one.tagName === "LI");
  const kind = node.querySelector(ours("stCaptionContainer")) ? "note" : "text";
  if (!found.length) return [{ kind, text: words(node) }];
  return found.map((one) => {
    if (one.tagName === "TABLE") return { kind: "table", rows: tableRows(one), more: 0 };
    if (one.tagName === "PRE") return { kind: "code", text: words(one) };
    if (one.tagName[0] === "H") return { kind: "heading", level: +one.tagName[1], text: words(one) };
    if (one.tagName === "P" && isTitle(one)) return { kind: "title", text: words(one) };
    return one.tagName === "LI" ? { kind: "point", text: words(one).replace(/\s*\n\s*/g, " · ") } : { kind, text: words(one) };
  });
}
function gridIn(node) { // a table that draws itself says its cells to screen readers: all, or those in view
  const table = node.querySelector("table"), rows = table ? tableRows(table) : [];
  return { kind: "table", rows, more: Math.max(0, (+table?.getAttribute("aria-rowcount") || rows.length) - rows.length) };
}
function stillOf(node) { // a chart of Plotly as it stands: its layers as one SVG, on the colour of the page
  const layers = [...node.querySelectorAll(".svg-container > .main-svg")], whole = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  if (!layers.length) return { kind: "still", svg: null, alt: node.ariaLabel ?? "" };
  const [width, height] = ["width", "height"].map((side) => layers[0].getAttribute(side));
  for (const [name, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) whole.setAttribute(name, value);
  whole.setAttribute("style", layers[0].getAttribute("style"));
  for (const layer of layers) whole.append(layer.cloneNode(true));
  return { kind: "still", svg: new XMLSerializer().serializeToString(whole), alt: node.ariaLabel ?? "" };
}
function choice(node, value) {
  const label = words(node.querySelector(ours("stWidgetLabel")));
  return label && value && label !== "Run" ? [{ kind: "choice", label, value }] : [];
}
function blocksOf(node) { // what this element is, when it is one that a file can hold; null: look inside
  const id = node.dataset.testid, key = keyed(node);
  if (key && living(key)) return [{ kind: "part", key }];
  if (id === "stHeading") return saidIn(node);
  if (node.matches(SAID)) return saidIn(node);
  if (id === "stCode") return [{ kind: "code", text: words(node.querySelector("code")) }];
  if (id === "stMetric") return [{ kind: "fact", label: words(node.querySelector(ours("stMetricLabel"))), text: words(node.querySelector(ours("stMetricValue"))), note: words(node.querySelector(ours("stMetricDelta"))) }];
  if (id === "stDataFrame") return [gridIn(node)];
  if (id === "stPlotlyChart") return [stillOf(node)];
  if (id === "stSelectbox") return choice(node, node.querySelector("input")?.value);
  if (id === "stButtonGroup") return choice(node, words(node.querySelector('[aria-checked="true"]')));
  if (id === "stTextArea") return [{ kind: "prompt", text: node.querySelector("textarea").value }];
  if (id === "stButton") return [{ kind: node.closest(PLACES) ? "place" : "button", text: words(node.querySelector(ours("stMarkdownContainer"))) }];
  return null;
}
function standing() { // everything that a reader sees, in its order, without what only works there
  const rows = new Map(), blocks = [];
  const add = (node, found) => { for (const one of found) if (one.text !== "") blocks.push({ ...one, at: columnOf(node, rows) }); };
  (function visit(node) {
    if (node.matches(LEFT_OUT) || (node.tagName === "DETAILS" && !holds(node) && !node.closest(FOLDED))) return;
    const title = node.closest(FOLDED) ? { kind: "text" } : { kind: "heading", level: 3 };
    const found = node.tagName === "SUMMARY" ? [{ ...title, text: words(node.querySelector("p")) }] : blocksOf(node);
    if (found) add(node, found); else for (const child of node.children) visit(child);
  })(document.querySelector(ours("stMainBlockContainer")));
  return blocks;
}
