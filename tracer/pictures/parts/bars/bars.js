// A table with bars: before on top, after below it, so that lengths can be compared without a hover.
export default function (args) { return live(args, makeBars); }

function makeBars(me) {
  const { root } = me;
  const table = el("table", "", null, root), top = el("tr", "", null, el("thead", "", null, table)), body = el("tbody", "", null, table);
  for (const name of ["next token", "probability", "before", "after", "points"]) el("th", name === "probability" ? "wide" : "", name, top).scope = "col";
  const share = (p) => `${(100 * p).toFixed(1)} %`;
  return {
    load() {},
    draw() {
      const { tokens, before, after, true: real } = me.cue;
      root.classList.toggle("narrow", root.clientWidth < 440);
      body.replaceChildren();
      tokens.forEach((token, i) => {
        const tr = el("tr", i === real ? "real" : "", null, body), name = el("th", "", null, tr), pair = el("div", "pair", null, el("td", "wide", null, tr)), change = 100 * (after[i] - before[i]);
        name.scope = "row"; el("bdi", "", token, name); if (i === real) el("span", "tag", "follows", name);
        for (const [kind, p] of [["was", before[i]], ["is", after[i]]]) el("i", kind, null, pair).style.width = `${100 * p}%`;
        el("td", "num", share(before[i]), tr); el("td", "num", share(after[i]), tr);
        el("td", "num", `${change > 0.05 ? "+" : ""}${change.toFixed(1)}`.replace(/^-(0\.0)$/, "$1").replace("-", "−"), tr);
      });
    },
  };
}
