// Passages in which a head looks sharply: text shaded by the attention from one token, that token and its key marked.

/**
 * As tracer.pictures.passages packs it. A passage is in pieces, each of which starts somewhere in its sequence.
 * @typedef {{ group: string, query: number, key: number, query_token: string, key_token: string, score: number,
 *   p: number, quantile: number, sequence: number, starts: number[], tokens: string[][] }} Passage
 * @typedef {Header & { passages: Passage[], apart: boolean, causal: boolean }} PassagesHeader
 */

export default (args) => live(args, makePassages);

/** How far a key is from its query, in words. */
function distanceText(distance) {
  if (distance === 0) return "the token itself";
  return `${Math.abs(distance)} token${Math.abs(distance) === 1 ? "" : "s"} ${distance > 0 ? "back" : "ahead"}`;
}

/** @param {Part} part @returns {View} */
function makePassages(part) {
  const { root } = part;
  const legends = element("div", "legends", null, root);
  const lists = element("div", "", null, root);
  const tip = tipIn(root);
  const alt = element("details", "alt", null, root);
  for (const [kind, words] of [
    ["query", "the token that looks"],
    ["key", "where it looks"]
  ]) {
    const name = element("span", "name", null, legends);
    element("i", `swatch ${kind}`, null, name);
    name.append(words);
  }
  const key = element("div", "legend", null, legends);
  tip.role = "status";
  /** @type {PassagesHeader} */
  let head;
  let shares;
  let lit; // the token that the arrow keys are at
  let spans = [];
  let shown = "";
  const shareText = (share) => numberOf(share, { digits: 3 });

  function point(one, passage) {
    // what one token gets
    lit?.classList.remove("at");
    lit = null;
    tip.hidden = !one;
    if (!one) return;
    const base = root.getBoundingClientRect();
    const [at] = one.node.getClientRects();
    tip.hidden = !at; // it has left the page meanwhile
    if (!at) return;
    const fill = (node) => {
      element("bdi", "", one.token.replaceAll("\n", ""), element("b", "", null, node));
      factsIn(node, [
        ["attention", one.position > passage.query && head.causal ? "masked" : shareText(one.share)],
        ["position", `${one.position}`],
        ["from the query", distanceText(passage.query - one.position)]
      ]);
    };
    showTip(tip, root, at.left - base.left, at.top - base.top, fill, [at.width, at.height]);
  }
  function writeToken(text, passage, token, position, share) {
    const { query } = passage;
    const kinds = [position === query && "query", position === passage.key && "key", position > query && "after"];
    const node = element("span", kinds.filter(Boolean).join(" "), null, text);
    const one = { node, token, position, share };
    element("bdi", "", token, node);
    node.onpointerenter = () => point(one, passage);
    node.onpointerleave = () => point(null);
    return one;
  }
  function write(passage, list, nextShare) {
    // the text of a passage: each piece after the gap before it
    const text = element("div", `text${head.apart ? " apart" : ""}`, null, list);
    const own = [];
    let last = 0;
    Object.assign(text, { role: "application", tabIndex: 0 });
    const looks = `Query ${passage.query_token} looks at ${passage.key_token}`;
    const far = distanceText(passage.query - passage.key);
    text.ariaLabel = `${looks}, ${far}. Arrow keys move over the tokens.`;
    passage.tokens.forEach((tokens, piece) => {
      const gap = passage.starts[piece] - last;
      const words = piece ? `… ${gap} token${gap === 1 ? "" : "s"} …` : "… ";
      if (gap > 0) element("span", piece ? "gap" : "after", words, text);
      tokens.forEach((token, i) => {
        own.push(writeToken(text, passage, token, passage.starts[piece] + i, nextShare()));
      });
      last = passage.starts[piece] + tokens.length;
    });
    let at = null;
    function leave() {
      at = null;
      point(null);
    }
    text.onkeydown = (event) => {
      if (event.key === "Escape") leave();
      const way = alongOf(event);
      if (!way) return;
      event.preventDefault();
      const next = at == null ? own.findIndex(({ position }) => position === passage.query) : at + way;
      at = clamp(next, 0, own.length - 1);
      point(own[at], passage);
      lit = own[at].node;
      lit.classList.add("at");
    };
    text.onblur = leave;
    spans.push(...own);
  }
  function writeTop(top, passage, index) {
    // what is said above a passage
    const { cue } = part;
    element("span", "num", numberOf(passage.score, { digits: cue.digits }), top);
    const who = element("span", "who", null, top);
    element("bdi", "", passage.query_token, who);
    who.append(" → ");
    element("bdi", "", passage.key_token, who);
    const said = [
      distanceText(passage.query - passage.key),
      cue.named && `share ${shareText(passage.p)}`,
      cue.groups[passage.group].quantile && `more than ${Math.round(100 * passage.quantile)} % of its looks`,
      cue.rows[passage.sequence]
    ];
    element("span", "", said.filter(Boolean).join(" · "), top);
    const open = button("", "Open", top, () => part.send(index));
    element("span", "where", " on Heads", open);
    open.ariaLabel = `Open this passage on Heads: ${passage.query_token} looks at ${passage.key_token}`;
  }
  function build() {
    const { groups } = part.cue;
    let at = 0;
    let group = null;
    let list;
    lists.replaceChildren();
    spans = [];
    head.passages.forEach((passage, index) => {
      if (passage.group !== group) {
        group = passage.group;
        element("h4", "", groups[group].title, lists);
        element("p", "about", groups[group].about, lists);
        list = element("ol", "", null, lists);
      }
      const item = element("li", "", null, list);
      writeTop(element("div", "top", null, item), passage, index);
      write(passage, item, () => shares[at++] / (MISSING - 1));
    });
  }
  function writeTable() {
    const { rows, groups } = part.cue;
    const columns = ["query", "key", "score", "share", "distance", "where", "kind", "text"];
    const row = (passage) => [
      passage.query_token,
      passage.key_token,
      numberOf(passage.score, { digits: 3 }),
      shareText(passage.p),
      `${passage.query - passage.key}`,
      rows[passage.sequence],
      groups[passage.group].title,
      passage.tokens.flat().join("").replaceAll("\n", "")
    ];
    tableOf(alt, "Show as table", columns, () => head.passages.map(row));
  }

  return {
    load(newHead, arrays) {
      head = newHead;
      shares = arrays.shares;
      shown = "";
    },
    draw() {
      const { groups, rows, digits } = part.cue;
      const lut = rampOf("attention", part.theme.mode);
      const now = `${part.version} ${JSON.stringify([groups, rows, digits])}`;
      if (now !== shown) {
        tip.hidden = true;
        build();
      }
      shown = now;
      for (const { node, share } of spans) {
        // what is hardly looked at stays clear, so that the text reads as text
        const code = share < 0.01 ? -1 : tintOf(share);
        node.style.background = lut.tints[code] ?? "";
        node.style.color = lut.inks[code] ?? "";
      }
      attentionLegend(key, lut);
      writeTable();
    }
  };
}
