// What positions alone look at: query rows down, key columns across, no tokens. The arrow keys move the cell that is read.
export default function (args) { return live(args, makePositions); }

function makePositions(me) {
  const { root } = me, LEFT = 46, FOOT = 34;
  const readout = el("p", "readout", null, root), stage = el("div", "stage", null, root), base = el("canvas", "", null, stage), over = el("canvas", "", null, stage);
  const key = el("div", "legend", null, el("div", "legends", null, root)), alt = el("details", "alt", null, root);
  base.tabIndex = 0; readout.setAttribute("aria-live", "polite");
  let head, share, n, geo, at = null;

  const value = (q, k) => share[q * n + k] / 65534;
  const strongest = (q) => { let k = 0; for (let j = 1; j <= q; j++) if (value(q, j) > value(q, k)) k = j; return k; };
  function read(cell) {
    at = cell;
    const ctx = sized(over, geo.wide, geo.high);
    readout.replaceChildren();
    if (!at) { readout.append("Point at a cell."); return; }
    const [q, k] = at, x = LEFT + k * geo.cell, y = 4 + q * geo.cell;
    ctx.fillStyle = css(me.theme.text, 0.1); ctx.fillRect(LEFT, y, (q + 1) * geo.cell, geo.cell); ctx.fillRect(x, 4 + k * geo.cell, geo.cell, geo.size - k * geo.cell);
    ctx.strokeStyle = css(me.theme.text); ctx.lineWidth = 1.5; ctx.strokeRect(x, y, geo.cell, geo.cell);
    readout.append(`position ${q} → ${k}, ${q - k} back: `); el("b", "", numberOf(value(q, k), { digits: 3 }), readout);
  }
  base.onpointermove = (e) => {
    const box = base.getBoundingClientRect(), q = Math.floor((e.clientY - box.top - 4) / geo.cell), k = Math.floor((e.clientX - box.left - LEFT) / geo.cell);
    read(k >= 0 && k <= q && q < n ? [q, k] : null);
  };
  base.onpointerleave = () => read(null);
  base.onblur = () => { if (geo) read(null); };
  base.onkeydown = (e) => {
    const way = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[e.key];
    if (e.key === "Escape") read(null);
    if (!way || e.altKey || e.ctrlKey || e.metaKey) return;
    e.preventDefault();
    const [q, k] = at ? [at[0] + way[0], at[1] + way[1]] : [n - 1, strongest(n - 1)];
    if (q >= 0 && q < n && k >= 0 && k <= q) read([q, k]);
  };

  return {
    load(newHead, arrays) { head = newHead; share = arrays.shares; [n] = share.shape; at = null; },
    draw() {
      const { theme } = me, lut = lutOf(PALETTES.attention[theme.mode]), size = Math.min(me.cue.max_size, root.clientWidth - LEFT - 4);
      geo = { size, cell: size / n, wide: LEFT + size + 4, high: size + 4 + FOOT };
      const ctx = sized(base, geo.wide, geo.high), image = heat(n, n, 1, (q, k) => (k > q ? -1 : Math.round(255 * Math.sqrt(value(q, k)))), lut);
      drawHeat(ctx, image, LEFT, 4, size, size);
      ctx.strokeStyle = css(theme.line); ctx.lineWidth = 1; ctx.beginPath(); ctx.moveTo(LEFT, 4);
      for (let q = 0; q < n; q++) { const x = LEFT + (q + 1) * geo.cell; ctx.lineTo(x, 4 + q * geo.cell); ctx.lineTo(x, 4 + (q + 1) * geo.cell); }
      ctx.lineTo(LEFT, 4 + size); ctx.closePath(); ctx.stroke();
      const stride = [1, 2, 5, 10, 20, 50].find((s) => s * geo.cell >= 30) ?? 100;
      ctx.font = `400 10.5px ${theme.mono}`; ctx.fillStyle = css(theme.muted); ctx.textBaseline = "middle";
      for (let i = 0; i < n; i += stride) {
        const to = (i + 0.5) * geo.cell;
        ctx.textAlign = "right"; ctx.fillText(`${i}`, LEFT - 6, 4 + to); ctx.textAlign = "center"; ctx.fillText(`${i}`, LEFT + to, size + 14);
      }
      ctx.font = `400 11px ${theme.sans}`; ctx.textAlign = "right"; ctx.fillText("position that is looked at", LEFT + size, size + 29);
      ctx.save(); ctx.translate(8, 4 + size / 2); ctx.rotate(-Math.PI / 2); ctx.textAlign = "center"; ctx.fillText("position that looks", 0, 0); ctx.restore();
      if (size > 220) { ctx.textAlign = "right"; ctx.textBaseline = "top"; ctx.fillText("later positions, masked", LEFT + size, 6); }
      base.setAttribute("role", "application");
      base.setAttribute("aria-label", `${head.label}: ${n} positions that look, row by row. On average ${numberOf(me.cue.before, { digits: 2 })} on the position before. Arrow keys read a cell.`);
      legend(key, { label: "Attention", unit: "", lo: 0, hi: 1, digits: 2 }, lut, { root: Math.sqrt, ticks: [0, 0.05, 0.25, 1] });
      tableOf(alt, "Show as table", ["position", "looks most at", "share"], () => Array.from({ length: n }, (_, q) => [`${q}`, `${strongest(q)}`, numberOf(value(q, strongest(q)), { digits: 3 })]),
        { columns: ["query \\ key", ...Array.from({ length: n }, (_, k) => `${k}`)], rows: () => Array.from({ length: n }, (_, q) => [`${q}`, ...Array.from({ length: n }, (_, k) => (k > q ? "–" : exactOf(value(q, k))))]) });
      read(at);
    },
  };
}
