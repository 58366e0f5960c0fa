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
  let head, arrays, layers, heads, size, geo, sheet, sheetKey, tile;

  const scaleOf = (name) => me.cue.scales[name] ?? { label: name, unit: "", lo: 0, hi: 1, digits: 2, chance: null, palette: "score" };
  const measure = () => Math.max(0, head.measures.indexOf(me.cue.measure));
  const value = (m, l, h) => arrays.values[(m * layers + l) * heads + h];

  function paintSheet(lut, f) { // every pattern once, the brightest of f x f; keys the query cannot see stay transparent
    const n = Math.ceil(size / f), px = new ImageData(heads * n, layers * n), words = new Uint32Array(px.data.buffer), top = new Uint8Array(n * n), t = arrays.thumbs;
    const ink = Uint32Array.from({ length: 256 }, (_, c) => (255 << 24) | (lut.table[3 * c + 2] << 16) | (lut.table[3 * c + 1] << 8) | lut.table[3 * c]);
    for (let l = 0, i = 0; l < layers; l++) for (let h = 0; h < heads; h++) {
      top.fill(0);
      for (let q = 0; q < size; q++) for (let k = 0; k < size; k++, i++) { const at = Math.floor(q / f) * n + Math.floor(k / f); if (t[i] > top[at]) top[at] = t[i]; }
      for (let q = 0; q < n; q++) for (let k = 0; k < (head.causal ? q + 1 : n); k++) words[(l * n + q) * heads * n + h * n + k] = ink[top[q * n + k]];
    }
    tile = n;
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
    return h >= 0 && l >= 0 && h < heads && l < layers ? { at: [l, h], x, y } : null;
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
    const [l, h] = me.cue.value ?? [0, 0], to = { ArrowLeft: [l, h - 1], ArrowRight: [l, h + 1], ArrowUp: [l - 1, h], ArrowDown: [l + 1, h], Home: [l, 0], End: [l, heads - 1] }[e.key];
    if (!to || e.altKey || e.ctrlKey || e.metaKey) return;
    e.preventDefault(); tip.hidden = true; place(over, null);
    if (to[0] >= 0 && to[1] >= 0 && to[0] < layers && to[1] < heads) choose(me.cue.value ? to : [0, 0], 140);
  };

  return {
    load(newHead, newArrays) { head = newHead; arrays = newArrays; [layers, heads, size] = arrays.thumbs.shape; sheetKey = ""; },
    draw() {
      const { theme, cue } = me, m = measure(), name = head.measures[m], scale = name ? scaleOf(name) : null;
      const shares = lutOf(PALETTES.attention[theme.mode]), scores = scale && lutOf(PALETTES[scale.palette][theme.mode]);
      geo = layout(root.clientWidth);
      const pool = Math.ceil(size / (geo.cell * devicePixelRatio)), want = `${head.version} ${theme.mode} ${pool}`;
      if (sheetKey !== want) { paintSheet(shares, pool); sheetKey = want; }
      const width = geo.left + heads * (geo.cell + geo.gap) - geo.gap + geo.tail, height = geo.top + layers * (geo.cell + geo.strip + geo.gap) - geo.gap + geo.tail;
      const ctx = sized(canvas, width, height), zoom = (geo.cell * devicePixelRatio) / tile;
      ctx.imageSmoothingEnabled = zoom < 2; ctx.imageSmoothingQuality = "high"; ctx.textBaseline = "middle";
      for (let l = 0; l < layers; l++) for (let h = 0; h < heads; h++) {
        const [x, y] = corner(l, h), v = scale ? value(m, l, h) : NaN, known = Number.isFinite(v);
        const fill = known ? scores.at((v - scale.lo) / (scale.hi - scale.lo)) : theme.faint, mid = y + geo.strip / 2;
        ctx.fillStyle = css(theme.line); ctx.beginPath(); ctx.roundRect(x, y, geo.cell, geo.cell + geo.strip, 4); ctx.fill();
        ctx.fillStyle = css(theme.page); ctx.fillRect(x + 1, y + geo.strip, geo.cell - 2, geo.cell - 1);
        ctx.fillStyle = css(fill); ctx.beginPath(); ctx.roundRect(x, y, geo.cell, geo.strip, [4, 4, 0, 0]); ctx.fill();
        ctx.drawImage(sheet, h * tile, l * tile, tile, tile, x + 1, y + geo.strip, geo.cell - 2, geo.cell - 1);
        ctx.fillStyle = inkOn(fill);
        if (geo.labels) { ctx.font = `600 11.5px ${theme.mono}`; ctx.textAlign = "left"; ctx.fillText(`L${l}H${h}`, x + 6, mid + 0.5); }
        ctx.font = `400 ${geo.labels ? 11.5 : 9.5}px ${theme.mono}`; ctx.textAlign = geo.labels ? "right" : "center";
        const text = numberOf(v, { ...scale, plain: true }), free = geo.cell - (geo.labels ? 14 + ctx.measureText(`L${l}H${h}`).width : 0);
        if (known && geo.strip > 6 && ctx.measureText(text).width <= free) ctx.fillText(text, geo.labels ? x + geo.cell - 6 : x + geo.cell / 2, mid + 0.5);
      }
      if (!geo.labels) {
        ctx.fillStyle = css(theme.muted); ctx.font = `400 10.5px ${theme.mono}`; ctx.textAlign = "center";
        for (let h = 0; h < heads; h++) ctx.fillText(geo.cell >= 24 ? `H${h}` : `${h}`, corner(0, h)[0] + geo.cell / 2, 9);
        ctx.textAlign = "right";
        for (let l = 0; l < layers; l++) ctx.fillText(`L${l}`, geo.left - 6, corner(l, 0)[1] + (geo.cell + geo.strip) / 2);
      }
      place(ring, cue.value && cue.value[0] < layers && cue.value[1] < heads ? cue.value : null);
      canvas.setAttribute("role", "application");
      const now = cue.value ? `Selected ${say(cue.value)}` : "Nothing selected";
      canvas.setAttribute("aria-label", `${layers * heads} attention heads in ${layers} layers. Arrow keys move the selection. ${now}`);
      scoreKey.hidden = !scale;
      if (scale) legend(scoreKey, scale, scores, { note: scale.chance == null ? "" : `at chance ${numberOf(scale.chance, { digits: 3 })}` });
      const note = head.factor > 1 ? `brightest of ${head.factor} × ${head.factor} tokens` : "";
      legend(shareKey, { label: "Attention", unit: "", lo: 0, hi: 1, digits: 2 }, shares, { root: Math.sqrt, ticks: [0, 0.05, 0.25, 1], note });
      tableOf(alt, "Show as table", ["head", ...head.measures.map((n) => scaleOf(n).label)], () => Array.from({ length: layers * heads }, (_, i) =>
        [`L${Math.floor(i / heads)}H${i % heads}`, ...head.measures.map((n, j) => numberOf(arrays.values[j * layers * heads + i], { digits: 3 }))]));
    },
  };
}
