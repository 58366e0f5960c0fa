// Lists of rows with a bar and a number: pairs of tokens, the parts of a sum, one value a layer.
export default function (args) { return live(args, makeLedger); }

function makeLedger(me) {
  const { root } = me, lists = el("div", "lists", null, root);
  const show = (v, digits) => numberOf(v, { digits, plain: true });

  function write({ title, note, columns, rows, digits, palette, plain }) {
    const table = el("table", "", null, lists), caption = el("caption", "", title, table), values = rows.map((row) => row.value ?? 0), lo = Math.min(0, ...values), hi = Math.max(0, ...values, lo ? 0 : 1e-9);
    const lut = lutOf(PALETTES[palette][me.theme.mode]), across = (v) => (100 * (v - lo)) / (hi - lo || 1);
    if (note) el("span", "", note, caption);
    if (!rows.length) return;
    const names = rows[0].cells.length, top = el("tr", "", null, el("thead", "", null, table)), body = el("tbody", "", null, table), group = el("colgroup");
    const wide = names === 1 ? [48] : names === 2 ? [30, 30] : [24, 24, 24], extra = rows.some((row) => row.extra != null);
    for (const width of wide) el("col", "", null, group).style.width = `${width * (extra ? 0.9 : 1)}%`;
    el("col", "", null, group); el("col", "", null, group).style.width = "52px";
    if (extra) el("col", "", null, group).style.width = "88px";
    caption.after(group);
    columns.forEach((name, i) => { const th = el("th", i < names ? "" : "num", name, top); th.scope = "col"; if (i === names) th.colSpan = 2; });
    for (const { cells, value, extra: more, total } of rows) {
      const tr = el("tr", total ? "total" : "", null, body);
      cells.forEach((cell) => { const th = el("th", plain ? "plain" : "", null, tr); th.scope = "row"; th.title = cell; el("bdi", "", cell, th); });
      const track = el("div", "track", null, el("td", "", null, tr));
      if (value != null) {
        const bar = el("i", "", null, track), [a, b] = [across(0), across(value)];
        bar.style.cssText = `left:${Math.min(a, b)}%;width:${Math.abs(b - a)}%;background:${css(palette === "change" ? lut.at(value < 0 ? 0.2 : 0.8) : lut.at(0.62))}`;
        if (lo < 0) el("b", "", null, track).style.left = `${a}%`;
      }
      el("td", "num", value == null ? "" : (palette === "change" && value > 0 ? "+" : "") + show(value, digits), tr);
      if (extra) el("td", "num", more ?? "", tr);
    }
  }

  return {
    load() {},
    draw() {
      const { lists: all } = me.cue;
      lists.replaceChildren(); lists.style.setProperty("--n", all.length);
      all.forEach(write);
      const most = Math.max(...all.flatMap(({ rows }) => rows.map((row) => row.cells.length)), 1);
      me.table = { columns: ["list", ...Array.from({ length: most }, (_, i) => `name ${i + 1}`), "value", "beside it"],
        rows: () => all.flatMap(({ title, rows }) => rows.map(({ cells, value, extra }) => [title, ...Array.from({ length: most }, (_, i) => cells[i] ?? ""), exactOf(value), extra ?? ""])) };
    },
  };
}
