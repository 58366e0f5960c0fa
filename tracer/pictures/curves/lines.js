// What a chart of lines works out without drawing: the line under the mouse, where names stand, how lines step back.

/** The steps at which a line was measured. @param {ArrayLike<number>} codes */
function measuredSteps(codes) {
  const found = [];
  for (let step = 0; step < codes.length; step++) if (codes[step] !== MISSING) found.push(step);
  return found;
}

/**
 * The line, and the step of it, that is nearest to a place, if any is within `reach`: by the distance to the segment,
 * so that a steep or sparse line is still found.
 * @param {number[][]} points of each line, as `measuredSteps` has them
 * @param {(line: number, step: number) => number} yOf
 */
function nearestLine(points, xs, yOf, [x, y], reach = 40) {
  let found = null;
  let least = reach;
  points.forEach((line, i) => {
    const [before, after] = placesAround(line.length, (i) => xs[line[i]] < x);
    for (let at = Math.max(0, before - 1); at < Math.min(line.length, after + 2); at++) {
      const step = line[at];
      const next = line[at + 1] ?? step;
      const [startX, startY] = [xs[step], yOf(i, step)];
      const [dx, dy] = [xs[next] - startX, yOf(i, next) - startY];
      const along = clamp(((x - startX) * dx + (y - startY) * dy) / (dx * dx + dy * dy || 1), 0, 1);
      const far = Math.hypot(x - startX - along * dx, y - startY - along * dy);
      if (far >= least) continue;
      least = far;
      found = { line: i, step: along > 0.5 ? next : step };
    }
  });
  return found;
}

/** The palest mix of a colour with the page that is still told from it: 3 to 1, as WCAG asks of graphics. */
function quietOf(colour, page) {
  const light = (one) => luminance(one) + 0.05;
  const apart = (one) => Math.max(light(one), light(page)) / Math.min(light(one), light(page));
  for (let share = 0.6; share > 0; share -= 0.05)
    if (apart(mix(colour, page, share)) >= 3.1) return mix(colour, page, share);
  return colour;
}

/** A way of dashing as a background, in the colour of the text. @param {number[]} dashes drawn and left out, in turn */
function dashesAcross(dashes) {
  if (!dashes.length) return "currentColor";
  const sum = (/** @type {number} */ count) => dashes.slice(0, count).reduce((a, b) => a + b, 0);
  const stops = dashes.map((_, i) => `${i % 2 ? "transparent" : "currentColor"} ${sum(i)}px ${sum(i + 1)}px`);
  return `repeating-linear-gradient(90deg, ${stops.join(", ")})`;
}
