// A tile of the atlas: its order in a row, its pooled pattern, its role, its switch, and what shows that it is off.

const FOOT = 18; // pixels of the line of roles
const PAIRED = 126; // of a tile from which on a role and its number stand in one line
const [NO_ROLE, ROLE_UNKNOWN, ROLE_UNSAID] = [0, 254, 255];
const SWITCH = { width: 26, height: 14, margin: 6 }; // in a corner that a causal head leaves empty

const isNamed = (role) => !["", "no role", "role unknown"].includes(role);

/** The heads of a layer from left to right, the largest value first; what was not measured comes after, then gaps. */
function strongestFirst(values) {
  const strength = values.map((value) => (value == null ? -Infinity : Number.isNaN(value) ? -Number.MAX_VALUE : value));
  const order = values.map((_, i) => i);
  return order.sort((a, b) => (strength[a] === strength[b] ? a - b : strength[b] - strength[a]));
}

/** The brightest of every pool of cells of one head. @param {Uint8Array} thumbs */
function pooled(thumbs, start, [rows, cols], [poolQ, poolK], into) {
  const wide = Math.ceil(cols / poolK);
  const block = Uint16Array.from({ length: cols }, (_, k) => k / poolK); // dividing for every cell would take long
  into.fill(0);
  for (let q = 0, i = start; q < rows; q++) {
    const row = Math.floor(q / poolQ) * wide;
    for (let k = 0; k < cols; k++, i++) if (thumbs[i] > into[row + block[k]]) into[row + block[k]] = thumbs[i];
  }
  return into;
}

/** Over the pattern of a head that writes nothing. */
function hatch(ctx, theme, x, y, width, height) {
  fillBox(ctx, css(theme.page, 0.72), x, y, width, height);
  ctx.save();
  ctx.beginPath();
  ctx.rect(x, y, width, height);
  ctx.clip();
  ctx.lineWidth = 1;
  const step = width < 34 ? 4 : 7;
  for (let at = -height; at < width; at += step) strokeLine(ctx, theme.muted, x + at, y + height, x + at + height, y);
  ctx.restore();
}
/** Pixels below the pattern of a tile of so many: a line of its role and number, or one of each. */
const footOf = (cell) => (cell < PAIRED ? FOOT + 14 : FOOT);
/** The line below a pattern: the role that the head has lost, struck through, where there is room, and its role; at
 * the right as much is free as its number takes. */
function drawRole(ctx, theme, { role, lost, muted }, x, y, whole, high = FOOT, beside = 0) {
  fillRound(ctx, theme.page, x + 1, y, whole - 2, high - 1, [0, 0, 3, 3]);
  const width = whole - beside;
  const [weight, colour] = isNamed(role) && !muted ? [600, theme.text] : [400, theme.muted];
  const look = { colour, font: `${weight} 11px ${theme.sans}`, align: "left" };
  const font = ctx.font;
  const middle = y + FOOT / 2 + 0.5;
  let left = x + 6;
  ctx.font = look.font;
  const room = width - 10 - (role ? ctx.measureText(role).width + 5 : 0);
  const small = { colour: theme.muted, font: `400 11px ${theme.sans}`, align: "left" };
  ctx.font = small.font;
  const wide = ctx.measureText(lost).width;
  if (lost && wide <= room) {
    writeText(ctx, lost, left, middle, small);
    fillBox(ctx, theme.muted, left, Math.round(middle) - 0.5, wide, 1);
    left += wide + 5;
  }
  writeText(ctx, role, left, middle, { ...look, most: x + width - 4 - left });
  ctx.font = font;
}
/** In a corner that a causal head leaves empty. */
function drawSwitch(ctx, theme, x, y, gone) {
  const { width, height } = SWITCH;
  const middle = height / 2;
  fillRound(ctx, theme.page, x - 2, y - 2, width + 4, height + 4, middle + 2);
  fillRound(ctx, theme.muted, x, y, width, height, middle);
  if (gone) fillRound(ctx, theme.page, x + 1, y + 1, width - 2, height - 2, middle - 1);
  fillDisc(ctx, gone ? theme.muted : theme.page, gone ? x + middle : x + width - middle, y + middle, middle - 3);
}
