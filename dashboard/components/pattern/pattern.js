// One head: the matrix on a canvas, a second canvas for the cross hair, the prompt as shaded text.
export default function (args) { return live(args, makePattern); }

function makePattern(me) {
  const { root } = me;
  const readout = el("p", "readout", null, root), both = el("div", "both", null, root);
  const figure = el("div", "figure", null, both), stage = el("div", "stage", null, figure), base = el("canvas", "", null, stage), cross = el("canvas", "", null, stage);
  const key = el("div", "legend", null, el("div", "legends", null, figure)), alt = el("details", "alt", null, figure);
  const side = el("div", "side", null, both), ways = el("div", "ways", null, side), text = el("div", "text", null, side), tip = el("div", "tip", null, stage);
  tip.hidden = true; base.tabIndex = 0; readout.setAttribute("aria-live", "polite"); ways.setAttribute("role", "group"); ways.setAttribute("aria-label", "What the shading shows");
  const [from, to] = ["Where it looks", "Who looks at it"].map((label) => Object.assign(el("button", "", label, ways), { type: "button" }));
  const TOP = 8; // room for half a label above the first row
  let head, share, n, geo, lut, back = false, hover = null, spans = [], image, imageKey;

  const value = (q, k) => share[q * n + k] / 65534;
  const unseen = (q, k) => head.causal && k > q;
  const lock = () => (me.cue.value && me.cue.value[0] < n && me.cue.value[1] < n ? me.cue.value : null);
  const focus = () => hover ?? lock();
  function best(i, to = back) { // the strongest cell of a token's row (where it looks) or column (who looks at it)
    let at = to ? [i, i] : [i, 0];
    for (let j = 0; j < n; j++) { const c = to ? [j, i] : [i, j]; if (!unseen(...c) && value(...c) > value(...at)) at = c; }
    return at;
  }
  function sentence(node, [q, k]) {
    const say = (word, i) => { node.append(`${word} `); el("code", "", "“", node).append(el("bdi", "", head.tokens[i]), "”"); node.append(` (${i})`); };
    say("query", q); node.append(" → "); say("key", k); node.append(": ");
    el("span", "num", unseen(q, k) ? "masked, a later token" : numberOf(value(q, k), { digits: 3 }), node);
  }

  function paintImage() { // at most one pixel a token; pools the brightest when there are more tokens than pixels
    const f = Math.max(1, Math.ceil(n / 1024)), m = Math.ceil(n / f), px = new ImageData(m, m), top = new Uint16Array(m * m);
    for (let q = 0; q < n; q++) for (let k = 0; k < n; k++) {
      const i = Math.floor(q / f) * m + Math.floor(k / f);
      top[i] = Math.max(top[i], share[q * n + k]);
    }
    for (let q = 0; q < m; q++) for (let k = 0; k < m; k++) {
      if (head.causal && k > q) continue;
      const i = q * m + k, c = 3 * Math.round(255 * Math.sqrt(top[i] / 65534));
      px.data.set([lut.table[c], lut.table[c + 1], lut.table[c + 2], 255], 4 * i);
    }
    image = new OffscreenCanvas(m, m); image.getContext("2d").putImageData(px, 0, 0);
  }
  function label(ctx, i, axis, strong) { // a token on its axis; strong: on a plate that hides its neighbours
    const at = (i + 0.5) * geo.cell, room = axis === "q" ? geo.left - 10 : geo.bottom - 10, shown = clipped(ctx, head.tokens[i], room);
    ctx.save();
    if (axis === "q") ctx.translate(geo.left - 6, at); else { ctx.translate(geo.left + at, geo.size + 6); ctx.rotate(-Math.PI / 2); }
    ctx.textAlign = "right"; ctx.textBaseline = "middle";
    if (strong) {
      const w = ctx.measureText(shown).width + 8;
      ctx.fillStyle = css(me.theme.text); ctx.beginPath(); ctx.roundRect(4 - w, -8, w, 16, 3); ctx.fill();
    }
    ctx.fillStyle = css(strong ? me.theme.page : me.theme.muted);
    ctx.fillText(shown, 0, 0.5);
    ctx.restore();
  }
  function drawCross() {
    const ctx = sized(cross, geo.left + geo.size + 2, TOP + geo.size + geo.bottom), at = focus(), c = geo.cell;
    ctx.translate(0, TOP);
    readout.replaceChildren();
    if (!at) el("span", "hint", "Point at a cell or a token. Click to hold it.", readout);
    else {
      const [q, k] = at, x = geo.left + k * c, y = q * c, ink = css(me.theme.text, 0.55);
      sentence(readout, at);
      ctx.fillStyle = ink;
      ctx.fillRect(geo.left, y + c / 2 - 0.5, k * c, 1); ctx.fillRect(x + c / 2 - 0.5, y + c, 1, geo.size - y - c);
      ctx.lineWidth = 2; ctx.strokeStyle = css(me.theme.page); ctx.strokeRect(x - 2.5, y - 2.5, c + 5, c + 5);
      ctx.strokeStyle = css(lock() && !hover ? me.theme.accent : me.theme.text); ctx.strokeRect(x - 1, y - 1, c + 2, c + 2);
      ctx.font = `500 11px ${me.theme.mono}`; label(ctx, q, "q", true); label(ctx, k, "k", true);
    }
    const i = at && at[back ? 1 : 0];
    spans.forEach((span, j) => {
      const c = at && (back ? [j, i] : [i, j]), dark = at && unseen(...c);
      const tint = at && !dark ? Math.round(255 * Math.sqrt(value(...c))) : -1;
      if (span.tint !== tint) { span.tint = tint; span.style.background = lut.tints[tint] ?? ""; span.style.color = lut.inks[tint] ?? ""; }
      const cls = !at ? "" : j === i ? "focus" : j === at[back ? 0 : 1] ? "other" : dark ? "blind" : "";
      if (span.className !== cls) span.className = cls;
    });
  }
  const point = (at) => { hover = at; drawCross(); };
  const hold = (at, wait = 0) => { hover = null; me.send(at ?? [], wait); drawCross(); };
  const toggle = (at) => hold(lock() && String(lock()) === String(at) ? null : at);

  base.onpointermove = (e) => {
    const box = base.getBoundingClientRect(), x = e.clientX - box.left - geo.left, y = e.clientY - box.top - TOP, k = Math.floor(x / geo.cell), q = Math.floor(y / geo.cell);
    if (k < 0 || q < 0 || k >= n || q >= n || unseen(q, k)) { tip.hidden = true; if (hover) point(null); return; }
    if (!hover || hover[0] !== q || hover[1] !== k) point([q, k]);
    showTip(tip, stage, x + geo.left, y + TOP, (node) => sentence(node, [q, k]));
  };
  base.onpointerleave = () => { tip.hidden = true; point(null); };
  base.onclick = (e) => { base.onpointermove(e); if (hover) toggle(hover); };
  base.onkeydown = (e) => {
    const [q, k] = lock() ?? best(n - 1), step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[e.key];
    if (e.key === "Escape") { hold(null); return; }
    if (!step || e.altKey || e.ctrlKey || e.metaKey) return;
    e.preventDefault(); tip.hidden = true;
    const next = lock() ? [q + step[0], k + step[1]] : [q, k];
    if (next[0] >= 0 && next[1] >= 0 && next[0] < n && next[1] < n && !unseen(...next)) hold(next, 200);
  };
  const look = (way) => { back = way; from.setAttribute("aria-pressed", !way); to.setAttribute("aria-pressed", way); if (geo) drawCross(); };
  from.onclick = () => look(false); to.onclick = () => look(true); look(false);

  return {
    load(newHead, arrays) {
      head = newHead; share = arrays.shares; n = head.tokens.length; imageKey = ""; hover = null;
      text.replaceChildren(); spans = [];
      head.tokens.forEach((token, i) => {
        const span = Object.assign(el("button", "", null, text), { type: "button", onclick: () => toggle(best(i)) });
        span.onpointerenter = span.onfocus = () => point(best(i)); span.onpointerleave = span.onblur = () => point(null);
        span.append(el("bdi", "", token)); span.setAttribute("aria-label", `token ${i}: ${token}`); spans.push(span);
        if (head.breaks.includes(i)) el("br", "", null, text);
      });
    },
    draw() {
      const { theme, cue } = me, wide = root.clientWidth >= 820, ctx0 = base.getContext("2d"), ratio = devicePixelRatio || 1;
      lut = lutOf(PALETTES.attention[theme.mode]);
      if (imageKey !== head.version + theme.mode) { paintImage(); imageKey = head.version + theme.mode; spans.forEach((span) => { span.tint = null; }); }
      ctx0.font = `400 11px ${theme.mono}`;
      const longest = Math.max(...head.tokens.map((t) => ctx0.measureText(t).width)), gutter = Math.ceil(Math.min(longest + 14, 104, root.clientWidth * 0.22));
      const room = Math.min(cue.max_size, (wide ? root.clientWidth * 0.62 : root.clientWidth) - gutter - 4);
      const cell = room >= n ? Math.floor(Math.min(room / n, 56) * ratio) / ratio : room / n; // whole device pixels: even cells
      geo = { left: gutter, bottom: gutter, cell, size: cell * n };
      const ctx = sized(base, gutter + geo.size + 2, TOP + geo.size + gutter);
      ctx.translate(0, TOP);
      ctx.imageSmoothingEnabled = geo.size * ratio < image.width; ctx.imageSmoothingQuality = "high";
      ctx.drawImage(image, gutter, 0, geo.size, geo.size);
      ctx.fillStyle = css(theme.page, 0.8);
      if (cell >= 12) for (let i = 1; i < n; i++) {
        ctx.fillRect(gutter, i * cell - 0.5, head.causal ? (i + 1) * cell : geo.size, 1);
        const from = head.causal ? (i - 1) * cell : 0;
        ctx.fillRect(gutter + i * cell - 0.5, from, 1, geo.size - from);
      }
      ctx.strokeStyle = css(theme.line); ctx.lineWidth = 1; ctx.beginPath(); ctx.moveTo(gutter, 0); // where the future begins
      if (!head.causal) ctx.rect(gutter, 0, geo.size, geo.size);
      else for (let i = 0; i < n; i++) { ctx.lineTo(gutter + (i + 1) * cell, i * cell); ctx.lineTo(gutter + (i + 1) * cell, (i + 1) * cell); }
      ctx.stroke();
      ctx.font = `400 11px ${theme.sans}`; ctx.fillStyle = css(theme.muted); ctx.textAlign = "right"; ctx.textBaseline = "top";
      if (head.causal && geo.size > 180 && n > 6) ctx.fillText("later tokens, masked", gutter + geo.size, 2);
      ctx.font = `400 11px ${theme.mono}`;
      for (let i = 0, every = Math.ceil(14 / cell); i < n; i += every) { label(ctx, i, "q"); label(ctx, i, "k"); }
      base.setAttribute("role", "application");
      base.setAttribute("aria-label", `Attention pattern of ${head.label || "a head"}: ${n} query rows, ${n} key columns. Arrow keys move the held cell, Escape releases it.`);
      legend(key, { label: "Attention", unit: "", lo: 0, hi: 1, digits: 2 }, lut, { root: Math.sqrt, ticks: [0, 0.05, 0.25, 1] });
      tableOf(alt, "Show as table", ["query", "strongest key", "share"], () => head.tokens.map((_, q) => {
        const [, k] = best(q, false);
        return [...[q, k].map((i) => `${i} \u2068${head.tokens[i]}\u2069`), numberOf(value(q, k), { digits: 3 })];
      }));
      drawCross();
    },
  };
}
