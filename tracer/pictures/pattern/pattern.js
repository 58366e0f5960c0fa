// One head: the matrix on a canvas, a second canvas for the cross hair, the prompt as shaded text.
// Cells are [row, column] of the window in here; what is printed or sent to Python is a position in the sequence.
// While a scrubber tells frames, those of its head are drawn; its own payload again once the host has caught up.

/**
 * As tracer.pictures.pattern packs it.
 * @typedef {Header & { label: string, causal: boolean, starts: number[], tokens: string[], breaks: number[],
 *   keys: string[] | null, key_breaks: number[] }} PatternHeader
 */

const LEVEL = 8; // of 256: shades of tokens in a text are told apart no finer, so that a move of the mouse changes few
const WIDE = 24; // letters of a token that may be wider than its text
const CORNER = { high: 88, wide: 170, said: 276 }; // room for the scale and two lines; where the page says more below

export default (args) => live(args, makePattern);

/** @param {Part} part @returns {View} */
function makePattern(part) {
  const { root } = part;
  const readout = element("p", "readout", null, root);
  const both = element("div", "both", null, root);
  const figure = element("div", "figure", null, both);
  const stage = element("div", "stage", null, figure);
  const base = element("canvas", "", null, stage);
  const cross = element("canvas", "", null, stage);
  const legends = element("div", "legends", null, figure);
  const key = element("div", "legend key", null, legends);
  const blocks = element("span", "blocks", null, legends);
  const alt = element("details", "alt", null, figure);
  const side = element("div", "side", null, both);
  const tip = tipIn(stage);
  Object.assign(base, { role: "application", tabIndex: 0 });
  readout.ariaLive = "polite";
  const ways = choice("ways", "What the shading shows", ["Where it looks", "Who looks at it"], side, look);
  const texts = element("div", "texts", null, side);
  /** @type {PatternHeader} */
  let head;
  let shares;
  let rows;
  let cols;
  let layout;
  let lut;
  let image;
  let imageKey;
  let back = 0; // 1: shaded by who looks at a token
  let hover = null;
  let told = null; // the cell that another part points at
  let spans = []; // of the text of queries, and of that of keys where these are others

  const playing = followFilm(part, () => layout && part.cue.head && repaint());
  const film = () => (part.cue.head ? playing.frame() : null);
  const position = (axis, i) => head.starts[axis] + i;
  function filmCodes(frame) {
    const code = frameCodes(frame, part.cue.head);
    return (q, k) => code(position(0, q), position(1, k));
  }
  const share = (q, k) => (film() ? shareOfCode(filmCodes(film())(q, k)) : shares[q * cols + k] / (MISSING - 1));
  const seen = (q) => columnsSeen(q, cols, head.causal, head.starts);
  const firstRow = (k) => (head.causal ? clamp(k + head.starts[1] - head.starts[0], 0, rows) : 0); // that sees a column
  const isUnseen = (q, k) => k >= seen(q);
  const isInside = (/** @type {Cell} */ [q, k]) => q >= 0 && k >= 0 && q < rows && k < cols && !isUnseen(q, k);
  const token = (axis, i) => ((axis && head.keys) || head.tokens)[i];
  const inWindow = (cell) => cell.map((place, axis) => place - head.starts[axis]);
  function lock() {
    const cell = part.cue.value?.length ? inWindow(part.cue.value) : null;
    return cell && cell[0] >= 0 && cell[1] >= 0 && cell[0] < rows && cell[1] < cols ? cell : null;
  }
  const focus = () => hover ?? told ?? lock();
  function strongest(i, axis) {
    // cell of a row (axis 0) or of a column (axis 1); null where all of it is masked
    let found = null;
    const end = axis ? rows : seen(i);
    for (let j = axis ? firstRow(i) : 0; j < end; j++) {
      const [q, k] = axis ? [j, i] : [i, j];
      if (!found || share(q, k) > share(found[0], found[1])) found = [q, k];
    }
    return found;
  }
  function sentence(node, /** @type {Cell} */ [q, k]) {
    node.append("query ");
    quote(node, token(0, q), position(0, q));
    node.append(" → key ");
    quote(node, token(1, k), position(1, k));
    node.append(": ");
    element("span", "num", isUnseen(q, k) ? "masked, a later token" : numberOf(share(q, k), { digits: 3 }), node);
  }

  function label(ctx, axis, i, strong = false) {
    const text = strong || !layout.numbers[axis] ? token(axis, i) : `${position(axis, i)}`;
    drawToken(ctx, part.theme, layout, axis, i, text, strong);
  }
  /** The first token that is written on an axis, and every how many: numbers at round places where most have no room. */
  function namedOn(axis, size, isNumber) {
    if (!isNumber) return [0, Math.ceil(14 / size)];
    const round = [5, 10, 20, 25, 50, 100, 200, 250].find((stride) => stride * size >= 28) ?? 500;
    return [(round - (head.starts[axis] % round)) % round, round];
  }
  function labels(ctx, axis) {
    const [first, every] = layout.named[axis];
    for (let i = first; i < (axis ? cols : rows); i += every) label(ctx, axis, i);
  }
  function drawCross() {
    if (!layout) return; // not drawn yet: the pointer may leave, or a key be pressed, before that
    const { theme } = part;
    const ctx = sized(cross, layout.left + layout.width + 8, MATRIX_TOP + layout.height + layout.bottom);
    const cell = focus();
    ctx.translate(0, MATRIX_TOP);
    readout.replaceChildren();
    const isSaid = part.cue.explained && !hover && !told && !film();
    if (!cell || isSaid) element("span", "hint", CELL_HINT, readout);
    else sentence(readout, cell);
    if (cell) {
      drawCrossHair(ctx, theme, layout, cell, lock() && !hover && !told);
      ctx.font = `500 11px ${theme.mono}`;
      cell.forEach((i, axis) => {
        label(ctx, axis, i, true);
      });
    }
    if (side.hidden) return;
    for (const [axis, list] of spans.entries()) shade(list, axis, cell);
  }
  function shade(list, axis, cell) {
    // one text by the way that is chosen, two texts by row and by column
    const by = head.keys ? 1 - axis : back;
    const i = cell?.[by];
    list.forEach((span, j) => {
      const [q, k] = by ? [j, i] : [i, j];
      const blind = cell && isUnseen(q, k);
      const tint = cell && !blind ? LEVEL * Math.floor(tintOf(share(q, k)) / LEVEL) : -1;
      if (span.tint !== tint) {
        span.tint = tint;
        span.style.background = lut.tints[tint] ?? "";
        span.style.color = lut.inks[tint] ?? "";
      }
      const here = head.keys ? cell?.[axis] === j : i === j;
      const other = cell && !head.keys && j === cell[1 - by];
      const className = !cell ? "" : here ? "focus" : other ? "other" : blind ? "blind" : "";
      if (span.className === className) return;
      span.className = className;
      if (head.keys && here) reveal(span);
    });
  }
  function reveal(span) {
    // scroll its own text, never the page, and not under the mouse
    const text = span.parentElement;
    const box = text.getBoundingClientRect();
    const at = span.getBoundingClientRect();
    if (text.matches(":hover") || (at.top >= box.top && at.bottom <= box.bottom)) return;
    text.scrollTop += at.top - box.top - box.height / 2;
  }
  function point(cell) {
    const changed = String(cell) !== String(hover);
    if (changed) tell("cursor", cell && { query: position(0, cell[0]), key: position(1, cell[1]), source: part });
    hover = cell;
    drawCross();
  }
  function hold(cell, wait = 0) {
    point(null);
    part.send(cell ? cell.map((i, axis) => position(axis, i)) : [], wait);
    drawCross();
  }
  const toggle = (cell) => hold(lock() && String(lock()) === String(cell) ? null : cell);
  function look(way) {
    back = way;
    press(ways, way);
    drawCross();
  }
  look(0);

  base.onpointermove = (event) => {
    if (!layout) return; // not drawn yet
    const [x, y] = pointIn(base, event);
    const cell = [Math.floor((y - MATRIX_TOP) / layout.size[0]), Math.floor((x - layout.left) / layout.size[1])];
    if (!isInside(cell)) {
      tip.hidden = true;
      if (hover) point(null);
      return;
    }
    if (String(hover) !== String(cell)) point(cell);
    const [high, wide] = layout.size;
    const corner = [layout.left + cell[1] * wide, MATRIX_TOP + cell[0] * high];
    showTip(tip, stage, ...corner, (node) => sentence(node, cell), [wide, high]);
  };
  base.onpointerleave = () => {
    tip.hidden = true;
    point(null);
  };
  base.onclick = (event) => {
    base.onpointermove(event);
    if (hover) toggle(hover);
  };
  base.onkeydown = (event) => {
    if (event.key === "Escape") hold(null);
    const way = arrowOf(event);
    const start = lock() ?? strongest(rows - 1, 0);
    if (!way || !start) return;
    event.preventDefault();
    tip.hidden = true;
    const next = lock() ? start.map((i, axis) => i + way[axis]) : start;
    if (isInside(next)) hold(next, 200);
  };

  function write(axis, tokens, breaks) {
    // a text of which each token is a button
    const group = element("div", "group", null, texts);
    const range = `${position(axis, 0)}–${position(axis, tokens.length - 1)}`;
    if (head.keys) element("div", "name", `${axis ? "Keys" : "Queries"} ${range}`, group);
    const text = element("div", "text", null, group);
    const kind = head.keys ? ["query", "key"][axis] : "token";
    const linked = (i) => strongest(i, head.keys ? axis : back);
    return tokens.map((token, i) => {
      const span = button("", null, text, () => {
        const cell = linked(i);
        if (cell) toggle(cell);
      });
      span.onpointerenter = span.onfocus = () => point(linked(i));
      span.onpointerleave = span.onblur = () => point(null);
      element("bdi", "", token, span);
      span.ariaLabel = `${kind} ${position(axis, i)}: ${token}`;
      if (token.length > WIDE) span.dataset.wide = "";
      if (breaks.includes(i)) element("br", "", null, text);
      return span;
    });
  }
  function paint() {
    // at most one pixel a cell; the brightest where there are more cells than pixels
    const pool = Math.max(poolFor(rows, layout.height), poolFor(cols, layout.width));
    const frame = film();
    const source = frame ? `${frame.version} ${frame.index} ${part.cue.head}` : head.version;
    const want = `${source} ${part.theme.mode} ${pool}`;
    if (imageKey === want) return;
    const code = frame ? filmCodes(frame) : (q, k) => tintOf(shares[q * cols + k] / (MISSING - 1));
    image = heat(rows, cols, pool, (q, k) => (isUnseen(q, k) ? -1 : code(q, k)), lut);
    imageKey = want;
    for (const span of spans.flat()) span.tint = null;
  }
  function layOut(ctx) {
    const width = root.clientWidth;
    const wide = width >= 820 && !side.hidden;
    ctx.font = `400 11px ${part.theme.mono}`;
    const gutter = (tokens) => gutterOf(ctx, tokens, Math.min(104, width * 0.22));
    const left = gutter(head.tokens);
    const bottom = head.keys ? gutter(head.keys) : left;
    const room = Math.min(part.cue.max_size, (wide ? width * 0.62 : width) - left - 8);
    const cell = Math.min(room / Math.max(rows, cols), 56);
    // rows stay legible in a flat window, columns in a tall one
    const size = [rows, cols].map((count) => wholePixels(Math.max(cell, Math.min(16, room / count))));
    const numbers = size.map((side) => side < 14 / 3);
    const named = [0, 1].map((axis) => namedOn(axis, size[axis], numbers[axis]));
    layout = { left, bottom, size, height: size[0] * rows, width: size[1] * cols, numbers, named };
  }
  /** The scale and the cell that is read stand among later tokens, where no cell is, if these leave them room. Returned
   * is whether they stand above what the page says. */
  function fillCorner() {
    const row = Math.min(rows - 1, Math.floor(CORNER.high / layout.size[0]));
    const free = layout.width - seen(row) * layout.size[1];
    const isFilled = free >= CORNER.wide;
    const over = root.clientWidth - layout.left - layout.width;
    const isSaid = isFilled && part.cue.explained && free + over >= CORNER.said + 8;
    root.classList.toggle("filled", isFilled);
    root.classList.toggle("said", isSaid);
    const right = isFilled ? `${isSaid ? 0 : over}px` : "";
    const place = (most) => ({ right, maxWidth: isFilled ? `${most}px` : "", width: isSaid ? `${CORNER.said}px` : "" });
    Object.assign(key.style, place(free + over + CORNER.high / 2)); // it stands higher
    Object.assign(readout.style, place((isSaid ? free + over : free) - 8));
    return isSaid;
  }
  function drawCells(ctx) {
    const { theme } = part;
    paint();
    drawHeat(ctx, image, layout.left, 0, layout.width, layout.height);
    drawGrid(ctx, theme, layout, rows, cols, seen, firstRow);
  }
  function repaint() {
    // the cells alone, for a frame; the canvas is still moved down as it was drawn
    playing.settle();
    const ctx = base.getContext("2d");
    const frame = film();
    ctx.clearRect(layout.left - 1, -1, layout.width + 2, layout.height + 2);
    drawCells(ctx);
    const pooled = frame && Math.max(...frame.factors) > 1;
    blocks.textContent = pooled ? `brightest of ${frame.factors.join(" × ")} tokens while it moves` : "";
    if (focus()) drawCross();
  }
  function writeTable() {
    const named = (axis, i) => `${position(axis, i)} \u2068${token(axis, i)}\u2069`;
    const plain = (axis, i) => `${position(axis, i)} ${token(axis, i)}`;
    const columns = Array.from({ length: cols }, (_, k) => k);
    const most = (q) => {
      const cell = strongest(q, 0);
      return cell
        ? [named(0, q), named(1, cell[1]), numberOf(share(q, cell[1]), { digits: 3 })]
        : [named(0, q), "–", "–"];
    };
    const exact = (q, k) => (isUnseen(q, k) ? "–" : exactOf(share(q, k)));
    tableOf(alt, "Show as table", ["query", "strongest key", "share"], () => head.tokens.map((_, q) => most(q)), {
      columns: ["query \\ key", ...columns.map((k) => plain(1, k))],
      rows: () => head.tokens.map((_, q) => [plain(0, q), ...columns.map((k) => exact(q, k))])
    });
  }
  const stopHearing = hear("cursor", (cell) => {
    if (cell?.source === part || !layout) return;
    const inHere = cell && inWindow([cell.query, cell.key]);
    const next = inHere && isInside(inHere) ? inHere : null;
    if (String(next) === String(told)) return;
    told = next;
    drawCross();
  });

  return {
    load(newHead, arrays) {
      head = newHead;
      shares = arrays.shares;
      [rows, cols] = shares.shape;
      imageKey = "";
      hover = told = null;
      texts.replaceChildren();
      ways[0].parentElement.hidden = !!head.keys;
      root.classList.toggle("two", !!head.keys);
      spans = [write(0, head.tokens, head.breaks)];
      if (head.keys) spans.push(write(1, head.keys, head.key_breaks));
    },
    draw() {
      const { theme } = part;
      side.hidden = part.cue.text === false; // the page has the text elsewhere
      playing.settle();
      lut = rampOf("attention", theme.mode);
      layOut(base.getContext("2d"));
      const ctx = sized(base, layout.left + layout.width + 8, MATRIX_TOP + layout.height + layout.bottom);
      ctx.translate(0, MATRIX_TOP);
      drawCells(ctx);
      ctx.font = `400 11px ${theme.mono}`;
      labels(ctx, 0);
      labels(ctx, 1);
      const span = (axis, count) => `${position(axis, 0)} to ${position(axis, count - 1)}`;
      const window = head.keys || head.starts[0] ? `, queries ${span(0, rows)}, keys ${span(1, cols)}` : "";
      base.ariaLabel =
        `Attention pattern of ${head.label || "a head"}: ${rows} query rows, ${cols} key columns${window}. ` +
        "Arrow keys move the pinned cell, Escape unpins it.";
      const isPlain = fillCorner() || !head.causal;
      attentionLegend(key, lut, { note: isPlain ? "" : "blank: later tokens" });
      writeTable();
      drawCross();
    },
    end() {
      stopHearing();
      playing.stop();
      if (hover) tell("cursor", null);
    }
  };
}
