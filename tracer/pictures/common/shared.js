// What every part of the dashboard needs in the browser: reading a payload, colours of the theme, crisp canvases, numbers,
// a tooltip, a table alternative, and the life of a part (load, cue, resize, theme switch, fonts). Text is only ever textContent.
const PARTS = new WeakMap();
const TYPES = { uint8: Uint8Array, uint16: Uint16Array, float32: Float32Array, float64: Float64Array };

const headerOf = (bytes) => {
  const n = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  return { head: JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + n))), body: bytes.subarray(4 + n) };
};
async function arraysOf(head, body) {
  const stream = new Blob([body]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer(), out = {};
  let at = 0;
  for (const { name, dtype, shape } of head.arrays) {
    const T = TYPES[dtype], size = shape.reduce((a, b) => a * b, 1) * T.BYTES_PER_ELEMENT;
    out[name] = Object.assign(new T(buffer.slice(at, at + size)), { shape });
    at += size;
  }
  return out;
}

const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
const css = (c, a = 1) => `rgba(${c[0]},${c[1]},${c[2]},${a})`;
const mix = (a, b, t) => a.map((v, i) => Math.round(v + (b[i] - v) * t));
const luminance = (c) => c.map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const inkOn = (c) => (luminance(c) > 0.179 ? "#0b0e14" : "#ffffff");
function themeOf(host) {
  const style = getComputedStyle(host), probe = document.createElement("canvas").getContext("2d");
  const read = (name, otherwise) => {
    probe.fillStyle = otherwise;
    probe.fillStyle = style.getPropertyValue(`--st-${name}`).trim() || otherwise;
    return probe.fillStyle.startsWith("#") ? rgb(probe.fillStyle) : probe.fillStyle.match(/[\d.]+/g).slice(0, 3).map(Number);
  };
  const page = read("background-color", "#ffffff"), text = read("text-color", "#111622");
  return { page, text, muted: mix(text, page, 0.36), line: mix(text, page, 0.84), faint: mix(text, page, 0.93), accent: read("primary-color", "#2b5fd0"),
    sans: style.getPropertyValue("--st-font") || "sans-serif", mono: style.getPropertyValue("--st-code-font") || "monospace",
    mode: luminance(page) < 0.18 ? "dark" : "light" };
}
function lutOf(stops) {
  const anchors = stops.map(rgb), table = new Uint8ClampedArray(256 * 3);
  for (let i = 0; i < 256; i++) {
    const at = (i / 255) * (anchors.length - 1), k = Math.min(Math.floor(at), anchors.length - 2);
    table.set(mix(anchors[k], anchors[k + 1], at - k), i * 3);
  }
  const at = (share) => { const i = 3 * Math.round(255 * Math.min(1, Math.max(0, share))); return [...table.subarray(i, i + 3)]; };
  const inks = [], tints = Array.from({ length: 256 }, (_, i) => { const c = [...table.subarray(3 * i, 3 * i + 3)]; inks.push(inkOn(c)); return css(c); });
  return { table, at, tints, inks, css: `linear-gradient(90deg, ${stops.join(",")})` };
}
const numberOf = (v, { digits = 2, plain = false } = {}) => { // plain: never an exponent, for the cells of a grid
  if (!Number.isFinite(v)) return "–";
  const small = !plain && v !== 0 && Math.abs(v) < 0.5 * 10 ** -digits, big = Math.abs(v) >= 1e5;
  return (small || big ? v.toExponential(1) : v.toFixed(digits)).replace("-", "−").replace(/^−(0\.?0*)$/, "$1");
};
const exactOf = (v) => (v == null || !Number.isFinite(v) ? "–" : `${+v.toPrecision(6)}`); // for a file

const exactStep = (s) => Math.round(s).toLocaleString("en-US"); // as the text of a page writes it
const stepText = (s) => (s >= 1e6 ? `${+(s / 1e6).toFixed(1)}M` : s >= 1e4 ? `${+(s / 1e3).toFixed(1)}k` : exactStep(s));
function stepAxis(steps, log, left, width) { // the axis of pictures over training, linear or logarithmic
  const first = steps.find((s) => s > 0) ?? 1, fx = (s) => (log ? Math.log10(Math.max(s, first)) : s), x0 = fx(steps[0] ?? 0), x1 = fx(steps.at(-1) ?? 1);
  const closest = (want) => { // on a log axis nearness is that of the eye
    let a = 0, b = steps.length - 1;
    while (b - a > 1) { const m = (a + b) >> 1; if (fx(steps[m]) < want) a = m; else b = m; }
    return want - fx(steps[a]) <= fx(steps[b]) - want ? a : b;
  };
  return {
    px: (s) => left + ((fx(s) - x0) / (x1 - x0 || 1)) * width,
    nearest: (step) => closest(fx(step)), // of a step, the index of the one in `steps`
    under: (x) => closest(x0 + ((x - left) / width) * (x1 - x0)), // of a place
    ticks() {
      const out = [];
      if (log) {
        for (let d = Math.floor(x0); d <= x1; d++) for (const m of x1 - x0 < 2 ? [1, 2, 5] : [1]) out.push(d + Math.log10(m));
        return out.filter((v) => v >= x0 - 1e-9 && v <= x1 + 1e-9).map((v) => 10 ** v);
      }
      const raw = (x1 - x0) / Math.max(2, width / 92) || 1, unit = 10 ** Math.floor(Math.log10(raw)), stride = Math.max(1, [1, 2, 2.5, 5, 10].find((m) => m * unit >= raw) * unit);
      for (let v = Math.ceil(x0 / stride) * stride; v <= x1; v += stride) if (Number.isInteger(v)) out.push(v);
      return out;
    },
  };
}

function el(tag, cls, text, parent) {
  const node = document.createElement(tag);
  if (cls) node.className = cls;
  if (text != null) node.textContent = text;
  parent?.append(node);
  return node;
}
function sized(canvas, width, height) {
  if (HUB.press) return HUB.press(canvas, width, height); // a picture is being saved: not the canvas on the screen
  const ratio = devicePixelRatio || 1, ctx = canvas.getContext("2d"), w = Math.round(width * ratio), h = Math.round(height * ratio);
  if (canvas.width === w && canvas.height === h && ctx.reset) ctx.reset(); // a new size is a new bitmap, for every move of the mouse
  else { canvas.width = w; canvas.height = h; canvas.style.width = `${width}px`; canvas.style.height = `${height}px`; }
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  return ctx;
}
function heat(rows, cols, f, code, lut) { // one pixel for f x f cells, the brightest; code is 0..255, or -1 for a cell that stays clear
  const h = Math.ceil(rows / f), w = Math.ceil(cols / f), top = new Int16Array(h * w).fill(-1), px = new ImageData(w, h);
  for (let q = 0; q < rows; q++) for (let k = 0; k < cols; k++) {
    const i = Math.floor(q / f) * w + Math.floor(k / f), c = code(q, k);
    if (c > top[i]) top[i] = c;
  }
  top.forEach((c, i) => { if (c >= 0) px.data.set([lut.table[3 * c], lut.table[3 * c + 1], lut.table[3 * c + 2], 255], 4 * i); });
  const image = new OffscreenCanvas(w, h);
  image.getContext("2d").putImageData(px, 0, 0);
  return image;
}
function drawHeat(ctx, image, x, y, w, h) { // crisp cells, as even as the screen allows: uneven zooms go through a larger copy
  if (HUB.press) { ctx.imageSmoothingEnabled = false; ctx.drawImage(image, x, y, w, h); return; }
  const ratio = devicePixelRatio || 1, whole = [(w * ratio) / image.width, (h * ratio) / image.height];
  const even = whole.every((zoom) => Math.abs(zoom - Math.round(zoom)) < 1e-6), z = 2 * Math.ceil(Math.max(...whole));
  let from = image;
  if (!even) {
    from = new OffscreenCanvas(image.width * z, image.height * z);
    const big = from.getContext("2d");
    big.imageSmoothingEnabled = false; big.drawImage(image, 0, 0, from.width, from.height);
  }
  ctx.imageSmoothingEnabled = !even; ctx.imageSmoothingQuality = "high";
  ctx.drawImage(from, x, y, w, h);
}
function clipped(ctx, text, width) { // the text isolated from its neighbours' writing direction, cut to the width
  if (ctx.measureText(text).width <= width) return `\u2068${text}\u2069`;
  const chars = [...text];
  while (chars.length && ctx.measureText(chars.join("") + "…").width > width) chars.pop();
  return `\u2068${chars.join("")}…\u2069`;
}
const CELL_HINT = matchMedia("(hover: none)").matches ? "Tap a cell to read and hold it." : "Point at a cell to read it, click to hold it.";
function showTip(tip, area, x, y, fill) {
  tip.replaceChildren(); fill(tip); tip.hidden = false;
  const w = tip.offsetWidth, h = tip.offsetHeight, W = area.clientWidth;
  tip.style.left = `${Math.max(0, Math.min(x + 14 + w > W ? x - w - 14 : x + 14, W - w))}px`;
  tip.style.top = `${y - h - 12 < 0 ? y + 18 : y - h - 12}px`;
}
function legend(node, scale, lut, { root = (v) => v, ticks = [scale.lo, scale.hi], note = "" } = {}) {
  node.replaceChildren();
  el("span", "name", scale.label + (scale.unit ? ` (${scale.unit})` : ""), node);
  const bar = el("span", "bar", null, node), inner = el("span", "fill", null, bar);
  inner.style.background = lut.css;
  for (const v of ticks) el("span", "tick", numberOf(v, { digits: v && Math.abs(v) < 0.1 ? 2 : Number.isInteger(v) ? 0 : scale.digits }), bar)
    .style.left = `${100 * root((v - scale.lo) / (scale.hi - scale.lo))}%`;
  if (note) el("span", "note", note, node);
}
function tableOf(node, summary, columns, rows, whole = { columns, rows }) { // the picture as a table, built when it is opened; `whole`: what a file of it holds
  node.replaceChildren(); node.table = whole;
  el("summary", "", summary, node);
  node.ontoggle = () => {
    node.querySelector(".scroll")?.remove();
    if (!node.open) return;
    const scroll = Object.assign(el("div", "scroll", null, node), { tabIndex: 0, role: "region", ariaLabel: summary }), table = el("table", "", null, scroll), top = el("tr", "", null, el("thead", "", null, table)), body = el("tbody", "", null, table);
    for (const c of columns) el("th", "", c, top).scope = "col";
    for (const row of rows()) { const tr = el("tr", "", null, body); row.forEach((c, i) => { el(i ? "td" : "th", "", c, tr); }); }
  };
  if (node.open) node.ontoggle();
}

async function live({ data, parentElement, setStateValue }, make, { saves = true } = {}) {
  const root = parentElement.querySelector(".part"), host = parentElement.host ?? parentElement, key = keyOf(parentElement);
  let me = PARTS.get(root);
  if (!me) {
    me = { root, key, sent: 0, frame: 0, width: 0, timer: 0 };
    me.draw = () => { me.frame ||= requestAnimationFrame(() => { me.frame = 0; if (me.ready && me.cue && root.clientWidth) { me.view.draw(); host.dataset.drawn = ""; me.offers?.(); } }); };
    me.send = (value, wait = 0) => {
      me.cue.value = value; me.sent = Date.now(); clearTimeout(me.timer);
      const pick = { value, time: me.sent };
      me.timer = setTimeout(() => me.state("pick", pick), wait);
    };
    me.take = (cue) => { // a cue older than the reader's last pick must not take the pick back
      me.cue = { ...cue, value: cue.seen < me.sent ? me.cue.value : cue.value };
      if (cue.scale) me.cue.scale = { ...cue.scale, stops: PALETTES[cue.scale.palette] };
      me.draw();
    };
    me.observer = new ResizeObserver(() => { if (root.clientWidth !== me.width) { me.width = root.clientWidth; me.draw(); } });
    me.observer.observe(root);
    me.view = make(me);
    if (saves && HUB.saver) HUB.saver(me); else if (saves) HUB.waiting.add(me);
    PARTS.set(root, me);
    document.fonts?.ready.then(me.draw);
  }
  me.state = setStateValue; me.theme = themeOf(host); root.dataset.mode = me.theme.mode;
  const takes = HUB.parts.get(key) ?? new Set();
  HUB.parts.set(key, takes.add(me.take));
  if (HUB.cues.has(key)) me.take(HUB.cues.get(key));
  if (!(data instanceof Uint8Array)) me.ready = true;
  else {
    const { head, body } = headerOf(data);
    if (me.version !== head.version) {
      me.version = head.version;
      const arrays = await arraysOf(head, body);
      if (me.version === head.version) { me.last = [head, arrays]; me.view.load(head, arrays); me.ready = true; }
    }
  }
  me.draw();
  return () => { // also called, late, for a payload that another one has overtaken: then the part lives on
    if (root.isConnected) return;
    me.view.end?.(); me.observer.disconnect(); cancelAnimationFrame(me.frame); clearTimeout(me.timer); PARTS.delete(root); HUB.waiting.delete(me); takes.delete(me.take);
  };
}
