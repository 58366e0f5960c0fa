// Eigenvalues of one head's OV circuit in the complex plane: the angle is theirs, the radius the logarithm of their size.
// Orange on the right copies, blue on the left suppresses, grey in between only turns.
export default function (args) { return live(args, makeSpectrum); }

const DECADES = 3; // shown below the largest; what is smaller lies on the innermost ring
function makeSpectrum(me) {
  const { root } = me;
  const stage = el("div", "stage", null, root), canvas = el("canvas", "", null, stage), tip = el("div", "tip", null, stage), foot = el("div", "foot", null, root), alt = el("details", "alt", null, root);
  canvas.setAttribute("role", "img"); tip.hidden = true;
  const two = (v) => numberOf(v ?? NaN, { digits: 2, plain: true });
  let values, spots = [];

  function own() { // [re, im] of the head in focus, the largest first
    const [, n, d] = values.shape, [l, h] = me.cue.value, from = (l * n + h) * d * 2;
    return Array.from({ length: d }, (_, i) => [values[from + 2 * i], values[from + 2 * i + 1]]);
  }
  canvas.onpointermove = (e) => {
    const box = canvas.getBoundingClientRect(), x = e.clientX - box.left, y = e.clientY - box.top, area = stage.getBoundingClientRect();
    const spot = spots.map((s) => [Math.hypot(s.x - x, s.y - y), s]).sort((a, b) => a[0] - b[0])[0];
    if (!spot || spot[0] > 12) { tip.hidden = true; return; }
    const [re, im] = spot[1].value;
    showTip(tip, stage, spot[1].x + box.left - area.left, spot[1].y, (node) => {
      el("b", "", "Eigenvalue", node);
      const list = el("dl", "", null, node);
      for (const [name, text] of [["real part", numberOf(re, { digits: 3 })], ["imaginary part", numberOf(im, { digits: 3 })], ["size", numberOf(Math.hypot(re, im), { digits: 3 })]]) { el("dt", "", name, list); el("dd", "", text, list); }
    });
  };
  canvas.onpointerleave = () => { tip.hidden = true; };

  return {
    load(_, arrays) { ({ values } = arrays); },
    draw() {
      const { theme, cue } = me, found = own(), size = Math.min(cue.size, root.clientWidth), ctx = sized(canvas, size, size), mid = size / 2, r = mid - 26, lut = lutOf(PALETTES.change[theme.mode]);
      const most = Math.ceil(Math.log10(Math.max(...found.map(([a, b]) => Math.hypot(a, b)), 1e-12)) * 2 - 1e-9) / 2, least = most - DECADES;
      const radius = (s) => r * (0.08 + 0.92 * Math.max(0, (Math.log10(s || 1e-12) - least) / DECADES));
      const type = (text, x, y, align, baseline, colour = theme.muted, font = `400 10.5px ${theme.mono}`) => { ctx.font = font; ctx.textAlign = align; ctx.textBaseline = baseline; ctx.fillStyle = css(colour); ctx.fillText(text, x, y); };
      const line = (a, b, c, d) => { ctx.beginPath(); ctx.moveTo(a, b); ctx.lineTo(c, d); ctx.stroke(); };
      ctx.lineWidth = 1; ctx.strokeStyle = css(theme.line);
      const rings = [];
      for (let p = Math.ceil(least + 1e-9); p <= most + 1e-9; p++) rings.push(p);
      for (const p of rings) { ctx.strokeStyle = css(theme.faint); ctx.beginPath(); ctx.arc(mid, mid, radius(10 ** p), 0, 7); ctx.stroke(); }
      ctx.strokeStyle = css(theme.line); ctx.beginPath(); ctx.arc(mid, mid, r, 0, 7); ctx.stroke();
      line(mid - r, mid + 0.5, mid + r, mid + 0.5); line(mid + 0.5, mid - r, mid + 0.5, mid + r);
      const quiet = `400 11px ${theme.sans}`;
      spots = found.filter(([a, b]) => a || b).map(([re, im]) => { const s = Math.hypot(re, im), to = radius(s); return { x: mid + (re / s) * to, y: mid - (im / s) * to, value: [re, im], share: (1 + re / s) / 2 }; });
      for (const spot of [...spots].reverse()) {
        ctx.fillStyle = css(lut.at(spot.share < 0.5 ? 0.06 + 0.76 * spot.share : 0.18 + 0.76 * spot.share)); ctx.strokeStyle = css(theme.page); ctx.lineWidth = 1.25;
        if (Math.abs(spot.share - 0.5) < 0.2) ctx.fillStyle = css(theme.muted);
        ctx.beginPath(); ctx.arc(spot.x, spot.y, 4.5, 0, 7); ctx.fill(); ctx.stroke();
      }
      for (const p of rings) { ctx.lineWidth = 3; ctx.strokeStyle = css(theme.page); const to = radius(10 ** p), text = p >= 0 && p < 4 ? `${10 ** p}` : p < 0 && p > -4 ? `${+(10 ** p).toFixed(3)}` : `1e${p}`.replace("-", "−"); ctx.font = `400 10.5px ${theme.mono}`; ctx.textAlign = "left"; ctx.textBaseline = "bottom"; const [x, y] = [mid + to * 0.707 + 2, mid + to * 0.707 + 4]; ctx.strokeText(text, x, y); type(text, x, y, "left", "bottom"); }
      type("suppresses", 0, mid - r + 6, "left", "top", theme.muted, quiet); type("copies", size, mid - r + 6, "right", "top", theme.muted, quiet);
      type("real", size - 3, mid + 7, "right", "top", theme.muted, `italic ${quiet}`); type("imaginary", mid, mid - r - 4, "center", "bottom", theme.muted, `italic ${quiet}`);
      foot.replaceChildren();
      for (const [name, text] of [[`copying score of ${cue.label}`, two(cue.score)], ["random heads", `${two(cue.mean)} ± ${two(cue.sd)}`]]) el("b", "", text, el("span", "", `${name} `, foot));
      canvas.setAttribute("aria-label", `${found.length} eigenvalues of the OV circuit of ${cue.label}: ${spots.filter((s) => s.share > 0.75).length} point to copying, ${spots.filter((s) => s.share < 0.25).length} to suppression. Copying score ${two(cue.score)}, of random heads ${two(cue.mean)} plus or minus ${two(cue.sd)}.`);
      tableOf(alt, "Show as table", ["eigenvalue", "real part", "imaginary part", "size"], () => found.map(([a, b], i) => [`${i}`, numberOf(a, { digits: 4 }), numberOf(b, { digits: 4 }), numberOf(Math.hypot(a, b), { digits: 4 })]));
    },
  };
}
