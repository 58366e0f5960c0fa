// Every picture to take away: as PNG and SVG, drawn anew with all that surrounds its canvases, or its table as CSV.
// One of these serves a page: parts find it through the hub, so that none of them carries this script along.
export default function () {
  HUB.saver = dock;
  for (const me of HUB.waiting) dock(me);
  HUB.waiting.clear();
}

// what belongs to the page, not to the picture
const ASIDE = ".tip, .sr, .save, .play, .keys, .reset, details, [hidden], script, style";
const MARGIN = 16;

function csvOf({ columns, rows }) {
  // a cell that a spreadsheet would compute is told apart by an apostrophe
  const cell = (value) => {
    const text = `${value ?? ""}`.replace(/[\u2066-\u2069]/g, "");
    const number = text.replace("−", "-").replace("e−", "e-");
    if (text === "–") return "";
    if (/^[+-]?\d[\d.]*(e[+-]?\d+)?$/.test(number)) return number.replace(/^\+/, "");
    const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",;\t\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return `\ufeff${[columns, ...rows()].map((row) => Array.from(row, cell).join(",")).join("\r\n")}\r\n`;
}
function tableIn(me) {
  // of the table alternative, of the part, or of a picture that is a table itself
  const kept = me.table ?? [...me.root.querySelectorAll("details.alt")].find((node) => node.table)?.table;
  const table = kept ? null : me.root.querySelector("table");
  if (!table) return kept;
  const [top, ...rows] = Array.from(table.rows, (row) => Array.from(row.cells, (c) => c.textContent.trim()));
  return { columns: top, rows: () => rows };
}

const fontOf = (style) => `${style.fontStyle} ${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
const clear = (colour) => colour === "transparent" || paintOf(colour)[1] === 0;
function drawBox(ctx, style, x, y, w, h) {
  // background, border, and rings made of shadows without a blur
  const radius = Math.min(parseFloat(style.borderTopLeftRadius) || 0, w / 2, h / 2);
  const gradient = style.backgroundImage.startsWith("linear-gradient(90deg");
  const shape = (out) => {
    ctx.beginPath();
    ctx.roundRect(x - out, y - out, w + 2 * out, h + 2 * out, Math.max(0, radius + (radius ? out : 0)));
  };
  if (gradient || !clear(style.backgroundColor)) {
    ctx.fillStyle = style.backgroundColor;
    if (gradient) {
      const stops = style.backgroundImage.match(/(rgba?|color)\([^)]*\)/g);
      const bar = ctx.createLinearGradient(x, y, x + w, y);
      for (const [i, colour] of stops.entries()) bar.addColorStop(i / Math.max(1, stops.length - 1), colour);
      ctx.fillStyle = bar;
    }
    shape(0);
    ctx.fill();
  }
  const sides = ["Top", "Right", "Bottom", "Left"].map((side) =>
    style[`border${side}Style`] === "none" ? 0 : parseFloat(style[`border${side}Width`])
  );
  if (sides.every((s) => s && s === sides[0])) {
    ctx.strokeStyle = style.borderTopColor;
    ctx.lineWidth = sides[0];
    shape(-sides[0] / 2);
    ctx.stroke();
  } else
    sides.forEach((s, i) => {
      if (!s) return;
      const side = `border${["Top", "Right", "Bottom", "Left"][i]}`;
      const dashed = style[`${side}Style`] === "dashed";
      const wide = i % 2 ? s : w;
      const [a, b] = [i === 1 ? x + w - s : x, i === 2 ? y + h - s : y];
      ctx.fillStyle = style[`${side}Color`];
      if (dashed && !(i % 2))
        for (let at = 0; at < wide; at += 4 * s) ctx.fillRect(a + at, b, Math.min(2 * s, wide - at), s);
      else ctx.fillRect(a, b, wide, i % 2 ? h : s);
    });
  const before = { out: 0, in: 0 };
  for (const shadow of style.boxShadow === "none" ? [] : style.boxShadow.split(/,(?![^(]*\))/)) {
    const colour = shadow.match(/(rgba?|color)\([^)]*\)/)[0];
    const [dx, dy, blur, spread] = shadow
      .replace(colour, "")
      .match(/-?[\d.]+(?=px)/g)
      .map(Number);
    if (dx || dy || blur || spread <= 0 || clear(colour)) continue;
    const way = shadow.includes("inset") ? "in" : "out";
    const middle = (before[way] + spread) / 2;
    ctx.strokeStyle = colour;
    ctx.lineWidth = spread - before[way];
    before[way] = spread;
    shape(way === "in" ? -middle : middle);
    ctx.stroke();
  }
}
function linesOf(node) {
  // the text of a node as it is broken into lines, each with the box it takes
  const range = document.createRange();
  const lines = [];
  for (const { 0: word, index } of node.data.matchAll(/\S+|[^\S\n]+/g)) {
    range.setStart(node, index);
    range.setEnd(node, index + word.length);
    for (const box of range.getClientRects()) {
      const last = lines.at(-1);
      if (last && Math.abs(last.top - box.top) < 2) {
        last.text += last.done === index ? "" : word;
        last.right = box.right;
      } else if (word.trim())
        lines.push({ text: word, top: box.top, left: box.left, right: box.right, height: box.height });
      if (lines.length) lines.at(-1).done = index;
    }
  }
  return lines;
}
function drawText(ctx, node, style, left, top) {
  ctx.font = fontOf(style);
  ctx.fillStyle = style.color;
  ctx.textAlign = "left";
  ctx.textBaseline = "alphabetic";
  ctx.direction = style.direction;
  for (const line of linesOf(node)) {
    const { fontBoundingBoxAscent: up, fontBoundingBoxDescent: down } = ctx.measureText(line.text);
    ctx.fillText(line.text.trimEnd(), line.left - left, line.top - top + (line.height - up - down) / 2 + up);
  }
}
function drawNode(sheet, node, left, top, alpha) {
  const style = getComputedStyle(node);
  const { ctx } = sheet;
  if (style.display === "none" || style.visibility === "hidden" || node.matches(ASIDE)) return;
  const box = node.getBoundingClientRect();
  const at = [box.left - left, box.top - top, box.width, box.height];
  const shown = alpha * +style.opacity;
  ctx.save();
  ctx.globalAlpha = shown;
  for (const one of style.display === "inline" ? node.getClientRects() : [box])
    drawBox(ctx, style, one.left - left, one.top - top, one.width, one.height);
  if (node.tagName === "CANVAS") sheet.place(node, ...at);
  else {
    if (style.overflowX !== "visible") {
      ctx.beginPath();
      ctx.rect(...at);
      ctx.clip();
    }
    for (const child of node.childNodes)
      if (child.nodeType === 3) drawText(ctx, child, style, left, top);
      else if (child.nodeType === 1) drawNode(sheet, child, left, top, shown);
  }
  ctx.restore();
}
function edges(root) {
  // the box around all that is seen
  const all = { left: Infinity, top: Infinity, right: 0, bottom: 0 };
  const range = document.createRange();
  const grow = (b) => {
    if (b.width && b.height) {
      all.left = Math.min(all.left, b.left);
      all.top = Math.min(all.top, b.top);
      all.right = Math.max(all.right, b.right);
      all.bottom = Math.max(all.bottom, b.bottom);
    }
  };
  const visit = (node) => {
    if (node.nodeType === 3 && node.data.trim()) {
      range.selectNode(node);
      for (const b of range.getClientRects()) grow(b);
      return;
    }
    if (node.nodeType !== 1 || node.matches(ASIDE)) return;
    const style = getComputedStyle(node);
    const cut = node.tagName === "CANVAS" || style.overflowX !== "visible";
    if (style.display === "none") return;
    if (cut || !clear(style.backgroundColor) || parseFloat(style.borderTopWidth)) grow(node.getBoundingClientRect());
    if (!cut) node.childNodes.forEach(visit);
  };
  visit(root);
  return all;
}

function redrawn(me, fresh) {
  // every canvas of the part, drawn into a fresh context; a part that keeps a drawing is loaded anew
  const made = new Map();
  HUB.press = (canvas, width, height) => {
    const sheet = fresh(width, height);
    made.set(canvas, sheet);
    canvas.getContext = () => sheet.ctx;
    return sheet.ctx;
  };
  try {
    me.view.draw();
    if (me.last && [...me.root.querySelectorAll("canvas")].some((c) => !made.has(c))) {
      me.view.load(...me.last);
      me.view.draw();
    }
  } finally {
    HUB.press = null;
    for (const canvas of made.keys()) delete canvas.getContext;
  }
  return made;
}
/** The whole part on one sheet; `fresh` makes sheets, `place` puts what a canvas became on the last of them. */
function composed(me, fresh, place) {
  const made = redrawn(me, fresh);
  const box = edges(me.root);
  const [w, h] = [box.right - box.left, box.bottom - box.top].map((side) => Math.ceil(side) + 2 * MARGIN);
  const sheet = fresh(w, h);
  fillBox(sheet.ctx, me.theme.page, 0, 0, w, h);
  sheet.place = (canvas, ...at) => place(sheet.ctx, made.get(canvas) ?? { canvas }, ...at);
  drawNode(sheet, me.root, box.left - MARGIN, box.top - MARGIN, 1);
  return { ...sheet, w, h };
}
function svgOf(me) {
  const fresh = () => ({ ctx: new Pen() });
  const { ctx, w, h } = composed(me, fresh, (ctx, { ctx: inner, canvas }, x, y, width, height) => {
    const faint = ctx.globalAlpha < 1 ? ` opacity="${short(ctx.globalAlpha)}"` : "";
    const size = `width="${short(width)}" height="${short(height)}"`;
    if (inner) ctx.emit(`<svg x="${short(x)}" y="${short(y)}" ${size}${faint}>${inner.body}</svg>`);
    else ctx.drawImage(canvas, x, y, width, height);
  });
  const title = me.root.querySelector("canvas[aria-label]")?.getAttribute("aria-label") ?? nameOf(me);
  const size = `width="${w}" height="${h}" viewBox="0 0 ${w} ${h}"`;
  return `<svg xmlns="http://www.w3.org/2000/svg" ${size}><title>${xml(title)}</title>${ctx.body}</svg>`;
}
function pngOf(me, zoom = 2) {
  const fresh = (w, h) => {
    const size = { width: Math.ceil(w * zoom), height: Math.ceil(h * zoom) };
    const canvas = Object.assign(document.createElement("canvas"), size);
    const ctx = canvas.getContext("2d");
    ctx.scale(zoom, zoom);
    return { canvas, ctx };
  };
  const { canvas } = composed(me, fresh, (ctx, made, ...at) => ctx.drawImage(made.canvas, ...at));
  return new Promise((done) => {
    canvas.toBlob(done);
  });
}

function nameOf(me) {
  // part, run and step, as far as host or address say
  const asked = new URLSearchParams(location.search);
  const { run = asked.get("run"), step = asked.get("step") } = HUB.about ?? {};
  return [me.key || me.root.classList[1], run, step == null ? null : `step-${step}`]
    .filter(Boolean)
    .join("-")
    .replace(/[^\w.-]+/g, "-");
}
async function save(me, kind) {
  const made = {
    png: () => me.view.png?.() ?? pngOf(me),
    svg: () => me.view.svg?.() ?? svgOf(me),
    csv: () => csvOf(tableIn(me))
  }[kind];
  const type = { png: "image/png", svg: "image/svg+xml", csv: "text/csv;charset=utf-8" }[kind];
  saveAs(`${nameOf(me)}.${kind}`, new Blob([await made()], { type }));
}
function dock(me) {
  // beside "Show as table", or on a line of its own: it never lies on the picture
  const bar = Object.assign(element("div", "save"), { role: "toolbar", ariaLabel: "Save this picture" });
  const alt = me.root.querySelector("details.alt");
  element("span", "", "Save", bar).ariaHidden = "true";
  const buttons = ["png", "svg", "csv"].map((kind) => {
    const one = button("", kind.toUpperCase(), bar, () => save(me, kind));
    one.ariaLabel = `Save as ${kind.toUpperCase()}`;
    one.onkeydown = (e) => {
      // one stop for Tab, arrows inside
      const way = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
      const there = buttons.filter((b) => !b.hidden);
      if (!way) return;
      e.preventDefault();
      e.stopPropagation();
      const next = there[(there.indexOf(one) + way + there.length) % there.length];
      for (const b of buttons) b.tabIndex = b === next ? 0 : -1;
      next.focus();
    };
    one.tabIndex = kind === "png" ? 0 : -1;
    return one;
  });
  if (alt) alt.before(bar);
  else me.root.append(bar);
  me.offers = () => {
    buttons[2].hidden = !tableIn(me);
  };
  me.draw();
}
