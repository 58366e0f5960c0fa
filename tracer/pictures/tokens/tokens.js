// A text as buttons, one a token: colour is the change, the tooltip has the numbers, a click or the arrow keys choose.

export default (args) => live(args, makeTokens);

/** @param {Part} part @returns {View} */
function makeTokens(part) {
  const { root } = part;
  const area = element("div", "area", null, root);
  const text = element("div", "text", null, area);
  const tip = tipIn(area);
  const key = element("div", "legend", null, element("div", "legends", null, root));
  /** @type {HTMLButtonElement[]} */
  let buttons = [];
  let shown = "";
  text.role = "radiogroup";
  const three = (value) => (value == null ? "–" : numberOf(value, { digits: 3 }));
  function change(i) {
    // null where one of the two was not measured
    const { before, after } = part.cue;
    return before[i] == null || after[i] == null ? null : after[i] - before[i];
  }

  function choose(i, wait) {
    part.send(i, wait);
    mark();
  }
  function mark() {
    buttons.forEach((one, i) => {
      const on = i === part.cue.value;
      one.ariaChecked = `${on}`;
      one.tabIndex = on ? 0 : -1;
    });
  }
  function point(i) {
    const { before, after, scale, names, tokens } = part.cue;
    const box = buttons[i].getBoundingClientRect();
    const base = area.getBoundingClientRect();
    const fill = (node) => {
      element("b", "", `${i}  ${tokens[i]}`, node);
      const both = names
        ? [
            [names[0], three(before[i])],
            [names[1], three(after[i])]
          ]
        : [];
      factsIn(node, [...both, [scale.label, change(i) == null ? "–" : signedOf(change(i)), "on"]]);
    };
    showTip(tip, area, box.left - base.left, box.top - base.top, fill, [box.width, box.height]);
  }
  function build() {
    text.replaceChildren();
    buttons = part.cue.tokens.map((token, i) => {
      const one = button("token", null, text, () => choose(i, 0));
      element("bdi", "", token, one);
      one.role = "radio";
      one.onpointerenter = one.onfocus = () => point(i);
      one.onpointerleave = one.onblur = () => {
        tip.hidden = true;
      };
      one.onkeydown = (event) => {
        const way = alongOf(event);
        if (!way) return;
        event.preventDefault();
        const next = clamp(i + way, 0, buttons.length - 1);
        choose(next, 160);
        buttons[next].focus();
      };
      if (part.cue.breaks.includes(i)) element("br", "", null, text);
      return one;
    });
  }

  return {
    load() {},
    draw() {
      const { tokens, before, after, scale, names } = part.cue;
      const lut = rampOf(scale.palette, part.theme.mode);
      const now = JSON.stringify(tokens);
      if (now !== shown) build();
      shown = now;
      buttons.forEach((one, i) => {
        const by = change(i);
        const fill = lut.at(((by ?? 0) - scale.lo) / (scale.hi - scale.lo));
        one.style.background = by == null ? "transparent" : css(fill);
        one.style.color = by == null ? "" : inkOn(fill);
        one.ariaLabel = `${i} ${tokens[i]}${by == null ? "" : `, ${scale.label} ${signedOf(by)}`}`;
      });
      mark();
      const row = (token, i) => [
        i,
        token,
        ...(names ? [exactOf(before[i]), exactOf(after[i])] : []),
        exactOf(change(i))
      ];
      part.table = { columns: ["position", "token", ...(names ?? []), scale.label], rows: () => tokens.map(row) };
      text.ariaLabel = "Tokens of the prompt: choose one to see what the model predicts after it";
      legend(key, scale, lut, { ticks: [scale.lo, 0, scale.hi] });
    }
  };
}
