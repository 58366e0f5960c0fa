// Heads as a table, ranked by one measure: a click on a row takes its head, a click on a column's name ranks by it.
export default function (args) { return live(args, makeRanking); }

function makeRanking(me) {
  const { root } = me;
  const scroll = el("div", "scroll", null, root), table = el("table", "", null, scroll), top = el("tr", "", null, el("thead", "", null, table)), body = el("tbody", "", null, table);
  const note = el("p", "note", null, root);
  let names, heads, values, up = false, by, rows = new Map(), seen = "";
  const labelOf = (i) => `L${heads[2 * i]}H${heads[2 * i + 1]}`;
  const plainly = (v) => numberOf(v, { digits: Math.abs(v) < 10 ? 3 : 1, plain: true });
  const chosen = () => { const at = me.cue.value.head; return rows.get(`L${at[0]}H${at[1]}`); };
  const take = (i, wait) => { me.send({ ...me.cue.value, head: [heads[2 * i], heads[2 * i + 1]] }, wait); mark(); };

  function mark(follow) {
    const on = chosen();
    for (const row of rows.values()) { row.tr.classList.toggle("on", row === on); row.button.setAttribute("aria-pressed", row === on); row.button.tabIndex = row === (on ?? rows.values().next().value) ? 0 : -1; }
    if (!follow || !on) return;
    const box = scroll.getBoundingClientRect(), at = on.tr.getBoundingClientRect(), cover = top.offsetHeight; // scrolls the table, never the page
    if (at.top < box.top + cover || at.bottom > box.bottom) scroll.scrollTop += at.top - box.top - box.height / 2;
  }
  function order(column) { // heads without a number last, whichever way
    const all = [...Array(heads.length / 2).keys()], missing = (i) => !Number.isFinite(column[i]);
    return all.sort((a, b) => missing(a) - missing(b) || (up ? column[a] - column[b] : column[b] - column[a]) || a - b);
  }
  function build() {
    const { scales } = me.cue, n = heads.length / 2, wide = root.clientWidth, others = names.filter((name) => name !== by).slice(0, wide < 400 ? 0 : wide < 480 ? 1 : wide < 560 ? 2 : 3);
    const columnOf = (name) => values.subarray(names.indexOf(name) * n, (names.indexOf(name) + 1) * n);
    const scale = scales[by], lut = lutOf(PALETTES[scale.palette][me.theme.mode]), main = columnOf(by), at = (v) => 100 * Math.min(1, Math.max(0, (v - scale.lo) / (scale.hi - scale.lo)));
    top.replaceChildren(); body.replaceChildren(); rows = new Map();
    const hash = el("th", "head", "#", top); hash.scope = "col"; hash.setAttribute("aria-label", "Rank");
    el("th", "head", "Head", top).scope = "col";
    for (const name of [by, ...others]) {
      const th = el("th", name === by ? "main" : "others", null, top), button = Object.assign(el("button", "", name === by ? `${scales[name].label} ${up ? "↑" : "↓"}` : scales[name].label, th), { type: "button" });
      th.scope = "col"; if (name === by) { th.setAttribute("aria-sort", up ? "ascending" : "descending"); th.style.paddingLeft = "12px"; }
      button.title = name === by ? "Turn the order round" : `Rank by ${scales[name].label.toLowerCase()}`;
      button.setAttribute("aria-label", `${scales[name].label}: ${button.title.toLowerCase()}`);
      button.onclick = () => { if (name === by) { up = !up; seen = ""; me.draw(); } else { up = false; me.send({ ...me.cue.value, measure: name }); me.draw(); } };
    }
    order(main).forEach((i, rank) => {
      const tr = el("tr", "", null, body), label = labelOf(i);
      el("td", "rank", Number.isFinite(main[i]) ? `${rank + 1}` : "–", tr);
      const th = el("th", "", null, tr), button = Object.assign(el("button", "", label, th), { type: "button" });
      th.scope = "row";
      const cell = el("div", "cell", null, el("td", "", null, tr)), track = el("div", "track", null, cell), bar = el("i", "", null, track);
      bar.style.width = Number.isFinite(main[i]) ? `${at(main[i])}%` : "0"; bar.style.background = css(lut.at(0.25 + 0.75 * at(main[i]) / 100));
      if (scale.chance != null) el("b", "", null, track).style.left = `${at(scale.chance)}%`;
      el("span", "", plainly(main[i]), cell);
      for (const name of others) el("td", "others", plainly(columnOf(name)[i]), tr);
      tr.onclick = () => take(i);
      button.onkeydown = (e) => {
        const way = { ArrowDown: 1, ArrowUp: -1 }[e.key];
        if (!way || e.altKey || e.ctrlKey || e.metaKey) return;
        e.preventDefault();
        const list = [...rows.values()], next = list[list.findIndex((row) => row.tr === tr) + way];
        if (next) { take(next.i, 160); next.button.focus({ preventScroll: true }); mark(true); }
      };
      rows.set(label, { tr, button, i });
    });
    note.textContent = scale.chance == null ? "" : `Dashed: ${numberOf(scale.chance, { digits: 3 })}, the value at chance.`;
  }

  return {
    load(head, arrays) { names = head.measures; ({ heads, values } = arrays); seen = ""; },
    draw() {
      by = names.includes(me.cue.value.measure) ? me.cue.value.measure : names[0];
      const now = [me.version, by, up, me.theme.mode, root.clientWidth, JSON.stringify(me.cue.scales)].join();
      const focused = root.getRootNode().activeElement?.closest("tbody") ? root.getRootNode().activeElement.textContent : null;
      if (now !== seen) { build(); seen = now; mark(true); rows.get(focused)?.button.focus({ preventScroll: true }); } else mark();
      table.setAttribute("aria-label", `Heads ranked by ${me.cue.scales[by].label.toLowerCase()}`);
    },
  };
}
