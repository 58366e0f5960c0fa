// One head: the matrix on a canvas, a second canvas for the cross hair, the prompt as shaded text.
// Cells are [row, column] of the window in here; what is printed or sent to Python is a position in the sequence.
// While a scrubber tells frames, those of its head are drawn; its own payload again once the host has caught up.
export default function (args) { return live(args, makePattern); }

function makePattern(me) {
  const { root } = me;
  const readout = el("p", "readout", null, root), both = el("div", "both", null, root);
  const figure = el("div", "figure", null, both), stage = el("div", "stage", null, figure), base = el("canvas", "", null, stage), cross = el("canvas", "", null, stage);
  const legends = el("div", "legends", null, figure), key = el("div", "legend", null, legends), blocks = el("span", "blocks", null, legends), alt = el("details", "alt", null, figure);
  const side = el("div", "side", null, both), ways = el("div", "ways", null, side), texts = el("div", "texts", null, side), tip = el("div", "tip", null, stage);
  tip.hidden = true; base.tabIndex = 0; readout.setAttribute("aria-live", "polite"); ways.setAttribute("role", "group"); ways.setAttribute("aria-label", "What the shading shows");
  const [from, to] = ["Where it looks", "Who looks at it"].map((label) => Object.assign(el("button", "", label, ways), { type: "button" }));
  const TOP = 8; // room for half a label above the first row
  let head, share, rows, cols, shift, geo, lut, back = false, hover = null, others = null, spans = [], image, imageKey, frame = null, ending = false, waiting = 0;

  const film = () => (frame && me.cue.head ? frame : null);
  function codes(f) { // of the frame's cells, as bytes of the root; where it was pooled, of the block that a cell is in
    const [l, h] = me.cue.head, [fq, fk] = f.factors, start = (l * f.heads + h) * f.rows * f.cols;
    return fq * fk === 1 ? (q, k) => f.thumbs[start + (q + head.starts[0]) * f.cols + k + head.starts[1]]
      : (q, k) => f.thumbs[start + Math.floor(position(0, q) / fq) * f.cols + Math.floor(position(1, k) / fk)];
  }
  const value = (q, k) => (film() ? (codes(film())(q, k) / 255) ** 2 : share[q * cols + k] / 65534);
  const seen = (q) => (head.causal ? Math.min(cols, Math.max(0, q + shift + 1)) : cols); // how many columns a row sees
  const first = (k) => (head.causal ? Math.min(rows, Math.max(0, k - shift)) : 0); // the first row that sees a column
  const unseen = (q, k) => k >= seen(q);
  const inside = ([q, k]) => q >= 0 && k >= 0 && q < rows && k < cols;
  const token = (axis, i) => (axis || !head.keys ? (head.keys ?? head.tokens) : head.tokens)[i];
  const position = (axis, i) => head.starts[axis] + i;
  const place = ([q, k]) => [position(0, q), position(1, k)];
  function lock() {
    const at = me.cue.value?.map((v, axis) => v - head.starts[axis]);
    return at?.length && inside(at) ? at : null;
  }
  const focus = () => hover ?? others ?? lock();
  function best(i, axis) { // the strongest cell of a row (axis 0) or of a column (axis 1); null where all of it is masked
    let at = null;
    for (let j = axis ? first(i) : 0, end = axis ? rows : seen(i); j < end; j++) { const c = axis ? [j, i] : [i, j]; if (!at || value(...c) > value(...at)) at = c; }
    return at;
  }
  function sentence(node, [q, k]) {
    const say = (word, axis, i) => { node.append(`${word} `); el("code", "", "“", node).append(el("bdi", "", token(axis, i)), "”"); node.append(` (${position(axis, i)})`); };
    say("query", 0, q); node.append(" → "); say("key", 1, k); node.append(": ");
    el("span", "num", unseen(q, k) ? "masked, a later token" : numberOf(value(q, k), { digits: 3 }), node);
  }

  function label(ctx, i, axis, strong) { // a token on its axis; strong: on a plate that hides its neighbours
    const at = (i + 0.5) * geo.size[axis], room = (axis ? geo.bottom : geo.left) - 10;
    const shown = strong || !geo.numbers[axis] ? clipped(ctx, token(axis, i), room) : `${position(axis, i)}`;
    ctx.save();
    if (axis) { ctx.translate(geo.left + at, geo.height + 6); ctx.rotate(-Math.PI / 2); } else ctx.translate(geo.left - 6, at);
    ctx.textAlign = "right"; ctx.textBaseline = "middle";
    if (strong) {
      const w = ctx.measureText(shown).width + 8;
      ctx.fillStyle = css(me.theme.text); ctx.beginPath(); ctx.roundRect(4 - w, -8, w, 16, 3); ctx.fill();
    }
    ctx.fillStyle = css(strong ? me.theme.page : me.theme.muted);
    ctx.fillText(shown, 0, 0.5);
    ctx.restore();
  }
  function labels(ctx, axis) { // every token that has room; numbers at round positions where most have none
    const every = Math.ceil(14 / geo.size[axis]), count = axis ? cols : rows;
    if (!geo.numbers[axis]) { for (let i = 0; i < count; i += every) label(ctx, i, axis); return; }
    const stride = [5, 10, 20, 25, 50, 100, 200, 250].find((s) => s * geo.size[axis] >= 28) ?? 500;
    for (let i = (stride - (head.starts[axis] % stride)) % stride; i < count; i += stride) label(ctx, i, axis);
  }
  function drawCross() {
    const ctx = sized(cross, geo.left + geo.width + 8, TOP + geo.height + geo.bottom), at = focus(), [ch, cw] = geo.size;
    ctx.translate(0, TOP);
    readout.replaceChildren();
    if (!at) el("span", "hint", CELL_HINT, readout);
    else {
      const [q, k] = at, x = geo.left + k * cw, y = q * ch, ink = css(me.theme.text, 0.55);
      sentence(readout, at);
      ctx.fillStyle = ink;
      ctx.fillRect(geo.left, y + ch / 2 - 0.5, k * cw, 1); ctx.fillRect(x + cw / 2 - 0.5, y + ch, 1, geo.height - y - ch);
      ctx.lineWidth = 2; ctx.strokeStyle = css(me.theme.page); ctx.strokeRect(x - 2.5, y - 2.5, cw + 5, ch + 5);
      ctx.strokeStyle = css(lock() && !hover && !others ? me.theme.accent : me.theme.text); ctx.strokeRect(x - 1, y - 1, cw + 2, ch + 2);
      ctx.font = `500 11px ${me.theme.mono}`; label(ctx, q, 0, true); label(ctx, k, 1, true);
    }
    if (!side.hidden) spans.forEach((list, axis) => { // one text shades by the way that is chosen, two texts shade by row and by column
      const by = head.keys ? 1 - axis : back ? 1 : 0, i = at?.[by];
      list.forEach((span, j) => {
        const c = at && (by ? [j, i] : [i, j]), dark = at && unseen(...c), tint = at && !dark ? Math.round(255 * Math.sqrt(value(...c))) : -1;
        if (span.tint !== tint) { span.tint = tint; span.style.background = lut.tints[tint] ?? ""; span.style.color = lut.inks[tint] ?? ""; }
        const here = head.keys ? at?.[axis] === j : i === j;
        const cls = !at ? "" : here ? "focus" : !head.keys && j === at[1 - by] ? "other" : dark ? "blind" : "";
        if (span.className !== cls) { span.className = cls; if (head.keys && here) reveal(span); }
      });
    });
  }
  function reveal(span) { // scroll its own text, never the page, and not under the mouse
    const text = span.parentElement, box = text.getBoundingClientRect(), at = span.getBoundingClientRect();
    if (!text.matches(":hover") && (at.top < box.top || at.bottom > box.bottom)) text.scrollTop += at.top - box.top - box.height / 2;
  }
  function point(at) {
    if (String(at) !== String(hover)) tell("cursor", at && { query: position(0, at[0]), key: position(1, at[1]), source: me });
    hover = at; drawCross();
  }
  const hold = (at, wait = 0) => { point(null); me.send(at ? place(at) : [], wait); drawCross(); };
  const toggle = (at) => hold(lock() && String(lock()) === String(at) ? null : at);

  base.onpointermove = (e) => {
    const box = base.getBoundingClientRect(), x = e.clientX - box.left - geo.left, y = e.clientY - box.top - TOP, at = [Math.floor(y / geo.size[0]), Math.floor(x / geo.size[1])];
    if (!inside(at) || unseen(...at)) { tip.hidden = true; if (hover) point(null); return; }
    if (String(hover) !== String(at)) point(at);
    showTip(tip, stage, x + geo.left, y + TOP, (node) => sentence(node, at));
  };
  base.onpointerleave = () => { tip.hidden = true; point(null); };
  base.onclick = (e) => { base.onpointermove(e); if (hover) toggle(hover); };
  base.onkeydown = (e) => {
    const start = lock() ?? best(rows - 1, 0), step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[e.key];
    if (e.key === "Escape") { hold(null); return; }
    if (!step || !start || e.altKey || e.ctrlKey || e.metaKey) return;
    e.preventDefault(); tip.hidden = true;
    const next = lock() ? start.map((v, axis) => v + step[axis]) : start;
    if (inside(next) && !unseen(...next)) hold(next, 200);
  };
  const look = (way) => { back = way; from.setAttribute("aria-pressed", !way); to.setAttribute("aria-pressed", way); if (geo) drawCross(); };
  from.onclick = () => look(false); to.onclick = () => look(true); look(false);

  function write(axis, tokens, breaks) { // a text of which each token is a button
    const group = el("div", "group", null, texts), range = `${position(axis, 0)}–${position(axis, tokens.length - 1)}`;
    if (head.keys) el("div", "name", `${axis ? "Keys" : "Queries"} ${range}`, group);
    const text = el("div", "text", null, group), way = () => (head.keys ? axis : back ? 1 : 0);
    return tokens.map((token, i) => {
      const span = Object.assign(el("button", "", null, text), { type: "button", onclick: () => { const at = best(i, way()); if (at) toggle(at); } });
      span.onpointerenter = span.onfocus = () => point(best(i, way())); span.onpointerleave = span.onblur = () => point(null);
      span.append(el("bdi", "", token)); span.setAttribute("aria-label", `${head.keys ? ["query", "key"][axis] : "token"} ${position(axis, i)}: ${token}`);
      if (breaks.includes(i)) el("br", "", null, text);
      return span;
    });
  }
  function paint() { // at most one pixel a cell; the brightest where there are more cells than pixels
    const ratio = devicePixelRatio || 1, f = Math.max(1, Math.ceil(Math.max(rows / (geo.height * ratio), cols / (geo.width * ratio)) - 1e-6)), want = `${film() ? `${frame.version} ${frame.index} ${me.cue.head}` : head.version} ${me.theme.mode} ${f}`;
    if (imageKey === want) return;
    const code = film() ? codes(film()) : (q, k) => Math.round(255 * Math.sqrt(share[q * cols + k] / 65534));
    image = heat(rows, cols, f, (q, k) => (unseen(q, k) ? -1 : code(q, k)), lut); imageKey = want;
    spans.flat().forEach((span) => { span.tint = null; });
  }
  function layout(ctx) {
    const wide = root.clientWidth >= 820 && !side.hidden, ratio = devicePixelRatio || 1, cue = me.cue;
    ctx.font = `400 11px ${me.theme.mono}`;
    const gutter = (tokens) => Math.ceil(Math.min(Math.max(...tokens.map((t) => ctx.measureText(t).width)) + 14, 104, root.clientWidth * 0.22));
    const left = gutter(head.tokens), bottom = head.keys ? gutter(head.keys) : left;
    const room = Math.min(cue.max_size, (wide ? root.clientWidth * 0.62 : root.clientWidth) - left - 8), cell = Math.min(room / Math.max(rows, cols), 56);
    const size = [rows, cols].map((n) => { // rows stay legible in a flat window, columns in a tall one; whole device pixels where that costs little
      const exact = Math.max(cell, Math.min(16, room / n)), whole = Math.floor(exact * ratio) / ratio;
      return whole >= 0.8 * exact ? whole : exact;
    });
    return { left, bottom, size, height: size[0] * rows, width: size[1] * cols, numbers: size.map((c) => c < 14 / 3) };
  }
  function grid(ctx) { // lines between cells that are large enough, and the edge where the future begins
    const { left, width, height, size: [ch, cw] } = geo;
    ctx.fillStyle = css(me.theme.page, 0.8);
    if (ch >= 12) for (let q = 1; q < rows; q++) ctx.fillRect(left, q * ch - 0.5, seen(q) * cw, 1);
    if (cw >= 12) for (let k = 1; k < cols; k++) ctx.fillRect(left + k * cw - 0.5, first(k - 1) * ch, 1, height - first(k - 1) * ch);
    ctx.strokeStyle = css(me.theme.line); ctx.lineWidth = 1; ctx.beginPath(); ctx.moveTo(left, 0);
    if (seen(0) === cols) ctx.rect(left, 0, width, height);
    else for (let q = 0; q < rows; q++) { const x = left + seen(q) * cw; ctx.lineTo(x, q * ch); ctx.lineTo(x, (q + 1) * ch); }
    ctx.stroke();
    ctx.font = `400 11px ${me.theme.sans}`; ctx.fillStyle = css(me.theme.muted); ctx.textAlign = "right"; ctx.textBaseline = "top";
    const note = "later tokens, masked", free = width - seen(Math.min(rows - 1, Math.floor(16 / ch))) * cw;
    if (ctx.measureText(note).width + 8 < free) ctx.fillText(note, left + width, 2);
  }

  function repaint() { // the cells alone, for a frame; the canvas is still moved down as it was drawn
    if (ending && head.version === (me.cue.version ?? head.version)) { frame = null; ending = false; }
    const ctx = base.getContext("2d"), f = film();
    paint();
    ctx.clearRect(geo.left - 1, -1, geo.width + 2, geo.height + 2);
    drawHeat(ctx, image, geo.left, 0, geo.width, geo.height);
    grid(ctx);
    blocks.textContent = f && Math.max(...f.factors) > 1 ? `brightest of ${f.factors[0]} × ${f.factors[1]} tokens while it moves` : "";
    if (focus()) drawCross();
  }
  const deaf = [
    hear("frame", (told) => {
      ending = !told && frame != null; frame = told ?? frame;
      waiting ||= requestAnimationFrame(() => { waiting = 0; if (geo && me.cue.head) repaint(); });
    }),
    hear("cursor", (cell) => {
      if (cell?.source === me || !geo) return;
      const at = cell && [cell.query - head.starts[0], cell.key - head.starts[1]], next = at && inside(at) && !unseen(...at) ? at : null;
      if (String(next) !== String(others)) { others = next; drawCross(); }
    }),
  ];

  return {
    load(newHead, arrays) {
      head = newHead; share = arrays.shares; [rows, cols] = share.shape; shift = head.starts[0] - head.starts[1]; imageKey = ""; hover = others = null;
      texts.replaceChildren(); ways.hidden = !!head.keys; root.classList.toggle("two", !!head.keys);
      spans = [write(0, head.tokens, head.breaks)];
      if (head.keys) spans.push(write(1, head.keys, head.key_breaks));
    },
    draw() {
      const { theme } = me;
      side.hidden = me.cue.text === false; // the page has the text elsewhere
      if (ending && head.version === (me.cue.version ?? head.version)) { frame = null; ending = false; }
      lut = lutOf(PALETTES.attention[theme.mode]); geo = layout(base.getContext("2d")); paint();
      const ctx = sized(base, geo.left + geo.width + 8, TOP + geo.height + geo.bottom);
      ctx.translate(0, TOP);
      drawHeat(ctx, image, geo.left, 0, geo.width, geo.height);
      grid(ctx);
      ctx.font = `400 11px ${theme.mono}`;
      labels(ctx, 0); labels(ctx, 1);
      const where = head.keys || head.starts[0] ? `, queries ${position(0, 0)} to ${position(0, rows - 1)}, keys ${position(1, 0)} to ${position(1, cols - 1)}` : "";
      base.setAttribute("role", "application");
      base.setAttribute("aria-label", `Attention pattern of ${head.label || "a head"}: ${rows} query rows, ${cols} key columns${where}. Arrow keys move the held cell, Escape releases it.`);
      legend(key, { label: "Attention", unit: "", lo: 0, hi: 1, digits: 2 }, lut, { root: Math.sqrt, ticks: [0, 0.05, 0.25, 1] });
      tableOf(alt, "Show as table", ["query", "strongest key", "share"], () => head.tokens.map((_, q) => {
        const named = (axis, i) => `${position(axis, i)} \u2068${token(axis, i)}\u2069`, at = best(q, 0);
        return at ? [named(0, q), named(1, at[1]), numberOf(value(...at), { digits: 3 })] : [named(0, q), "–", "–"];
      }), { columns: ["query \\ key", ...Array.from({ length: cols }, (_, k) => `${position(1, k)} ${token(1, k)}`)],
        rows: () => head.tokens.map((_, q) => [`${position(0, q)} ${token(0, q)}`, ...Array.from({ length: cols }, (_, k) => (unseen(q, k) ? "–" : exactOf(value(q, k))))]) });
      drawCross();
    },
    end() { deaf.forEach((stop) => stop()); cancelAnimationFrame(waiting); if (hover) tell("cursor", null); },
  };
}
