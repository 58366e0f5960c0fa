// Two patterns and, where their tokens are the same, what changed: a panel each, one cross hair and one read-out for
// all. Cells are [row, column, panel] of the window in here; what is sent or told to others is a position in the
// sequence. While a scrubber tells frames, the first pattern and the change are those of its frame; the second one
// stays.

/**
 * As tracer.pictures.versus packs it.
 * @typedef {{ title: string, tokens: string[], keys: string[], starts: number[], causal: boolean }} VersusSide
 * @typedef {Header & { same: boolean, top: number, sides: VersusSide[] }} VersusHeader
 */

const CHANGE = 2; // the panel of what changed
const PANEL_NAMES = ["A", "B"];
const MAX_CELL = 28;

export default (args) => live(args, makeVersus);

/** @param {Part} part @returns {View} */
function makeVersus(part) {
  const { root } = part;
  const readout = element("p", "readout", null, root);
  const figures = element("div", "panels", null, root);
  const legends = element("div", "legends", null, root);
  const shareKey = element("div", "legend", null, legends);
  const changeKey = element("div", "legend", null, legends);
  const alt = element("details", "alt", null, root);
  readout.ariaLive = "polite";
  /** @type {VersusHeader} */
  let head;
  let shares;
  let panels = [];
  let hover = null;
  let told = null; // the cell that another part points at
  let reach = 0; // the largest change of a film so far: its scale only grows while it plays

  const side = (p) => head.sides[p === CHANGE ? 0 : p];
  const sizeOf = (p) => shares[p === CHANGE ? 0 : p].shape;
  const film = () => (part.cue.head ? playing.frame() : null);
  function filmShare(q, k) {
    const [row, column] = side(0).starts;
    return shareOfCode(frameCodes(film(), part.cue.head)(q + row, k + column));
  }
  const share = (p, q, k) => (p === 0 && film() ? filmShare(q, k) : shares[p][q * sizeOf(p)[1] + k] / (MISSING - 1));
  const value = (p, q, k) => (p === CHANGE ? share(1, q, k) - share(0, q, k) : share(p, q, k));
  const top = () => Math.max(head.top, reach);
  const seen = (p, q) => columnsSeen(q, sizeOf(p)[1], side(p).causal, side(p).starts);
  const isInside = (p, /** @type {Cell} */ [q, k]) => q >= 0 && k >= 0 && q < sizeOf(p)[0] && k < seen(p, q);
  const token = (p, axis, i) => (axis ? side(p).keys : side(p).tokens)[i];
  const position = (p, axis, i) => side(p).starts[axis] + i;
  const signed = (v) => signedOf(v, { plain: true });
  const range = (count) => Array.from({ length: count }, (_, i) => i);
  const isDrawn = () => panels.length > 0 && panels.every(({ layout }) => layout);
  function lock() {
    // where the tokens are the same the panel does not matter
    if (!part.cue.value?.length) return null;
    const [query, key, panel] = part.cue.value;
    const p = head.same ? 0 : (panel ?? 0);
    const cell = [query - side(p).starts[0], key - side(p).starts[1]];
    return isInside(p, cell) ? [...cell, p] : null;
  }
  const focus = () => hover ?? told ?? lock();

  function say() {
    const cell = focus();
    readout.replaceChildren();
    if (!cell) {
      element("span", "hint", CELL_HINT, readout);
      return;
    }
    const [q, k, p] = cell;
    readout.append("query ");
    quote(readout, token(p, 0, q), position(p, 0, q));
    readout.append(" → key ");
    quote(readout, token(p, 1, k), position(p, 1, k));
    element("br", "", null, readout);
    const numbers = element("span", "numbers", null, readout);
    const put = (name, text) => {
      const one = element("span", "", null, numbers);
      element("span", "soft", `${name} `, one);
      element("span", "num", text, one);
    };
    for (const panel of head.same ? [0, 1] : [p]) put(PANEL_NAMES[panel], numberOf(share(panel, q, k), { digits: 3 }));
    if (head.same) put("change", signed(value(CHANGE, q, k)));
  }
  function imageOfPanel(p, pool, lut) {
    // the strongest share of a pixel, or the largest change whichever its sign
    const [rows, cols] = sizeOf(p);
    const far = top() || 1;
    const code = (v) => (p === CHANGE ? Math.round(255 * clamp((v / far + 1) / 2, 0, 1)) : tintOf(v));
    const weight = (q, k) => (k < seen(p, q) ? Math.abs(value(p, q, k)) : -1);
    return heat(rows, cols, pool, (q, k) => code(value(p, q, k)), lut, weight);
  }
  function layOut(p, ctx, width) {
    const [rows, cols] = sizeOf(p);
    ctx.font = `400 11px ${part.theme.mono}`;
    const [left, bottom] = [side(p).tokens, side(p).keys].map((tokens) =>
      gutterOf(ctx, tokens, Math.min(84, width * 0.22))
    );
    const cell = wholePixels(Math.min((width - left - 8) / Math.max(rows, cols), MAX_CELL));
    const named = [0, 1].map(() => [0, Math.ceil(14 / cell)]);
    return { left, bottom, size: [cell, cell], height: cell * rows, width: cell * cols, named };
  }
  const sheet = (canvas, { left, width, height, bottom }) =>
    sized(canvas, left + width + 8, MATRIX_TOP + height + bottom);
  function drawPanel(p, width) {
    const panel = panels[p];
    const { theme } = part;
    const [rows, cols] = sizeOf(p);
    const layout = layOut(p, panel.base.getContext("2d"), width);
    const [cell] = layout.size;
    const pool = poolFor(1, cell);
    const lut = rampOf(p === CHANGE ? "change" : "attention", theme.mode);
    const across = (count) => Math.ceil(count / pool) * pool * cell;
    panel.layout = layout;
    const ctx = sheet(panel.base, layout);
    ctx.translate(0, MATRIX_TOP);
    drawHeat(ctx, imageOfPanel(p, pool, lut), layout.left, 0, across(cols), across(rows));
    const firstRow = () => 0;
    drawGrid(ctx, theme, layout, rows, cols, (q) => seen(p, q), firstRow);
    ctx.font = `400 11px ${theme.mono}`;
    [rows, cols].forEach((count, axis) => {
      const [first, every] = layout.named[axis];
      for (let i = first; i < count; i += every) drawToken(ctx, theme, layout, axis, i, token(p, axis, i));
    });
    const [a, b] = PANEL_NAMES;
    const what = p === CHANGE ? `Change from ${a} to ${b}` : `${[a, b][p]}: attention pattern of ${side(p).title}`;
    const keys = "Arrow keys move the pinned cell, Escape unpins it.";
    panel.base.ariaLabel = `${what}, ${rows} query rows, ${cols} key columns. ${keys}`;
  }
  function drawCross(fresh = false) {
    // sizing a canvas takes longer than to wipe it: only when its picture was drawn
    const cell = focus();
    panels.forEach(({ cross, layout }, p) => {
      const ctx = fresh ? sheet(cross, layout) : cross.getContext("2d");
      if (fresh) ctx.translate(0, MATRIX_TOP);
      else ctx.clearRect(0, -MATRIX_TOP, cross.width, cross.height);
      if (!cell || (!head.same && cell[2] !== p)) return;
      drawCrossHair(ctx, part.theme, layout, cell, lock() && !hover && !told);
      ctx.font = `500 11px ${part.theme.mono}`;
      for (const axis of [0, 1]) drawToken(ctx, part.theme, layout, axis, cell[axis], token(p, axis, cell[axis]), true);
    });
    say();
  }
  const placeOf = (/** @type {Cell} */ [q, k, p]) => [position(p, 0, q), position(p, 1, k), p];
  function point(cell) {
    if (String(cell) === String(hover)) return;
    hover = cell;
    drawCross();
    if (cell && !head.same && cell[2] !== 0) return;
    const [query, key] = cell ? placeOf(cell) : [];
    tell("cursor", cell && { query, key, source: part });
  }
  function hold(cell, wait = 0) {
    point(null);
    part.send(cell ? placeOf(cell) : [], wait);
    drawCross();
  }
  function listen(cell) {
    // to another part, whose tokens are those of panel 0
    if (cell?.source === part || !head) return;
    const here = cell && [cell.query - side(0).starts[0], cell.key - side(0).starts[1], 0];
    told = here && isInside(0, here) ? here : null;
    if (isDrawn()) drawCross();
  }
  function makePanel(p) {
    const figure = element("figure", "", null, figures);
    const caption = element("figcaption", "", null, figure);
    const stage = element("div", "stage", null, figure);
    const base = element("canvas", "", null, stage);
    const cross = element("canvas", "", null, stage);
    Object.assign(base, { role: "application", tabIndex: 0 });
    const own = () => (head.same ? 0 : p);
    const under = (event) => {
      const { layout } = panels[p];
      if (!layout) return null; // new panels, not drawn yet
      const [x, y] = pointIn(base, event);
      const cell = [Math.floor((y - MATRIX_TOP) / layout.size[0]), Math.floor((x - layout.left) / layout.size[1])];
      return isInside(p, cell) ? [...cell, own()] : null;
    };
    base.onpointermove = (event) => point(under(event));
    base.onpointerleave = () => point(null);
    base.onclick = (event) => {
      const cell = under(event);
      if (cell) hold(String(lock()) === String(cell) ? null : cell);
    };
    base.onkeydown = (event) => {
      if (event.key === "Escape") hold(null);
      const way = arrowOf(event);
      if (!way) return;
      event.preventDefault();
      const now = lock();
      const start = strongest(p, sizeOf(p)[0] - 1);
      const next = now?.[2] === own() ? [now[0] + way[0], now[1] + way[1]] : start;
      if (isInside(own(), next)) hold([...next, own()], 200);
    };
    return { figure, caption, base, cross };
  }
  function strongest(p, q) {
    // the cell of a row with the strongest share, or with the largest change
    let best = 0;
    for (let k = 1; k < seen(p, q); k++) if (Math.abs(value(p, q, k)) > Math.abs(value(p, q, best))) best = k;
    return [q, best];
  }
  function writeTable() {
    const [a, b] = PANEL_NAMES;
    const named = (p, axis, i) => `${position(p, axis, i)} \u2068${token(p, axis, i)}\u2069`;
    const three = (v) => numberOf(v, { digits: 3 });
    const strongestOf = (p) =>
      range(sizeOf(p)[0])
        .map((q) => strongest(p, q))
        .filter((cell) => isInside(p, cell));
    const every = (p, fields) =>
      range(sizeOf(p)[0]).flatMap((q) =>
        range(seen(p, q)).map((k) => [named(p, 0, q), named(p, 1, k), ...fields(q, k)])
      );
    const exact = (p, q, k) => value(p, q, k).toFixed(5);
    if (head.same) {
      const row = (/** @type {Cell} */ [q, k]) => [
        named(0, 0, q),
        named(0, 1, k),
        three(share(0, q, k)),
        three(share(1, q, k)),
        signed(value(CHANGE, q, k))
      ];
      const columns = ["query", "key that changes most", a, b, "change"];
      tableOf(alt, "Show as table", columns, () => strongestOf(CHANGE).map(row), {
        columns: ["query", "key", a, b, `${b} − ${a}`],
        rows: () => every(0, (q, k) => [0, 1, CHANGE].map((p) => exact(p, q, k)))
      });
      return;
    }
    const row = (p, /** @type {Cell} */ [q, k]) => [
      named(p, 0, q),
      PANEL_NAMES[p],
      named(p, 1, k),
      three(share(p, q, k))
    ];
    const rows = () => [0, 1].flatMap((p) => strongestOf(p).map((cell) => row(p, cell)));
    tableOf(alt, "Show as table", ["query", "pattern", "strongest key", "share"], rows, {
      columns: ["query", "key", "pattern", "share"],
      rows: () => [0, 1].flatMap((p) => every(p, (q, k) => [PANEL_NAMES[p], exact(p, q, k)]))
    });
  }

  function writeCaptions() {
    const [a, b] = PANEL_NAMES;
    panels.forEach(({ caption }, p) => {
      const played = p === 0 && film() ? ` → step ${exactStep(film().step)}` : "";
      const changed = top() ? "what changed" : "nothing changed";
      caption.replaceChildren();
      element("b", "", p === CHANGE ? `${b} − ${a}` : PANEL_NAMES[p], caption);
      element("span", "", p === CHANGE ? changed : side(p).title + played, caption);
    });
  }
  function writeLegends() {
    const far = top();
    const { mode } = part.theme;
    attentionLegend(shareKey, rampOf("attention", mode));
    changeKey.hidden = !head.same || !far;
    if (changeKey.hidden) return;
    const scale = { label: "Change", unit: "", lo: -far, hi: far, digits: far < 0.1 ? 3 : 2 };
    legend(changeKey, scale, rampOf("change", mode), { ticks: [-far, 0, far] });
  }
  function settle(/** @type {boolean | undefined} */ arrived = undefined) {
    if (playing.settle(arrived)) reach = 0;
  }
  function repaint() {
    // the panels that a frame changes
    if (!part.cue?.head || !isDrawn()) return;
    settle();
    if (film() && head.same) {
      for (const q of range(sizeOf(0)[0]))
        for (let k = 0; k < seen(0, q); k++) reach = Math.max(reach, Math.abs(value(CHANGE, q, k)));
    }
    writeCaptions();
    writeLegends();
    for (const p of head.same ? [0, CHANGE] : [0]) drawPanel(p, panels[p].figure.clientWidth);
    drawCross(true);
  }
  const playing = followFilm(part, repaint);
  const stopHearing = hear("cursor", listen);

  return {
    load(newHead, arrays) {
      head = newHead;
      shares = [arrays.a, arrays.b];
      hover = told = null;
      settle(true);
      const count = head.same ? 3 : 2;
      if (panels.length === count) return;
      figures.replaceChildren();
      panels = range(count).map(makePanel);
      figures.dataset.count = `${count}`;
    },
    draw() {
      settle();
      writeCaptions();
      const widths = panels.map(({ figure }) => figure.clientWidth);
      panels.forEach((_, p) => {
        drawPanel(p, widths[p]);
      });
      writeLegends();
      writeTable();
      drawCross(true);
    },
    end() {
      stopHearing();
      playing.stop();
      if (hover) tell("cursor", null);
    }
  };
}
