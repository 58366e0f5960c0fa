// Two patterns and, where their tokens are the same, what changed: a panel each, one cross hair and one read-out for all.
// Cells are [row, column] of the window in here; what is sent or told to others is a position in the sequence.
// While a scrubber tells frames, the first pattern and the change are those of its frame; the second one stays.
export default function (args) { return live(args, makeVersus); }

function makeVersus(me) {
  const { root } = me, TOP = 8, CHANGE = 2, MAX_CELL = 28, NAMES = ["A", "B"];
  const readout = el("p", "readout", null, root), figures = el("div", "panels", null, root), legends = el("div", "legends", null, root);
  const keys = [el("div", "legend", null, legends), el("div", "legend", null, legends)], alt = el("details", "alt", null, root);
  readout.setAttribute("aria-live", "polite");
  let head, shares, panels = [], hover = null, heard = null, deaf = null, frame = null, ending = false, waiting = 0, reach = 0;

  const side = (p) => head.sides[p === CHANGE ? 0 : p];
  const sizeOf = (p) => shares[p === CHANGE ? 0 : p].shape;
  const film = () => (frame && me.cue.head ? frame : null);
  function filmed(f, q, k) { // where the frame was pooled, of the block that a cell is in
    const [l, h] = me.cue.head, [qs, ks] = side(0).starts, [fq, fk] = f.factors;
    return (f.thumbs[((l * f.heads + h) * f.rows + Math.floor((q + qs) / fq)) * f.cols + Math.floor((k + ks) / fk)] / 255) ** 2;
  }
  const share = (p, q, k) => (p === 0 && film() ? filmed(film(), q, k) : shares[p][q * sizeOf(p)[1] + k] / 65534);
  const top = () => Math.max(head.top, reach);
  const value = (p, q, k) => (p === CHANGE ? share(1, q, k) - share(0, q, k) : share(p, q, k));
  const seen = (p, q) => (side(p).causal ? Math.min(sizeOf(p)[1], Math.max(0, q + side(p).starts[0] - side(p).starts[1] + 1)) : sizeOf(p)[1]);
  const inside = (p, [q, k]) => q >= 0 && k >= 0 && q < sizeOf(p)[0] && k < seen(p, q);
  const token = (p, axis, i) => (axis ? side(p).keys : side(p).tokens)[i];
  const signed = (v) => { const text = numberOf(v, { digits: 3, plain: true }); return v > 0 && /[1-9]/.test(text) ? `+${text}` : text; };
  function lock() { // [row, column, panel]; where the tokens are the same the panel does not matter
    const now = me.cue.value;
    if (!now?.length) return null;
    const p = head.same ? 0 : (now[2] ?? 0), at = [now[0] - side(p).starts[0], now[1] - side(p).starts[1]];
    return inside(p, at) ? [...at, p] : null;
  }
  const focus = () => hover ?? heard ?? lock();
  const at = (p) => { const f = focus(); return f && (head.same || f[2] === p) ? f : null; };

  function say() {
    const f = focus();
    readout.replaceChildren();
    if (!f) { el("span", "hint", CELL_HINT, readout); return; }
    const [q, k, p] = f, { starts } = side(p);
    for (const [word, axis, i] of [["query", 0, q], ["key", 1, k]]) {
      readout.append(`${axis ? " → " : ""}${word} `); el("code", "", "“", readout).append(el("bdi", "", token(p, axis, i)), "”"); readout.append(` (${starts[axis] + i})`);
    }
    el("br", "", null, readout);
    const numbers = el("span", "numbers", null, readout);
    const put = (name, text) => { const one = el("span", "", null, numbers); el("span", "soft", `${name} `, one); el("span", "num", text, one); };
    if (!head.same) { put(NAMES[p], numberOf(share(p, q, k), { digits: 3 })); return; }
    put(NAMES[0], numberOf(share(0, q, k), { digits: 3 })); put(NAMES[1], numberOf(share(1, q, k), { digits: 3 })); put("change", signed(value(CHANGE, q, k)));
  }
  function shade(p, f, lut) { // one pixel for f x f cells: the strongest share, or the largest change whichever its sign
    const [rows, cols] = sizeOf(p), h = Math.ceil(rows / f), w = Math.ceil(cols / f), most = new Float32Array(h * w).fill(-1), px = new ImageData(w, h), far = top() || 1;
    for (let q = 0; q < rows; q++) for (let k = 0, end = seen(p, q); k < end; k++) {
      const v = value(p, q, k), i = Math.floor(q / f) * w + Math.floor(k / f);
      if (Math.abs(v) <= most[i]) continue;
      most[i] = Math.abs(v);
      const c = 3 * Math.round(255 * (p === CHANGE ? Math.min(1, Math.max(0, (v / far + 1) / 2)) : Math.sqrt(v)));
      px.data.set([lut.table[c], lut.table[c + 1], lut.table[c + 2], 255], 4 * i);
    }
    const image = new OffscreenCanvas(w, h);
    image.getContext("2d").putImageData(px, 0, 0);
    return image;
  }
  function label(ctx, p, axis, i, strong) { // a token on its axis; strong: on a plate that hides its neighbours
    const { geo } = panels[p], shown = clipped(ctx, token(p, axis, i), (axis ? geo.bottom : geo.left) - 10);
    ctx.save();
    if (axis) { ctx.translate(geo.left + (i + 0.5) * geo.cell, geo.height + 6); ctx.rotate(-Math.PI / 2); } else ctx.translate(geo.left - 6, (i + 0.5) * geo.cell);
    ctx.textAlign = "right"; ctx.textBaseline = "middle";
    if (strong) { const w = ctx.measureText(shown).width + 8; ctx.fillStyle = css(me.theme.text); ctx.beginPath(); ctx.roundRect(4 - w, -8, w, 16, 3); ctx.fill(); }
    ctx.fillStyle = css(strong ? me.theme.page : me.theme.muted); ctx.fillText(shown, 0, 0.5);
    ctx.restore();
  }
  function layout(p, ctx, width) {
    const [rows, cols] = sizeOf(p), ratio = devicePixelRatio || 1;
    ctx.font = `400 11px ${me.theme.mono}`;
    const gutter = (tokens) => Math.ceil(Math.min(Math.max(...tokens.map((t) => ctx.measureText(t).width)) + 14, 84, width * 0.22));
    const left = gutter(side(p).tokens), bottom = gutter(side(p).keys), exact = Math.min((width - left - 8) / Math.max(rows, cols), MAX_CELL), whole = Math.floor(exact * ratio) / ratio;
    const cell = whole >= 0.8 * exact ? whole : exact;
    return { left, bottom, cell, height: cell * rows, width: cell * cols };
  }
  function drawPanel(p, width) {
    const panel = panels[p], lut = lutOf(PALETTES[p === CHANGE ? "change" : "attention"][me.theme.mode]), [rows, cols] = sizeOf(p);
    const geo = panel.geo = layout(p, panel.base.getContext("2d"), width), f = Math.max(1, Math.ceil(1 / (geo.cell * (devicePixelRatio || 1)) - 1e-6));
    const ctx = sized(panel.base, geo.left + geo.width + 8, TOP + geo.height + geo.bottom), c = geo.cell;
    ctx.translate(0, TOP);
    drawHeat(ctx, shade(p, f, lut), geo.left, 0, Math.ceil(cols / f) * f * c, Math.ceil(rows / f) * f * c);
    ctx.fillStyle = css(me.theme.page, 0.8);
    if (c >= 12) for (let i = 1; i < Math.max(rows, cols); i++) {
      if (i < rows) ctx.fillRect(geo.left, i * c - 0.5, seen(p, i) * c, 1);
      if (i < cols) ctx.fillRect(geo.left + i * c - 0.5, 0, 1, geo.height);
    }
    ctx.strokeStyle = css(me.theme.line); ctx.lineWidth = 1; ctx.beginPath(); ctx.moveTo(geo.left, 0);
    if (seen(p, 0) === cols) ctx.rect(geo.left, 0, geo.width, geo.height);
    else for (let q = 0; q < rows; q++) { const x = geo.left + seen(p, q) * c; ctx.lineTo(x, q * c); ctx.lineTo(x, (q + 1) * c); }
    ctx.stroke(); ctx.font = `400 11px ${me.theme.mono}`;
    const every = Math.ceil(14 / c);
    for (let i = 0; i < rows; i += every) label(ctx, p, 0, i);
    for (let i = 0; i < cols; i += every) label(ctx, p, 1, i);
    const what = p === CHANGE ? `Change from ${NAMES[0]} to ${NAMES[1]}` : `${NAMES[p]}: attention pattern of ${side(p).title}`;
    panel.base.setAttribute("aria-label", `${what}, ${rows} query rows, ${cols} key columns. Arrow keys move the held cell, Escape releases it.`);
  }
  function drawCross(fresh) { // a canvas is only sized when the picture under it was drawn: that takes longer than to wipe it
    panels.forEach(({ cross, geo }, p) => {
      const ctx = fresh ? sized(cross, geo.left + geo.width + 8, TOP + geo.height + geo.bottom) : cross.getContext("2d"), f = at(p);
      if (fresh) ctx.translate(0, TOP); else ctx.clearRect(0, -TOP, cross.width, cross.height);
      if (!f) return;
      const [q, k] = f, c = geo.cell, x = geo.left + k * c, y = q * c;
      ctx.fillStyle = css(me.theme.text, 0.55);
      ctx.fillRect(geo.left, y + c / 2 - 0.5, k * c, 1); ctx.fillRect(x + c / 2 - 0.5, y + c, 1, geo.height - y - c);
      ctx.lineWidth = 2; ctx.strokeStyle = css(me.theme.page); ctx.strokeRect(x - 2.5, y - 2.5, c + 5, c + 5);
      ctx.strokeStyle = css(lock() && !hover && !heard ? me.theme.accent : me.theme.text); ctx.strokeRect(x - 1, y - 1, c + 2, c + 2);
      ctx.font = `500 11px ${me.theme.mono}`; label(ctx, p, 0, q, true); label(ctx, p, 1, k, true);
    });
    say();
  }
  const place = ([q, k, p]) => [q + side(p).starts[0], k + side(p).starts[1], p];
  function point(f) {
    if (String(f) === String(hover)) return;
    hover = f; drawCross();
    if (head.same || !f || f[2] === 0) tell("cursor", f && { query: place(f)[0], key: place(f)[1], source: me });
  }
  const hold = (f, wait = 0) => { point(null); me.send(f ? place(f) : [], wait); drawCross(); };
  function listen(cell) { // of another part: its tokens are those of panel 0
    if (cell?.source === me || !head) return;
    const f = cell ? [cell.query - side(0).starts[0], cell.key - side(0).starts[1], 0] : null;
    heard = f && inside(0, f) ? f : null;
    if (panels.every(({ geo }) => geo)) drawCross();
  }
  function make(p) {
    const figure = el("figure", "", null, figures), caption = el("figcaption", "", null, figure), stage = el("div", "stage", null, figure);
    const base = el("canvas", "", null, stage), cross = el("canvas", "", null, stage);
    base.tabIndex = 0; base.setAttribute("role", "application");
    const under = (e) => {
      const { geo } = panels[p];
      if (!geo) return null; // new panels, not drawn yet
      const box = base.getBoundingClientRect(), f = [Math.floor((e.clientY - box.top - TOP) / geo.cell), Math.floor((e.clientX - box.left - geo.left) / geo.cell)];
      return inside(p, f) ? [...f, head.same ? 0 : p] : null;
    };
    base.onpointermove = (e) => point(under(e));
    base.onpointerleave = () => point(null);
    base.onclick = (e) => { const f = under(e); if (f) hold(String(lock()) === String(f) ? null : f); };
    base.onkeydown = (e) => {
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[e.key], own = head.same ? 0 : p, now = lock();
      if (e.key === "Escape") { hold(null); return; }
      if (!step || e.altKey || e.ctrlKey || e.metaKey) return;
      e.preventDefault();
      const next = now?.[2] === own ? [now[0] + step[0], now[1] + step[1], own] : [...best(p, sizeOf(p)[0] - 1), own];
      if (inside(own, next)) hold(next, 200);
    };
    return { figure, caption, base, cross };
  }
  function best(p, q) { // the key of the strongest share, or of the largest change
    let k = 0;
    for (let j = 1, end = seen(p, q); j < end; j++) if (Math.abs(value(p, q, j)) > Math.abs(value(p, q, k))) k = j;
    return [q, k];
  }
  function table() {
    const named = (p, axis, i) => `${side(p).starts[axis] + i} \u2068${token(p, axis, i)}\u2069`, three = (v) => numberOf(v, { digits: 3 }), rows = (p) => side(p).tokens.map((_, q) => best(p, q));
    const [a, b] = NAMES;
    const each = (p, fields) => side(p).tokens.flatMap((_, q) => Array.from({ length: seen(p, q) }, (_, k) => [named(p, 0, q), named(p, 1, k), ...fields(q, k)])), five = (v) => v.toFixed(5);
    if (head.same) tableOf(alt, "Show as table", ["query", "key that changes most", a, b, "change"], () => rows(CHANGE).filter((f) => inside(0, f)).map(([q, k]) => [named(0, 0, q), named(0, 1, k), three(share(0, q, k)), three(share(1, q, k)), signed(value(CHANGE, q, k))]),
      { columns: ["query", "key", a, b, `${b} − ${a}`], rows: () => each(0, (q, k) => [five(share(0, q, k)), five(share(1, q, k)), five(value(CHANGE, q, k))]) });
    else tableOf(alt, "Show as table", ["query", "pattern", "strongest key", "share"], () => [0, 1].flatMap((p) => rows(p).filter((f) => inside(p, f)).map(([q, k]) => [named(p, 0, q), [a, b][p], named(p, 1, k), three(share(p, q, k))])),
      { columns: ["query", "key", "pattern", "share"], rows: () => [0, 1].flatMap((p) => each(p, (q, k) => [[a, b][p], five(share(p, q, k))])) });
  }

  function captions() {
    const [a, b] = NAMES;
    panels.forEach(({ caption }, p) => {
      caption.replaceChildren(); el("b", "", p === CHANGE ? `${b} − ${a}` : [a, b][p], caption);
      el("span", "", p === CHANGE ? (top() ? "what changed" : "nothing changed") : p === 0 && film() ? `${side(0).title} → step ${film().step.toLocaleString("en-US")}` : side(p).title, caption);
    });
  }
  function changeLegend() {
    const far = top();
    keys[1].hidden = !head.same || !far;
    if (!keys[1].hidden) legend(keys[1], { label: "Change", unit: "", lo: -far, hi: far, digits: far < 0.1 ? 3 : 2 }, lutOf(PALETTES.change[me.theme.mode]), { ticks: [-far, 0, far] });
  }
  function settle(here = head.version === (me.cue.version ?? head.version)) { // the bytes of the step itself
    if (ending && here) { frame = null; ending = false; reach = 0; }
  }
  function repaint() { // the panels that a frame changes, on a scale that only grows while it plays
    waiting = 0; settle();
    if (film() && head.same) {
      const [rows] = sizeOf(0);
      for (let q = 0; q < rows; q++) for (let k = 0, end = seen(0, q); k < end; k++) reach = Math.max(reach, Math.abs(value(CHANGE, q, k)));
    }
    captions(); changeLegend();
    for (const p of head.same ? [0, CHANGE] : [0]) drawPanel(p, panels[p].figure.clientWidth);
    drawCross(true);
  }
  function watch(told) {
    ending = !told && frame != null; frame = told ?? frame;
    waiting ||= requestAnimationFrame(() => { if (me.cue?.head && panels.length && panels.every(({ geo }) => geo)) repaint(); else waiting = 0; });
  }

  return {
    load(newHead, arrays) {
      head = newHead; shares = [arrays.a, arrays.b]; hover = heard = null; settle(true);
      const count = head.same ? 3 : 2;
      if (panels.length !== count) { figures.replaceChildren(); panels = Array.from({ length: count }, (_, p) => make(p)); figures.dataset.count = count; }
    },
    draw() {
      deaf ??= [hear("cursor", listen), hear("frame", watch)];
      const { mode } = me.theme;
      settle(); captions();
      const widths = panels.map(({ figure }) => figure.clientWidth);
      panels.forEach((_, p) => drawPanel(p, widths[p]));
      legend(keys[0], { label: "Attention", unit: "", lo: 0, hi: 1, digits: 2 }, lutOf(PALETTES.attention[mode]), { root: Math.sqrt, ticks: [0, 0.05, 0.25, 1] });
      changeLegend(); table(); drawCross(true);
    },
    end() { deaf?.forEach((stop) => stop()); cancelAnimationFrame(waiting); if (hover) tell("cursor", null); },
  };
}
