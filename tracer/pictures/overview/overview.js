// A whole pattern in pooled blocks, drawn once; the window on a second canvas, so a drag redraws one rectangle.
// While a scrubber tells frames, the blocks are those of its frame.
export default function (args) { return live(args, makeOverview); }

function makeOverview(me) {
  const { root } = me;
  const chosen = el("p", "chosen", null, root), readout = el("p", "readout", null, root), stage = el("div", "stage", null, root);
  const base = el("canvas", "", null, stage), over = el("canvas", "", null, stage), key = el("div", "legend", null, el("div", "legends", null, root));
  chosen.setAttribute("aria-live", "polite"); base.setAttribute("role", "application"); base.tabIndex = 0;
  const TOP = 20, FOOT = 38, LEAST = 8; // room above and below the picture; the fewest tokens a side of a window
  let head, blocks, rows, cols, geo, baseKey, drag = null, hover = null, frame = null, ending = false, waiting = 0;

  const film = () => (frame && me.cue.head ? frame : null);
  function filmed({ thumbs, heads, rows: r, cols: c }, q, k) { const [l, h] = me.cue.head; return thumbs[((l * heads + h) * r + q) * c + k]; }
  function value(q, k) {
    const f = film();
    return f ? (filmed(f, Math.floor((q * head.factors[0]) / f.factors[0]), Math.floor((k * head.factors[1]) / f.factors[1])) / 255) ** 2 : head.top * (blocks[q * cols + k] / 255) ** 2;
  }
  const range = (a, b) => (b - a > 1 ? `${a}–${b - 1}` : `${a}`);
  const words = ([q0, q1, k0, k1]) => `queries ${range(q0, q1)}, keys ${range(k0, k1)}`;
  const most = (axis) => Math.min(me.cue.largest, head.sizes[axis]);
  const clamp = (v, lo, hi) => Math.max(lo, Math.min(v, hi));
  const current = () => drag?.window ?? (me.cue.value ? settle(me.cue.value) : null);
  function settle([q0, q1, k0, k1]) { // inside the pattern, not too large; of a causal one mostly what is not masked
    const [q, k] = [[q0, q1], [k0, k1]].map(([a, b], axis) => {
      const size = clamp(b - a, Math.min(LEAST, most(axis)), most(axis)), start = clamp(a, 0, head.sizes[axis] - size);
      return [start, start + size];
    });
    const late = head.causal ? Math.max(0, k[0] - Math.floor((q[0] + q[1]) / 2)) : 0;
    return [...q, k[0] - late, k[1] - late];
  }
  const around = (middle, sides) => settle(middle.flatMap((m, axis) => { const a = Math.round(m - sides[axis] / 2); return [a, a + sides[axis]]; }));
  function spot(e) { // the token under the pointer, on both axes
    const box = base.getBoundingClientRect(), at = [(e.clientY - box.top - TOP) / geo.zoom[0], (e.clientX - box.left - geo.left) / geo.zoom[1]].map(Math.floor);
    const inside = at.every((v, axis) => v >= 0 && v < head.sizes[axis]);
    return { at: at.map((v, axis) => clamp(v, 0, head.sizes[axis] - 1)), inside, masked: head.causal && at[1] > at[0] };
  }
  const centred = ([q, k]) => around([q + 0.5, (head.causal ? Math.min(q, k) : k) + 0.5], [most(0), most(1)]); // what a click chooses; the future is taken as the present

  function drawOver() {
    const ctx = sized(over, geo.width, geo.height), { theme } = me, window = current();
    const box = ([q0, q1, k0, k1]) => { // at least 7 pixels a side, else nobody finds it
      const [w, h] = [Math.max(7, (k1 - k0) * geo.zoom[1]), Math.max(7, (q1 - q0) * geo.zoom[0])];
      return [geo.left + ((k0 + k1) / 2) * geo.zoom[1] - w / 2, TOP + ((q0 + q1) / 2) * geo.zoom[0] - h / 2, w, h];
    };
    if (hover && !drag) { // what a click would choose
      ctx.setLineDash([3, 3]); ctx.lineWidth = 1; ctx.strokeStyle = css(theme.text, 0.6); ctx.strokeRect(...box(centred(hover.at))); ctx.setLineDash([]);
    }
    if (!window) return;
    const [x, y, w, h] = box(window), foot = TOP + geo.h;
    ctx.lineWidth = 4; ctx.strokeStyle = css(theme.page, 0.9); ctx.strokeRect(x, y, w, h);
    ctx.lineWidth = 2; ctx.strokeStyle = css(theme.accent); ctx.strokeRect(x, y, w, h);
    ctx.fillStyle = css(theme.accent); ctx.fillRect(geo.left - 6, y - 1, 3, h + 2); ctx.fillRect(x - 1, foot + 3, w + 2, 3);
  }
  function say() {
    readout.replaceChildren();
    if (drag?.moved) { readout.append(`New window: ${words(drag.window)}`); return; }
    if (!hover) { readout.append("Drag across the picture for a window, click to centre one."); return; }
    if (hover.masked) { readout.append("masked, later tokens"); return; }
    const at = hover.at.map((v, axis) => Math.floor(v / head.factors[axis])), [q, k] = at.map((b, axis) => range(b * head.factors[axis], Math.min(head.sizes[axis], (b + 1) * head.factors[axis])));
    const one = head.factors[0] * head.factors[1] === 1, v = value(...at), num = numberOf(v, { digits: v < 0.1 ? 3 : 2, plain: head.pool === "max" });
    readout.append(`${q.includes("–") ? "queries" : "query"} ${q} → ${k.includes("–") ? "keys" : "key"} ${k}: ${one || head.pool === "mean" ? "" : "at most "}`);
    el("span", "num", num, readout); if (!one && head.pool === "mean") readout.append(" on average");
  }
  function tell() { // the window in words, beside the picture and in its name
    const window = current(), [nq, nk] = head.sizes;
    const now = window ? `Window: ${words(window)}` : "No window chosen";
    if (chosen.textContent !== now) { chosen.replaceChildren(); if (window) { el("b", "", "Window", chosen); chosen.append(`: ${words(window)}`); } else chosen.append(now); }
    base.setAttribute("aria-label", `Overview of the attention pattern of ${head.label || "a head"}: ${nq} queries, ${nk} keys. ` +
      `Arrow keys move the window by half, plus and minus zoom it, Home and End go to the ends of the diagonal. ${now}`);
  }
  function choose(window, wait = 0) {
    if (String(window) !== String(me.cue.value)) me.send(window, wait);
    drawOver(); say(); tell();
  }

  base.onpointerdown = (e) => {
    if (!geo || e.button || !e.isPrimary) return;
    const here = spot(e);
    if (!here.inside) return;
    drag = { id: e.pointerId, x: e.clientX, y: e.clientY, anchor: here.at, moved: false, window: null };
    base.setPointerCapture(e.pointerId);
  };
  base.onpointermove = (e) => {
    if (!geo) return;
    const here = spot(e);
    if (!drag) { hover = here.inside ? here : null; drawOver(); say(); return; }
    if (!drag.moved && Math.hypot(e.clientX - drag.x, e.clientY - drag.y) < 4) return;
    drag.moved = true; hover = null;
    const sides = here.at.map((v, axis) => { // a window at its largest is pulled along by the pointer
      drag.anchor[axis] = clamp(drag.anchor[axis], v - most(axis) + 1, v + most(axis) - 1);
      return [Math.min(v, drag.anchor[axis]), Math.max(v, drag.anchor[axis]) + 1];
    });
    drag.window = settle(sides.flat()); drawOver(); say();
  };
  base.onpointerup = (e) => {
    if (!drag) return;
    const { moved, window, anchor } = drag;
    drag = null; hover = e.pointerType === "mouse" ? spot(e) : null;
    choose(moved ? window : centred(anchor));
  };
  const drop = () => { drag = null; hover = null; if (geo) { drawOver(); say(); } };
  base.onpointercancel = drop;
  base.onpointerleave = () => { if (!drag) drop(); };
  base.onkeydown = (e) => {
    if (!geo || e.altKey || e.ctrlKey || e.metaKey) return;
    if (e.key === "Escape") { drop(); return; }
    const [q0, q1, k0, k1] = current() ?? around([0, 0], [most(0), most(1)]), sides = [q1 - q0, k1 - k0], middle = [(q0 + q1) / 2, (k0 + k1) / 2];
    const way = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[e.key], zoom = { "+": 0.5, "=": 0.5, "-": 2, _: 2 }[e.key];
    const half = sides.map((s) => Math.max(1, Math.floor(s / 2))), scaled = (axis) => clamp(Math.round(sides[axis] * zoom), Math.min(LEAST, most(axis)), most(axis));
    const next = way ? [q0 + way[0] * half[0], q1 + way[0] * half[0], k0 + way[1] * half[1], k1 + way[1] * half[1]]
      : zoom ? around(middle, [scaled(0), scaled(1)]) : e.key === "Home" ? [0, sides[0], 0, sides[1]]
      : e.key === "End" ? [head.sizes[0] - sides[0], head.sizes[0], head.sizes[1] - sides[1], head.sizes[1]] : null;
    if (!next) return;
    e.preventDefault(); hover = null; choose(settle(next), 140);
  };

  function layout(ctx) {
    const [nq, nk] = head.sizes, { cue, theme } = me, ratio = devicePixelRatio || 1;
    ctx.font = `400 11px ${theme.mono}`;
    const left = Math.ceil(ctx.measureText(`${nq}`).width) + 18, room = Math.min(cue.max_size, root.clientWidth - left - 2), shape = clamp(nq / nk, 0.25, 4);
    const snap = (v) => Math.round(v * ratio) / ratio, w = snap(Math.min(room, room / shape)), h = snap(Math.min(room, room * shape));
    return { left, w, h, width: left + w + 2, height: TOP + h + FOOT, zoom: [h / nq, w / nk] };
  }
  function axes(ctx) {
    const { left, w, h } = geo, { theme } = me, foot = TOP + h, size = [h, w];
    ctx.strokeStyle = css(theme.line); ctx.lineWidth = 1; ctx.beginPath();
    if (head.causal) { // where the future begins
      const n = Math.min(...head.sizes), end = n * geo.zoom[1];
      ctx.moveTo(left, TOP); ctx.lineTo(left + end, TOP + n * geo.zoom[0]); if (end < w - 0.5) ctx.lineTo(left + end, foot); else ctx.lineTo(left + w, foot);
      ctx.lineTo(left, foot); ctx.closePath();
    } else ctx.rect(left - 0.5, TOP - 0.5, w + 1, h + 1);
    ctx.stroke();
    ctx.font = `400 11px ${theme.mono}`; ctx.fillStyle = css(theme.muted);
    head.sizes.forEach((n, axis) => {
      const step = [1, 2, 5].flatMap((m) => [1, 10, 100, 1000, 1e4].map((d) => m * d)).sort((a, b) => a - b).find((s) => s * geo.zoom[axis] >= (axis ? 56 : 40)) ?? n;
      for (let v = 0; v < n; v += step) {
        const at = (v + 0.5) * geo.zoom[axis];
        ctx.textAlign = axis ? "center" : "right"; ctx.textBaseline = axis ? "top" : "middle";
        const half = ctx.measureText(`${v}`).width / 2;
        if (axis) ctx.fillText(`${v}`, clamp(left + at, left + half, left + w - half), foot + 9); else ctx.fillText(`${v}`, left - 10, TOP + clamp(at, 5, size[0] - 5));
      }
    });
    ctx.font = `400 11px ${theme.sans}`; ctx.textBaseline = "top";
    ctx.textAlign = "right"; ctx.fillText("key position →", left + w, foot + 24);
    ctx.textAlign = "left"; ctx.textBaseline = "alphabetic"; ctx.fillText("query position ↓", 0, TOP - 8);
    if (head.causal && w > 180) { ctx.textAlign = "right"; ctx.textBaseline = "top"; ctx.fillText("later tokens, masked", left + w, TOP + 2); }
  }

  const settled = () => { if (ending && head.version === (me.cue.version ?? head.version)) { frame = null; ending = false; } };
  const deaf = hear("frame", (told) => {
    ending = !told && frame != null; frame = told ?? frame;
    waiting ||= requestAnimationFrame(() => { waiting = 0; if (geo && me.cue.head) { settled(); paint(); drawOver(); say(); } });
  });
  function paint() { // the picture under the window
    const lut = lutOf(PALETTES.attention[me.theme.mode]), ratio = devicePixelRatio || 1, now = film(), factors = now ? now.factors : head.factors, [fq, fk] = factors, [r, c] = now ? [now.rows, now.cols] : [rows, cols];
    const f = Math.max(1, Math.ceil(Math.max(r / (geo.h * ratio), c / (geo.w * ratio)) - 1e-6)), lift = 1 / Math.sqrt(head.top || 1);
    const image = heat(r, c, f, (q, k) => (head.causal && k * fk >= (q + 1) * fq ? -1 : now ? Math.min(255, Math.round(filmed(now, q, k) * lift)) : blocks[q * cols + k]), lut);
    const ctx = sized(base, geo.width, geo.height);
    ctx.save(); ctx.beginPath(); ctx.rect(geo.left, TOP, geo.w, geo.h); ctx.clip(); // the last blocks may be short of tokens
    drawHeat(ctx, image, geo.left, TOP, image.width * f * fk * geo.zoom[1], image.height * f * fq * geo.zoom[0]);
    ctx.restore(); axes(ctx);
    const pooled = now || head.pool === "max" ? "brightest" : "mean", note = fq * fk === 1 ? "" : `${pooled} of ${fq} × ${fk} tokens${now ? " while it moves" : ""}`;
    legend(key, { label: "Attention", unit: "", lo: 0, hi: head.top, digits: 2 }, lut, { root: Math.sqrt, ticks: [0, 0.05, 0.25, 1].map((t) => t * head.top), note });
  }

  return {
    load(newHead, arrays) { head = newHead; blocks = arrays.blocks; [rows, cols] = blocks.shape; baseKey = ""; drag = hover = null; if (ending) { frame = null; ending = false; } },
    draw() {
      const { theme } = me, ratio = devicePixelRatio || 1;
      settled(); geo = layout(base.getContext("2d"));
      const want = [head.version, theme.mode, geo.w, geo.h, ratio, document.fonts?.status, film()?.index, String(film() && me.cue.head)].join(" ");
      if (baseKey !== want) { baseKey = want; paint(); }
      me.table = { columns: ["first query", "first key", head.pool === "max" ? "largest share" : "mean share"], rows: () => Array.from(blocks, (_, i) => [Math.floor(i / cols), i % cols]).map(([q, k]) => [q * head.factors[0], k * head.factors[1], exactOf(value(q, k))]) };
      drawOver(); say(); tell();
    },
    end() { deaf(); cancelAnimationFrame(waiting); },
  };
}
