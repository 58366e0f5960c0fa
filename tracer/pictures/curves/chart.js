// Lines of a part with their axes and their names: where each of them stands, and how it is drawn.

/**
 * As tracer.pictures.curves packs it.
 * @typedef {Header & { labels: string[], groups: number[], group_names: string[], dashes: number[],
 *   dash_names: string[], log_y: boolean, lo: number, hi: number, band?: [number, number] }} CurvesHeader
 */

const NAMED_LINES = 16; // lines whose names have room at their ends
const NAME_GAP = 13;
// of as many runs as are laid over each other
const DASHES = [[], [6, 4], [2, 3], [9, 3, 2, 3], [14, 4], [6, 3, 2, 3, 2, 3], [14, 3, 2, 3], [3, 7]];

/** @param {Part} part */
function newChart(part) {
  const { root } = part;
  let codes; // [line step]
  let bandCodes; // [end line step]: the lower, then the upper ends of intervals; undefined where there are none
  const chart = {
    /** @type {CurvesHeader} */
    head: null,
    steps: null,
    points: null, // of each line
    layout: null,
    looked: { x: null, y: null } // the ranges that a reader looks at closer: steps, and values as they are coded
  };

  function load(head, arrays) {
    chart.head = head;
    chart.steps = arrays.steps;
    ({ lines: codes, band: bandCodes } = arrays);
    const count = chart.steps.length;
    const every = [...chart.steps.keys()];
    chart.points = head.labels.map((_, line) => {
      const own = codes.subarray(line * count, (line + 1) * count);
      return own.includes(MISSING) ? measuredSteps(own) : every;
    });
  }
  const codeAt = (line, step) => codes[line * chart.steps.length + step];
  /** A value as it is coded: on a logarithmic scale its logarithm; NaN where none was measured. */
  const coded = (line, step) => valueOfCode(codeAt(line, step), chart.head.lo, chart.head.hi);
  const plain = (value) => (chart.head.log_y ? 10 ** value : value);
  /** An end of an interval, as it is coded. */
  const bandAt = (end, line, step) => {
    const { band, labels } = chart.head;
    const code = bandCodes ? bandCodes[(end * labels.length + line) * chart.steps.length + step] : MISSING;
    return code === MISSING || !band ? Number.NaN : valueOfCode(code, band[0], band[1]);
  };
  const colourOf = (line) => {
    const colours = part.cue.colours[part.theme.mode];
    return colours[chart.head.groups[line] % colours.length];
  };
  const yOf = (value) => {
    const { top, height, lo, hi } = chart.layout;
    return top + (1 - (value - lo) / (hi - lo)) * height;
  };
  /** The height of a point, of hundreds of thousands. */
  const yAt = (line, step) => chart.layout.foot - chart.layout.rise * codeAt(line, step);
  /** @param {number[]} spot */
  const isInside = ([x, y]) => {
    const { left, right, top, height } = chart.layout;
    return x >= left && x <= right && y >= top && y <= top + height;
  };
  const lastStep = (line) => chart.points[line].findLast((step) => chart.layout.xs[step] <= chart.layout.right + 0.5);

  /** Lines, but for the chosen one, that end so near to chance that their names would stand on each other. */
  function nearChance(lo, hi, height) {
    const { chance, mark } = part.cue.scale;
    if (chance == null || mark !== "chance") return [];
    const placed = chart.head.log_y ? Math.log10(chance) : chance;
    const away = (line) => Math.abs(coded(line, chart.points[line].at(-1) ?? 0) - placed) / (hi - lo);
    const near = chart.head.labels.map((_, line) => line).filter((line) => away(line) * height < NAME_GAP);
    const others = near.filter((line) => chart.head.labels[line] !== part.cue.value);
    return others.length > 2 ? others : [];
  }
  /** @param {CanvasRenderingContext2D} ctx for the widths of texts */
  function layOut(ctx) {
    const { theme, cue } = part;
    const { head, looked } = chart;
    const { labels } = head;
    const width = root.clientWidth;
    const few = labels.length <= 6;
    const widest = (weight, /** @type {string[]} */ names = labels) => {
      ctx.font = `${weight} 11px ${theme.mono}`;
      return Math.max(0, ...names.map((label) => ctx.measureText(label).width));
    };
    const room = widest(500) <= (width >= 560 ? width / 4 : 40);
    const direct = labels.length > 1 && labels.length <= NAMED_LINES && room; // named at their ends, or above
    const keyed = few && !direct && !head.group_names.length && !cue.selectable;
    const forFocus = labels.length > 1 && !keyed ? Math.max(12, 8 + Math.min(widest(600), width / 5)) : 12;
    const [bandLow, bandHigh] = (few && head.band) || [head.lo, head.hi]; // of many, only those in focus are drawn
    const ends = [head.lo, head.hi, bandLow, bandHigh];
    const beyond = (Math.max(...ends) - Math.min(...ends)) / 2; // a mark so far away would leave the lines no room
    const marks = (cue.scale.marks ?? []).map(([, value]) => (head.log_y ? Math.log10(value) : value));
    const near = marks.filter((one) => one > Math.min(...ends) - beyond && one < Math.max(...ends) + beyond);
    const [low, high] = [Math.min(...ends, ...near), Math.max(...ends, ...near)];
    const pad = (high - low) * 0.08;
    const fromZero = !head.log_y && low >= 0 && low < 0.35 * high; // where that costs little
    const [lo, hi] = looked.y ?? [fromZero ? 0 : low - pad, high + pad];
    const height = cue.height - 18 - 44;
    const crowd = direct ? nearChance(lo, hi, height) : [];
    const others = crowd.length < labels.length ? " others" : "";
    const crowded = `${crowd.length}${width < 560 ? " more" : `${others} near chance`}`;
    const alone = labels.filter((_, line) => !crowd.includes(line));
    const own = Math.max(widest(700, alone), crowd.length ? widest(400, [crowded]) : 0);
    const margin = direct ? 14 + own : forFocus; // room for the name in focus
    const decades = head.log_y && hi - lo > 0.3;
    const want = Math.max(2, height / 56);
    const close = () => roundTicks(10 ** lo, 10 ** hi, want).map((tick) => Math.log10(tick)); // less than a doubling
    const ticks = decades ? decadeTicks(lo, hi) : head.log_y ? close() : roundTicks(lo, hi, want);
    const stride = !head.log_y && ticks.length > 1 ? ticks[1] - ticks[0] : 0;
    ctx.font = `400 11px ${theme.mono}`;
    const texts = ticks.map((tick) => ctx.measureText(tickText(plain(tick), stride)).width);
    const sides = cue.on_timeline ? sidesOfTimeline(width) : null;
    const left = sides?.[0] ?? Math.max(52, 14 + Math.ceil(Math.max(0, ...texts)));
    const right = width - (sides?.[1] ?? margin);
    const axis = stepAxis(chart.steps, cue.log_x, left, right - left, looked.x);
    chart.layout = { left, top: 18, width: right - left, height, right, lo, hi, ticks, stride };
    const foot = yOf(head.lo);
    // a lone line has the title's name
    const named = !direct && !keyed && labels.length > 1;
    Object.assign(chart.layout, { axis, xs: Array.from(chart.steps, axis.px), few, direct, named, crowd, crowded });
    Object.assign(chart.layout, { foot, rise: (foot - yOf(head.hi)) / (MISSING - 1), ends: direct ? placeEnds() : [] });
  }
  function placeEnds() {
    // where the name of every line stands: at its end
    const { right, top, height, crowd } = chart.layout;
    const all = chart.head.labels.map((_, line) => ({ line, y: yOf(coded(line, lastStep(line) ?? 0)) }));
    const own = all.filter(({ line, y }) => lastStep(line) !== undefined && isInside([right, y]));
    const ends = own.filter(({ line }) => !crowd.includes(line));
    const { chance } = part.cue.scale;
    const near = crowd.length ? yOf(chart.head.log_y ? Math.log10(chance) : chance) : Number.NaN;
    if (isInside([right, near])) ends.push({ line: -1, y: near }); // one name for all of them
    const heights = ends.map(({ y }) => y);
    const apart = Math.min(NAME_GAP, height / (heights.length - 1)); // the most lines stand a little closer
    const spread = spreadNames(heights, apart, top + height);
    return ends.map(({ line }, i) => ({ line, at: spread[i] }));
  }
  /** The line whose name is there. @param {number[]} spot */
  function namedAt([x, y]) {
    if (x < chart.layout.right + 4) return -1;
    const near = chart.layout.ends.filter((end) => Math.abs(end.at - y) <= NAME_GAP / 2 + 1);
    return near.length ? near.reduce((a, b) => (Math.abs(a.at - y) <= Math.abs(b.at - y) ? a : b)).line : -1;
  }

  function drawFrame(ctx) {
    const { theme, cue } = part;
    const { left, right, top, height, ticks, stride } = chart.layout;
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
    drawStepAxis(ctx, theme, chart.layout.axis, { right, foot, width: root.clientWidth, label });
    const { chance } = cue.scale;
    const y = chance == null ? Number.NaN : yOf(chart.head.log_y ? Math.log10(chance) : chance);
    if (!(y >= top && y <= foot)) return;
    ctx.setLineDash([4, 4]);
    strokeLine(ctx, theme.muted, left, y, right, y);
    ctx.setLineDash([]);
  }
  /** Lines at values with a name, which stands above each at its right: a loss that falls is below them there. */
  function drawMarks(ctx) {
    const { theme, cue } = part;
    const { left, right, top, height } = chart.layout;
    const all = (cue.scale.marks ?? []).map(([name, value]) => ({
      name: `${name} ${numberOf(value, { digits: 3 })}`,
      y: yOf(chart.head.log_y ? Math.log10(value) : value)
    }));
    const shown = all.filter(({ y }) => y >= top && y <= top + height);
    const heights = spreadNames(
      shown.map(({ y }) => y - 3),
      NAME_GAP - 1,
      top + height - 3
    );
    ctx.setLineDash([1, 3]);
    for (const { y } of shown) strokeLine(ctx, theme.text, left, Math.round(y) + 0.5, right, Math.round(y) + 0.5);
    ctx.setLineDash([]);
    const look = { colour: theme.text, font: `500 11px ${theme.mono}`, align: "right", baseline: "alphabetic" };
    ctx.lineWidth = 3;
    ctx.strokeStyle = css(theme.page);
    Object.assign(ctx, { font: look.font, textAlign: look.align, textBaseline: look.baseline });
    for (const [i, { name }] of shown.entries()) {
      ctx.strokeText(name, right - 6, heights[i]); // so that no line runs through it
      writeText(ctx, name, right - 6, heights[i], look);
    }
    ctx.lineWidth = 1;
  }
  function clipToPlot(ctx) {
    // bands, and lines when they are looked at closer, run on beyond the plot
    const { left, top, width, height } = chart.layout;
    if (!chart.looked.x && !chart.looked.y && !bandCodes) return;
    ctx.beginPath();
    ctx.rect(left - 3, top - 3, width + 6, height + 6); // a line's width, and a point's
    ctx.clip();
  }
  function drawLine(ctx, line) {
    // hundreds of thousands of points: no call but the canvas's own
    const { xs, foot, rise } = chart.layout;
    const start = line * chart.steps.length;
    const [first, second] = chart.points[line];
    if (first !== undefined && second === undefined) {
      fillDisc(ctx, ctx.strokeStyle, xs[first], foot - rise * codes[start + first], 2.5); // a line of one point
      return;
    }
    let open = false;
    ctx.setLineDash(DASHES[(chart.head.dashes[line] ?? 0) % DASHES.length]);
    ctx.beginPath();
    for (const step of chart.points[line]) {
      const x = xs[step];
      const y = foot - rise * codes[start + step];
      if (open) ctx.lineTo(x, y);
      else ctx.moveTo(x, y);
      open = true;
    }
    ctx.stroke();
    ctx.setLineDash([]);
  }
  function fillInterval(ctx, line) {
    const { xs } = chart.layout;
    const known = chart.points[line].filter((step) => !Number.isNaN(bandAt(0, line, step)));
    if (known.length < 2) return;
    ctx.beginPath();
    for (const step of known) ctx.lineTo(xs[step], yOf(bandAt(1, line, step)));
    for (const step of known.reverse()) ctx.lineTo(xs[step], yOf(bandAt(0, line, step)));
    ctx.save();
    ctx.globalAlpha = 0.16;
    ctx.fillStyle = colourOf(line);
    ctx.fill();
    ctx.restore();
  }
  /** Every line; of many, each steps back behind the one in focus, and can still be seen. */
  function drawLines(ctx) {
    const { few } = chart.layout;
    const quiet = new Map();
    const inkOf = (/** @type {string} */ colour) => {
      if (!quiet.has(colour)) quiet.set(colour, few ? colour : css(quietOf(rgb(colour), part.theme.page)));
      return quiet.get(colour);
    };
    ctx.save();
    clipToPlot(ctx);
    ctx.lineJoin = "round";
    ctx.lineWidth = few ? 2 : chart.head.labels.length > 40 ? 1 : 1.5;
    chart.head.labels.forEach((_, line) => {
      if (few) fillInterval(ctx, line);
      ctx.strokeStyle = inkOf(colourOf(line));
      drawLine(ctx, line);
    });
    ctx.restore();
  }
  /** Lines that stand out from all others. @param {number[]} lines */
  function drawFocus(ctx, lines) {
    ctx.save();
    clipToPlot(ctx);
    ctx.lineJoin = "round";
    for (const line of lines) {
      if (!chart.layout.few) fillInterval(ctx, line);
      ctx.strokeStyle = css(part.theme.page, 0.9);
      ctx.lineWidth = 5;
      drawLine(ctx, line);
      ctx.strokeStyle = colourOf(line);
      ctx.lineWidth = 2.5;
      drawLine(ctx, line);
    }
    ctx.restore();
  }
  /** Names of `lines` in focus beside their last point, or every name at its end; `lonely`: the others step back. */
  function drawNames(ctx, lines, lonely) {
    const { direct, ends, named, right } = chart.layout;
    const font = (/** @type {number} */ weight) => `${weight} 11px ${part.theme.mono}`;
    const write = (text, line, x, y) =>
      writeText(ctx, text, x, y, { colour: colourOf(line), align: "left", baseline: "middle" });
    if (direct) {
      for (const { line, at } of ends) {
        ctx.font = font(lines.includes(line) ? 700 : 500);
        ctx.globalAlpha = lonely && !lines.includes(line) ? 0.35 : 1;
        if (line >= 0) write(chart.head.labels[line], line, right + 8, at);
        else {
          const look = { colour: part.theme.muted, font: font(400), align: "left", baseline: "middle" };
          writeText(ctx, chart.layout.crowded, right + 8, at, look);
        }
      }
      ctx.globalAlpha = 1;
      return;
    }
    const shown = (named ? lines : [])
      .map((line) => ({ line, last: lastStep(line) }))
      .filter(({ line, last }) => last !== undefined && isInside([right, yOf(coded(line, last))]));
    const heights = shown.map(({ line, last }) => yOf(coded(line, last)));
    const spread = spreadNames(heights, NAME_GAP, chart.layout.top + chart.layout.height);
    ctx.font = font(600);
    for (const [i, { line }] of shown.entries())
      write(clipped(ctx, chart.head.labels[line], root.clientWidth - right - 8), line, right + 6, spread[i]);
  }

  const reading = { load, layOut, plain, coded, bandAt, colourOf, yOf, yAt, isInside, namedAt };
  return Object.assign(chart, reading, { drawFrame, drawMarks, drawLines, drawFocus, drawNames });
}
