// The way of a run through a plane: a point a step, joined in order, coloured from first to last; a click goes to the step.
export default function (args) { return live(args, makePath); }

function makePath(me) {
  const { root } = me;
  const stage = el("div", "stage", null, root), base = el("canvas", "", null, stage), over = el("canvas", "", null, stage), tip = el("div", "tip", null, stage);
  const key = el("div", "legend", null, el("div", "legends", null, root)), alt = el("details", "alt", null, root), spoken = el("div", "sr", null, root);
  spoken.setAttribute("aria-live", "polite"); tip.hidden = true; base.tabIndex = 0; base.setAttribute("role", "application");
  let head, steps, points, count, geo, hover = null, film = null;

  const text = (v) => numberOf(v, { digits: 3 });
  const spot = (j) => [geo.left + ((points[2 * j] - geo.x0) / geo.dx) * geo.w, geo.top + (1 - (points[2 * j + 1] - geo.y0) / geo.dy) * geo.h];
  const near = (step) => { let a = 0; for (let j = 1; j < count; j++) if (Math.abs(steps[j] - step) < Math.abs(steps[a] - step)) a = j; return a; };
  const shade = (j) => geo.lut.at(0.22 + (0.78 * j) / Math.max(1, count - 1));
  const inWindow = (j) => me.cue.window && steps[j] >= me.cue.window[0] && steps[j] <= me.cue.window[1];
  function mark(ctx, j, radius, fill, ring) {
    const [x, y] = spot(j);
    ctx.beginPath(); ctx.arc(x, y, radius, 0, 7); ctx.strokeStyle = css(ring); ctx.lineWidth = 2; ctx.stroke(); ctx.fillStyle = css(fill); ctx.fill();
  }
  function crowd() { // [left, middle, width, half height] of what no word may cover: the points, and the line between them
    const out = [];
    for (let j = 0; j < count; j++) {
      const [x, y] = spot(j), [a, b] = spot(Math.max(0, j - 1)), parts = Math.ceil(Math.hypot(x - a, y - b) / 6);
      out.push([x - 5, y, 10, 5]);
      for (let k = 1; k < parts; k++) out.push([a + ((x - a) * k) / parts - 1, b + ((y - b) * k) / parts, 2, 1]);
    }
    return out;
  }
  function word(ctx, j, colour, taken, must) { // beside its point, or farther off on a thin line, where nothing lies
    const [x, y] = spot(j), words = stepText(steps[j]), { theme } = me;
    ctx.font = `600 11px ${theme.mono}`;
    const wide = ctx.measureText(words).width, inside = ([u, v]) => u > geo.left + 2 && u + wide < geo.left + geo.w - 2 && v > geo.top + 7 && v < geo.top + geo.h - 7;
    const places = [10, 20, 32, 46, 62].flatMap((r) => [[r, 0], [-wide - r, 0], [-wide / 2, -r - 5], [-wide / 2, r + 5], [r * 0.7, -r * 0.7 - 4], [r * 0.7, r * 0.7 + 4], [-wide - r * 0.7, -r * 0.7 - 4], [-wide - r * 0.7, r * 0.7 + 4]]);
    const boxes = places.map(([dx, dy]) => [x + dx, y + dy, wide, 6]).filter(inside), covers = ([u, v, w, h]) => taken.filter(([a, b, c, d]) => u + w >= a && u <= a + c && Math.abs(v - b) < h + d).length;
    const box = boxes.find((one) => !covers(one)) ?? (must ? boxes.sort((a, b) => covers(a) - covers(b))[0] : null);
    if (!box) return;
    const [u, v] = box, toX = Math.min(Math.max(x, u), u + wide), toY = Math.min(Math.max(y, v - 6), v + 6), far = Math.hypot(toX - x, toY - y);
    taken.push(box);
    if (far > 14) { ctx.strokeStyle = css(colour, 0.7); ctx.lineWidth = 1; ctx.beginPath(); ctx.moveTo(x + ((toX - x) * 7) / far, y + ((toY - y) * 7) / far); ctx.lineTo(toX, toY); ctx.stroke(); }
    ctx.textAlign = "left"; ctx.textBaseline = "middle"; ctx.lineWidth = 4; ctx.strokeStyle = css(theme.page); ctx.strokeText(words, u, v);
    ctx.fillStyle = css(colour); ctx.fillText(words, u, v);
  }
  function drawOver() {
    const { theme, cue } = me, ctx = sized(over, geo.width, geo.height), chosen = near(film ?? cue.value ?? steps[count - 1]);
    mark(ctx, chosen, 5.5, theme.accent, theme.page);
    const taken = [...geo.crowd];
    word(ctx, chosen, theme.accent, taken, true);
    if (hover != null && hover !== chosen) { mark(ctx, hover, 5.5, theme.text, theme.page); word(ctx, hover, theme.text, taken, true); }
    const named = [0, count - 1, ...(cue.window ?? []).map(near)];
    for (const j of new Set(named)) if (j !== chosen && j !== hover) word(ctx, j, inWindow(j) ? geo.mark : theme.muted, taken);
  }
  const say = (j) => { spoken.textContent = `step ${exactStep(steps[j])}: ${text(points[2 * j])}, ${text(points[2 * j + 1])}`; };
  function go(j, wait) { me.send(steps[j], wait); say(j); drawOver(); }
  base.onpointermove = (e) => {
    if (!geo || !count) return;
    const box = base.getBoundingClientRect(), x = e.clientX - box.left, y = e.clientY - box.top;
    let best = null, least = 24;
    for (let j = 0; j < count; j++) { const [u, v] = spot(j), d = Math.hypot(u - x, v - y); if (d < least) { least = d; best = j; } }
    hover = best; base.style.cursor = best == null ? "default" : "pointer"; drawOver();
    if (best == null) { tip.hidden = true; return; }
    showTip(tip, stage, ...spot(best), (node) => {
      const list = el("dl", "", null, node);
      for (const [a, b] of [["step", exactStep(steps[best])], ["1st component", text(points[2 * best])], ["2nd component", text(points[2 * best + 1])]]) { el("dt", "", a, list); el("dd", "", b, list); }
    });
  };
  base.onpointerleave = () => { hover = null; tip.hidden = true; if (geo && count) drawOver(); };
  base.onclick = (e) => { base.onpointermove(e); if (hover != null) go(hover, 0); };
  base.onkeydown = (e) => {
    const way = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[e.key];
    if (!geo || !count || e.altKey || e.ctrlKey || e.metaKey || (!way && e.key !== "Home" && e.key !== "End")) return;
    e.preventDefault(); e.stopPropagation();
    const now = near(me.cue.value ?? steps[count - 1]);
    go(e.key === "Home" ? 0 : e.key === "End" ? count - 1 : Math.min(count - 1, Math.max(0, now + way)), 140);
  };
  const deaf = hear("frame", (frame) => {
    film = frame?.step ?? null;
    if (geo && count) drawOver();
  });

  return {
    load(newHead, arrays) { head = newHead; ({ steps, points } = arrays); count = steps.length; hover = null; tip.hidden = true; },
    draw() {
      const { theme, cue } = me, width = root.clientWidth, left = 20, top = 14, h = cue.height - 48, w = width - left - 12;
      const along = (k) => { let lo = Infinity, hi = -Infinity; for (let j = 0; j < count; j++) { lo = Math.min(lo, points[2 * j + k]); hi = Math.max(hi, points[2 * j + k]); } const pad = (hi - lo || 1) * 0.07; return [lo - pad, hi - lo + 2 * pad || 1]; };
      geo = { width, left, top, w, h, height: cue.height, lut: lutOf(PALETTES.attention[theme.mode]), mark: lutOf(PALETTES.score[theme.mode]).at(0.62) };
      [geo.x0, geo.dx] = along(0); [geo.y0, geo.dy] = along(1); geo.crowd = crowd();
      const ctx = sized(base, width, cue.height), foot = top + h;
      ctx.strokeStyle = css(theme.line); ctx.lineWidth = 1; ctx.strokeRect(left + 0.5, top + 0.5, w, h);
      ctx.lineJoin = ctx.lineCap = "round";
      for (let j = 1; j < count; j++) {
        const on = inWindow(j - 1) && inWindow(j);
        ctx.strokeStyle = css(on ? geo.mark : shade(j)); ctx.lineWidth = on ? 4 : 1.5; ctx.beginPath(); ctx.moveTo(...spot(j - 1)); ctx.lineTo(...spot(j)); ctx.stroke();
      }
      for (let j = 0; j < count; j++) mark(ctx, j, 3.5, shade(j), theme.page);
      const named = (k) => `${["1st", "2nd"][k]} component, ${(100 * head.shares[k]).toFixed(1)} % of the variance`;
      ctx.font = `400 11px ${theme.sans}`; ctx.fillStyle = css(theme.muted); ctx.textAlign = "right"; ctx.textBaseline = "top"; ctx.fillText(named(0), left + w, foot + 8);
      ctx.save(); ctx.translate(2, top + h / 2); ctx.rotate(-Math.PI / 2); ctx.textAlign = "center"; ctx.fillText(named(1), 0, 0); ctx.restore();
      key.replaceChildren();
      el("span", "", `step ${exactStep(steps[0])}`, key); const bar = el("span", "bar", null, key), fill = el("span", "fill", null, bar); el("span", "", exactStep(steps[count - 1]), key);
      fill.style.background = `linear-gradient(90deg, ${[0, 0.25, 0.5, 0.75, 1].map((t) => css(geo.lut.at(0.22 + 0.78 * t))).join(",")})`;
      base.setAttribute("aria-label", `The way of the run over ${count} steps in two components, ${named(0)}, ${named(1)}. Arrows move the step.`);
      tableOf(alt, "Show as table", ["step", "1st component", "2nd component"], () => Array.from(steps, (s, j) => [`${s}`, text(points[2 * j]), text(points[2 * j + 1])]));
      drawOver();
    },
    end() { deaf(); },
  };
}
