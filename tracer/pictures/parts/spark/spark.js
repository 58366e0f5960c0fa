// One line without axes, with its first and last value.
export default function (args) { return live(args, makeSpark, { saves: false }); }

function makeSpark(me) {
  const { root } = me;
  const canvas = el("canvas", "", null, root), ends = el("div", "ends", null, root);
  const first = el("span", "", null, ends), name = el("span", "name", null, ends), last = el("span", "", null, ends);
  canvas.setAttribute("role", "img");
  return {
    load() {},
    draw() {
      const { values, label, share, height } = me.cue, wide = root.clientWidth, ctx = sized(canvas, wide, height);
      canvas.setAttribute("aria-label", values.length ? `${label}, from ${numberOf(values[0])} to ${numberOf(values.at(-1))}` : `${label}: nothing yet`);
      const n = values.length, lo = Math.min(...values), hi = Math.max(...values), top = 4, low = height - 4;
      const x = (i) => 3 + (wide - 6) * share * (n > 1 ? i / (n - 1) : 0), span = Math.max(hi - lo, 0.02 * Math.abs(hi)) || 1; // what hardly changes is drawn as flat
      const y = (v) => (low + top) / 2 - ((v - (lo + hi) / 2) / span) * (low - top);
      ctx.strokeStyle = css(me.theme.faint); ctx.lineWidth = 1; ctx.beginPath(); ctx.moveTo(0, low + 3.5); ctx.lineTo(wide, low + 3.5); ctx.stroke();
      name.textContent = n ? label : `no ${label} yet`; first.textContent = n ? numberOf(values[0]) : ""; last.textContent = n > 1 ? numberOf(values.at(-1)) : "";
      if (!n) return;
      ctx.lineJoin = "round"; ctx.strokeStyle = ctx.fillStyle = css(me.theme.accent); ctx.lineWidth = 1.75; ctx.beginPath();
      values.forEach((v, i) => (i ? ctx.lineTo(x(i), y(v)) : ctx.moveTo(x(i), y(v))));
      ctx.stroke(); ctx.beginPath(); ctx.arc(x(n - 1), y(values[n - 1]), 2.75, 0, 7); ctx.fill();
    },
  };
}
