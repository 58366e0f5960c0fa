// All heads on one canvas: a strip coloured by the measure (label and value when they fit) over the pooled pattern.
export default function (args) { return live(args, makeAtlas); }

function makeAtlas(me) {
  const { root } = me;
  const stage = el("div", "stage", null, root), canvas = el("canvas", "", null, stage);
  const over = el("div", "ring hover", null, stage), ring = el("div", "ring chosen", null, stage);
  const legends = el("div", "legends", null, root), scoreKey = el("div", "legend", null, legends), shareKey = el("div", "legend", null, legends);
  const alt = el("details", "alt", null, root), spoken = el("div", "sr", null, root), tip = el("div", "tip", null, stage);
  spoken.setAttribute("aria-live", "polite");
  tip.hidden = true; canvas.tabIndex = 0;
  let head, arrays, layers, heads, rows, cols, geo, sheet, sheetKey, tile;

  const scaleOf = (name) => me.cue.scales[name] ?? { label: name, unit: "", lo: 0, hi: 1, digits: 2, chance: null, palette: "score" };
  const measure = () => Math.max(0, head.measures.indexOf(me.cue.measure));
  const value = (m, l, h) => arrays.values[(m * layers + l) * heads + h];

  const there = ([l, h]) => l >= 0 && h >= 0 && l < layers && h < heads && arrays.there[l * heads + h] > 0; // layers differ in their number of heads
  const held = () => (me.cue.value && there(me.cue.value) ? me.cue.value : null);

  function paintSheet(lut, [fq, fk]) { // every pattern once, the brightest of fq x fk; keys the query cannot see stay transparent
    const h0 = Math.ceil(rows / fq), w0 = Math.ceil(cols / fk), px = new ImageData(heads * w0, layers * h0), words = new Uint32Array(px.data.buffer), top = new Uint8Array(h0 * w0), t = arrays.thumbs;
    const ink = Uint32Array.from({ length: 256 }, (_, c) => (255 << 24) | (lut.table[3 * c + 2] << 16) | (lut.table[3 * c + 1] << 8) | lut.table[3 * c]);
    const [tall, wide] = [fq * head.factors[0], fk * head.factors[1]]; // tokens in a pixel of the sheet
    for (let l = 0, i = 0; l < layers; l++) for (let h = 0; h < heads; h++) {
      top.fill(0);
      for (let q = 0; q < rows; q++) for (let k = 0; k < cols; k++, i++) { const at = Math.floor(q / fq) * w0 + Math.floor(k / fk); if (t[i] > top[at]) top[at] = t[i]; }
      if (there([l, h])) for (let q = 0; q < h0; q++) for (let k = 0, end = head.causal[l] ? Math.min(w0, Math.ceil(((q + 1) * tall) / wide)) : w0; k < end; k++) words[(l * h0 + q) * heads * w0 + h * w0 + k] = ink[top[q * w0 + k]];
    }
    tile = [h0, w0];
    sheet = new OffscreenCanvas(px.width, px.height);
    sheet.getContext("2d").putImageData(px, 0, 0);
  }
  function layout(width) {
    const roomy = Math.min(me.cue.max_cell, Math.floor((width - (heads - 1) * 10) / heads));
    if (roomy >= 72) return { cell: roomy, gap: 10, left: 2, top: 2, strip: 22, tail: 2, labels: true };
    const cell = Math.max(14, Math.floor((width - 30 - (heads - 1) * 4) / heads));
    return { cell, gap: 4, left: 28, top: 18, strip: cell >= 34 ? 15 : 6, tail: 2, labels: false };
  }
  const corner = (l, h) => [geo.left + h * (geo.cell + geo.gap), geo.top + l * (geo.cell + geo.strip + geo.gap)];
  function place(node, at) {
    node.style.display = at ? "block" : "none";
    if (!at) return;
    const [x, y] = corner(...at);
    Object.assign(node.style, { left: `${x}px`, top: `${y}px`, width: `${geo.cell}px`, height: `${geo.cell + geo.strip}px` });
  }
  function under(e) {
    const box = canvas.getBoundingClientRect(), x = e.clientX - box.left, y = e.clientY - box.top;
    const h = Math.floor((x - geo.left + geo.gap / 2) / (geo.cell + geo.gap)), l = Math.floor((y - geo.top + geo.gap / 2) / (geo.cell + geo.strip + geo.gap));
    return there([l, h]) ? { at: [l, h], x, y } : null;
  }
  const say = ([l, h]) => `L${l}H${h}: ` + head.measures.map((n, m) => `${scaleOf(n).label} ${numberOf(value(m, l, h), scaleOf(n))}`).join(", ");
  function choose(at, wait) {
    me.send(at, wait); place(ring, at); spoken.textContent = say(at);
  }

  canvas.onpointermove = (e) => {
    const hit = geo && under(e);
    place(over, hit?.at);
    if (!hit) { tip.hidden = true; return; }
    showTip(tip, stage, hit.x, hit.y, (node) => {
      el("b", "num", `L${hit.at[0]}H${hit.at[1]}`, node);
      if (head.layers.length) el("div", "path", head.layers[hit.at[0]], node);
      const list = el("dl", "", null, node);
      head.measures.forEach((n, m) => {
        const s = scaleOf(n), on = m === measure() ? "on" : "";
        el("dt", on, s.label, list); el("dd", on, numberOf(value(m, ...hit.at), s) + (s.unit ? ` ${s.unit}` : ""), list);
      });
    });
  };
  canvas.onpointerleave = () => { tip.hidden = true; place(over, null); };
  canvas.onclick = (e) => { const hit = geo && under(e); if (hit) choose(hit.at, 0); };
  canvas.onkeydown = (e) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], Home: [0, 1], End: [0, -1] }[e.key], now = held();
    if (!step || e.altKey || e.ctrlKey || e.metaKey) return;
    e.preventDefault(); tip.hidden = true; place(over, null);
    if (!now) { const i = arrays.there.indexOf(1); if (i >= 0) choose([Math.floor(i / heads), i % heads], 140); return; }
    let [l, h] = e.key === "Home" ? [now[0], -1] : e.key === "End" ? [now[0], heads] : now;
    do { l += step[0]; h += step[1]; } while (h >= 0 && l >= 0 && h < heads && l < layers && !there([l, h]));
    if (there([l, h])) choose([l, h], 140);
  };

  return {
    load(newHead, newArrays) { head = newHead; arrays = newArrays; [layers, heads, rows, cols] = arrays.thumbs.shape; sheetKey = ""; },
    draw() {
      const { theme, cue } = me, m = measure(), name = head.measures[m], scale = name ? scaleOf(name) : null;
      const shares = lutOf(PALETTES.attention[theme.mode]), scores = scale && lutOf(PALETTES[scale.palette][theme.mode]);
      geo = layout(root.clientWidth);
      const pool = [rows, cols].map((n) => Math.ceil(n / (geo.cell * devicePixelRatio))), want = `${head.version} ${theme.mode} ${pool}`;
      if (sheetKey !== want) { paintSheet(shares, pool); sheetKey = want; }
      const width = geo.left + heads * (geo.cell + geo.gap) - geo.gap + geo.tail, height = geo.top + layers * (geo.cell + geo.strip + geo.gap) - geo.gap + geo.tail;
      const ctx = sized(canvas, width, height), zoom = (geo.cell * devicePixelRatio) / Math.max(...tile);
      ctx.imageSmoothingEnabled = zoom < 2; ctx.imageSmoothingQuality = "high"; ctx.textBaseline = "middle";
      for (let l = 0; l < layers; l++) for (let h = 0; h < heads; h++) {
        const [x, y] = corner(l, h), v = scale ? value(m, l, h) : NaN, known = Number.isFinite(v);
        const fill = known ? scores.at((v - scale.lo) / (scale.hi - scale.lo)) : theme.faint, mid = y + geo.strip / 2;
        if (!there([l, h])) { ctx.fillStyle = css(theme.faint, 0.6); ctx.beginPath(); ctx.roundRect(x, y, geo.cell, geo.cell + geo.strip, 4); ctx.fill(); continue; }
        ctx.fillStyle = css(theme.line); ctx.beginPath(); ctx.roundRect(x, y, geo.cell, geo.cell + geo.strip, 4); ctx.fill();
        ctx.fillStyle = css(theme.page); ctx.fillRect(x + 1, y + geo.strip, geo.cell - 2, geo.cell - 1);
        ctx.fillStyle = css(fill); ctx.beginPath(); ctx.roundRect(x, y, geo.cell, geo.strip, [4, 4, 0, 0]); ctx.fill();
        ctx.drawImage(sheet, h * tile[1], l * tile[0], tile[1], tile[0], x + 1, y + geo.strip, geo.cell - 2, geo.cell - 1);
        ctx.fillStyle = inkOn(fill);
        if (geo.labels) { ctx.font = `600 11.5px ${theme.mono}`; ctx.textAlign = "left"; ctx.fillText(`L${l}H${h}`, x + 6, mid + 0.5); }
        ctx.font = `400 ${geo.labels ? 11.5 : 9.5}px ${theme.mono}`; ctx.textAlign = geo.labels ? "right" : "center";
        const text = numberOf(v, { ...scale, plain: true }), free = geo.cell - (geo.labels ? 14 + ctx.measureText(`L${l}H${h}`).width : 0);
        if (scale && geo.strip > 6 && ctx.measureText(text).width <= free) ctx.fillText(text, geo.labels ? x + geo.cell - 6 : x + geo.cell / 2, mid + 0.5);
      }
      if (!geo.labels) {
        ctx.fillStyle = css(theme.muted); ctx.font = `400 10.5px ${theme.mono}`; ctx.textAlign = "center";
        for (let h = 0; h < heads; h++) ctx.fillText(geo.cell >= 24 ? `H${h}` : `${h}`, corner(0, h)[0] + geo.cell / 2, 9);
        ctx.textAlign = "right";
        for (let l = 0; l < layers; l++) ctx.fillText(`L${l}`, geo.left - 6, corner(l, 0)[1] + (geo.cell + geo.strip) / 2);
      }
      place(ring, held());
      canvas.setAttribute("role", "application");
      const now = held() ? `Selected ${say(held())}` : "Nothing selected", count = arrays.there.reduce((sum, v) => sum + v, 0);
      canvas.setAttribute("aria-label", `${count} attention heads in ${layers} layers. Arrow keys move the selection. ${now}`);
      scoreKey.hidden = !scale;
      if (scale) legend(scoreKey, scale, scores, { note: scale.chance == null ? "" : `at chance ${numberOf(scale.chance, { digits: 3 })}` });
      const [fq, fk] = head.factors, note = fq * fk > 1 ? `brightest of ${fq} × ${fk} tokens` : "";
      legend(shareKey, { label: "Attention", unit: "", lo: 0, hi: 1, digits: 2 }, shares, { root: Math.sqrt, ticks: [0, 0.05, 0.25, 1], note });
      tableOf(alt, "Show as table", ["head", ...head.measures.map((n) => scaleOf(n).label)], () =>
        Array.from({ length: layers * heads }, (_, i) => [Math.floor(i / heads), i % heads]).filter(there).map(([l, h]) =>
          [`L${l}H${h}`, ...head.measures.map((n, j) => numberOf(value(j, l, h), { digits: 3 }))]));
    },
  };
}
