// A value at each step (across) and position of the context (up, as its logarithm); a click goes to the step.
export default function (args) { return live(args, makeSurface); }

function makeSurface(me) {
  const { root } = me;
  const name = el("div", "name", null, root), stage = el("div", "stage", null, root), base = el("canvas", "", null, stage), over = el("canvas", "", null, stage), tip = el("div", "tip", null, stage);
  const key = el("div", "legend", null, el("div", "legends", null, root)), alt = el("details", "alt", null, root), spoken = el("div", "sr", null, root);
  spoken.setAttribute("aria-live", "polite"); tip.hidden = true; base.tabIndex = 0; base.setAttribute("role", "application");
  let head, steps, cells, count, rows, geo, hover = null, film = null, row = 0;

  const at = (j, p) => { const c = cells[j * rows + p]; return c === 65535 ? NaN : head.lo + (c / 65534) * (head.hi - head.lo); };
  const text = (v) => numberOf(v, { digits: 3 });
  const px = (s) => geo.axis.px(s), nearest = (step) => geo.axis.nearest(step);
  const py = (p) => geo.top + (1 - Math.log(p) / Math.log(rows + 0.5)) * geo.h; // position 1 is the lowest edge
  const under = (share) => Math.min(rows - 1, Math.max(0, Math.round((rows + 0.5) ** share) - 1)); // row at a height, 0 to 1
  function paint(lut, scale) {
    const ratio = HUB.press ? 1 : devicePixelRatio || 1, wide = Math.max(1, Math.round(geo.w * ratio)), high = Math.max(1, Math.round(geo.h * ratio)), image = new OffscreenCanvas(wide, high), px = new ImageData(wide, high);
    const ink = Uint32Array.from({ length: 256 }, (_, c) => (255 << 24) | (lut.table[3 * c + 2] << 16) | (lut.table[3 * c + 1] << 8) | lut.table[3 * c]), words = new Uint32Array(px.data.buffer);
    const from = Array.from({ length: wide }, (_, x) => geo.axis.under(geo.left + ((x + 0.5) / wide) * geo.w));
    for (let y = 0; y < high; y++) {
      const p = under(1 - (y + 0.5) / high);
      for (let x = 0; x < wide; x++) { const v = at(from[x], p); if (Number.isFinite(v)) words[y * wide + x] = ink[Math.round(255 * Math.min(1, Math.max(0, (v - scale.lo) / (scale.hi - scale.lo || 1))))]; }
    }
    image.getContext("2d").putImageData(px, 0, 0);
    return image;
  }
  function drawOver() {
    const { theme, cue } = me, ctx = sized(over, geo.width, geo.height), now = film ?? cue.value, bold = `600 11px ${theme.mono}`;
    ctx.setLineDash([3, 3]); ctx.lineWidth = 1;
    for (const s of cue.window ?? []) { const x = Math.round(px(s)) + 0.5; for (const [c, off] of [[theme.page, 0], [theme.text, 3]]) { ctx.strokeStyle = css(c); ctx.lineDashOffset = off; ctx.beginPath(); ctx.moveTo(x, geo.top); ctx.lineTo(x, geo.top + geo.h); ctx.stroke(); } }
    ctx.setLineDash([]);
    if (now != null && now >= steps[0] && now <= steps[count - 1]) {
      const x = Math.round(px(now)), late = x > geo.left + geo.w - 60;
      ctx.fillStyle = css(theme.page, 0.85); ctx.fillRect(x - 2, geo.top, 4.5, geo.h);
      ctx.fillStyle = css(theme.accent); ctx.fillRect(x - 0.5, geo.top - 4, 1.5, geo.h + 4);
      ctx.font = bold; ctx.textAlign = late ? "right" : "left"; ctx.textBaseline = "bottom"; ctx.fillText(stepText(now), x + (late ? -4 : 4), geo.top - 2);
    }
    if (!hover) return;
    const [x, y] = [px(steps[hover.j]), py(hover.p + 1)];
    ctx.strokeStyle = css(theme.page); ctx.lineWidth = 4; ctx.beginPath(); ctx.arc(x, y, 4.5, 0, 7); ctx.stroke();
    ctx.strokeStyle = css(theme.text); ctx.lineWidth = 1.5; ctx.beginPath(); ctx.arc(x, y, 4.5, 0, 7); ctx.stroke();
  }
  const say = (j, p) => { spoken.textContent = `step ${exactStep(steps[j])}, position ${p + 1}: ${text(at(j, p))}`; };
  base.onpointermove = (e) => {
    if (!geo || !count) return;
    const box = base.getBoundingClientRect(), x = e.clientX - box.left, y = e.clientY - box.top;
    if (x < geo.left || x > geo.left + geo.w || y < geo.top || y > geo.top + geo.h) { base.onpointerleave(); return; }
    hover = { j: geo.axis.under(x), p: under(1 - (y - geo.top) / geo.h) }; base.style.cursor = "pointer"; drawOver();
    showTip(tip, stage, x, y, (node) => {
      const list = el("dl", "", null, node), { label, unit } = me.cue.scale;
      for (const [a, b] of [["step", exactStep(steps[hover.j])], ["position", hover.p + 1], [label, text(at(hover.j, hover.p)) + (unit ? ` ${unit}` : "")]]) { el("dt", "", a, list); el("dd", "", `${b}`, list); }
    });
  };
  base.onpointerleave = () => { hover = null; tip.hidden = true; base.style.cursor = "default"; if (geo && count) drawOver(); };
  base.onclick = (e) => { base.onpointermove(e); if (hover) { row = hover.p; me.send(steps[hover.j]); say(hover.j, row); drawOver(); } };
  base.onkeydown = (e) => {
    const way = { ArrowRight: 1, ArrowLeft: -1 }[e.key], up = { ArrowUp: 1, ArrowDown: -1 }[e.key];
    if (!geo || !count || e.altKey || e.ctrlKey || e.metaKey || (!way && !up)) return;
    e.preventDefault(); e.stopPropagation();
    const now = nearest(me.cue.value ?? steps[count - 1]), j = Math.min(count - 1, Math.max(0, now + (way ?? 0)));
    row = Math.min(rows - 1, Math.max(0, row + (up ?? 0))); hover = { j, p: row };
    if (way) me.send(steps[j], 140);
    say(j, row); drawOver();
  };
  base.onblur = () => { hover = null; if (geo && count) drawOver(); };
  const deaf = hear("frame", (frame) => {
    film = frame?.step ?? null;
    if (geo && count) drawOver();
  });

  return {
    load(newHead, arrays) { head = newHead; ({ steps, cells } = arrays); [count, rows] = cells.shape; hover = null; tip.hidden = true; row = Math.min(row, rows - 1); },
    draw() {
      const { theme, cue } = me, width = root.clientWidth, lut = lutOf(PALETTES[cue.scale.palette][theme.mode]), left = 44, top = 18, h = cue.height - 62;
      geo = { width, left, top, w: width - left - 12, h, height: cue.height };
      geo.axis = stepAxis(steps, cue.log_x, geo.left, geo.w);
      const ctx = sized(base, width, cue.height), foot = top + h;
      ctx.fillStyle = css(theme.faint); ctx.fillRect(left, top, geo.w, h);
      if (count) ctx.drawImage(paint(lut, cue.scale), left, top, geo.w, h);
      ctx.font = `400 11px ${theme.mono}`; ctx.fillStyle = css(theme.muted); ctx.textAlign = "right"; ctx.textBaseline = "middle";
      for (let p = 1; p <= rows; p *= 2) { const y = Math.round(py(p)); ctx.fillRect(left - 4, y, 4, 1); ctx.fillText(`${p}`, left - 8, Math.max(y, top + 5)); }
      ctx.textAlign = "center"; ctx.textBaseline = "top";
      for (const s of geo.axis.ticks()) { ctx.fillRect(Math.round(px(s)), foot + 1, 1, 4); ctx.fillText(stepText(s), Math.min(px(s), width - ctx.measureText(stepText(s)).width / 2 - 1), foot + 8); }
      ctx.font = `400 11px ${theme.sans}`; ctx.textAlign = "right"; ctx.fillText(`step${cue.log_x ? " (log)" : ""}`, left + geo.w, foot + 24);
      ctx.textAlign = "left"; ctx.fillText("position (log)", 0, foot + 24);
      name.textContent = cue.scale.label + (cue.scale.unit ? ` (${cue.scale.unit})` : "");
      base.setAttribute("aria-label", `${cue.scale.label} at ${rows} positions over ${count} steps. Left and right move the step, up and down the position.`);
      legend(key, { ...cue.scale, label: "", unit: "" }, lut, { ticks: cue.scale.lo < 0 ? [cue.scale.lo, 0, cue.scale.hi] : [cue.scale.lo, cue.scale.hi] });
      const some = []; for (let p = 1; p <= rows; p *= 2) some.push(p);
      tableOf(alt, "Show as table", ["step", ...some.map((p) => `position ${p}`)], () => Array.from(steps, (s, j) => [`${s}`, ...some.map((p) => text(at(j, p - 1)))]),
        { columns: ["step", ...Array.from({ length: rows }, (_, p) => `position ${p + 1}`)], rows: () => Array.from(steps, (s, j) => [s, ...Array.from({ length: rows }, (_, p) => exactOf(at(j, p)))]) });
      if (count) drawOver();
    },
    end() { deaf(); },
  };
}
