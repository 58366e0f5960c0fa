// Where values stand on an axis, and which of them it names.

const SIDES = [9.2, 10.6]; // of a timeline on a wide page (scrubber.css): rem left and right of its strip
const GAP = 18 + 9; // pixels between these and its first and last step
const NARROW = 720; // pixels: below, a timeline takes the whole width

/** Pixels at the left and the right of a timeline's steps, on a page of this width; null where it takes all of it. */
function sidesOfTimeline(width) {
  const rem = Number.parseFloat(getComputedStyle(document.documentElement).fontSize);
  return width >= NARROW ? SIDES.map((side) => side * rem + GAP) : null;
}

/** The first of 1, 2, 2.5, 5, 10 times a power of ten that is at least `least`. */
function roundStride(least) {
  const unit = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 2.5, 5, 10].find((times) => times * unit >= least) * unit;
}

/** About `want` round values from lo to hi, two at least: one tick alone says no scale. */
function roundTicks(lo, hi, want) {
  // so near to each other that adding a stride to a number of their size may leave it as it is
  if (!(hi - lo > 32 * Number.EPSILON * Math.max(-lo, hi))) return hi > lo ? [lo, hi] : [];
  const stride = roundStride((hi - lo) / want);
  const ticks = [];
  for (let v = Math.ceil(lo / stride - 1e-9) * stride; v <= hi + stride * 1e-6; v += stride)
    ticks.push(Math.abs(v) < stride * 1e-6 ? 0 : v);
  return ticks.length > 1 ? ticks : roundTicks(lo, hi, want * 1.5);
}

/** Exponents of 1, 10, 100 ... between lo and hi, thinned; of 1, 2, 5 ..., or any round values, in a short span. */
function decadeTicks(lo, hi, want = 7) {
  const from = Math.ceil(lo - 1e-9);
  const to = Math.floor(hi + 1e-9);
  const every = Math.ceil((to - from + 1) / want);
  const ticks = [];
  if (to - from >= 2) for (let d = from; d <= to; d += every) ticks.push(d);
  else for (let d = Math.floor(lo); d <= to + 1; d++) for (const times of [1, 2, 5]) ticks.push(d + Math.log10(times));
  const inside = ticks.filter((v) => v >= lo - 1e-9 && v <= hi + 1e-9);
  return inside.length > 1 ? inside : roundTicks(10 ** lo, 10 ** hi, want).map((v) => Math.log10(v));
}

/** The last of some places in order that lies before another one, as `isBefore` says, and the next. */
function placesAround(count, isBefore) {
  let before = 0;
  let after = count - 1;
  while (after - before > 1) {
    const middle = (before + after) >> 1;
    if (isBefore(middle)) before = middle;
    else after = middle;
  }
  return [before, after];
}

/** A tick in as many digits as tell it from the next one, `stride` away; 0: in a few. */
function tickText(value, stride) {
  const size = (v) => Math.floor(Math.log10(Math.abs(v)));
  const exact = (digits) => Math.abs(stride - +stride.toFixed(digits)) < stride * 1e-6;
  if (value && (Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3)) {
    const digits = stride ? clamp(size(value) - size(stride), 0, 6) : 0;
    return value.toExponential(digits).replace(/\.0+e/, "e").replace("-", "−");
  }
  const places = [0, 1, 2, 3, 4, 5, 6, 7].find(exact) ?? 8;
  const shown = stride ? +value.toFixed(places) : +value.toPrecision(4);
  return (Math.abs(shown) < 1000 ? `${shown}` : shown.toLocaleString("en-US")).replace("-", "−");
}

/**
 * The axis of pictures over training, linear or logarithmic.
 * @param {ArrayLike<number> & Iterable<number>} steps every step that was measured
 * @param {number[] | null} range the first and the last step on the axis, of a reader who looks closer
 */
function stepAxis(steps, log, left, width, range = null) {
  const first = Array.prototype.find.call(steps, (step) => step > 0) ?? 1;
  const scaled = (step) => (log ? Math.log10(Math.max(step, first)) : step);
  const [from, to] = (range ?? [steps[0] ?? 0, steps[steps.length - 1] ?? 1]).map(scaled);
  const span = to - from || 1;
  const closest = (want) => {
    // on a log axis nearness is that of the eye
    const [before, after] = placesAround(steps.length, (i) => scaled(steps[i]) < want);
    return want - scaled(steps[before]) <= scaled(steps[after]) - want ? before : after;
  };
  const placed = (x) => from + ((x - left) / width) * span;
  return {
    px: (step) => left + ((scaled(step) - from) / span) * width,
    nearest: (step) => closest(scaled(step)), // of a step, the index of the one in `steps`
    under: (x) => closest(placed(x)), // of a place
    stepAt: (x) => (log ? 10 ** placed(x) : placed(x)),
    ticks() {
      const decades = [];
      for (let d = Math.floor(from); log && d <= to; d++)
        for (const times of to - from < 2 ? [1, 2, 5] : [1]) decades.push(d + Math.log10(times));
      const inside = decades.filter((v) => v >= from - 1e-9 && v <= to + 1e-9);
      if (inside.length > 1) return inside.map((v) => 10 ** v);
      const [lo, hi] = log ? [10 ** from, 10 ** to] : [from, to];
      if (!(hi > lo)) return [Math.round(lo)];
      const whole = (want) => {
        // of 2.5, 5, 7.5 one is left: closer ones then, at most every step
        const ticks = roundTicks(lo, hi, want).filter(Number.isInteger);
        return ticks.length > 1 || want >= hi - lo ? ticks : whole(Math.min(hi - lo, want * 1.5));
      };
      return whole(Math.min(hi - lo, Math.max(2, width / 72)));
    }
  };
}

/** Heights of names pushed down until none overlaps, and up again from the foot where some would hang over it. */
function spreadNames(heights, apart, foot) {
  const order = heights.map((_, i) => i).sort((a, b) => heights[a] - heights[b]);
  const spread = [...heights];
  order.forEach((i, rank) => {
    if (rank) spread[i] = Math.max(spread[i], spread[order[rank - 1]] + apart);
  });
  let limit = foot;
  for (const i of order.reverse()) {
    spread[i] = Math.min(spread[i], limit);
    limit = spread[i] - apart;
  }
  return spread;
}

/**
 * What a drag over a plot chooses, in its pixels: a range of x, of y, or of both; null when it was a click.
 * A drag that is thin in one direction means the other axis alone; `only` names the axis it began on.
 */
function draggedRange([x0, y0], [x1, y1], only = "") {
  const [wide, high] = [Math.abs(x1 - x0), Math.abs(y1 - y0)];
  if (Math.hypot(wide, high) < 4) return null;
  const sorted = (a, b) => (a < b ? [a, b] : [b, a]);
  const x = only !== "y" && (only === "x" || wide >= 16 || wide >= high);
  const y = only !== "x" && (only === "y" || high >= 16 || high > wide);
  return { x: x ? sorted(x0, x1) : null, y: y ? sorted(y0, y1) : null };
}

/** A range `times` as wide around `middle`, inside the whole one; null when it would be all of it. */
function scaledRange([from, to], times, middle, [first, last]) {
  const width = (to - from) * times;
  if (width >= last - first) return null;
  const start = clamp(middle - (middle - from) * times, first, last - width);
  return [start, start + width];
}
