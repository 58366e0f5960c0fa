// Crisp canvases, and what is drawn on them more than once.

/** The context of a canvas of that size, wiped. @returns {CanvasRenderingContext2D} */
function sized(canvas, width, height) {
  if (HUB.press) return HUB.press(canvas, width, height); // a picture is being saved: not the canvas on the screen
  const ratio = devicePixelRatio || 1;
  const ctx = canvas.getContext("2d");
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width === wide && canvas.height === high && ctx.reset) {
    ctx.reset(); // a new size is a new bitmap, for every move of the mouse
  } else {
    Object.assign(canvas, { width: wide, height: high });
    Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
  }
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  return ctx;
}

/** A colour of the theme, or any colour of a style, as a style. */
const styleOf = (colour) => (typeof colour === "string" ? colour : css(colour));

/** @param {{ colour?: any, font?: string, align?: any, baseline?: any, most?: number }} look */
function writeText(ctx, text, x, y, look) {
  const { colour, font, align, baseline } = look;
  if (font) ctx.font = font;
  if (align) ctx.textAlign = align;
  if (baseline) ctx.textBaseline = baseline;
  if (colour) ctx.fillStyle = styleOf(colour);
  ctx.fillText(text, x, y, look.most);
}
function fillBox(ctx, colour, x, y, width, height) {
  ctx.fillStyle = styleOf(colour);
  ctx.fillRect(x, y, width, height);
}
function fillRound(ctx, colour, x, y, width, height, radius) {
  ctx.fillStyle = styleOf(colour);
  ctx.beginPath();
  ctx.roundRect(x, y, width, height, radius);
  ctx.fill();
}
function fillDisc(ctx, colour, x, y, radius) {
  ctx.fillStyle = styleOf(colour);
  ctx.beginPath();
  ctx.arc(x, y, radius, 0, 7);
  ctx.fill();
}
function strokeBox(ctx, colour, width, x, y, w, h) {
  ctx.lineWidth = width;
  ctx.strokeStyle = styleOf(colour);
  ctx.strokeRect(x, y, w, h);
}
function strokeLine(ctx, colour, x0, y0, x1, y1) {
  ctx.strokeStyle = styleOf(colour);
  ctx.beginPath();
  ctx.moveTo(x0, y0);
  ctx.lineTo(x1, y1);
  ctx.stroke();
}

/** The ticks of a step axis below a plot, and its name. */
function drawStepAxis(ctx, theme, axis, { right, foot, width, label }) {
  const muted = { colour: theme.muted, font: `400 11px ${theme.mono}`, align: "center", baseline: "top" };
  for (const step of axis.ticks()) {
    const x = axis.px(step);
    ctx.font = muted.font;
    const room = width - ctx.measureText(stepText(step)).width / 2 - 1;
    writeText(ctx, stepText(step), Math.min(x, room), foot + 8, muted);
    fillBox(ctx, theme.line, Math.round(x), foot + 1, 1, 4);
  }
  writeText(ctx, label, right, foot + 24, { ...muted, font: `400 11px ${theme.sans}`, align: "right" });
}

/** The line of the step that is shown, with its number above. */
function drawStepMark(ctx, theme, step, place, { left, top, width, height }, halo = 0) {
  const x = Math.round(place);
  const late = x > left + width - 60;
  if (halo) fillBox(ctx, css(theme.page, 0.85), x - halo, top, 2 * halo + 0.5, height);
  fillBox(ctx, theme.text, x - 0.5, top - 2 * halo, 1.5, height + 2 * halo);
  const look = {
    colour: theme.text,
    font: `600 11px ${theme.mono}`,
    align: late ? "right" : "left",
    baseline: "bottom"
  };
  writeText(ctx, stepText(step), x + (late ? -4 : 4), top - 2, look);
}

/**
 * Cells as an image: one pixel for `pool` x `pool` of them, the one of most weight.
 * @param {(row: number, col: number) => number} code 0..255, or -1 for a cell that stays clear
 * @param {Ramp} lut
 */
function heat(rows, cols, pool, code, lut, weight = code) {
  const high = Math.ceil(rows / pool);
  const wide = Math.ceil(cols / pool);
  const most = new Float32Array(high * wide).fill(-1);
  const pixels = new ImageData(wide, high);
  const words = new Uint32Array(pixels.data.buffer);
  const inks = inksOf(lut);
  for (let row = 0; row < rows; row++) {
    for (let col = 0; col < cols; col++) {
      const at = Math.floor(row / pool) * wide + Math.floor(col / pool);
      const heavy = weight(row, col);
      if (heavy <= most[at]) continue;
      most[at] = heavy;
      words[at] = inks[code(row, col)];
    }
  }
  return imageOf(pixels);
}
function imageOf(pixels) {
  const image = new OffscreenCanvas(pixels.width, pixels.height);
  image.getContext("2d").putImageData(pixels, 0, 0);
  return image;
}

/** Draws crisp cells, as even as the screen allows: uneven zooms go through a larger copy. */
function drawHeat(ctx, image, x, y, width, height) {
  if (HUB.press) {
    ctx.imageSmoothingEnabled = false;
    ctx.drawImage(image, x, y, width, height);
    return;
  }
  const ratio = devicePixelRatio || 1;
  const zooms = [(width * ratio) / image.width, (height * ratio) / image.height];
  const even = zooms.every((zoom) => Math.abs(zoom - Math.round(zoom)) < 1e-6);
  const times = 2 * Math.ceil(Math.max(...zooms));
  let from = image;
  if (!even) {
    from = new OffscreenCanvas(image.width * times, image.height * times);
    const large = from.getContext("2d");
    large.imageSmoothingEnabled = false;
    large.drawImage(image, 0, 0, from.width, from.height);
  }
  ctx.imageSmoothingEnabled = !even;
  ctx.imageSmoothingQuality = "high";
  ctx.drawImage(from, x, y, width, height);
}

/** How many cells share a pixel where there are more of them than pixels. */
const poolFor = (cells, size) => Math.max(1, Math.ceil(cells / (size * (devicePixelRatio || 1)) - 1e-6));

/** A size in whole device pixels, where that costs little. */
function wholePixels(size) {
  const ratio = devicePixelRatio || 1;
  const whole = Math.floor(size * ratio) / ratio;
  return whole >= 0.8 * size ? whole : size;
}

/** The text isolated from its neighbours' writing direction, cut to the width. */
function clipped(ctx, text, width) {
  if (ctx.measureText(text).width <= width) return `\u2068${text}\u2069`;
  const chars = [...text];
  while (chars.length && ctx.measureText(`${chars.join("")}…`).width > width) chars.pop();
  return `\u2068${chars.join("")}…\u2069`;
}
