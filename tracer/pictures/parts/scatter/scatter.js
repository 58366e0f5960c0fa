// Heads as buttons over a canvas of axes, so that a keyboard and a screen reader reach each of them.
export default function (args) { return live(args, makeScatter); }

function makeScatter(me) {
  const { root } = me;
  const stage = el("div", "stage", null, root), axes = el("canvas", "", null, stage), dots = el("div", "dots", null, stage), tip = el("div", "tip", null, stage), alt = el("details", "alt", null, root);
  tip.hidden = true;
  const said = (v, scale) => numberOf(v, { digits: scale.digits, plain: true });

  function nice(lo, hi, want) {
    const raw = (hi - lo) / want, unit = 10 ** Math.floor(Math.log10(raw)), stride = [1, 2, 2.5, 5, 10].find((m) => m * unit >= raw) * unit, out = [];
    for (let v = Math.ceil(lo / stride - 1e-9) * stride; v <= hi + stride * 1e-6; v += stride) out.push(Math.abs(v) < stride * 1e-6 ? 0 : v);
    return out;
  }
  function range(values, extra) { // zero and the dashed line are always in view
    const all = [...values, 0, ...(extra == null ? [] : [extra])], lo = Math.min(...all), hi = Math.max(...all), pad = (hi - lo || 1) * 0.09;
    return [lo < 0 ? lo - pad : lo - pad / 3, hi + pad];
  }

  let spots = [];
  const nearest = (e) => { // points may lie on each other: the nearest centre wins, not the one on top
    const box = axes.getBoundingClientRect(), far = (s) => Math.hypot(s.x - (e.clientX - box.left), s.y - (e.clientY - box.top));
    const found = spots.reduce((a, b) => (a && far(a) <= far(b) ? a : b), null);
    return found && far(found) < 14 ? found : null;
  };
  stage.onpointermove = (e) => { const spot = nearest(e); stage.style.cursor = spot ? "pointer" : ""; if (spot) spot.tell(); else tip.hidden = true; };
  stage.onpointerleave = () => { tip.hidden = true; };
  stage.onclick = (e) => nearest(e)?.take();

  return {
    load() {},
    draw() {
      const { points, x, y, corners, colours, height, value } = me.cue, { theme } = me, width = root.clientWidth, ctx = sized(axes, width, height);
      const left = 52, top = 26, w = width - left - 16, h = height - top - 40, [x0, x1] = range(points.map((p) => p[2]), x.chance), [y0, y1] = range(points.map((p) => p[3]), y.chance);
      const px = (v) => left + ((v - x0) / (x1 - x0)) * w, py = (v) => top + (1 - (v - y0) / (y1 - y0)) * h;
      const type = (text, at, to, align, baseline, colour = theme.muted, font = `400 11px ${theme.mono}`) => { ctx.font = font; ctx.textAlign = align; ctx.textBaseline = baseline; ctx.fillStyle = css(colour); ctx.fillText(text, at, to); };
      const rule = (a, b, c, d, colour) => { ctx.strokeStyle = css(colour); ctx.beginPath(); ctx.moveTo(a, b); ctx.lineTo(c, d); ctx.stroke(); };
      ctx.lineWidth = 1;
      for (const v of nice(y0, y1, Math.max(2, h / 56))) { const at = Math.round(py(v)) + 0.5; rule(left, at, left + w, at, v === 0 ? theme.line : theme.faint); type(`${+v.toPrecision(4)}`.replace("-", "\u2212"), left - 8, at, "right", "middle"); }
      for (const v of nice(x0, x1, Math.max(2, w / 92))) { const at = Math.round(px(v)) + 0.5; rule(at, top, at, top + h, v === 0 ? theme.line : theme.faint); type(`${+v.toPrecision(4)}`.replace("-", "\u2212"), at, top + h + 8, "center", "top"); }
      ctx.setLineDash([4, 4]);
      if (x.chance != null) { const at = Math.round(px(x.chance)) + 0.5; rule(at, top, at, top + h, theme.muted); }
      if (y.chance != null) { const at = Math.round(py(y.chance)) + 0.5; rule(left, at, left + w, at, theme.muted); }
      ctx.setLineDash([]);
      const unit = (s) => s.label + (s.unit ? ` (${s.unit})` : "");
      type(unit(y), left - 40, 4, "left", "top", theme.text, `500 12px ${theme.sans}`);
      type(unit(x), left + w, top + h + 24, "right", "top", theme.text, `500 12px ${theme.sans}`);
      const quiet = `italic 400 11px ${theme.sans}`;
      if (corners[0]) type(corners[0], left + w - 4, py(Math.max(y0, Math.min(y.chance ?? 0, y1))) + 6, "right", "top", theme.muted, quiet);
      if (corners[1]) type(corners[1], left + 6, top + 4, "left", "top", theme.muted, quiet);
      dots.replaceChildren(); spots = [];
      const taken = [];
      for (const [l, head, a, b] of points) {
        const name = `L${l}H${head}`, on = value && value[0] === l && value[1] === head, palette = colours[theme.mode];
        const node = Object.assign(el("button", on ? "dot on" : "dot", null, dots), { type: "button" });
        node.style.cssText = `left:${px(a)}px;top:${py(b)}px;--c:${palette[l % palette.length]}`;
        node.ariaLabel = `${name}: ${x.label} ${said(a, x)}, ${y.label} ${said(b, y)}`; node.ariaPressed = on ? "true" : "false";
        const place = [px(a) + 9, py(b)], clear = taken.every(([u, v]) => Math.abs(u - place[0]) > 38 || Math.abs(v - place[1]) > 13);
        if (on || clear) { const label = el("span", "", name, node); if (place[0] > left + w - 34) label.className = "left"; taken.push(place); }
        const take = () => { me.send([l, head]); me.draw(); };
        const tell = () => showTip(tip, stage, px(a), py(b), (box) => {
          el("b", "", name, box).style.color = palette[l % palette.length];
          const list = el("dl", "", null, box);
          for (const [s, v] of [[x, a], [y, b]]) { el("dt", "", s.label, list); el("dd", "", said(v, s) + (s.unit ? ` ${s.unit}` : ""), list); }
        });
        spots.push({ x: px(a), y: py(b), take, tell });
        node.onclick = (e) => { e.stopPropagation(); take(); }; // by keyboard: the pointer passes through to the stage
        node.onfocus = tell; node.onblur = () => { tip.hidden = true; };
      }
      tableOf(alt, "Show as table", ["head", x.label, y.label], () => points.map(([l, head, a, b]) => [`L${l}H${head}`, said(a, x), said(b, y)]));
    },
  };
}
