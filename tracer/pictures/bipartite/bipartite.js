// Heads in a column a layer, joined by what later ones read of earlier ones. Heads are buttons, so that a keyboard reaches
// them; edges are a canvas below: the excess over random heads is their width, what is within their spread stays faint.
export default function (args) { return live(args, makeBipartite); }

const SURE = 2, FULL = 12; // standard deviations of random heads: where an edge begins to stand out, where it may be widest
function makeBipartite(me) {
  const { root } = me;
  const stage = el("div", "stage", null, root), base = el("canvas", "", null, stage), over = el("canvas", "", null, stage), nodes = el("div", "heads", null, stage), tip = el("div", "tip", null, stage);
  const alt = el("details", "alt", null, root), NAMES = { k: "keys", q: "queries", v: "values" };
  tip.hidden = true; base.setAttribute("role", "img"); over.ariaHidden = "true";
  let head, edges, scores, geo, buttons = [], hover = -1, built = "";

  const count = () => edges.length / 4, ends = (i) => [[edges[4 * i], edges[4 * i + 1]], [edges[4 * i + 2], edges[4 * i + 3]]];
  const kind = () => Math.max(0, head.kinds.indexOf(me.cue.into)), score = (i) => scores[kind() * count() + i], above = (i) => score(i) - head.mean;
  const sds = (i) => above(i) / head.sd, sure = (i) => sds(i) > SURE, name = ([l, h]) => `L${l}H${h}`, signed = (v, digits) => (v > 0 ? "+" : "") + numberOf(v, { digits, plain: true });
  const is = (a, b) => a && b && a[0] === b[0] && a[1] === b[1], touches = (i) => ends(i).some((end) => is(end, me.cue.value));
  const shown = (i) => count() <= 120 || touches(i); // of the faint ones
  const at = ([l, h]) => [geo.x(l), geo.y(h)];

  function curve(i) { // from the right side of one head to the left side of the other
    const [a, b] = ends(i), [x0, y0] = at(a), [x1, y1] = at(b), from = x0 + geo.w / 2, to = x1 - geo.w / 2, bend = (to - from) * 0.5;
    return [from, y0, from + bend, y0, to - bend, y1, to, y1];
  }
  function stroke(ctx, i, colour, width) {
    const [x0, y0, ...rest] = curve(i);
    ctx.strokeStyle = colour; ctx.lineWidth = width; ctx.beginPath(); ctx.moveTo(x0, y0); ctx.bezierCurveTo(...rest); ctx.stroke();
  }
  const width = (i) => 1.25 + Math.max(0, above(i) / geo.most) * geo.thick;
  function drawEdges() {
    const ctx = sized(base, geo.width, geo.height), { theme } = me, lut = lutOf(PALETTES.score[theme.mode]), order = Array.from({ length: count() }, (_, i) => i).sort((a, b) => above(a) - above(b));
    const all = order.filter(sure), strong = all.filter((i) => touches(i) || all.length - all.indexOf(i) <= me.cue.most), faint = order.filter((i) => !sure(i) && shown(i)), tint = (i) => lut.at(0.45 + 0.4 * Math.min(1, above(i) / geo.most));
    for (const i of faint) stroke(ctx, i, css(theme.line, touches(i) ? 1 : 0.75), touches(i) ? 1.25 : 0.75);
    for (const own of [false, true]) for (const i of strong) if (touches(i) === own) stroke(ctx, i, css(tint(i), own ? 1 : 0.38), width(i));
  }
  function drawOver() {
    const ctx = sized(over, geo.width, geo.height);
    if (hover < 0) return;
    stroke(ctx, hover, css(me.theme.page, 0.9), width(hover) + 4); stroke(ctx, hover, css(me.theme.accent), Math.max(2, width(hover)));
  }
  function nearest(x, y) {
    let found = -1, least = 8;
    for (let i = 0; i < count(); i++) {
      if (!sure(i) && !shown(i)) continue;
      const [x0, y0, , , , , x1, y1] = curve(i);
      if (x < x0 || x > x1) continue;
      const t = half((x - x0) / (x1 - x0)), s = t * t * (3 - 2 * t), far = Math.abs(y0 + (y1 - y0) * s - y) - (sure(i) ? width(i) / 2 : 0);
      if (far < least) { least = far; found = i; }
    }
    return found;
  }
  function half(share) { // where along the curve it has gone this share of its way across
    let a = 0, b = 1;
    for (let n = 0; n < 20; n++) { const t = (a + b) / 2, u = 1 - t; if (1.5 * u * u * t + 1.5 * u * t * t + t ** 3 < share) a = t; else b = t; }
    return a;
  }
  function tell(x, y, title, pairs) {
    showTip(tip, stage, x, y, (box) => {
      el("b", "", title, box);
      const list = el("dl", "", null, box);
      for (const [label, value] of pairs) { el("dt", "", label, list); el("dd", "", value, list); }
    });
  }
  const said = (i) => [["score", numberOf(score(i), { digits: 3 })], ["above random heads", signed(above(i), 3)], ["in their sd", signed(sds(i), 1)]];
  const quiet = () => { tip.hidden = true; if (hover >= 0) { hover = -1; drawOver(); } };
  stage.onpointermove = (e) => {
    if (!geo || e.target.closest?.(".head")) return;
    const box = stage.getBoundingClientRect(), x = e.clientX - box.left, y = e.clientY - box.top, i = nearest(x, y);
    stage.style.cursor = i < 0 ? "" : "pointer";
    if (i < 0) { quiet(); return; }
    if (i !== hover) { hover = i; drawOver(); }
    const [a, b] = ends(i);
    tell(x, y, `${name(b)} reads ${name(a)}`, said(i));
  };
  stage.onpointerleave = quiet;
  stage.onclick = (e) => { if (!e.target.closest?.(".head") && hover >= 0) take(ends(hover)[1]); };

  function take(value) { me.send(value); me.draw(); }
  const best = (value, side) => { // the strongest edge of a head, as the reader (1) or the read (0)
    let found = -1;
    for (let i = 0; i < count(); i++) if (is(ends(i)[side], value) && (found < 0 || score(i) > score(found))) found = i;
    return found;
  };
  function build() {
    nodes.replaceChildren(); buttons = [];
    for (let l = 0; l < head.layers; l++) {
      el("span", "layer", geo.w < 30 ? `${l}` : geo.w < 60 ? `L${l}` : `layer ${l}`, nodes).style.left = `${geo.x(l)}px`;
      for (let h = 0; h < head.heads; h++) {
        const value = [l, h], node = Object.assign(el("button", geo.w < 40 ? "head dot" : "head", geo.w < 40 ? null : name(value), nodes), { type: "button" }), role = me.cue.roles[l][h];
        node.style.cssText = `left:${geo.x(l)}px;top:${geo.y(h)}px;width:${geo.w}px;height:${geo.h}px`;
        if (role && geo.w >= 96 && geo.h >= 34) el("small", "", role, node);
        node.onclick = () => take(value);
        node.onpointerenter = node.onfocus = () => {
          const reads = best(value, 1), read = best(value, 0), pairs = [];
          if (reads >= 0) pairs.push([`reads most of ${name(ends(reads)[0])}`, signed(above(reads), 3)]);
          if (read >= 0) pairs.push([`read most by ${name(ends(read)[1])}`, signed(above(read), 3)]);
          tell(geo.x(l), geo.y(h) - geo.h / 2, role ? `${name(value)}, ${role}` : name(value), pairs);
        };
        node.onpointerleave = node.onblur = () => { tip.hidden = true; };
        node.onkeydown = (e) => {
          const way = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] }[e.key], to = way && buttons.find((b) => is(b.value, [l + way[0], h + way[1]]));
          if (e.key === "Escape") tip.hidden = true;
          if (!way || e.altKey || e.ctrlKey || e.metaKey) return;
          e.preventDefault(); to?.node.focus();
        };
        buttons.push({ value, node });
      }
    }
  }

  return {
    load(newHead, arrays) { head = newHead; ({ edges, scores } = arrays); hover = -1; built = ""; },
    draw() {
      const wide = root.clientWidth, n = head.layers, w = Math.min(140, Math.max(14, Math.floor((wide / n) * (n > 2 ? 0.5 : 0.34)))), top = 26;
      const row = Math.min(wide < 480 ? 60 : 84, Math.max(20, Math.floor(440 / head.heads))), h = w < 40 ? Math.min(w, row - 4) : Math.min(46, row - 6), edge = Math.max(w / 2 + 3, 16), all = Array.from(scores);
      geo = { width: wide, w: w < 40 ? h : w, h, height: top + row * head.heads, thick: Math.min(11, row * 0.3), most: Math.max(...all.map((s) => s - head.mean), FULL * head.sd),
        x: (l) => (n > 1 ? edge + ((wide - 2 * edge) * l) / (n - 1) : wide / 2), y: (h) => top + row * (h + 0.5) };
      stage.style.height = `${geo.height}px`;
      const now = JSON.stringify([wide, me.cue.roles, head.version]);
      if (now !== built) { build(); built = now; }
      for (const { value, node } of buttons) {
        const on = is(value, me.cue.value), role = me.cue.roles[value[0]][value[1]];
        node.ariaPressed = on ? "true" : "false"; node.ariaLabel = role ? `${name(value)}, ${role}` : name(value);
        node.tabIndex = on || (!buttons.some((b) => is(b.value, me.cue.value)) && value[0] + value[1] === 0) ? 0 : -1;
      }
      drawEdges(); drawOver();
      const rows = Array.from({ length: count() }, (_, i) => i).sort((a, b) => score(b) - score(a)), what = NAMES[me.cue.into] ?? me.cue.into, clear = rows.filter(sure);
      base.setAttribute("aria-label", `What heads read of earlier ones for their ${what}: ${clear.length} of ${count()} pairs stand more than ${SURE} standard deviations above random heads${clear.length ? `, first ${clear.slice(0, 3).map((i) => `${name(ends(i)[1])} reads ${name(ends(i)[0])}`).join(", ")}` : ""}.`);
      tableOf(alt, "Show as table", ["reader", "read", "score", "above random heads", "in their sd"], () => rows.map((i) => [name(ends(i)[1]), name(ends(i)[0]), numberOf(score(i), { digits: 4 }), signed(above(i), 4), signed(sds(i), 1)]));
    },
  };
}
