// A pattern as a matrix: rows are queries, columns are keys. `layout`: left and bottom, the room for the tokens; size,
// the height of a row and the width of a column; height and width of all cells.

const MATRIX_TOP = 8; // room for half a label above the first row

/** The room that tokens take beside the cells. */
const gutterOf = (ctx, tokens, most) =>
  Math.ceil(Math.min(Math.max(...tokens.map((token) => ctx.measureText(token).width)) + 14, most));

/** How many columns a row sees; `starts`: the positions of the first row and the first column. */
const columnsSeen = (row, cols, causal, starts) => (causal ? clamp(row + starts[0] - starts[1] + 1, 0, cols) : cols);

const MEETING = 15; // a plate and a token whose middles are nearer than this meet

/** Hides the tokens that a plate would cut: `layout.named` has the first that is written on each axis, and every how
 * many one is. */
function hideNear(ctx, theme, layout, axis, i, room) {
  const [first, every] = layout.named[axis];
  const nearest = Math.round((i - first) / every);
  ctx.fillStyle = css(theme.page);
  for (const j of [nearest - 1, nearest, nearest + 1]) {
    const apart = (first + j * every - i) * layout.size[axis];
    if (Math.abs(apart) < MEETING) ctx.fillRect(-room, apart - 7, room + 3, 14);
  }
}

/** A token beside its row (axis 0) or below its column (axis 1). `strong`: on a plate, in place of its neighbours. */
function drawToken(ctx, theme, layout, axis, i, text, strong = false) {
  const at = (i + 0.5) * layout.size[axis];
  const room = (axis ? layout.bottom : layout.left) - 10;
  const shown = clipped(ctx, text, room);
  ctx.save();
  if (axis) {
    ctx.translate(layout.left + at, layout.height + 6);
    ctx.rotate(-Math.PI / 2);
  } else ctx.translate(layout.left - 6, at);
  if (strong) {
    hideNear(ctx, theme, layout, axis, i, room);
    const wide = ctx.measureText(shown).width + 8;
    fillRound(ctx, theme.text, 4 - wide, -8, wide, 16, 3);
  }
  writeText(ctx, shown, 0, 0.5, { colour: strong ? theme.page : theme.muted, align: "right", baseline: "middle" });
  ctx.restore();
}

/** Lines between cells that are large enough, and the edge where the future begins. */
function drawGrid(ctx, theme, layout, rows, cols, seen, firstRow) {
  const { left, width, height } = layout;
  const [tall, wide] = layout.size;
  ctx.fillStyle = css(theme.page, 0.8);
  if (tall >= 12) for (let q = 1; q < rows; q++) ctx.fillRect(left, q * tall - 0.5, seen(q) * wide, 1);
  if (wide >= 12) {
    for (let k = 1; k < cols; k++) {
      const top = firstRow(k - 1) * tall;
      ctx.fillRect(left + k * wide - 0.5, top, 1, height - top);
    }
  }
  ctx.strokeStyle = css(theme.line);
  ctx.lineWidth = 1;
  ctx.beginPath();
  ctx.moveTo(left, 0);
  if (seen(0) === cols) ctx.rect(left, 0, width, height);
  else {
    for (let q = 0; q < rows; q++) {
      const x = left + seen(q) * wide;
      ctx.lineTo(x, q * tall);
      ctx.lineTo(x, (q + 1) * tall);
    }
  }
  ctx.stroke();
}

/** The lines from a cell to its two tokens, and a frame around it. */
function drawCrossHair(ctx, theme, layout, /** @type {Cell} */ [q, k], locked) {
  const [tall, wide] = layout.size;
  const x = layout.left + k * wide;
  const y = q * tall;
  fillBox(ctx, css(theme.text, 0.55), layout.left, y + tall / 2 - 0.5, k * wide, 1);
  fillBox(ctx, css(theme.text, 0.55), x + wide / 2 - 0.5, y + tall, 1, layout.height - y - tall);
  strokeBox(ctx, theme.page, 2, x - 2.5, y - 2.5, wide + 5, tall + 5);
  strokeBox(ctx, theme.text, locked ? 3 : 2, x - 1, y - 1, wide + 2, tall + 2);
}
