// A table whose cells are coloured by their number, so that a screen reader reads the picture itself.

export default (args) => live(args, makeHeadmap);

/** @param {Part} part @returns {View} */
function makeHeadmap(part) {
  const { root } = part;
  const scroll = element("div", "fit", null, root);
  const key = element("div", "legend", null, element("div", "legends", null, root));

  function textOf(value) {
    const { scale, log } = part.cue;
    if (value == null) return "–";
    if (log && value) return briefOf(value);
    return (scale.palette === "change" && !log ? signedOf : numberOf)(value, { ...scale, plain: true });
  }
  /** What stands in a marked cell, which is not nothing: never a zero. */
  function markedText(value) {
    const text = textOf(value);
    return value && /^[0.]+$/.test(text) ? (value > 0 ? "+" : "") + briefOf(value) : text;
  }
  function buildCell(line, layer, one, { cell, small, fill }) {
    const { values, scale, off, marked, notes, pick } = part.cue;
    const value = values[layer][one];
    const isGone = off.some((head) => head[0] === layer && head[1] === one);
    const isMarked = !!marked?.[layer][one];
    const node = element("td", `cell${isGone ? " off" : ""}${isMarked ? " dot" : ""}`, null, line);
    node.style.cssText = `background:${css(fill)};color:${inkOn(fill)};width:${cell}px;min-width:${cell}px`;
    const name = `${headName([layer, one])}${isGone ? ", off" : ""}`;
    node.title = `${name} · ${scale.label} ${textOf(value)}${notes ? ` · ${notes[layer][one]}` : ""}`;
    /** @type {HTMLElement} */
    let into = node;
    if (pick && value != null) {
      into = button("pick", null, node, () => {
        part.send([layer, one]);
        part.draw();
      });
      into.dataset.head = `${layer},${one}`;
      into.ariaPressed = `${String(part.cue.value) === into.dataset.head}`;
      into.ariaLabel = node.title;
    }
    element("span", small ? "sr" : "", isMarked ? markedText(value) : textOf(value), into);
    if (isMarked) element("span", "sr", ", marked", node);
  }

  function nameColumn(line, one, text, named, cell) {
    const node = element("th", "", null, line);
    node.scope = "col";
    node.style.maxWidth = `${cell}px`; // a name is wider than a narrow column, and must not widen it
    element("span", named ? "" : "sr", named ? text : `H${one}`, node);
  }

  return {
    load() {},
    draw() {
      const { values, title, scale, log } = part.cue;
      const columns = values[0].length;
      const room = Math.floor((root.clientWidth - 34) / columns);
      const gap = room < 18 ? 1 : 3;
      const cell = Math.max(4, Math.min(112, room - gap));
      const small = cell < (log ? 54 : 44);
      const every = Math.ceil((small ? 22 : 1) / (cell + gap)); // names of columns that have room
      const focused = /** @type {ShadowRoot} */ (root.getRootNode()).activeElement;
      const held = /** @type {HTMLElement} */ (focused)?.dataset.head;
      const lut = rampOf(scale.palette, part.theme.mode);
      const span = Math.log(scale.hi / scale.lo);
      const share = (v) => (log ? Math.log(v / scale.lo) / span : (v - scale.lo) / (scale.hi - scale.lo));
      const table = element("table");
      table.style.cssText = `border-spacing:${gap}px;margin-left:-${gap}px`;
      element("caption", "", title, table);
      const top = element("tr", "", null, element("thead", "", null, table));
      const body = element("tbody", "", null, table);
      element("td", "", null, top);
      for (let one = 0; one < columns; one++)
        nameColumn(top, one, `${cell < 22 ? "" : "H"}${one}`, one % every === 0, cell);
      values.forEach((row, layer) => {
        const line = element("tr", "", null, body);
        element("th", "", `L${layer}`, line).scope = "row";
        row.forEach((value, one) => {
          const fill = value == null ? part.theme.faint : lut.at(share(value));
          buildCell(line, layer, one, { cell, small, fill });
        });
      });
      table.classList.toggle("small", small);
      scroll.replaceChildren(table);
      if (held) /** @type {HTMLElement} */ (table.querySelector(`[data-head="${held}"]`))?.focus();
      key.parentElement.hidden = part.cue.bare; // the one beside it has the colours
      const bent = (at) => (log ? Math.log(1 + at * (scale.hi / scale.lo - 1)) / span : at);
      const middle = log ? [Math.sqrt(scale.lo * scale.hi)] : scale.lo < 0 ? [0] : [];
      const note = chanceNote(scale);
      legend(key, scale, lut, { root: bent, ticks: [scale.lo, ...middle, scale.hi], note, brief: log });
    }
  };
}
