// Lines on a base canvas, drawn once; the line in focus and the marks on an overlay, so a mouse move redraws one line.
// A drag chooses what the axes show, a double click shows all again; only a click that is no drag chooses a line. The
// name at the end of a line shows it alone, and what is pointed at is marked in every chart of steps on the page.

/**
 * As tracer.pictures.payload.curves packs it.
 * @typedef {Header & { labels: string[], groups: number[], group_names: string[], dashes: number[],
 *   log_y: boolean, bridge: boolean, lo: number, hi: number, band?: [number, number] }} CurvesHeader
 */

const NAMED = 16; // lines whose names have room at their ends
const NAME_GAP = 13;
const DASHES = [[], [6, 4], [1.5, 3]];

export default function (args) {
  return live(args, makeCurves);
}

/** The measured steps of a line; -step - 1 where it breaks. @param {ArrayLike<number>} codes */
function measuredSteps(codes, bridge) {
  const found = [];
  for (let j = 0; j < codes.length; j++) {
    if (codes[j] !== MISSING) found.push(j);
    else if (!bridge && found.at(-1) >= 0) found.push(-j - 1);
  }
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
    let before = 0;
    let after = line.length - 1;
    while (after - before > 1) {
      const middle = (before + after) >> 1;
      const step = line[middle] >= 0 ? line[middle] : -line[middle] - 1;
      if (xs[step] < x) before = middle;
      else after = middle;
    }
    for (let at = Math.max(0, before - 1); at < Math.min(line.length, after + 2); at++) {
      const step = line[at];
      const next = line[at + 1] ?? -1;
      if (step < 0) continue;
      const [startX, startY] = [xs[step], yOf(i, step)];
      const [dx, dy] = next < 0 ? [0, 0] : [xs[next] - startX, yOf(i, next) - startY];
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

/** @param {Part} part @returns {View} */
function makeCurves(part) {
  const { root } = part;
  const title = element("div", "title", null, root);
  const stage = element("div", "stage", null, root);
  const axes = element("canvas", "", null, stage);
  const base = element("canvas", "base", null, stage);
  const over = element("canvas", "", null, stage);
  const tip = element("div", "tip", null, stage);
  const reset = button("reset", "Show all", stage, () => look(null, null));
  const alt = element("details", "alt", null, root);
  const spoken = element("div", "sr", null, root);
  spoken.setAttribute("aria-live", "polite");
  tip.hidden = reset.hidden = true;
  /** @type {CurvesHeader} */
  let head;
  let steps;
  let codes; // [line step]
  let bandCodes; // [end line step]: the lower, then the upper ends of intervals; undefined where there are none
  let count;
  let points;
  let layout;
  let hover = null; // { line, step }
  let alone = -1; // the line whose name is pointed at
  let kept = -1; // ... or was pressed, where a press chooses nothing
  let beside = null; // the step that is pointed at in another chart
  let film = null;
  let drag = null; // { from, to, only, moved }
  let dragged = false; // was what ends with this click a drag?
  let looked = { x: null, y: null }; // the ranges that a reader looks at closer: steps, and values as they are coded
  let before; // what was chosen before a click that may be the first of two
  let shown = "";

  const plain = (value) => (head.log_y ? 10 ** value : value);
  const coded = (line, step) => valueOfCode(codes[line * count + step], head.lo, head.hi);
  const bandAt = (end, line, step) => {
    const code = bandCodes ? bandCodes[(end * head.labels.length + line) * count + step] : MISSING;
    return code === MISSING || !head.band ? Number.NaN : valueOfCode(code, head.band[0], head.band[1]);
  };
  const chosen = () => head.labels.indexOf(part.cue.value);
  /** The chosen line, and its namesakes of other runs. */
  const chosenLines = () => {
    const own = chosen();
    const namesakes = head.labels.map((label, line) => (label.startsWith(`${part.cue.value} · `) ? line : -1));
    return own < 0 ? [] : [own, ...namesakes.filter((line) => line >= 0)];
  };
  const colourOf = (line) => {
    const colours = part.cue.colours[part.theme.mode];
    return colours[head.groups[line] % colours.length];
  };
  const text = (value) => numberOf(value, { digits: Math.abs(value) >= 100 ? 1 : 3 });
  const yOf = (value) => layout.top + (1 - (value - layout.lo) / (layout.hi - layout.lo)) * layout.height;
  /** @param {number[]} spot */
  const isInside = ([x, y]) =>
    x >= layout.left && x <= layout.right && y >= layout.top && y <= layout.top + layout.height;
  const lastStep = (line) => points[line].findLast((step) => step >= 0 && layout.xs[step] <= layout.right + 0.5);

  function drawLine(ctx, line) {
    // hundreds of thousands of points: no call but the canvas's own
    const { xs, foot, rise } = layout;
    const start = line * count;
    let open = false;
    ctx.setLineDash(DASHES[head.dashes?.[line] ?? 0]);
    ctx.beginPath();
    for (const step of points[line]) {
      if (step < 0) {
        open = false;
        continue;
      }
      const x = xs[step];
      const y = foot - rise * codes[start + step];
      if (!open) ctx.moveTo(x, y);
      ctx.lineTo(open ? x : x + 0.01, y);
      open = true;
    }
    ctx.stroke();
    ctx.setLineDash([]);
  }
  function fillInterval(ctx, line) {
    const known = points[line].filter((step) => step >= 0 && !Number.isNaN(bandAt(0, line, step)));
    if (known.length < 2) return;
    ctx.beginPath();
    for (const step of known) ctx.lineTo(layout.xs[step], yOf(bandAt(1, line, step)));
    for (const step of known.reverse()) ctx.lineTo(layout.xs[step], yOf(bandAt(0, line, step)));
    ctx.save();
    ctx.globalAlpha = 0.16;
    ctx.fillStyle = colourOf(line);
    ctx.fill();
    ctx.restore();
  }
  function clipToPlot(ctx) {
    // bands, and lines when they are looked at closer, run on beyond the plot
    if (!looked.x && !looked.y && !bandCodes) return;
    ctx.beginPath();
    ctx.rect(layout.left, layout.top - 2, layout.width, layout.height + 4);
    ctx.clip();
  }
  function drawFrame(ctx) {
    const { theme, cue } = part;
    const { left, right, top, height, ticks, stride } = layout;
    const foot = top + height;
    const look = { colour: theme.muted, font: `400 11px ${theme.mono}`, align: "right", baseline: "middle" };
    ctx.lineWidth = 1;
    for (const tick of ticks) {
      const y = Math.round(yOf(tick)) + 0.5;
      strokeLine(ctx, theme.faint, left, y, right, y);
      writeText(ctx, tickText(plain(tick), stride), left - 8, y, look);
    }
    strokeLine(ctx, theme.line, left, foot + 0.5, right, foot + 0.5);
    const label = cue.x_label + (cue.log_x ? " (log)" : "");
    drawStepAxis(ctx, theme, layout.axis, { right, foot, width: root.clientWidth, label });
    const { chance } = cue.scale;
    const y = chance == null ? Number.NaN : yOf(head.log_y ? Math.log10(chance) : chance);
    if (!(y >= top && y <= foot)) return;
    ctx.setLineDash([4, 4]);
    strokeLine(ctx, theme.muted, left, y, right, y);
    ctx.setLineDash([]);
  }
  function drawBand(ctx) {
    // what a drag would choose
    const range = draggedRange(drag.from, drag.to, drag.only);
    if (!range) return;
    const [x0, x1] = range.x ?? [layout.left, layout.right];
    const [y0, y1] = range.y ?? [layout.top, layout.top + layout.height];
    fillBox(ctx, css(part.theme.accent, 0.12), x0, y0, x1 - x0, y1 - y0);
    strokeBox(ctx, part.theme.accent, 1, x0 + 0.5, y0 + 0.5, x1 - x0 - 1, y1 - y0 - 1);
  }
  function drawNames(ctx, lines) {
    // of the lines in focus, beside their last point
    const font = `600 11px ${part.theme.mono}`;
    const taken = [];
    for (const line of lines) {
      const last = lastStep(line);
      const at = last === undefined ? Number.NaN : yOf(coded(line, last));
      if (!layout.named || !isInside([layout.right, at])) continue;
      const y = taken.some((other) => Math.abs(at - other) < 14) ? taken[0] + (at < taken[0] ? -14 : 14) : at;
      taken.push(y);
      ctx.font = font;
      const name = clipped(ctx, head.labels[line], root.clientWidth - layout.right - 8);
      writeText(ctx, name, layout.right + 6, y, { colour: colourOf(line), align: "left", baseline: "middle" });
    }
  }
  function drawOver() {
    const { theme, cue } = part;
    const ctx = sized(over, root.clientWidth, cue.height);
    const lonely = alone >= 0 ? alone : kept;
    const main = lonely >= 0 ? lonely : (hover?.line ?? chosen());
    const lines = [...new Set([main, ...(lonely >= 0 ? [] : chosenLines())])].filter((line) => line >= 0);
    base.classList.toggle("dim", lonely >= 0);
    const now = film ?? cue.step;
    const x = now == null || now < steps[0] || now > steps[count - 1] ? -1 : layout.axis.px(now);
    if (x >= layout.left - 0.5 && x <= layout.right + 0.5) drawStepMark(ctx, theme, now, x, layout);
    ctx.save();
    clipToPlot(ctx);
    ctx.lineJoin = "round";
    for (const line of lines) {
      if (!layout.few) fillInterval(ctx, line);
      ctx.strokeStyle = css(theme.page, 0.9);
      ctx.lineWidth = 5;
      drawLine(ctx, line);
      ctx.strokeStyle = colourOf(line);
      ctx.lineWidth = 2.5;
      drawLine(ctx, line);
    }
    ctx.restore();
    if (layout.direct) drawEnds(ctx, lines);
    else drawNames(ctx, lines);
    drawBeside(ctx, lines);
    if (drag?.moved) drawBand(ctx);
    if (!hover) return;
    const [spotX, spotY] = [layout.xs[hover.step], yOf(coded(hover.line, hover.step))];
    if (!isInside([spotX, spotY])) return;
    fillDisc(ctx, theme.page, spotX, spotY, 5.5);
    fillDisc(ctx, colourOf(hover.line), spotX, spotY, 3.5);
  }
  function drawBeside(ctx, lines) {
    // what is pointed at in a neighbour, here: the step, and what stands out or is few there
    if (beside == null || hover || beside < steps[0] || beside > steps[count - 1]) return;
    const x = layout.axis.px(beside);
    if (x < layout.left - 0.5 || x > layout.right + 0.5) return;
    strokeLine(ctx, part.theme.muted, Math.round(x) + 0.5, layout.top, Math.round(x) + 0.5, layout.top + layout.height);
    const step = layout.axis.nearest(beside);
    const marked = lines.length || !layout.few ? lines : head.labels.map((_, line) => line);
    for (const line of marked) {
      if (codes[line * count + step] === MISSING) continue;
      const y = yOf(coded(line, step));
      if (!isInside([x, y])) continue;
      fillDisc(ctx, part.theme.page, x, y, 5);
      fillDisc(ctx, colourOf(line), x, y, 3.5);
      const late = x > layout.right - 60;
      const look = { font: `600 11px ${part.theme.mono}`, align: late ? "right" : "left", baseline: "bottom" };
      ctx.lineWidth = 3;
      ctx.strokeStyle = css(part.theme.page);
      Object.assign(ctx, { font: look.font, textAlign: look.align, textBaseline: look.baseline });
      const value = text(plain(coded(line, step)));
      ctx.strokeText(value, x + (late ? -8 : 8), y - 4);
      writeText(ctx, value, x + (late ? -8 : 8), y - 4, { ...look, colour: colourOf(line) });
    }
  }
  function tellStep() {
    if (part.cue.x_label === "step") tell("pointed", hover ? { by: root, step: steps[hover.step] } : null);
  }
  /** The line whose name is there. @param {number[]} spot */
  function namedAt([x, y]) {
    if (!layout.direct || x < layout.right + 4) return -1;
    const near = layout.ends.filter((end) => Math.abs(end.at - y) <= NAME_GAP / 2 + 1);
    return near.length ? near.reduce((a, b) => (Math.abs(a.at - y) <= Math.abs(b.at - y) ? a : b)).line : -1;
  }
  function describe(line) {
    const last = points[line].findLast((step) => step >= 0);
    return `${head.labels[line]}: ${last >= 0 ? text(plain(coded(line, last))) : "no value"}`;
  }
  function pick(line, wait) {
    // a second click on the chosen line lets it go
    const same = !wait && head.labels[line] === part.cue.value;
    part.send(same ? "" : head.labels[line], wait);
    spoken.textContent = same ? "nothing selected" : describe(line);
    drawOver();
  }
  function describeRanges() {
    const { x, y } = looked;
    const steps = x && `${part.cue.x_label} ${exactStep(x[0])} to ${exactStep(x[1])}`;
    const values = y && `${text(plain(y[0]))} to ${text(plain(y[1]))}`;
    return [steps, values].filter(Boolean).join(", ");
  }
  function look(x, y) {
    // closer at these ranges, or at all
    looked = { x, y };
    hover = null;
    tip.hidden = true;
    if (!x && !y && reset.matches(":focus")) axes.focus();
    spoken.textContent = describeRanges() || "all shown";
    part.draw();
  }
  function narrow(times) {
    // around the step that is shown, if it is in sight
    const range = looked.x ?? [steps[0], steps[count - 1]];
    const now = film ?? part.cue.step ?? Number.NaN;
    const middle = now >= range[0] && now <= range[1] ? now : (range[0] + range[1]) / 2;
    look(scaledRange(range, times, middle, [steps[0], steps[count - 1]]), looked.y);
  }
  function point(spot) {
    alone = namedAt(spot);
    const inPlot = alone < 0 && spot[0] >= layout.left - 8 && spot[1] <= layout.top + layout.height + 8;
    const yAt = (line, step) => layout.foot - layout.rise * codes[line * count + step];
    hover = inPlot ? nearestLine(points, layout.xs, yAt, spot) : null;
    axes.style.cursor = alone >= 0 || (hover && part.cue.selectable) ? "pointer" : "crosshair";
    tellStep();
    drawOver();
    tip.hidden = !hover;
    if (!hover) return;
    const { line, step } = hover;
    const [x, y] = [layout.xs[step], yOf(coded(line, step))];
    const [tipX, tipY] = isInside([x, y]) ? [x, y] : spot;
    showTip(tip, stage, tipX, tipY, (node) => {
      const { label, unit } = part.cue.scale;
      element("b", "", head.labels[line], node).style.color = colourOf(line);
      const value = text(plain(coded(line, step))) + (unit ? ` ${unit}` : "");
      const ends = [bandAt(0, line, step), bandAt(1, line, step)];
      /** @type {[string, string][]} */
      const interval = ends.some(Number.isNaN) ? [] : [["95 %", ends.map((end) => text(plain(end))).join(" to ")]];
      factsIn(node, [[part.cue.x_label, exactStep(steps[step])], [label, value], ...interval]);
    });
  }
  function drop() {
    dragged ||= !!drag?.moved;
    drag = hover = null;
    alone = -1;
    tip.hidden = true;
    if (!layout) return;
    tellStep();
    drawOver();
  }

  axes.onpointerdown = (event) => {
    if (!layout || event.button || !event.isPrimary || count < 2) return;
    const from = pointIn(axes, event);
    const only = from[1] > layout.top + layout.height ? "x" : from[0] < layout.left ? "y" : "";
    drag = { from, to: from, only, moved: false };
    dragged = false;
    axes.setPointerCapture(event.pointerId);
  };
  axes.onpointermove = (event) => {
    if (!layout) return;
    const spot = pointIn(axes, event);
    if (!drag) {
      point(spot);
      return;
    }
    drag.to = [clamp(spot[0], layout.left, layout.right), clamp(spot[1], layout.top, layout.top + layout.height)];
    drag.moved ||= Math.hypot(spot[0] - drag.from[0], spot[1] - drag.from[1]) >= 4;
    if (!drag.moved) return;
    hover = null;
    tip.hidden = true;
    drawOver();
  };
  axes.onpointerup = () => {
    if (!drag) return;
    const range = draggedRange(drag.from, drag.to, drag.only);
    dragged = drag.moved;
    drag = null;
    if (!dragged) return;
    const valueAt = (y) => layout.lo + (1 - (y - layout.top) / layout.height) * (layout.hi - layout.lo);
    const x = range?.x?.map((place) => layout.axis.stepAt(clamp(place, layout.left, layout.right)));
    const y = range?.y?.map(valueAt).reverse();
    look(x && x[1] > x[0] ? x : looked.x, y && y[1] > y[0] ? y : looked.y);
  };
  axes.onpointercancel = drop;
  axes.onpointerleave = () => {
    if (!drag) drop();
  };
  axes.onclick = (event) => {
    if (dragged || !layout || event.detail > 1) return; // of two clicks only the first one chooses
    point(pointIn(axes, event));
    before = undefined;
    const line = alone >= 0 ? alone : hover?.line;
    if (!part.cue.selectable) {
      kept = line == null || alone < 0 || kept === line ? -1 : line;
      drawOver();
      return;
    }
    if (line == null) return;
    before = part.cue.value;
    pick(line, 0);
  };
  axes.ondblclick = () => {
    // ... and both together choose nothing
    if (part.cue.selectable && before !== undefined && before !== part.cue.value) part.send(before);
    before = undefined;
    look(null, null);
  };
  axes.onkeydown = (event) => {
    if (!part.cue || isModified(event)) return;
    const times = { "+": 0.5, "=": 0.5, "-": 2, _: 2 }[event.key];
    const way = alongOf(event);
    if (event.key === "Escape" && drag) drop();
    else if (times && count > 1) narrow(times);
    else if (event.key === "0") look(null, null);
    else if (!part.cue.selectable) return;
    else if (event.key === "Escape") {
      part.send("");
      drawOver();
    } else if (way) pick((chosen() + way + head.labels.length) % head.labels.length, 140);
    else return;
    if (event.key !== "Escape") event.preventDefault();
  };

  const stopFilm = hear("frame", (frame) => {
    // a film plays: the line of the step follows it
    film = part.cue?.x_label === "step" ? (frame?.step ?? null) : null;
    if (layout) drawOver();
  });
  const stopPointed = hear("pointed", (pointed) => {
    const step = part.cue?.x_label === "step" && pointed && pointed.by !== root ? pointed.step : null;
    if (step === beside) return;
    beside = step;
    if (layout) drawOver();
  });

  function layOut(ctx) {
    const { theme, cue } = part;
    const { labels } = head;
    const width = root.clientWidth;
    const few = labels.length <= 6;
    ctx.font = `500 11px ${theme.mono}`;
    const room = Math.max(...labels.map((label) => ctx.measureText(label).width)) <= (width >= 560 ? width / 4 : 40);
    const direct = labels.length > 1 && labels.length <= NAMED && room; // named at their ends, or above
    const keyed = few && !direct && !head.group_names.length && !cue.selectable;
    const widest = (weight) => {
      ctx.font = `${weight} 11px ${theme.mono}`;
      return Math.max(...labels.map((label) => ctx.measureText(label).width));
    };
    const forFocus = labels.length > 1 && !keyed ? Math.max(12, 8 + Math.min(widest(600), width / 5)) : 12;
    const margin = direct ? 14 + widest(700) : forFocus; // room for the name in focus
    const [bandLow, bandHigh] = (few && head.band) || [head.lo, head.hi]; // of many, only those in focus are drawn
    const [low, high] = [Math.min(head.lo, bandLow), Math.max(head.hi, bandHigh)];
    const pad = (high - low) * 0.08;
    const fromZero = !head.log_y && low >= 0 && low < 0.35 * high; // where that costs little
    const [lo, hi] = looked.y ?? [fromZero ? 0 : low - pad, high + pad];
    const height = cue.height - 18 - 44;
    const decades = head.log_y && hi - lo > 0.3;
    const want = Math.max(2, height / 56);
    const close = () => roundTicks(10 ** lo, 10 ** hi, want).map((tick) => Math.log10(tick)); // less than a doubling
    const ticks = decades ? decadeTicks(lo, hi) : head.log_y ? close() : roundTicks(lo, hi, want);
    const stride = !head.log_y && ticks.length > 1 ? ticks[1] - ticks[0] : 0;
    ctx.font = `400 11px ${theme.mono}`;
    const texts = ticks.map((tick) => ctx.measureText(tickText(plain(tick), stride)).width);
    const left = Math.max(52, 14 + Math.ceil(Math.max(0, ...texts)));
    layout = { left, top: 18, width: width - left - margin, height, right: width - margin, lo, hi, ticks, stride };
    layout.axis = stepAxis(steps, cue.log_x, left, layout.width, looked.x);
    layout.xs = Array.from(steps, layout.axis.px);
    layout.foot = yOf(head.lo);
    layout.rise = (layout.foot - yOf(head.hi)) / (MISSING - 1);
    // a lone line has the title's name
    Object.assign(layout, { few, direct, named: !direct && !keyed && labels.length > 1 });
  }
  function placeEnds() {
    // where the name of every line stands: at its end
    const all = head.labels.map((_, line) => ({ line, y: yOf(coded(line, lastStep(line) ?? 0)) }));
    const ends = all.filter(({ line, y }) => lastStep(line) !== undefined && isInside([layout.right, y]));
    const heights = ends.map(({ y }) => y);
    const spread = spreadNames(heights, NAME_GAP, layout.top + layout.height + 8);
    layout.ends = ends.map(({ line }, i) => ({ line, at: spread[i] }));
  }
  function drawEnds(ctx, lines) {
    const lonely = alone >= 0 || kept >= 0;
    for (const { line, at } of layout.ends) {
      const font = `${lines.includes(line) ? 700 : 500} 11px ${part.theme.mono}`;
      ctx.globalAlpha = lonely && !lines.includes(line) ? 0.35 : 1;
      writeText(ctx, head.labels[line], layout.right + 8, at, {
        colour: colourOf(line),
        font,
        align: "left",
        baseline: "middle"
      });
    }
    ctx.globalAlpha = 1;
  }
  function writeTitle() {
    const { theme, cue } = part;
    title.replaceChildren();
    element("span", "name", titleOf(cue.scale) + (head.log_y ? ", log scale" : ""), title);
    /** @type {[string, number][]} */
    const grouped = head.group_names.map((name, group) => [name, head.groups.indexOf(group)]);
    const single = layout.few && !layout.direct && head.labels.length > 1;
    /** @type {[string, number][]} */
    const names = grouped.length || !single ? grouped : head.labels.map((name, line) => [name, line]);
    if (grouped.length > 6) {
      // too many names to read: the ramp from first to last
      const swatch = element("span", "swatch ramp", names[0][0], title);
      element("i", "", null, swatch).style.background = `linear-gradient(90deg, ${cue.colours[theme.mode].join(",")})`;
      swatch.append(names.at(-1)[0]);
    } else {
      for (const [name, line] of names.filter(([, line]) => line >= 0)) {
        const swatch = element("span", "swatch", null, title);
        element("i", "", null, swatch).style.background = colourOf(line);
        element("span", "", name, swatch);
      }
    }
    if (cue.scale.chance == null) return;
    const brief = numberOf(cue.scale.chance, { digits: 3 }).replace(/\.0+$|(\.\d*?[1-9])0+$/, "$1");
    element("span", "swatch chance", `${cue.scale.mark} ${brief}`, title).prepend(element("i"));
  }
  function writeTable() {
    const { cue } = part;
    const rows = () =>
      head.labels.map((name, line) => {
        const values = points[line].filter((step) => step >= 0).map((step) => plain(coded(line, step)));
        return [name, ...[values[0], Math.min(...values), Math.max(...values), values.at(-1)].map(text)];
      });
    const exact = (line, step) => exactOf(plain(coded(line, step)));
    tableOf(alt, "Show as table", ["line", "first", "lowest", "highest", "last"], rows, {
      columns: [cue.x_label, ...head.labels],
      rows: () => Array.from(steps, (step, j) => [step, ...points.map((_, line) => exact(line, j))])
    });
  }

  return {
    load(newHead, arrays) {
      head = newHead;
      ({ steps, lines: codes, band: bandCodes } = arrays);
      count = steps.length;
      hover = null;
      alone = kept = -1;
      const every = [...steps.keys()];
      points = head.labels.map((_, line) => {
        const own = codes.subarray(line * count, (line + 1) * count);
        return own.includes(MISSING) ? measuredSteps(own, head.bridge) : every;
      });
    },
    draw() {
      const { cue } = part;
      const { labels } = head;
      const axis = `${cue.x_label} ${cue.log_x}`;
      const now = `${axis} ${cue.scale.label} ${head.log_y}`;
      if (now !== shown) looked = { x: shown.startsWith(axis) ? looked.x : null, y: null }; // another measure
      shown = now;
      reset.hidden = !looked.x && !looked.y;
      layOut(base.getContext("2d"));
      drawFrame(sized(axes, root.clientWidth, cue.height));
      const ctx = sized(base, root.clientWidth, cue.height);
      ctx.save();
      clipToPlot(ctx);
      ctx.lineJoin = "round";
      ctx.lineWidth = layout.few ? 2 : labels.length > 40 ? 1 : 1.5;
      const quiet = new Map(); // of many, each steps back behind the one in focus, and can still be seen
      const inkOf = (/** @type {string} */ colour) => {
        if (!quiet.has(colour)) quiet.set(colour, layout.few ? colour : css(quietOf(rgb(colour), part.theme.page)));
        return quiet.get(colour);
      };
      labels.forEach((_, line) => {
        if (layout.few) fillInterval(ctx, line);
        ctx.strokeStyle = inkOf(colourOf(line));
        drawLine(ctx, line);
      });
      ctx.restore();
      if (layout.direct) placeEnds();
      writeTitle();
      const keys = cue.selectable ? " Arrow keys choose a line, Escape clears." : "";
      const chosenNow = chosen() >= 0 ? ` Selected ${describe(chosen())}` : "";
      const ranges = describeRanges();
      const zoom = ` Plus and minus look closer, 0 shows all.${ranges ? ` Shown: ${ranges}.` : ""}`;
      axes.setAttribute("role", "application");
      axes.tabIndex = 0;
      const what = `${cue.scale.label} over ${cue.x_label}, ${labels.length} lines.`;
      axes.setAttribute("aria-label", what + keys + zoom + chosenNow);
      writeTable();
      drawOver();
    },
    end() {
      stopFilm();
      stopPointed();
    }
  };
}
