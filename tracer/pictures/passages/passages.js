// Passages in which a head looks sharply: text shaded by the attention from one token, that token and its key marked.
export default function (args) { return live(args, makePassages); }

function makePassages(me) {
  const { root } = me;
  const legends = el("div", "legends", null, root), lists = el("div", "", null, root), tip = el("div", "tip", null, root), alt = el("details", "alt", null, root);
  for (const [kind, words] of [["query", "the token that looks"], ["key", "where it looks"]]) { const one = el("span", "name", null, legends); el("i", `swatch ${kind}`, null, one); one.append(words); }
  const key = el("div", "legend", null, legends);
  tip.hidden = true; tip.setAttribute("role", "status");
  let head, lit, spans = [], seen = "";
  const share = (p) => numberOf(p, { digits: 3 });
  const way = (d) => (d === 0 ? "the token itself" : `${Math.abs(d)} token${Math.abs(d) === 1 ? "" : "s"} ${d > 0 ? "back" : "ahead"}`);

  function point(one, card, box) { // what one token gets
    lit?.classList.remove("at"); lit = null;
    tip.hidden = !one;
    if (!one) return;
    const base = root.getBoundingClientRect(), at = (box ?? one.node.getClientRects()[0]);
    showTip(tip, root, at.left - base.left, at.top - base.top, (node) => {
      el("bdi", "", one.token.replaceAll("\n", ""), el("b", "", null, node));
      const list = el("dl", "", null, node), line = (name, text) => { el("dt", "", name, list); el("dd", "", text, list); };
      line("attention", one.position > card.query && head.causal ? "masked" : share(one.p)); line("position", `${one.position}`); line("from the query", way(card.query - one.position));
    });
  }
  function write(card, list, share) { // the text of a passage: each piece after the gap before it
    const text = el("div", `text${head.apart ? " apart" : ""}`, null, list), mine = [];
    let last = 0;
    text.tabIndex = 0; text.setAttribute("role", "application");
    text.setAttribute("aria-label", `Query ${card.query_token} looks at ${card.key_token}, ${way(card.query - card.key)}. Arrow keys move over the tokens.`);
    card.tokens.forEach((tokens, piece) => {
      const gap = card.starts[piece] - last;
      if (gap > 0) el("span", piece ? "gap" : "after", piece ? `… ${gap} token${gap === 1 ? "" : "s"} …` : "… ", text);
      tokens.forEach((token, i) => {
        const position = card.starts[piece] + i, kinds = [position === card.query && "query", position === card.key && "key", position > card.query && "after"].filter(Boolean);
        const node = el("span", kinds.join(" "), null, text), one = { node, token, position, p: share() };
        el("bdi", "", token, node);
        node.onpointerenter = () => point(one, card); node.onpointerleave = () => point(null);
        mine.push(one);
      });
      last = card.starts[piece] + tokens.length;
    });
    let at = null;
    const move = (i) => { at = Math.min(mine.length - 1, Math.max(0, i)); point(mine[at], card); lit = mine[at].node; lit.classList.add("at"); };
    text.onkeydown = (e) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[e.key];
      if (e.key === "Escape") { at = null; point(null); }
      if (!step || e.altKey || e.ctrlKey || e.metaKey) return;
      e.preventDefault();
      move(at == null ? mine.findIndex((one) => one.position === card.query) : at + step);
    };
    text.onblur = () => { at = null; point(null); };
    spans.push(...mine);
  }
  function build() {
    lists.replaceChildren(); spans = [];
    let at = 0, group = null, list;
    head.passages.forEach((card, index) => {
      if (card.group !== group) {
        group = card.group;
        el("h4", "", me.cue.groups[group].title, lists); el("p", "about", me.cue.groups[group].about, lists);
        list = el("ol", "", null, lists);
      }
      const item = el("li", "", null, list), top = el("div", "top", null, item);
      el("span", "num", numberOf(card.score, { digits: me.cue.digits }), top);
      const who = el("span", "who", null, top);
      el("bdi", "", card.query_token, who); who.append(" → "); el("bdi", "", card.key_token, who);
      const said = [way(card.query - card.key), me.cue.named && `share ${share(card.p)}`, me.cue.groups[group].quantile && `more than ${Math.round(100 * card.quantile)} % of its looks`, me.cue.rows[card.sequence]];
      el("span", "", said.filter(Boolean).join(" · "), top);
      const open = Object.assign(el("button", "", "Open", top), { type: "button", onclick: () => me.send(index) });
      el("span", "where", " on Heads", open);
      open.setAttribute("aria-label", `Open this passage on Heads: ${card.query_token} looks at ${card.key_token}`);
      write(card, item, () => me.shares[at++] / 65534);
    });
  }

  return {
    load(newHead, arrays) { head = newHead; me.shares = arrays.shares; seen = ""; },
    draw() {
      const lut = lutOf(PALETTES.attention[me.theme.mode]), now = `${me.version} ${JSON.stringify([me.cue.groups, me.cue.rows, me.cue.digits])}`;
      if (now !== seen) { tip.hidden = true; build(); seen = now; }
      for (const { node, p } of spans) { // what is hardly looked at stays clear, so that the text reads as text
        const code = p < 0.01 ? -1 : Math.round(255 * Math.sqrt(p));
        node.style.background = lut.tints[code] ?? ""; node.style.color = lut.inks[code] ?? "";
      }
      legend(key, { label: "Attention", unit: "", lo: 0, hi: 1, digits: 2 }, lut, { root: Math.sqrt, ticks: [0, 0.05, 0.25, 1] });
      tableOf(alt, "Show as table", ["query", "key", "score", "share", "distance", "where", "kind", "text"], () => head.passages.map((card) => [card.query_token, card.key_token,
        numberOf(card.score, { digits: 3 }), share(card.p), `${card.query - card.key}`, me.cue.rows[card.sequence], me.cue.groups[card.group].title, card.tokens.flat().join("").replaceAll("\n", "")]));
    },
  };
}
