// Lines on a base canvas, drawn once; the line in focus and the marks on an overlay, so a mouse move redraws one line.
export default function (args) { return live(args, makeCurves); }

function makeCurves(me) {
  const { root } = me;
  const title = el("div", "title", null, root), stage = el("div", "stage", null, root);
  const axes = el("canvas", "", null, stage), base = el("canvas", "base", null, stage), over = el("canvas", "", null, stage), tip = el("div", "tip", null, stage);
  const alt = el("details", "alt", null, root), spoken = el("div", "sr", null, root);
  spoken.setAttribute("aria-live", "polite"); tip.hidden = true; axes.tabIndex = 0;
  let head, steps, lines, count, points, geo, hover = null, film = null;

  const lift = (v) => (head.log_y ? 10 ** v : v);
  const coded = (i, j) => { const c = lines[i * count + j]; return c === 65535 ? NaN : head.lo + (c / 65534) * (head.hi - head.lo); };
  const chosen = () => head.labels.indexOf(me.cue.value);
  const colour = (i) => { const p = me.cue.colours[me.theme.mode]; return p[head.groups[i] % p.length]; };
  const text = (v) => numberOf(v, { digits: Math.abs(v) >= 100 ? 1 : 3 }), brief = (v) => numberOf(v, { digits: 3 }).replace(/\.0+$|(\.\d*?[1-9])0+$/, "$1");
  const px = (s) => geo.axis.px(s);
  const py = (v) => geo.top + (1 - (v - geo.y0) / (geo.y1 - geo.y0)) * geo.h;

  function nice(lo, hi, want) {
    const raw = (hi - lo) / want, unit = 10 ** Math.floor(Math.log10(raw)), stride = [1, 2, 2.5, 5, 10].find((m) => m * unit >= raw) * unit, out = [];
    for (let v = Math.ceil(lo / stride - 1e-9) * stride; v <= hi + stride * 1e-6; v += stride) out.push(Math.abs(v) < stride * 1e-6 ? 0 : v);
    return out;
  }
  function decades(lo, hi) { // exponents of 1, 10, 100 ... thinned; of 1, 2, 5 where the span is short
    const a = Math.ceil(lo - 1e-9), b = Math.floor(hi + 1e-9), every = Math.ceil((b - a + 1) / 7), out = [];
    if (b - a >= 2) for (let d = a; d <= b; d += every) out.push(d);
    else for (let d = Math.floor(lo); d <= b + 1; d++) for (const m of [1, 2, 5]) out.push(d + Math.log10(m));
    return out.filter((v) => v >= lo - 1e-9 && v <= hi + 1e-9);
  }
  function axisText(v) { // as many digits as tell two ticks apart
    const stride = head.log_y ? 0 : geo.ticks.length > 1 ? geo.ticks[1] - geo.ticks[0] : 0, size = (x) => Math.floor(Math.log10(Math.abs(x)));
    const places = stride && [0, 1, 2, 3, 4, 5, 6, 7, 8].find((d) => Math.abs(stride - +stride.toFixed(d)) < stride * 1e-6), far = v && (Math.abs(v) >= 1e5 || Math.abs(v) < 1e-3);
    const text = far ? v.toExponential(stride ? Math.min(6, Math.max(0, size(v) - size(stride))) : 0).replace(/\.0+e/, "e") : `${stride ? +v.toFixed(places ?? 8) : +v.toPrecision(4)}`;
    return text.replace("-", "−");
  }
  function rule(ctx, x0, y0, x1, y1, colour) { ctx.strokeStyle = css(colour); ctx.beginPath(); ctx.moveTo(x0, y0); ctx.lineTo(x1, y1); ctx.stroke(); }
  function type(ctx, text, x, y, colour, align, baseline, font = `400 11px ${me.theme.mono}`) {
    ctx.font = font; ctx.textAlign = align; ctx.textBaseline = baseline; ctx.fillStyle = typeof colour === "string" ? colour : css(colour); ctx.fillText(text, x, y);
  }

  function path(ctx, i) { // hundreds of thousands of points: no call but the canvas's own
    const { xs, foot, rise } = geo, at = i * count;
    let open = false;
    ctx.beginPath();
    for (const j of points[i]) {
      if (j < 0) { open = false; continue; }
      const x = xs[j], y = foot - rise * lines[at + j];
      if (open) ctx.lineTo(x, y); else { ctx.moveTo(x, y); ctx.lineTo(x + 0.01, y); }
      open = true;
    }
    ctx.stroke();
  }
  function frame(ctx) {
    const { theme, cue } = me, { left, top, w, h } = geo, end = left + w, foot = top + h;
    ctx.lineWidth = 1;
    for (const v of geo.ticks) {
      const at = Math.round(py(v)) + 0.5;
      rule(ctx, left, at, end, at, theme.faint);
      type(ctx, axisText(lift(v)), left - 8, at, theme.muted, "right", "middle");
    }
    rule(ctx, left, foot + 0.5, end, foot + 0.5, theme.line);
    for (const s of geo.axis.ticks()) {
      const room = end + geo.right - ctx.measureText(stepText(s)).width / 2 - 1;
      type(ctx, stepText(s), Math.min(px(s), room), foot + 8, theme.muted, "center", "top");
      rule(ctx, Math.round(px(s)) + 0.5, foot, Math.round(px(s)) + 0.5, foot + 4, theme.line);
    }
    type(ctx, cue.x_label + (cue.log_x ? " (log)" : ""), end, foot + 24, theme.muted, "right", "top", `400 11px ${theme.sans}`);
    const chance = cue.scale.chance, at = chance == null ? NaN : py(head.log_y ? Math.log10(chance) : chance);
    if (at >= top && at <= foot) { ctx.setLineDash([4, 4]); rule(ctx, left, at, end, at, theme.muted); ctx.setLineDash([]); }
  }
  function drawOver() {
    const { theme, cue } = me, ctx = sized(over, geo.width, geo.height), main = hover?.i ?? chosen(), bold = `600 11px ${theme.mono}`;
    base.classList.toggle("dim", main >= 0 && head.labels.length > 1);
    ctx.lineJoin = "round";
    const now = film ?? cue.step;
    if (now != null && now >= steps[0] && now <= steps[count - 1]) {
      const x = Math.round(px(now)), late = x > geo.left + geo.w - 60;
      ctx.fillStyle = css(theme.accent); ctx.fillRect(x - 0.5, geo.top, 1.5, geo.h);
      type(ctx, stepText(now), x + (late ? -4 : 4), geo.top - 2, theme.accent, late ? "right" : "left", "bottom", bold);
    }
    const names = [];
    for (const i of new Set([main, chosen()])) if (i >= 0) {
      ctx.strokeStyle = css(theme.page, 0.9); ctx.lineWidth = 5; path(ctx, i);
      ctx.strokeStyle = colour(i); ctx.lineWidth = 2.5; path(ctx, i);
      const last = points[i].findLast((j) => j >= 0);
      if (geo.direct || geo.keyed || last === undefined || head.labels.length < 2) continue; // a lone line has the title's name
      const at = py(coded(i, last)), y = names.some((b) => Math.abs(at - b) < 14) ? names[0] + (at < names[0] ? -14 : 14) : at;
      ctx.font = bold; names.push(y);
      type(ctx, clipped(ctx, head.labels[i], geo.right - 8), geo.left + geo.w + 6, y, colour(i), "left", "middle", bold);
    }
    if (!hover) return;
    ctx.fillStyle = colour(hover.i); ctx.strokeStyle = css(theme.page); ctx.lineWidth = 2;
    ctx.beginPath(); ctx.arc(px(steps[hover.j]), py(coded(hover.i, hover.j)), 4.5, 0, 7); ctx.fill(); ctx.stroke();
  }
  function nearest(x, y) { // distance to the segment under the mouse, so that a steep or sparse line is still found
    let found = null, least = 40;
    for (let i = 0; i < head.labels.length; i++) {
      const p = points[i];
      let a = 0, b = p.length - 1;
      while (b - a > 1) { const m = (a + b) >> 1; if (p[m] >= 0 ? geo.xs[p[m]] < x : geo.xs[-p[m] - 1] < x) a = m; else b = m; }
      for (let s = Math.max(0, a - 1); s < Math.min(p.length, b + 2); s++) {
        const j = p[s], k = p[s + 1] ?? -1;
        if (j < 0) continue;
        const xj = geo.xs[j], yj = geo.foot - geo.rise * lines[i * count + j], dx = k < 0 ? 0 : geo.xs[k] - xj, dy = k < 0 ? 0 : geo.foot - geo.rise * lines[i * count + k] - yj;
        const t = Math.max(0, Math.min(1, ((x - xj) * dx + (y - yj) * dy) / (dx * dx + dy * dy || 1)));
        const d = Math.hypot(x - xj - t * dx, y - yj - t * dy);
        if (d < least) { least = d; found = { i, j: t > 0.5 ? k : j }; }
      }
    }
    return found;
  }
  const describe = (i) => { const j = points[i].findLast((p) => p >= 0); return `${head.labels[i]}: ${j >= 0 ? text(lift(coded(i, j))) : "no value"}`; };
  function pick(i, wait) { // a second click on the chosen line lets it go
    const same = !wait && head.labels[i] === me.cue.value;
    me.send(same ? "" : head.labels[i], wait);
    spoken.textContent = same ? "nothing selected" : describe(i);
    drawOver();
  }
  axes.onpointermove = (e) => {
    if (!geo) return;
    const box = axes.getBoundingClientRect(), x = e.clientX - box.left, y = e.clientY - box.top;
    hover = nearest(x, y); axes.style.cursor = hover && me.cue.selectable ? "pointer" : "default"; drawOver();
    if (!hover) { tip.hidden = true; return; }
    showTip(tip, stage, px(steps[hover.j]), py(coded(hover.i, hover.j)), (node) => {
      el("b", "", head.labels[hover.i], node).style.color = colour(hover.i);
      const list = el("dl", "", null, node), { label, unit } = me.cue.scale;
      el("dt", "", me.cue.x_label, list); el("dd", "", exactStep(steps[hover.j]), list);
      el("dt", "", label, list); el("dd", "", text(lift(coded(hover.i, hover.j))) + (unit ? ` ${unit}` : ""), list);
    });
  };
  axes.onpointerleave = () => { hover = null; tip.hidden = true; if (geo) drawOver(); };
  axes.onclick = (e) => { axes.onpointermove(e); if (hover && me.cue.selectable) pick(hover.i, 0); };
  axes.onkeydown = (e) => {
    const way = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[e.key];
    if (!me.cue?.selectable || e.altKey || e.ctrlKey || e.metaKey) return;
    if (e.key === "Escape") { me.send(""); drawOver(); } else if (way) { e.preventDefault(); pick((chosen() + way + head.labels.length) % head.labels.length, 140); }
  };

  const deaf = hear("frame", (frame) => { // a film plays: the line of the step follows it
    film = me.cue?.x_label === "step" ? frame?.step ?? null : null;
    if (geo) drawOver();
  });

  return {
    load(newHead, arrays) {
      head = newHead; steps = arrays.steps; lines = arrays.lines; count = steps.length; hover = null;
      const every = Array.from(steps.keys());
      points = head.labels.map((_, i) => { // measured steps of a line; -step - 1 where it breaks
        if (!lines.subarray(i * count, (i + 1) * count).includes(65535)) return every;
        const p = [];
        for (let j = 0; j < count; j++) if (lines[i * count + j] !== 65535) p.push(j); else if (!head.bridge && p.at(-1) >= 0) p.push(-j - 1);
        return p;
      });
    },
    draw() {
      const { theme, cue } = me, width = root.clientWidth, few = head.labels.length <= 6, probe = base.getContext("2d"), pad = (head.hi - head.lo) * 0.08;
      probe.font = `400 11px ${theme.mono}`;
      const direct = few && head.labels.length > 1 && width >= 560, keyed = few && !direct && !head.group_names.length && !cue.selectable; // named at their ends, or above
      const widest = (font) => { probe.font = `${font} 11px ${theme.mono}`; return Math.max(...head.labels.map((l) => probe.measureText(l).width)); };
      const right = direct ? 14 + widest(400) : head.labels.length > 1 && !keyed ? Math.max(12, 8 + Math.min(widest(600), width / 5)) : 12; // room for the name in focus
      probe.font = `400 11px ${theme.mono}`;
      const zero = !head.log_y && head.lo >= 0 && head.lo < 0.35 * head.hi; // start the axis at 0 where that costs little
      geo = { width, height: cue.height, right, top: 18, h: cue.height - 18 - 44, direct, keyed };
      geo.y0 = zero ? 0 : head.lo - pad; geo.y1 = head.hi + pad;
      geo.ticks = head.log_y ? decades(geo.y0, geo.y1) : nice(geo.y0, geo.y1, Math.max(2, geo.h / 56));
      geo.left = Math.max(52, 14 + Math.ceil(Math.max(0, ...geo.ticks.map((v) => probe.measureText(axisText(lift(v))).width))));
      geo.w = width - geo.left - right; geo.axis = stepAxis(steps, cue.log_x, geo.left, geo.w); geo.xs = Array.from(steps, px);
      geo.foot = py(head.lo); geo.rise = (geo.foot - py(head.hi)) / 65534;
      const ctx = sized(base, width, cue.height);
      frame(sized(axes, width, cue.height)); ctx.lineJoin = "round"; ctx.lineWidth = few ? 2 : head.labels.length > 40 ? 1 : 1.5; ctx.globalAlpha = few ? 1 : 0.75;
      head.labels.forEach((_, i) => { ctx.strokeStyle = colour(i); path(ctx, i); });
      ctx.globalAlpha = 1;
      if (direct) { // names at the line ends, pushed apart until none overlaps
        const last = (i) => points[i].findLast((p) => p >= 0);
        const ends = head.labels.map((name, i) => ({ name, i, y: py(coded(i, last(i) ?? 0)) })).filter((end) => Number.isFinite(end.y)).sort((a, b) => a.y - b.y);
        ends.forEach((end, i) => { if (i) end.y = Math.max(end.y, ends[i - 1].y + 14); });
        const spill = Math.max(0, (ends.at(-1)?.y ?? 0) - (geo.top + geo.h));
        ctx.textAlign = "left"; ctx.textBaseline = "middle"; ctx.font = `500 11px ${theme.mono}`;
        for (const end of ends) { ctx.fillStyle = colour(end.i); ctx.fillText(end.name, geo.left + geo.w + 8, end.y - spill); }
      }
      title.replaceChildren(); el("span", "name", cue.scale.label + (cue.scale.unit ? ` (${cue.scale.unit})` : "") + (head.log_y ? ", log scale" : ""), title);
      const grouped = head.group_names.map((name, g) => [name, head.groups.indexOf(g)]), many = grouped.length > 6;
      const names = grouped.length ? grouped : few && !direct && head.labels.length > 1 ? head.labels.map((name, i) => [name, i]) : [];
      if (many) { // too many names to read: the ramp from first to last
        const swatch = el("span", "swatch ramp", names[0][0], title);
        el("i", "", null, swatch).style.background = `linear-gradient(90deg, ${cue.colours[theme.mode].join(",")})`; swatch.append(names.at(-1)[0]);
      } else for (const [name, i] of names) if (i >= 0) {
        const swatch = el("span", "swatch", null, title);
        el("i", "", null, swatch).style.background = colour(i); el("span", "", name, swatch);
      }
      if (cue.scale.chance != null) el("span", "swatch chance", `${cue.scale.mark} ${brief(cue.scale.chance)}`, title).prepend(el("i"));
      const keys = cue.selectable ? " Arrow keys choose a line, Escape clears." : "", now = chosen() >= 0 ? ` Selected ${describe(chosen())}` : "";
      axes.setAttribute("role", cue.selectable ? "application" : "img"); axes.tabIndex = cue.selectable ? 0 : -1;
      axes.setAttribute("aria-label", `${cue.scale.label} over ${cue.x_label}, ${head.labels.length} lines.${keys}${now}`);
      tableOf(alt, "Show as table", ["line", "first", "lowest", "highest", "last"], () => head.labels.map((name, i) => {
        const v = points[i].filter((j) => j >= 0).map((j) => lift(coded(i, j)));
        return [name, ...[v[0], Math.min(...v), Math.max(...v), v.at(-1)].map(text)];
      }), { columns: [cue.x_label, ...head.labels], rows: () => Array.from(steps, (step, j) => [step, ...points.map((_, i) => exactOf(lift(coded(i, j))))]) });
      drawOver();
    },
    end() { deaf(); },
  };
}
