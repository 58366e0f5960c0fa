// Heads x steps as one picture, a row a head; the row under the mouse, the chosen one and the step on an overlay.
export default function (args) { return live(args, makeCarpet); }

function makeCarpet(me) {
  const { root } = me;
  const top = el("div", "top", null, root), name = el("span", "name", null, top), sort = el("span", "sort", null, top);
  const stage = el("div", "stage", null, root), base = el("canvas", "", null, stage), over = el("canvas", "", null, stage), tip = el("div", "tip", null, stage);
  const key = el("div", "legend", null, el("div", "legends", null, root)), alt = el("details", "alt", null, root), spoken = el("div", "sr", null, root);
  spoken.setAttribute("aria-live", "polite"); tip.hidden = true; base.tabIndex = 0; base.setAttribute("role", "application");
  sort.setAttribute("role", "group"); sort.setAttribute("aria-label", "Order of the rows");
  const ways = ["by change", "by layer"].map((text, i) => Object.assign(el("button", "", text, sort), { type: "button", onclick: () => { way = i; me.draw(); } }));
  ways[0].title = "Earliest change first: the step halfway from a head's first level to its last. Heads that never change come last.";
  let head, steps, cells, count, rows, shown = [], place = [], way = 0, geo, hover = null, film = null;

  const at = (i, j) => { const c = cells[i * count + j]; return c === 65535 ? NaN : head.lo + (c / 65534) * (head.hi - head.lo); };
  const chosen = () => head.labels.indexOf(me.cue.value);
  const text = (v) => numberOf(v, { digits: Math.abs(v) >= 100 ? 1 : 3 });
  const px = (s) => geo.axis.px(s), nearest = (step) => geo.axis.nearest(step);
  const turn = (i) => (head.turns[i] < 0 ? "no lasting change" : `changed at step ${head.turns[i]}`);
  const describe = (i) => `${head.labels[i]}: ${text(at(i, nearest(me.cue.step ?? steps[count - 1])))}, ${turn(i)}`;

  function paint(lut, scale) { // a column of pixels each, of the step nearest to it
    const ratio = HUB.press ? 1 : devicePixelRatio || 1, wide = Math.max(1, Math.round(geo.w * ratio)), image = new OffscreenCanvas(wide, rows), px = new ImageData(wide, rows);
    const ink = Uint32Array.from({ length: 256 }, (_, c) => (255 << 24) | (lut.table[3 * c + 2] << 16) | (lut.table[3 * c + 1] << 8) | lut.table[3 * c]);
    const words = new Uint32Array(px.data.buffer), from = new Uint16Array(wide), span = scale.hi - scale.lo || 1;
    const tone = new Uint8Array(65536); // of every code
    for (let c = 0; c < 65535; c++) tone[c] = Math.round(255 * Math.min(1, Math.max(0, (head.lo + (c / 65534) * (head.hi - head.lo) - scale.lo) / span)));
    for (let x = 0; x < wide; x++) from[x] = geo.axis.under(geo.left + ((x + 0.5) / wide) * geo.w);
    for (let r = 0; r < rows; r++) for (let x = 0, line = shown[r] * count; x < wide; x++) { const c = cells[line + from[x]]; if (c !== 65535) words[r * wide + x] = ink[tone[c]]; }
    image.getContext("2d").putImageData(px, 0, 0);
    return image;
  }
  const y = (r) => geo.top + (r / rows) * geo.h;

  function drawOver() {
    const { theme, cue } = me, ctx = sized(over, geo.width, geo.height), bold = `600 11px ${theme.mono}`, now = film ?? cue.step;
    const ring = (i, colour, wide) => {
      const high = Math.max(geo.row, 3), mid = y(place[i]) + geo.row / 2;
      for (const [c, w] of [[theme.page, wide + 2], [colour, wide]]) { ctx.strokeStyle = css(c); ctx.lineWidth = w; ctx.strokeRect(geo.left - 1, mid - high / 2 - 1, geo.w + 2, high + 2); }
    };
    if (hover && hover.i !== chosen()) ring(hover.i, theme.text, 1);
    if (chosen() >= 0) ring(chosen(), theme.accent, 2);
    if (chosen() >= 0 && geo.row < 10) { ctx.font = bold; ctx.textAlign = "right"; ctx.textBaseline = "middle"; ctx.fillStyle = css(theme.page); ctx.fillRect(0, y(place[chosen()]) + geo.row / 2 - 8, geo.left - 4, 16); ctx.fillStyle = css(theme.accent); ctx.fillText(head.labels[chosen()], geo.left - 6, y(place[chosen()]) + geo.row / 2); }
    if (now == null || now < steps[0] || now > steps[count - 1]) return;
    const x = Math.round(px(now)), late = x > geo.left + geo.w - 60;
    ctx.fillStyle = css(theme.page, 0.85); ctx.fillRect(x - 2, geo.top, 4.5, geo.h);
    ctx.fillStyle = css(theme.accent); ctx.fillRect(x - 0.5, geo.top - 4, 1.5, geo.h + 4);
    ctx.font = bold; ctx.textAlign = late ? "right" : "left"; ctx.textBaseline = "bottom"; ctx.fillText(stepText(now), x + (late ? -4 : 4), geo.top - 2);
  }
  function under(e) {
    const box = base.getBoundingClientRect(), x = e.clientX - box.left, r = Math.floor(((e.clientY - box.top - geo.top) / geo.h) * rows);
    if (x < geo.left || x > geo.left + geo.w || r < 0 || r >= rows) return null;
    return { i: shown[r], j: geo.axis.under(x), x, y: y(r) };
  }
  function pick(i, wait) { // a second click on the chosen row lets it go
    const same = !wait && head.labels[i] === me.cue.value;
    me.send(same ? "" : head.labels[i], wait);
    spoken.textContent = same ? "nothing selected" : describe(i);
    drawOver();
  }
  base.onpointermove = (e) => {
    if (!geo || !rows) return;
    hover = under(e); base.style.cursor = hover ? "pointer" : "default"; drawOver();
    if (!hover) { tip.hidden = true; return; }
    showTip(tip, stage, hover.x, hover.y, (node) => {
      el("b", "num", head.labels[hover.i], node);
      const list = el("dl", "", null, node), { label, unit } = me.cue.scale, v = at(hover.i, hover.j);
      el("dt", "", "step", list); el("dd", "", exactStep(steps[hover.j]), list);
      el("dt", "", label, list); el("dd", "", text(v) + (unit && Number.isFinite(v) ? ` ${unit}` : ""), list);
      el("dt", "", "halfway", list); el("dd", "", head.turns[hover.i] < 0 ? "no change" : `step ${head.turns[hover.i]}`, list);
    });
  };
  base.onpointerleave = () => { hover = null; tip.hidden = true; if (geo) drawOver(); };
  base.onclick = (e) => { base.onpointermove(e); if (hover) pick(hover.i, 0); };
  base.onkeydown = (e) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[e.key];
    if (!geo || !rows || e.altKey || e.ctrlKey || e.metaKey) return;
    if (e.key === "Escape") { me.send(""); drawOver(); return; }
    if (!step && e.key !== "Home" && e.key !== "End") return;
    e.preventDefault();
    const now = chosen() < 0 ? (step > 0 ? -1 : rows) : place[chosen()];
    pick(shown[e.key === "Home" ? 0 : e.key === "End" ? rows - 1 : Math.min(rows - 1, Math.max(0, now + step))], 140);
  };
  const deaf = hear("frame", (frame) => { // a film plays: the line follows it
    film = frame?.step ?? null;
    if (geo && rows) drawOver();
  });

  return {
    load(newHead, arrays) { head = newHead; ({ steps, cells } = arrays); [rows, count] = cells.shape; hover = null; tip.hidden = true; },
    draw() {
      const { theme, cue } = me, width = root.clientWidth, lut = lutOf(PALETTES[cue.scale.palette][theme.mode]);
      shown = way ? head.labels.map((_, i) => i) : head.order; place = []; shown.forEach((i, r) => { place[i] = r; });
      const room = (cue.height - 62) / Math.max(rows, 1), row = room < 8 ? Math.max(1, Math.round(room)) : Math.min(26, room), h = Math.round(row * rows); // thin rows are whole pixels
      geo = { width, left: 52, top: 18, w: width - 52 - 12, h, row: h / Math.max(rows, 1), height: 18 + h + 44 };
      geo.axis = stepAxis(steps, cue.log_x, geo.left, geo.w);
      const ctx = sized(base, width, geo.height), foot = geo.top + h, end = geo.left + geo.w;
      ctx.fillStyle = css(theme.faint); ctx.fillRect(geo.left, geo.top, geo.w, h);
      if (rows) { ctx.imageSmoothingEnabled = geo.row < 1; ctx.drawImage(paint(lut, cue.scale), geo.left, geo.top, geo.w, h); }
      ctx.fillStyle = css(theme.page); // a hair between rows that are high enough
      if (geo.row >= 7) for (let r = 1; r < rows; r++) ctx.fillRect(geo.left, Math.round(y(r)) - 0.5, geo.w, 1);
      ctx.font = `400 ${Math.min(11, Math.max(9, geo.row))}px ${theme.mono}`; ctx.textAlign = "right"; ctx.textBaseline = "middle"; ctx.fillStyle = css(theme.muted);
      const first = (r) => !r || head.groups[shown[r]] !== head.groups[shown[r - 1]];
      for (let r = 0, last = -99; r < rows; r++) {
        if (geo.row >= 10) ctx.fillText(head.labels[shown[r]], geo.left - 8, y(r) + geo.row / 2);
        else if (way && first(r) && y(r) - last >= 12) { last = y(r); ctx.fillText(`L${head.groups[shown[r]]}`, geo.left - 8, Math.max(y(r) + 5, geo.top + 5)); ctx.fillRect(geo.left - 5, Math.round(y(r)), 4, 1); }
      }
      if (!way && geo.row < 10 && rows) { ctx.font = `400 10.5px ${theme.sans}`; ctx.fillText("early", geo.left - 8, geo.top + 6); ctx.fillText(head.turns.includes(-1) ? "never" : "late", geo.left - 8, foot - 6); }
      ctx.font = `400 11px ${theme.mono}`; ctx.textAlign = "center"; ctx.textBaseline = "top";
      for (const s of geo.axis.ticks()) { ctx.fillRect(Math.round(px(s)), foot + 1, 1, 4); ctx.fillText(stepText(s), Math.min(px(s), width - ctx.measureText(stepText(s)).width / 2 - 1), foot + 8); }
      ctx.font = `400 11px ${theme.sans}`; ctx.textAlign = "right"; ctx.fillText(`step${cue.log_x ? " (log)" : ""}`, end, foot + 24);
      name.textContent = cue.scale.label + (cue.scale.unit ? ` (${cue.scale.unit})` : "");
      ways.forEach((button, i) => button.setAttribute("aria-pressed", i === way));
      const now = chosen() >= 0 ? ` Selected ${describe(chosen())}` : "";
      base.setAttribute("aria-label", `${cue.scale.label} of ${rows} heads over ${count} steps, a row a head, ${ways[way].textContent}. Up and down choose a head, Escape clears.${now}`);
      legend(key, { ...cue.scale, label: "", unit: "" }, lut, { note: cue.scale.chance == null ? "" : `${cue.scale.mark === "chance" ? "at chance" : cue.scale.mark} ${numberOf(cue.scale.chance, { digits: 3 })}` });
      const columns = ["head", "changed at", "first", "lowest", "highest", "last"];
      tableOf(alt, "Show as table", columns, () => shown.map((i) => {
        const v = Array.from({ length: count }, (_, j) => at(i, j)).filter(Number.isFinite);
        return [head.labels[i], head.turns[i] < 0 ? "–" : `step ${head.turns[i]}`, ...[v[0], Math.min(...v), Math.max(...v), v.at(-1)].map(text)];
      }));
      if (rows) drawOver();
    },
    end() { deaf(); },
  };
}
