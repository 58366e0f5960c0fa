// Lines on a base canvas, drawn once; the line in focus and the marks on an overlay, so a mouse move redraws one line.
// A drag chooses what the axes show, a double click shows all again; only a click that is no drag chooses a line. The
// name at the end of a line shows it alone, and what is pointed at is marked in every chart of steps on the page.

export default (args) => live(args, makeCurves);

/** @param {Part} part @returns {View} */
function makeCurves(part) {
  const { root } = part;
  const title = element("div", "title", null, root);
  const stage = element("div", "stage", null, root);
  const axes = element("canvas", "", null, stage);
  const base = element("canvas", "base", null, stage);
  const over = element("canvas", "", null, stage);
  const tip = tipIn(stage);
  const reset = button("reset", "Show all", stage, () => look(null, null));
  const alt = element("details", "alt", null, root);
  const spoken = element("div", "sr", null, root);
  spoken.ariaLive = "polite";
  Object.assign(axes, { role: "application", tabIndex: 0 });
  reset.hidden = true;
  const chart = newChart(part);
  const { plain, coded, bandAt, colourOf, yOf, isInside } = chart;
  let hover = null; // { line, step }
  let alone = -1; // the line whose name is pointed at
  let kept = -1; // ... or was pressed, where a press chooses nothing
  let beside = null; // the step that is pointed at in another chart
  let film = null;
  let drag = null; // { from, to, only, moved }
  let dragged = false; // was what ends with this click a drag?
  let before; // what was chosen before a click that may be the first of two
  let shown = "";

  const chosen = () => chart.head.labels.indexOf(part.cue.value);
  /** The chosen line, and those of other runs that belong to it: its namesakes, where nobody says which. */
  const chosenLines = () => {
    const { value, partner } = part.cue;
    const own = chosen();
    const belongs = (label) => (partner ? label === partner : label.startsWith(`${value} · `));
    const others = chart.head.labels.map((label, line) => (belongs(label) ? line : -1));
    return own < 0 ? [] : [own, ...others.filter((line) => line >= 0)];
  };
  const text = (value) => numberOf(value, { digits: Math.abs(value) >= 100 ? 1 : 3 });
  /** @returns {[number, number]} */
  const span = () => [chart.steps[0], chart.steps.at(-1)];

  function drawBand(ctx) {
    // what a drag would choose
    const { layout } = chart;
    const range = draggedRange(drag.from, drag.to, drag.only);
    if (!range) return;
    const [x0, x1] = range.x ?? [layout.left, layout.right];
    const [y0, y1] = range.y ?? [layout.top, layout.top + layout.height];
    fillBox(ctx, css(part.theme.text, 0.12), x0, y0, x1 - x0, y1 - y0);
    strokeBox(ctx, part.theme.text, 1, x0 + 0.5, y0 + 0.5, x1 - x0 - 1, y1 - y0 - 1);
  }
  function drawOver() {
    const { theme, cue } = part;
    const { layout } = chart;
    const ctx = sized(over, root.clientWidth, cue.height);
    const lonely = alone >= 0 ? alone : kept;
    const main = lonely >= 0 ? lonely : (hover?.line ?? chosen());
    const lines = [...new Set([main, ...(lonely >= 0 ? [] : chosenLines())])].filter((line) => line >= 0);
    base.classList.toggle("dim", lonely >= 0);
    const [first, last] = span();
    const now = film ?? cue.step;
    const x = now == null || now < first || now > last ? -1 : layout.axis.px(now);
    if (x >= layout.left - 0.5 && x <= layout.right + 0.5) drawStepMark(ctx, theme, now, x, layout);
    chart.drawFocus(ctx, lines);
    chart.drawNames(ctx, lines, lonely >= 0);
    drawBeside(ctx, lines);
    if (drag?.moved) drawBand(ctx);
    if (!hover) return;
    const spot = [layout.xs[hover.step], yOf(coded(hover.line, hover.step))];
    if (isInside(spot)) drawPoint(ctx, spot, hover.line, 5.5);
  }
  function drawPoint(ctx, /** @type {number[]} */ [x, y], line, rim) {
    fillDisc(ctx, part.theme.page, x, y, rim);
    fillDisc(ctx, colourOf(line), x, y, 3.5);
  }
  function drawBeside(ctx, lines) {
    // what is pointed at in a neighbour, here: the step, and what stands out or is few there
    const { layout } = chart;
    const [first, last] = span();
    if (beside == null || hover || beside < first || beside > last) return;
    const x = layout.axis.px(beside);
    if (x < layout.left - 0.5 || x > layout.right + 0.5) return;
    strokeLine(ctx, part.theme.muted, Math.round(x) + 0.5, layout.top, Math.round(x) + 0.5, layout.top + layout.height);
    const step = layout.axis.nearest(beside);
    const marked = lines.length || !layout.few ? lines : chart.head.labels.map((_, line) => line);
    for (const line of marked) {
      const y = yOf(coded(line, step));
      if (!isInside([x, y])) continue; // NaN, where it was not measured
      drawPoint(ctx, [x, y], line, 5);
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
    if (part.cue.x_label === "step") tell("pointed", hover ? { by: root, step: chart.steps[hover.step] } : null);
  }
  function describe(line) {
    const last = chart.points[line].at(-1);
    return `${chart.head.labels[line]}: ${last >= 0 ? text(plain(coded(line, last))) : "no value"}`;
  }
  function pick(line, wait) {
    // a second click on the chosen line lets it go
    const same = !wait && chart.head.labels[line] === part.cue.value;
    part.send(same ? "" : chart.head.labels[line], wait);
    spoken.textContent = same ? "nothing selected" : describe(line);
    drawOver();
  }
  function describeRanges() {
    const { x, y } = chart.looked;
    const across = x && `${part.cue.x_label} ${exactStep(x[0])} to ${exactStep(x[1])}`;
    const up = y && `${text(plain(y[0]))} to ${text(plain(y[1]))}`;
    return [across, up].filter(Boolean).join(", ");
  }
  function look(x, y) {
    // closer at these ranges, or at all
    chart.looked = { x, y };
    hover = null;
    tip.hidden = true;
    if (!x && !y && reset.matches(":focus")) axes.focus();
    spoken.textContent = describeRanges() || "all shown";
    part.draw();
  }
  function narrow(times) {
    // around the step that is shown, if it is in sight
    const range = chart.looked.x ?? span();
    const now = film ?? part.cue.step ?? Number.NaN;
    const middle = now >= range[0] && now <= range[1] ? now : (range[0] + range[1]) / 2;
    look(scaledRange(range, times, middle, span()), chart.looked.y);
  }
  function point(spot) {
    const { layout } = chart;
    alone = chart.namedAt(spot);
    const inPlot = alone < 0 && spot[0] >= layout.left - 8 && spot[1] <= layout.top + layout.height + 8;
    hover = inPlot ? nearestLine(chart.points, layout.xs, chart.yAt, spot) : null;
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
      element("b", "", chart.head.labels[line], node).style.color = colourOf(line);
      const value = text(plain(coded(line, step))) + (unit ? ` ${unit}` : "");
      const ends = [bandAt(0, line, step), bandAt(1, line, step)];
      /** @type {[string, string][]} */
      const interval = ends.some(Number.isNaN) ? [] : [["95 %", ends.map((end) => text(plain(end))).join(" to ")]];
      factsIn(node, [[part.cue.x_label, exactStep(chart.steps[step])], [label, value], ...interval]);
    });
  }
  function drop() {
    dragged ||= !!drag?.moved;
    drag = hover = null;
    alone = -1;
    tip.hidden = true;
    if (!chart.layout) return;
    tellStep();
    drawOver();
  }

  axes.onpointerdown = (event) => {
    const { layout } = chart;
    if (!layout || event.button || !event.isPrimary || chart.steps.length < 2) return;
    const from = pointIn(axes, event);
    const only = from[1] > layout.top + layout.height ? "x" : from[0] < layout.left ? "y" : "";
    drag = { from, to: from, only, moved: false };
    dragged = false;
    axes.setPointerCapture(event.pointerId);
  };
  axes.onpointermove = (event) => {
    const { layout } = chart;
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
    const { layout } = chart;
    if (!drag) return;
    const range = draggedRange(drag.from, drag.to, drag.only);
    dragged = drag.moved;
    drag = null;
    if (!dragged) return;
    const valueAt = (y) => layout.lo + (1 - (y - layout.top) / layout.height) * (layout.hi - layout.lo);
    const x = range?.x?.map((place) => layout.axis.stepAt(clamp(place, layout.left, layout.right)));
    const y = range?.y?.map(valueAt).reverse();
    look(x && x[1] > x[0] ? x : chart.looked.x, y && y[1] > y[0] ? y : chart.looked.y);
  };
  axes.onpointercancel = drop;
  axes.onpointerleave = () => {
    if (!drag) drop();
  };
  axes.onclick = (event) => {
    const { layout } = chart;
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
    else if (times && chart.steps.length > 1) narrow(times);
    else if (event.key === "0") look(null, null);
    else if (!part.cue.selectable) return;
    else if (event.key === "Escape") {
      part.send("");
      drawOver();
    } else if (way) pick((chosen() + way + chart.head.labels.length) % chart.head.labels.length, 140);
    else return;
    if (event.key !== "Escape") event.preventDefault();
  };

  const stopFilm = hear("moment", (step) => {
    // a timeline moves: the line of the step follows it
    film = part.cue?.x_label === "step" ? step : null;
    if (chart.layout) drawOver();
  });
  const stopPointed = hear("pointed", (pointed) => {
    const step = part.cue?.x_label === "step" && pointed && pointed.by !== root ? pointed.step : null;
    if (step === beside) return;
    beside = step;
    if (chart.layout) drawOver();
  });

  function writeTitle() {
    const { theme, cue } = part;
    const { head, layout } = chart;
    title.replaceChildren();
    element("span", "name", titleOf(cue.scale) + (head.log_y ? ", log scale" : ""), title);
    /** @type {[string, number][]} */
    const grouped = head.group_names.map((name, group) => [name, head.groups.indexOf(group)]);
    const single = layout.few && !layout.direct && head.labels.length > 1 && !head.dash_names.length;
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
    for (const [dash, name] of head.dash_names.entries()) {
      const swatch = element("span", "swatch dash", null, title);
      element("i", "", null, swatch).style.background = dashesAcross(DASHES[dash % DASHES.length]);
      element("span", "", name, swatch);
    }
    if (cue.scale.chance == null) return;
    const digits = Math.abs(cue.scale.chance) < 0.01 ? 3 : 2;
    const brief = numberOf(cue.scale.chance, { digits }).replace(/\.0+$|(\.\d*?[1-9])0+$/, "$1");
    element("span", "swatch chance", `${cue.scale.mark} ${brief}`, title).prepend(element("i"));
  }
  function writeTable() {
    const { cue } = part;
    const { head, points, steps } = chart;
    const rows = () =>
      head.labels.map((name, line) => {
        const values = points[line].map((step) => plain(coded(line, step)));
        return [name, ...[values[0], Math.min(...values), Math.max(...values), values.at(-1)].map(text)];
      });
    const exact = (line, step) => exactOf(plain(coded(line, step)));
    tableOf(alt, "Show as table", ["line", "first", "lowest", "highest", "last"], rows, {
      columns: [cue.x_label, ...head.labels],
      rows: () => Array.from(steps, (step, j) => [step, ...points.map((_, line) => exact(line, j))])
    });
  }

  return {
    load(head, arrays) {
      chart.load(head, arrays);
      hover = null;
      alone = kept = -1;
    },
    draw() {
      const { cue } = part;
      const { looked, head } = chart;
      const axis = `${cue.x_label} ${cue.log_x}`;
      const now = `${axis} ${cue.scale.label} ${head.log_y}`;
      if (now !== shown) chart.looked = { x: shown.startsWith(axis) ? looked.x : null, y: null }; // another measure
      shown = now;
      reset.hidden = !chart.looked.x && !chart.looked.y;
      chart.layOut(base.getContext("2d"));
      const frame = sized(axes, root.clientWidth, cue.height);
      chart.drawFrame(frame);
      chart.drawMarks(frame);
      chart.drawLines(sized(base, root.clientWidth, cue.height));
      writeTitle();
      const keys = cue.selectable ? " Arrow keys choose a line, Escape clears." : "";
      const chosenNow = chosen() >= 0 ? ` Selected ${describe(chosen())}` : "";
      const ranges = describeRanges();
      const zoom = ` Plus and minus look closer, 0 shows all.${ranges ? ` Shown: ${ranges}.` : ""}`;
      const what = `${cue.scale.label} over ${cue.x_label}, ${head.labels.length} lines.`;
      axes.ariaLabel = what + keys + zoom + chosenNow;
      writeTable();
      drawOver();
    },
    end() {
      stopFilm();
      stopPointed();
    }
  };
}
