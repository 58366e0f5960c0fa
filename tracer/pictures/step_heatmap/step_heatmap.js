// Heads x steps as one picture, a row a head; the row under the mouse, the chosen one and the step on an overlay.

/**
 * As tracer.pictures.step_heatmap packs it. `changes`: the step halfway from a head's first level to its last, or -1;
 * empty where heads have no dates.
 * @typedef {Header & { labels: string[], groups: number[], order: number[], changes: number[], lo: number,
 *   hi: number, log: boolean }} HeatmapHeader
 */

export default (args) => live(args, makeHeatmap);

/** @param {Part} part @returns {View} */
function makeHeatmap(part) {
  const { root } = part;
  const top = element("div", "top", null, root);
  const name = element("span", "name", null, top);
  const ways = choice("sort", "Order of the rows", ["by change", "by layer"], top, (i) => {
    way = i;
    part.draw();
  });
  const stage = element("div", "stage", null, root);
  const base = element("canvas", "", null, stage);
  const over = element("canvas", "", null, stage);
  const tip = tipIn(stage);
  const key = element("div", "legend", null, element("div", "legends", null, root));
  const alt = element("details", "alt", null, root);
  const spoken = element("div", "sr", null, root);
  spoken.ariaLive = "polite";
  Object.assign(base, { role: "application", tabIndex: 0 });
  ways[0].title =
    "Earliest change first: the step halfway from a head's first level to its last. Heads that never change come last.";
  /** @type {HeatmapHeader} */
  let head;
  let steps;
  let cells; // [head step]
  let count; // of steps
  let rows;
  let shown = []; // the head of each row
  let place = []; // the row of each head
  let way = 0;
  const byLayer = () => way === 1 || !isDated();
  let layout;
  let hover = null; // { i, step, x, y }
  let film = null;

  const codedAt = (i, step) => valueOfCode(cells[i * count + step], head.lo, head.hi);
  const valueAt = (i, step) => (head.log ? 10 ** codedAt(i, step) : codedAt(i, step));
  const chosen = () => head.labels.indexOf(part.cue.value);
  const isDated = () => head.changes.length > 0;
  const text = (value) => (head.log ? briefOf(value) : numberOf(value, { digits: Math.abs(value) >= 100 ? 1 : 3 }));
  /** "update ratio" of "Where it looks (W_Q, W_K): update ratio". */
  const what = () => part.cue.scale.label.split(": ").at(-1);
  const rowTop = (row) => layout.top + (row / rows) * layout.height;
  function describe(i) {
    const now = layout.axis.nearest(part.cue.step ?? steps[count - 1]);
    const when = head.changes[i] < 0 ? ", no lasting change" : `, changed at step ${head.changes[i]}`;
    return `${head.labels[i]}: ${text(valueAt(i, now))}${isDated() ? when : ""}`;
  }

  function imageOfRows(lut, scale) {
    // a column of pixels each, of the step nearest to it
    const ratio = HUB.press ? 1 : devicePixelRatio || 1;
    const wide = Math.max(1, Math.round(layout.width * ratio));
    const pixels = new ImageData(wide, rows);
    const words = new Uint32Array(pixels.data.buffer);
    const inks = inksOf(lut);
    const [low, high] = [scale.lo, scale.hi].map((end) => (head.log ? Math.log10(end) : end));
    const span = high - low || 1;
    const tone = Uint8Array.from({ length: MISSING }, (_, code) =>
      Math.round(255 * clamp((valueOfCode(code, head.lo, head.hi) - low) / span, 0, 1))
    );
    const from = Uint16Array.from({ length: wide }, (_, x) =>
      layout.axis.under(layout.left + ((x + 0.5) / wide) * layout.width)
    );
    const [first, last] = [steps[0], steps[count - 1]].map(
      (step) => (wide * (layout.axis.px(step) - layout.left)) / layout.width
    );
    for (let row = 0; row < rows; row++) {
      for (let x = Math.max(0, Math.floor(first)); x < Math.min(wide, Math.ceil(last)); x++) {
        const code = cells[shown[row] * count + from[x]];
        if (code !== MISSING) words[row * wide + x] = inks[tone[code]];
      }
    }
    return imageOf(pixels);
  }

  function ring(ctx, i, colour, wide) {
    const high = Math.max(layout.row, 3);
    const y = rowTop(place[i]) + layout.row / 2 - high / 2 - 1;
    strokeBox(ctx, part.theme.page, wide + 2, layout.left - 1, y, layout.width + 2, high + 2);
    strokeBox(ctx, colour, wide, layout.left - 1, y, layout.width + 2, high + 2);
  }
  function drawOver() {
    const { theme, cue } = part;
    const ctx = sized(over, root.clientWidth, layout.full);
    if (hover && hover.i !== chosen()) ring(ctx, hover.i, theme.text, 1);
    if (chosen() >= 0) ring(ctx, chosen(), theme.text, 2);
    if (chosen() >= 0 && layout.row < 10) {
      // its row is too thin for a name: on a plate over the others
      const y = rowTop(place[chosen()]) + layout.row / 2;
      fillBox(ctx, theme.page, 0, y - 8, layout.left - 4, 16);
      const look = { colour: theme.text, font: `600 11px ${theme.mono}`, align: "right", baseline: "middle" };
      writeText(ctx, head.labels[chosen()], layout.left - 6, y, look);
    }
    const now = film ?? cue.step;
    if (cue.notes) drawValues(ctx, layout.axis.nearest(now ?? steps[count - 1]));
    const [first, last] = cue.span ?? [steps[0], steps[count - 1]];
    if (now == null || now < first || now > last) return;
    drawStepMark(ctx, theme, now, layout.axis.px(now), layout, 2);
  }
  /** Of each row that has room, or of the chosen one, beside it. */
  function drawValues(ctx, step) {
    const { theme } = part;
    const quiet = { colour: theme.muted, font: `400 11px ${theme.sans}`, align: "left", baseline: "middle" };
    const named = layout.left + layout.width + 8;
    const room = root.clientWidth - named;
    ctx.font = quiet.font;
    const now = film ?? part.cue.step ?? steps[count - 1];
    const said = what() + (steps[step] === now ? "" : `, step ${exactStep(steps[step])}`); // measured where nearest
    if (sidesOfTimeline(root.clientWidth)) writeText(ctx, clipped(ctx, said, room), named, layout.top - 8, quiet);
    for (let row = 0; row < rows; row++) {
      const isChosen = shown[row] === chosen();
      if (layout.row < 10 && !isChosen) continue;
      const font = `${isChosen ? 600 : 400} 11px ${theme.mono}`;
      const look = { colour: isChosen ? theme.text : theme.muted, font, align: "left", baseline: "middle" };
      const x = layout.left + layout.width + 8;
      writeText(ctx, text(valueAt(shown[row], step)), x, rowTop(row) + layout.row / 2, look);
    }
  }
  function under(event) {
    const [x, y] = pointIn(base, event);
    const row = Math.floor(((y - layout.top) / layout.height) * rows);
    if (x < layout.left || x > layout.left + layout.width || row < 0 || row >= rows) return null;
    return { i: shown[row], step: layout.axis.under(x), x, y: rowTop(row) };
  }
  function pick(i, wait) {
    // a second click on the chosen row lets it go
    const same = !wait && head.labels[i] === part.cue.value;
    part.send(same ? "" : head.labels[i], wait);
    spoken.textContent = same ? "nothing selected" : describe(i);
    drawOver();
  }
  base.onpointermove = (event) => {
    if (!layout || !rows) return;
    hover = under(event);
    base.style.cursor = hover ? "pointer" : "default";
    drawOver();
    tip.hidden = !hover;
    if (!hover) return;
    const { i, step, x, y } = hover;
    showTip(tip, stage, x, y, (node) => {
      const { label, unit } = part.cue.scale;
      const value = valueAt(i, step);
      element("b", "num", head.labels[i], node);
      factsIn(node, [
        ["step", exactStep(steps[step])],
        [label, text(value) + (unit && Number.isFinite(value) ? ` ${unit}` : "")],
        ...(isDated() ? [["halfway", head.changes[i] < 0 ? "no change" : `step ${head.changes[i]}`]] : [])
      ]);
    });
  };
  base.onpointerleave = () => {
    hover = null;
    tip.hidden = true;
    if (layout) drawOver();
  };
  base.onclick = (event) => {
    base.onpointermove(event);
    if (hover) pick(hover.i, 0);
  };
  base.onkeydown = (event) => {
    if (!layout || !rows || isModified(event)) return;
    if (event.key === "Escape") {
      part.send("");
      drawOver();
      return;
    }
    const down = arrowOf(event)?.[0];
    const now = chosen() < 0 ? (down > 0 ? -1 : rows) : place[chosen()];
    const row = down ? now + down : { Home: 0, End: rows - 1 }[event.key];
    if (row === undefined) return;
    event.preventDefault();
    pick(shown[clamp(row, 0, rows - 1)], 140);
  };
  const stopHearing = hear("moment", (step) => {
    // a timeline moves: the line follows it
    film = step;
    if (layout && rows) drawOver();
  });

  function layOut() {
    const { cue } = part;
    const room = (cue.height - 62) / Math.max(rows, 1);
    const row = room < 8 ? Math.max(1, Math.round(room)) : Math.min(26, room); // thin rows are whole pixels
    const height = Math.round(row * rows);
    const sides = cue.notes ? sidesOfTimeline(root.clientWidth) : null;
    const [left, right] = sides ?? (cue.notes ? [52, 62] : [52, 12]);
    const width = root.clientWidth - left - right;
    layout = { left, top: 18, width, height, row: height / Math.max(rows, 1), full: 18 + height + 44 };
    layout.notes = sides ? cue.notes : {};
    layout.axis = stepAxis(steps, cue.log_x, left, width, cue.span);
  }
  function drawNames(ctx) {
    // of the rows, of their layers, or of the ends of their order
    const { theme } = part;
    const left = layout.left - 8;
    const look = { colour: theme.muted, font: `400 11px ${theme.mono}`, align: "right", baseline: "middle" };
    const isFirst = (row) => !row || head.groups[shown[row]] !== head.groups[shown[row - 1]];
    let last = -99;
    for (let row = 0; row < rows; row++) {
      const y = rowTop(row);
      if (layout.row >= 10) {
        writeText(ctx, head.labels[shown[row]], left, y + layout.row / 2, look);
        const words = layout.notes[head.labels[shown[row]]];
        if (words)
          writeText(ctx, words, 0, y + layout.row / 2, { ...look, font: `400 11px ${theme.sans}`, align: "left" });
      } else if (byLayer() && isFirst(row) && y - last >= 12) {
        last = y;
        writeText(ctx, `L${head.groups[shown[row]]}`, left, Math.max(y, layout.top) + 5, look);
        ctx.fillRect(layout.left - 5, Math.round(y), 4, 1);
      }
    }
    if (byLayer() || layout.row >= 10 || !rows) return;
    const ends = { ...look, font: `400 11px ${theme.sans}` };
    writeText(ctx, "early", left, layout.top + 6, ends);
    writeText(ctx, head.changes.includes(-1) ? "never" : "late", left, layout.top + layout.height - 6, ends);
  }
  function writeTable() {
    const row = (i) => {
      const values = Array.from({ length: count }, (_, step) => valueAt(i, step)).filter(Number.isFinite);
      const when = isDated() ? [head.changes[i] < 0 ? "–" : `step ${head.changes[i]}`] : [];
      const figures = [values[0], Math.min(...values), Math.max(...values), values.at(-1)];
      return [head.labels[i], ...when, ...figures.map(text)];
    };
    const columns = ["head", ...(isDated() ? ["changed at"] : []), "first", "lowest", "highest", "last"];
    tableOf(alt, "Show as table", columns, () => shown.map(row));
  }

  return {
    load(newHead, arrays) {
      head = newHead;
      ({ steps, cells } = arrays);
      [rows, count] = cells.shape;
      hover = null;
      tip.hidden = true;
    },
    draw() {
      const { theme, cue } = part;
      const { scale } = cue;
      const lut = rampOf(scale.palette, theme.mode);
      shown = byLayer() ? head.labels.map((_, i) => i) : head.order;
      place = head.labels.map((_, i) => shown.indexOf(i));
      layOut();
      const { left, width, height } = layout;
      const ctx = sized(base, root.clientWidth, layout.full);
      strokeBox(ctx, theme.line, 1, left, layout.top, width, height); // bare where nothing was measured
      if (rows) {
        ctx.imageSmoothingEnabled = layout.row < 1;
        ctx.drawImage(imageOfRows(lut, scale), left, layout.top, width, height);
      }
      if (layout.row >= 7)
        // a hair between rows that are high enough
        for (let row = 1; row < rows; row++) fillBox(ctx, theme.page, left, Math.round(rowTop(row)) - 0.5, width, 1);
      drawNames(ctx);
      const label = `step${cue.log_x ? " (log)" : ""}`;
      const ends = { right: left + width, foot: layout.top + height, width: root.clientWidth, label };
      drawStepAxis(ctx, theme, layout.axis, ends);
      name.textContent = titleOf(scale);
      press(ways, way);
      ways[0].parentElement.hidden = !isDated();
      const order = `a row a head, ${byLayer() ? "by layer" : "by change"}`;
      const now = chosen() >= 0 ? ` Selected ${describe(chosen())}` : "";
      const keys = "Up and down choose a head, Escape clears.";
      const what = `${scale.label} of ${rows} heads over ${count} steps`;
      base.ariaLabel = `${what}, ${order}. ${keys}${now}`;
      key.parentElement.hidden = cue.bare;
      if (!isDated()) top.append(key.parentElement);
      const bent = (at) => Math.log(1 + at * (scale.hi / scale.lo - 1)) / Math.log(scale.hi / scale.lo);
      const powers = head.log ? { root: bent, brief: true, ticks: cue.ticks ?? [scale.lo, scale.hi] } : {};
      legend(key, { ...scale, label: "", unit: "" }, lut, { note: cue.note || chanceNote(scale), ...powers });
      writeTable();
      if (rows) drawOver();
    },
    end: stopHearing
  };
}
