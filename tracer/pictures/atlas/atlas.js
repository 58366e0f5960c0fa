// All heads on one canvas: a strip coloured by the measure (label and value when they fit) over the pooled pattern.
// While a scrubber tells frames, their patterns and values are drawn; its own payload again once the host has caught up.
export default function (args) { return live(args, makeAtlas); }

function makeAtlas(me) {
  const { root } = me;
  const stage = el("div", "stage", null, root), canvas = el("canvas", "", null, stage);
  const over = el("div", "ring hover", null, stage), ring = el("div", "ring chosen", null, stage);
  const legends = el("div", "legends", null, root), scoreKey = el("div", "legend", null, legends), shareKey = el("div", "legend", null, legends);
  const alt = el("details", "alt", null, root), spoken = el("div", "sr", null, root), tip = el("div", "tip", null, stage);
  spoken.setAttribute("aria-live", "polite");
  tip.hidden = true; canvas.tabIndex = 0;
  let head, arrays, layers, heads, geo, sheet, sheetKey, pixels, tile, seats, lit, frame = null, ending = false, waiting = 0;

  const scaleOf = (name) => me.cue.scales[name] ?? { label: name, unit: "", lo: 0, hi: 1, digits: 2, chance: null, palette: "score" };
  const measure = () => Math.max(0, head.measures.indexOf(me.cue.measure));
  const luts = new Map(), lutFor = (name) => { // a table takes longer to make than a frame to draw
    const key = `${name} ${me.theme.mode}`;
    return luts.get(key) ?? luts.set(key, lutOf(PALETTES[name][me.theme.mode])).get(key);
  };
  const film = () => (frame && frame.layers === layers && frame.heads === heads ? frame : null);
  const own = (m, l, h) => arrays.values[(m * layers + l) * heads + h];
  const value = (m, l, h) => (film() ? film().value(head.measures[m], l, h) : own(m, l, h));
  const fits = ([l, h]) => !lit || lit.has(`${l},${h}`);

  const there = ([l, h]) => l >= 0 && h >= 0 && l < layers && h < heads && arrays.there[l * heads + h] > 0; // layers differ in their number of heads
  const held = () => (me.cue.value && there(me.cue.value) ? me.cue.value : null);

  function paintSheet(lut, { thumbs: t, rows, cols, factors, causal }, [fq, fk], levels) { // every pattern once, the brightest of fq x fk; keys the query cannot see stay transparent
    const h0 = Math.ceil(rows / fq), w0 = Math.ceil(cols / fk), px = pixels?.width === heads * w0 && pixels.height === layers * h0 ? pixels : new ImageData(heads * w0, layers * h0), words = new Uint32Array(px.data.buffer), top = new Uint8Array(h0 * w0);
    const block = Uint16Array.from({ length: cols }, (_, k) => k / fk); // dividing for every cell takes most of the time
    words.fill(0);
    const code = (c) => Math.round((Math.round((c * levels) / 255) * 255) / levels), table = lut.table;
    const ink = Uint32Array.from({ length: 256 }, (_, at) => { const c = 3 * code(at); return (255 << 24) | (table[c + 2] << 16) | (table[c + 1] << 8) | table[c]; });
    const [tall, wide] = [fq * factors[0], fk * factors[1]]; // tokens in a pixel of the sheet
    for (let l = 0, i = 0; l < layers; l++) for (let h = 0; h < heads; h++, i += rows * cols) {
      if (!there([l, h])) continue;
      let from = t, at = i;
      if (fq * fk > 1) {
        top.fill(0); from = top; at = 0;
        for (let q = 0, j = i; q < rows; q++) for (let k = 0, row = Math.floor(q / fq) * w0; k < cols; k++, j++) if (t[j] > top[row + block[k]]) top[row + block[k]] = t[j];
      }
      for (let q = 0; q < h0; q++) for (let k = 0, to = (l * h0 + q) * heads * w0 + h * w0, end = causal[l] ? Math.min(w0, Math.ceil(((q + 1) * tall) / wide)) : w0; k < end; k++) words[to + k] = ink[from[at + q * w0 + k]];
    }
    tile = [h0, w0];
    if (px !== pixels) { pixels = px; sheet = new OffscreenCanvas(px.width, px.height); }
    sheet.getContext("2d").putImageData(px, 0, 0);
  }
  function layout(width) {
    const roomy = Math.min(me.cue.max_cell, Math.floor((width - (heads - 1) * 10) / heads));
    if (roomy >= 72) return { cell: roomy, gap: 10, left: 2, top: 2, strip: 22, tail: 2, labels: true };
    const cell = Math.max(14, Math.floor((width - 30 - (heads - 1) * 4) / heads)), strip = cell >= 34 ? 15 : me.cue.order === "measure" ? 12 : 6;
    return { cell, gap: 4, left: 28, top: 18, strip, tail: 2, labels: false };
  }
  function sorted(l, m) { // the heads of a layer from left to right
    const all = Array.from({ length: heads }, (_, h) => h), rank = (h) => (arrays.there[l * heads + h] ? own(m, l, h) : -Infinity);
    const strength = (h) => (Number.isNaN(rank(h)) ? -Number.MAX_VALUE : rank(h));
    return me.cue.order === "measure" && head.measures.length ? all.sort((a, b) => (strength(b) === strength(a) ? a - b : strength(b) - strength(a))) : all;
  }
  const corner = (l, h) => [geo.left + seats[l].indexOf(h) * (geo.cell + geo.gap), geo.top + l * (geo.cell + geo.strip + geo.gap)];
  function place(node, at) {
    node.style.display = at ? "block" : "none";
    if (!at) return;
    const [x, y] = corner(...at);
    Object.assign(node.style, { left: `${x}px`, top: `${y}px`, width: `${geo.cell}px`, height: `${geo.cell + geo.strip}px` });
  }
  function under(e) {
    const box = canvas.getBoundingClientRect(), x = e.clientX - box.left, y = e.clientY - box.top;
    const seat = Math.floor((x - geo.left + geo.gap / 2) / (geo.cell + geo.gap)), l = Math.floor((y - geo.top + geo.gap / 2) / (geo.cell + geo.strip + geo.gap));
    const at = [l, seats[l]?.[seat] ?? -1];
    return there(at) ? { at, x, y } : null;
  }
  const say = ([l, h]) => `L${l}H${h}: ` + head.measures.map((n, m) => `${scaleOf(n).label} ${numberOf(value(m, l, h), scaleOf(n))}`).join(", ") + (fits([l, h]) ? "" : ", does not fit what is looked for");
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
    let [l, seat] = [now[0], e.key === "Home" ? -1 : e.key === "End" ? heads : seats[now[0]].indexOf(now[1])]; // as it is seen
    const next = () => [l, seats[l]?.[seat] ?? -1];
    do { l += step[0]; seat += step[1]; } while (seat >= 0 && l >= 0 && seat < heads && l < layers && !there(next()));
    if (there(next())) choose(next(), 140);
  };

  function paint(ctx) {
    if (ending && head.version === (me.cue.version ?? head.version)) { frame = null; ending = false; }
    const { theme } = me, m = measure(), scale = head.measures[m] ? scaleOf(head.measures[m]) : null, [, , rows, cols] = arrays.thumbs.shape, source = film() ?? { thumbs: arrays.thumbs, rows, cols, factors: head.factors, causal: head.causal };
    const shares = lutFor("attention"), scores = scale && lutFor(scale.palette);
    const pool = [source.rows, source.cols].map((n) => Math.ceil(n / (geo.cell * devicePixelRatio))), want = `${film() ? `${frame.version} ${frame.index}` : head.version} ${theme.mode} ${pool}`;
    if (sheetKey !== want) { paintSheet(shares, source, pool, film() ? 39 : 255); sheetKey = want; } // a payload has 39 levels too
    const zoom = (geo.cell * devicePixelRatio) / Math.max(...tile);
    const named = geo.labels || me.cue.order === "measure", font = geo.labels ? 11.5 : 9.5, side = geo.labels ? 6 : 3, numbers = [];
    const line = css(theme.line), faint = css(theme.faint, 0.6), page = css(theme.page), veil = css(theme.page, 0.75), muted = css(theme.muted), unknown = css(theme.faint), onUnknown = inkOn(theme.faint);
    ctx.clearRect(0, 0, geo.width, geo.height);
    ctx.imageSmoothingEnabled = zoom < 2; ctx.imageSmoothingQuality = "low"; ctx.textBaseline = "middle"; ctx.textAlign = "left";
    ctx.font = `600 ${font}px ${theme.mono}`;
    const letter = ctx.measureText("0").width; // all are as wide, and measuring takes long
    for (let l = 0; l < layers; l++) for (let h = 0; h < heads; h++) {
      const [x, y] = corner(l, h), v = scale ? value(m, l, h) : NaN;
      const code = Number.isFinite(v) ? Math.round(255 * Math.min(1, Math.max(0, (v - scale.lo) / (scale.hi - scale.lo)))) : -1, mid = y + geo.strip / 2 + 0.5, label = geo.labels ? `L${l}H${h}` : `${h}`;
      if (!there([l, h])) { ctx.fillStyle = faint; ctx.beginPath(); ctx.roundRect(x, y, geo.cell, geo.cell + geo.strip, 4); ctx.fill(); continue; }
      ctx.fillStyle = line; ctx.beginPath(); ctx.roundRect(x, y, geo.cell, geo.cell + geo.strip, 4); ctx.fill();
      ctx.fillStyle = page; ctx.fillRect(x + 1, y + geo.strip, geo.cell - 2, geo.cell - 1);
      ctx.fillStyle = code < 0 ? unknown : scores.tints[code]; ctx.beginPath(); ctx.roundRect(x, y, geo.cell, geo.strip, [4, 4, 0, 0]); ctx.fill();
      ctx.drawImage(sheet, h * tile[1], l * tile[0], tile[1], tile[0], x + 1, y + geo.strip, geo.cell - 2, geo.cell - 1);
      const dim = !fits([l, h]), ink = dim ? muted : code < 0 ? onUnknown : scores.inks[code];
      if (dim) { ctx.fillStyle = veil; ctx.beginPath(); ctx.roundRect(x - 1, y - 1, geo.cell + 2, geo.cell + geo.strip + 2, 4); ctx.fill(); }
      const room = named ? label.length * letter + 2 * side + (geo.labels ? 2 : 0) : 0, text = numberOf(v, { ...scale, plain: true });
      if (named) { ctx.fillStyle = ink; ctx.fillText(label, x + side, mid); }
      if (scale && geo.strip > 6 && text.length * letter <= geo.cell - room - (geo.labels ? 0 : side)) numbers.push([ink, text, named ? x + geo.cell - side : x + geo.cell / 2, mid]);
    }
    ctx.font = `400 ${font}px ${theme.mono}`; ctx.textAlign = named ? "right" : "center"; // a change of font takes longer than a word
    for (const [ink, text, x, y] of numbers) { ctx.fillStyle = ink; ctx.fillText(text, x, y); }
    if (geo.labels) return;
    ctx.fillStyle = css(theme.muted); ctx.font = `400 10.5px ${theme.mono}`; ctx.textAlign = "center";
    if (me.cue.order === "measure") { ctx.textAlign = "left"; ctx.font = `400 10.5px ${theme.sans}`; ctx.fillText("strongest first", geo.left, 9); }
    else for (let h = 0; h < heads; h++) ctx.fillText(geo.cell >= 24 ? `H${h}` : `${h}`, corner(0, h)[0] + geo.cell / 2, 9);
    ctx.textAlign = "right"; ctx.font = `400 10.5px ${theme.mono}`;
    for (let l = 0; l < layers; l++) ctx.fillText(`L${l}`, geo.left - 6, geo.top + l * (geo.cell + geo.strip + geo.gap) + (geo.cell + geo.strip) / 2);
  }
  const stopHearing = hear("frame", (told) => {
    ending = !told && frame != null; frame = told ?? frame;
    waiting ||= requestAnimationFrame(() => { waiting = 0; if (geo) paint(canvas.getContext("2d")); });
  });

  return {
    load(newHead, newArrays) { head = newHead; arrays = newArrays; [layers, heads] = arrays.thumbs.shape; sheetKey = ""; },
    draw() {
      const { theme, cue } = me, m = measure(), name = head.measures[m], scale = name ? scaleOf(name) : null;
      const shares = lutFor("attention"), scores = scale && lutFor(scale.palette);
      lit = cue.lit && new Set(cue.lit.map(String));
      seats = Array.from({ length: layers }, (_, l) => sorted(l, m));
      geo = layout(root.clientWidth);
      geo.width = geo.left + heads * (geo.cell + geo.gap) - geo.gap + geo.tail; geo.height = geo.top + layers * (geo.cell + geo.strip + geo.gap) - geo.gap + geo.tail;
      paint(sized(canvas, geo.width, geo.height));
      place(ring, held());
      canvas.setAttribute("role", "application");
      const every = Array.from({ length: layers * heads }, (_, i) => [Math.floor(i / heads), i % heads]).filter(there), found = lit && every.filter(fits);
      const now = held() ? `Selected ${say(held())}` : "Nothing selected", looked = found ? ` ${found.length} of them fit what is looked for${found.length && found.length <= 12 ? `: ${found.map(([l, h]) => `L${l}H${h}`).join(", ")}` : ""}.` : "";
      canvas.setAttribute("aria-label", `${every.length} attention heads in ${layers} layers${cue.order === "measure" && scale ? `, the strongest by ${scale.label.toLowerCase()} first` : ""}.${looked} Arrow keys move the selection. ${now}`);
      scoreKey.hidden = !scale;
      if (scale) legend(scoreKey, scale, scores, { note: scale.chance == null ? "" : `at chance ${numberOf(scale.chance, { digits: 3 })}` });
      const [fq, fk] = head.factors, note = fq * fk > 1 ? `brightest of ${fq} × ${fk} tokens` : "";
      legend(shareKey, { label: "Attention", unit: "", lo: 0, hi: 1, digits: 2 }, shares, { root: Math.sqrt, ticks: [0, 0.05, 0.25, 1], note });
      tableOf(alt, "Show as table", ["head", ...(lit ? ["fits"] : []), ...head.measures.map((n) => scaleOf(n).label)], () => seats.flatMap((row, l) => row.map((h) => [l, h])).filter(there).map(([l, h]) =>
        [`L${l}H${h}`, ...(lit ? [fits([l, h]) ? "yes" : "no"] : []), ...head.measures.map((n, j) => numberOf(own(j, l, h), { digits: 3 }))]));
    },
    end() { stopHearing(); cancelAnimationFrame(waiting); },
  };
}
