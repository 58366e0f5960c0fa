// Curves of different units in lanes on one axis of steps; the window in which each turned is shaded, its midpoint ruled.
export default function (args) { return live(args, makeTimeline); }

function makeTimeline(me) {
  const { root } = me;
  const stage = el("div", "stage", null, root), base = el("canvas", "", null, stage), over = el("canvas", "", null, stage), tip = el("div", "tip", null, stage);
  const alt = el("details", "alt", null, root), spoken = el("div", "sr", null, root);
  spoken.setAttribute("aria-live", "polite"); tip.hidden = true; base.tabIndex = 0; base.setAttribute("role", "application");
  let head, steps, lines, count, rows, geo, hover = null, film = null;

  const at = (i, j) => { const c = lines[i * count + j], [lo, hi] = head.ranges[i]; return c === 65535 ? NaN : lo + (c / 65534) * (hi - lo); };
  const known = (i, j) => { while (j > 0 && lines[i * count + j] === 65535) j--; return j; }; // its last measurement until then
  const text = (v) => numberOf(v, { digits: Math.abs(v) >= 100 ? 1 : 3 });
  const px = (s) => geo.axis.px(s), nearest = (step) => geo.axis.nearest(step);
  const spanOf = (w) => `${exactStep(w[0])} to ${exactStep(w[2])}`;
  const said = (i) => { const w = head.windows[i]; return w ? `step ${exactStep(w[1])}, window ${spanOf(w)}` : "no turn found"; };
  const laneTop = (i) => geo.top + i * geo.lane + geo.title, laneY = (i, c) => laneTop(i) + (1 - c / 65534) * geo.high;
  function type(ctx, words, x, y, colour, align, baseline, font) { ctx.font = font; ctx.textAlign = align; ctx.textBaseline = baseline; ctx.fillStyle = css(colour); ctx.fillText(words, x, y); }

  function drawLane(ctx, i) {
    const { theme } = me, { left, w, high, wide } = geo, top = laneTop(i), w3 = head.windows[i], rank = head.numbers[i], small = `400 10px ${theme.mono}`;
    ctx.fillStyle = css(theme.faint); ctx.fillRect(left, Math.round(top + high) + 0.5, w, 1);
    if (w3) {
      const [a, m, b] = w3.map(px), wash = geo.mark;
      ctx.fillStyle = css(wash, rank ? 0.22 : 0.08); ctx.fillRect(a, top - 2, Math.max(2, b - a), high + 4);
      ctx.fillStyle = css(wash, rank ? 1 : 0.4); ctx.fillRect(Math.round(m) - 1, top - 2, 2, high + 4);
    }
    ctx.strokeStyle = css(theme.text, 0.86); ctx.lineWidth = 1.5; ctx.lineJoin = "round"; ctx.beginPath();
    let open = false;
    for (let j = 0; j < count; j++) { const c = lines[i * count + j]; if (c === 65535) continue; const x = px(steps[j]), y = laneY(i, c); if (open) ctx.lineTo(x, y); else ctx.moveTo(x, y); open = true; }
    ctx.stroke();
    const unit = head.units[i] ? ` (${head.units[i]})` : "", y = wide ? top + high / 2 - 8 : top - 12;
    if (rank) { ctx.fillStyle = css(geo.mark); ctx.beginPath(); ctx.arc(9, y, 8.5, 0, 7); ctx.fill(); type(ctx, `${rank}`, 9, y + 0.5, rgb(inkOn(geo.mark)), "center", "middle", `600 10.5px ${theme.mono}`); }
    const room = wide ? left - 82 : w + left - 26 - 74;
    ctx.font = `500 12px ${theme.sans}`; type(ctx, clipped(ctx, head.labels[i] + unit, room), 24, y, theme.text, "left", "middle", `500 12px ${theme.sans}`);
    if (wide) type(ctx, w3 ? `${spanOf(w3)}, ${rank ? `half at ${exactStep(w3[1])}` : "a slow slope"}` : "no turn found", 24, y + 17, theme.muted, "left", "middle", `400 11px ${theme.sans}`);
    const [lo, hi] = head.ranges[i];
    if (wide) { type(ctx, text(hi), left - 6, top, theme.muted, "right", "top", small); type(ctx, text(lo), left - 6, top + high, theme.muted, "right", "bottom", small); }
  }
  function drawOver() {
    const { theme, cue } = me, ctx = sized(over, geo.width, geo.height), now = hover ?? nearest(film ?? cue.value ?? steps[count - 1]), bold = `600 11px ${theme.mono}`;
    const rule = (s, colour, words) => {
      const x = Math.round(px(s)), late = x > geo.left + geo.w - 60;
      ctx.fillStyle = css(colour); ctx.fillRect(x - 0.5, geo.top - 4, 1.5, geo.foot - geo.top + 4);
      if (words) type(ctx, words, x + (late ? -4 : 4), geo.top - 5, colour, late ? "right" : "left", "bottom", bold);
    };
    const fixed = film ?? cue.value;
    if (fixed != null && fixed >= steps[0] && fixed <= steps[count - 1]) rule(fixed, theme.accent, hover == null ? stepText(fixed) : "");
    if (hover != null) rule(steps[hover], theme.muted, stepText(steps[hover]));
    for (let i = 0; i < rows; i++) {
      const j = known(i, now), c = lines[i * count + j];
      if (c === 65535) continue;
      ctx.fillStyle = css(theme.text); ctx.strokeStyle = css(theme.page); ctx.lineWidth = 2; ctx.beginPath(); ctx.arc(px(steps[j]), laneY(i, c), 3.5, 0, 7); ctx.stroke(); ctx.fill();
      type(ctx, text(at(i, j)), geo.width, geo.wide ? laneTop(i) + geo.high / 2 : laneTop(i) - 12, theme.text, "right", "middle", `500 11px ${theme.mono}`);
    }
  }
  function go(j, wait) {
    me.send(steps[j], wait);
    spoken.textContent = `step ${exactStep(steps[j])}. ${head.labels.map((name, i) => `${name} ${text(at(i, known(i, j)))}`).join(", ")}`;
    drawOver();
  }
  base.onpointermove = (e) => {
    if (!geo || !count) return;
    const box = base.getBoundingClientRect(), x = e.clientX - box.left, y = e.clientY - box.top;
    if (x < geo.left - 8 || x > geo.left + geo.w + 8) { base.onpointerleave(); return; }
    const i = Math.floor((y - geo.top) / geo.lane);
    hover = geo.axis.under(x); base.style.cursor = "pointer"; drawOver();
    if (i < 0 || i >= rows) { tip.hidden = true; return; }
    showTip(tip, stage, px(steps[hover]), geo.top + i * geo.lane, (node) => {
      el("b", "", head.labels[i], node);
      const list = el("dl", "", null, node), j = known(i, hover);
      el("dt", "", "step", list); el("dd", "", exactStep(steps[j]), list);
      el("dt", "", "value", list); el("dd", "", text(at(i, j)) + (head.units[i] ? ` ${head.units[i]}` : ""), list);
      const w = head.windows[i];
      el("dt", "", "turned", list); el("dd", "", w ? `step ${exactStep(w[1])}` : "no turn found", list);
      if (w) { el("dt", "", "window", list); el("dd", "", spanOf(w), list); }
    });
  };
  base.onpointerleave = () => { hover = null; tip.hidden = true; base.style.cursor = "default"; if (geo && count) drawOver(); };
  base.onclick = (e) => { base.onpointermove(e); if (hover != null) go(hover, 0); };
  base.onkeydown = (e) => {
    const way = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    if (!geo || !count || e.altKey || e.ctrlKey || e.metaKey || (!way && e.key !== "Home" && e.key !== "End")) return;
    e.preventDefault(); e.stopPropagation();
    const now = nearest(me.cue.value ?? steps[count - 1]);
    go(e.key === "Home" ? 0 : e.key === "End" ? count - 1 : Math.min(count - 1, Math.max(0, now + way)), 140);
  };
  const deaf = hear("frame", (frame) => { // a film plays: the line follows it
    film = frame?.step ?? null;
    if (geo && count) drawOver();
  });

  return {
    load(newHead, arrays) { head = newHead; ({ steps, lines } = arrays); [rows, count] = lines.shape; hover = null; tip.hidden = true; },
    draw() {
      const { theme, cue } = me, width = root.clientWidth, wide = width >= 640, title = wide ? 8 : 26, high = wide ? 46 : 30, lane = title + high + (wide ? 10 : 12);
      const left = wide ? 280 : 4, top = 20, foot = top + rows * lane;
      geo = { width, wide, title, high, lane, left, top, foot, height: foot + 40, w: width - left - (wide ? 62 : 8), mark: lutOf(PALETTES.score[theme.mode]).at(0.62) };
      geo.axis = stepAxis(steps, cue.log_x, geo.left, geo.w);
      const ctx = sized(base, width, geo.height);
      for (const s of geo.axis.ticks()) {
        const x = Math.round(px(s)), words = stepText(s);
        ctx.fillStyle = css(theme.faint); ctx.fillRect(x, top, 1, foot - top);
        ctx.font = `400 11px ${theme.mono}`; const half = ctx.measureText(words).width / 2;
        type(ctx, words, Math.min(Math.max(px(s), half), width - half - 1), foot + 6, theme.muted, "center", "top", `400 11px ${theme.mono}`);
      }
      for (let i = 0; i < rows; i++) drawLane(ctx, i);
      type(ctx, `step${cue.log_x ? " (log)" : ""}`, left + geo.w, foot + 22, theme.muted, "right", "top", `400 11px ${theme.sans}`);
      base.setAttribute("aria-label", `${rows} curves over ${count} steps, in the order in which they turned. Left and right move the step. ${head.labels.map((name, i) => `${name}: ${said(i)}`).join(". ")}`);
      tableOf(alt, "Show as table", ["curve", "onset", "midpoint", "end", "first", "last"], () => head.labels.map((name, i) => {
        const v = Array.from({ length: count }, (_, j) => at(i, j)).filter(Number.isFinite);
        return [name, ...(head.windows[i] ?? ["–", "–", "–"]).map(String), text(v[0]), text(v.at(-1))];
      }), { columns: ["step", ...head.labels], rows: () => Array.from(steps, (s, j) => [s, ...head.labels.map((_, i) => exactOf(at(i, j)))]) });
      if (count) drawOver();
    },
    end() { deaf(); },
  };
}
