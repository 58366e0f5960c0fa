// What stands at both ends of a head's looks: tokens with their share as bars, and how sharp all its looks are.
export default function (args) { return live(args, makeTally); }

function makeTally(me) {
  const { root } = me;
  const lists = el("div", "lists", null, root), about = el("p", "about", null, root), spread = el("div", "spread", null, root);
  el("div", "name", "How its looks are spread", spread);
  const canvas = el("canvas", "", null, spread), axis = el("div", "axis", null, spread), lo = el("span", "", "0", axis), mid = el("span", "", "", axis), hi = el("span", "", "", axis);
  const alt = el("details", "alt", null, root);
  let head, counts;
  const percent = (v) => `${(100 * v).toFixed(v < 0.0995 ? 1 : 0)} %`;
  canvas.setAttribute("role", "img");

  function write(name, rows, most, fill) {
    const table = el("table", "", null, lists), body = (el("caption", "", name, table), el("tbody", "", null, table));
    for (const { token, count, share, usual } of rows) {
      const tr = el("tr", "", null, body), th = el("th", "", null, tr), track = el("div", "track", null, el("td", "", null, tr)), bar = el("i", "", null, track);
      th.scope = "row"; el("bdi", "", token, th);
      tr.title = `${token}: ${count} of ${head.looks} looks, ${percent(share)}; ${percent(usual)} of the text`;
      bar.style.width = `${(100 * share) / most}%`; bar.style.background = fill;
      el("b", "", null, track).style.left = `${Math.min(100, (100 * usual) / most)}%`;
      el("td", "num", percent(share), tr);
    }
  }
  function draw() { // a histogram, its bars as dark as attention of that share
    const wide = spread.clientWidth, height = 56, ctx = sized(canvas, wide, height), n = counts.length, top = Math.max(...counts), all = counts.reduce((a, b) => a + b, 0), lut = lutOf(PALETTES.attention[me.theme.mode]);
    counts.forEach((c, i) => {
      const x = Math.round((i * wide) / n), w = Math.round(((i + 1) * wide) / n) - x - 1, h = c ? Math.max(1, (c / top) * (height - 2)) : 0;
      ctx.fillStyle = css(lut.at(0.3 + 0.7 * Math.sqrt((i + 0.5) / n))); ctx.fillRect(x, height - 1 - h, w, h);
    });
    ctx.fillStyle = css(me.theme.line); ctx.fillRect(0, height - 1, wide, 1);
    const half = counts.findIndex((_, i) => counts.slice(0, i + 1).reduce((a, b) => a + b, 0) >= all / 2);
    mid.textContent = me.cue.label; hi.textContent = numberOf(head.top, { digits: head.top < 10 ? 1 : 0 });
    canvas.setAttribute("aria-label", `Histogram of ${all} looks by ${me.cue.label}: half of them are at most ${numberOf(((half + 1) / n) * head.top)}`);
  }

  return {
    load(newHead, arrays) { head = newHead; ({ counts } = arrays); },
    draw() {
      const most = Math.max(...head.lists.flat().map((one) => Math.max(one.share, one.usual)), 0.01), fill = css(lutOf(PALETTES.attention[me.theme.mode]).at(0.62));
      lists.replaceChildren();
      head.names.forEach((name, i) => write(name, head.lists[i], most, fill));
      about.textContent = me.cue.about;
      tableOf(alt, "Show as table", ["end", "token", "looks", "share", "share of the text"], () =>
        head.lists.flatMap((rows, i) => rows.map(({ token, count, share, usual }) => [head.names[i], token, `${count}`, numberOf(share, { digits: 4 }), numberOf(usual, { digits: 4 })])));
      draw();
    },
  };
}
