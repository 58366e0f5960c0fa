// The timeline of a run: play or drag through its snapshots. What it shows is told to the page, the host hears commits.

const SCRUBBER_EDGE = 9; // room beside the track, for the handle
const ROW = 13; // the height of a row of the words of events, above the curves
const ROWS = 2; // of these at most
const NEAR = 6; // pixels from an event at which the mouse means it
const TRACK = 64; // its height below the top
const SCRUBBER_HEIGHT = 86;
const withRole = (...roles) => roles.map((role) => `[role=${role}]`).join(", ");
const TYPING_ROLES = withRole("textbox", "combobox", "listbox");
const TYPING = `input, textarea, select, [contenteditable], ${TYPING_ROLES}, [role=dialog] *`;
const PRESSED = `button, a, summary, ${withRole("button", "option", "tab", "radio", "switch", "checkbox", "menuitem")}`;

export default (args) => live(args, makeScrubber);

/** The smallest and the largest value, never the same. */
function spanOf(values) {
  const measured = values.filter(Number.isFinite);
  const [lo, hi] = [Math.min(...measured), Math.max(...measured)];
  return [lo, hi > lo ? hi : lo + 1];
}

/** Where each record stands on the track, from 0 to 1: at its step, so that a date has one place on every page; evenly
 * where that would press more than a fourth of them together, as of steps that double.
 * @param {ArrayLike<number>} steps */
function sharesOf(steps) {
  const last = Math.max(1, steps.length - 1);
  const span = steps[last] - steps[0];
  let pressed = 0;
  for (let i = 1; i <= last; i++) if (steps[i] - steps[i - 1] < span / last / 4) pressed++;
  return Array.from(steps, (step, i) => (pressed > last / 4 || steps.length < 2 ? i / last : (step - steps[0]) / span));
}

/** The records whose steps are written, `wide` apart at least: the last, and before it round ones, where records have
 * enough of them, or whichever have room.
 * @param {ArrayLike<number>} steps @param {number[]} places in pixels @param {number} wide @returns {Set<number>} */
function namedOf(steps, places, wide) {
  const last = steps.length - 1;
  const stride = roundStride(Math.max(1, ((steps[last] - steps[0]) * wide) / Math.max(1, places[last] - places[0])));
  const isRound = (i) => steps[i] % stride === 0;
  const few = places.filter((_, i) => isRound(i)).length < 3;
  const named = new Set([last]);
  let written = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < last; i++) {
    if (!(few || isRound(i)) || places[i] - written < wide || places[last] - places[i] < wide) continue;
    named.add(i);
    written = places[i];
  }
  return named;
}

/** @param {Part} part @returns {View} */
function makeScrubber(part) {
  const { root } = part;
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const body = element("div", "timeline", null, root);
  const side = element("div", "side", null, body);
  const play = button("play", null, side);
  const stepAt = element("p", "step", null, side);
  const readout = element("p", "readout");
  const figure = (className) => {
    const node = element("span", className, null, readout);
    const name = element("span", "what", null, node);
    node.append(" ");
    return { node, name, value: element("span", "num", null, node) };
  };
  const scoreAt = figure("score");
  const lossAt = figure("loss");
  const noteAt = element("span", "what note", "", readout);
  const strip = element("div", "strip", null, body);
  const base = element("canvas", "", null, strip);
  const over = element("canvas", "", null, strip);
  body.append(readout);
  const alt = element("details", "alt", null, body);
  play.title = "Space plays, [ and ] go a step";
  Object.assign(strip, { role: "slider", ariaLabel: "Step of training", ariaValueMin: "0", tabIndex: 0 });
  /** @type {ScrubberHeader} */
  let head;
  let arrays;
  let steps;
  let shares;
  let isEven = true; // is the distance of records on the track that of their steps?
  let count = 0; // of snapshots
  let shown = null; // where the reader is while it is not where the host is: a place between 0 and count - 1
  let waiting = false; // for the host
  let dragging = false;
  let mouse = Number.NaN; // where it is on the strip
  let playing = 0;
  let before = 0;
  let told = -1;
  let layout;

  const now = () => (shown == null ? nearestStep(steps, part.cue.value) : Math.round(shown));
  function score(i) {
    const measure = head.measures.indexOf(part.cue.measure);
    return measure >= 0 && part.cue.head ? codedAt(head, arrays, measure, i, part.cue.head) : Number.NaN;
  }
  const stepName = (i) => exactStep(steps[i]);
  const scoreLabel = () => `${headName(part.cue.head ?? [])} ${(part.cue.scale?.label ?? "").toLowerCase()}`;
  const lossText = (i) => numberOf(arrays.loss[i]);
  const scoreText = (i) => numberOf(score(i), { ...part.cue.scale, plain: true });

  const isFilmed = () => arrays.film.some((place) => place !== MISSING);
  function thumbsOf(place) {
    // of a live run they come a few snapshots at a time, each in a part of its own
    const size = head.cells.reduce((a, b) => a * b, 1);
    const at = head.reel ? place % head.every : place;
    const codes = head.reel ? HUB.reels?.get(head.reel)?.get(place - at) : arrays.frames;
    return codes?.length >= (at + 1) * size ? codes.subarray(at * size, (at + 1) * size) : null;
  }
  function tellFrame(i) {
    const place = arrays.film[i];
    const thumbs = told === i || place === MISSING ? null : thumbsOf(place);
    if (!thumbs) return;
    told = i;
    showFrame(frameOf(head, arrays, i, thumbs));
  }
  function tellNothing() {
    showFrame(null);
    tell("moment", null);
  }
  function settle() {
    shown = null;
    waiting = false;
    told = -1;
    tellNothing();
  }
  function go(place) {
    shown = clamp(place, 0, count - 1);
    tell("moment", steps[now()]);
    tellFrame(now());
    drawOver();
  }
  function markPlaying(on) {
    play.ariaPressed = `${on}`;
    play.ariaLabel = on ? "Pause" : "Play the training";
  }
  function stop() {
    cancelAnimationFrame(playing);
    playing = 0;
    markPlaying(false);
  }
  function commit(wait = 0) {
    stop();
    if (shown == null) return;
    if (HUB.about?.taken && !isFilmed()) return cancel(); // in a file: all else there is of its own step
    shown = now();
    if (part.cue.seen >= part.sent && shown === nearestStep(steps, part.cue.value)) {
      settle();
      drawOver();
      return;
    }
    waiting = true;
    part.send(steps[shown], wait);
  }
  function cancel() {
    stop();
    dragging = false;
    if (!waiting) settle();
    drawOver();
  }
  function start() {
    waiting = false;
    before = performance.now();
    markPlaying(true);
    go(now() === count - 1 ? 0 : now());
    // steps a second: a whole run in about 8; of a film no more than can be seen
    const most = isFilmed() ? 24 : Number.POSITIVE_INFINITY;
    const rate = calm.matches ? 4 : clamp((count - 1) / 8, 6, most);
    const tick = (time) => {
      const next = shown + rate * clamp((time - before) / 1000, 0, 0.1);
      before = time;
      playing = requestAnimationFrame(tick);
      go(next);
      if (next >= count - 1) commit();
    };
    playing = requestAnimationFrame(tick);
  }
  function toggle() {
    if (playing) commit();
    else start();
  }
  function move(by) {
    stop();
    go(now() + by);
    commit(160);
  }

  play.onclick = toggle;
  function placeOf(event) {
    const [x] = pointIn(strip, event);
    return nearestStep(shares, (x - SCRUBBER_EDGE) / (layout.width - 2 * SCRUBBER_EDGE));
  }
  strip.onpointerdown = (event) => {
    if (event.button || !layout) return;
    stop();
    strip.setPointerCapture(event.pointerId);
    dragging = true;
    waiting = false;
    go(placeOf(event));
  };
  strip.onpointermove = (event) => {
    if (dragging) go(placeOf(event));
    else if (layout) point(pointIn(strip, event)[0]);
  };
  strip.onpointerleave = () => layout && point(Number.NaN);
  strip.onpointerup = () => {
    if (!dragging) return;
    dragging = false;
    commit();
  };
  strip.onpointercancel = cancel;
  strip.onkeydown = (event) => {
    if (isModified(event) || !count) return;
    const [down, right] = arrowOf(event) ?? [0, 0];
    const by = right - down || { PageDown: -10, PageUp: 10, Home: -count, End: count }[event.key];
    if (event.key === "Escape") cancel();
    if (by) move(by);
    else if (event.key === "Enter") commit();
    else return;
    event.preventDefault();
  };
  const onKey = (event) => {
    // on some keyboards a bracket is typed with Alt, or with AltGr, which reads as Ctrl and Alt
    const at = event.composedPath()[0];
    if (!count || !layout || event.defaultPrevented || event.metaKey || (event.ctrlKey && !event.altKey)) return;
    if (at.closest?.(TYPING)) return;
    const by = { "[": -1, "]": 1 }[event.key];
    if (by) move(by);
    else if (event.key === " " && !event.repeat && !at.closest?.(PRESSED)) toggle();
    else return;
    event.preventDefault();
  };
  document.addEventListener("keydown", onKey); // of the whole page
  const stopHearing = hear("reel", (name) => {
    if (!arrays || name !== head.reel || shown == null) return;
    told = -1;
    tellFrame(now());
  });

  function xOf(place) {
    const from = Math.floor(place);
    const way = place > from ? (shares[from + 1] - shares[from]) * (place - from) : 0;
    return SCRUBBER_EDGE + (shares[from] + way) * (layout.width - 2 * SCRUBBER_EDGE);
  }
  const highest = () => layout.rows * ROW + 4;
  const yOf = (value, [lo, hi]) => highest() + (1 - clamp((value - lo) / (hi - lo), 0, 1)) * (TRACK - 10 - highest());
  /** The place of a step that may lie between two snapshots. */
  function placeOfStep(step) {
    const after = steps.findIndex((one) => one >= step);
    if (after < 1) return after < 0 ? count - 1 : 0;
    return after - (steps[after] - step) / (steps[after] - steps[after - 1]);
  }
  /** The last event until a step; null before the first. */
  const eventAt = (i) => part.cue.events.findLast(({ step }) => step <= steps[i]) ?? null;
  /** Says the words of the event under the mouse, which may have had no room. */
  function point(x) {
    const before = pointed();
    mouse = x;
    if (pointed() !== before) drawOver();
  }
  /** The event nearest to the mouse, while it moves nothing; null where none is near. */
  function pointed() {
    if (dragging || playing) return null;
    const far = ({ step }) => Math.abs(xOf(placeOfStep(step)) - mouse);
    const near = part.cue.events.filter((event) => far(event) <= NEAR);
    return near.sort((a, b) => far(a) - far(b))[0] ?? null;
  }
  /** Where the words of events stand that have room: right of their lines, in the first row that is free there; left of
   * them where neither is, up to the next line, whose words they would seem to be. The first to be placed stay. */
  function placesOf(ctx, events) {
    const taken = Array.from({ length: ROWS }, () => []);
    const places = new Map();
    const lines = events.map(({ step }) => xOf(placeOfStep(step)));
    ctx.font = `600 11px ${part.theme.sans}`; // as wide as they get
    for (const event of events) {
      const wide = ctx.measureText(event.label).width;
      const at = xOf(placeOfStep(event.step));
      const isFree = (/** @type {number[]} */ [left, row]) =>
        left >= 0 &&
        left + wide <= layout.width &&
        taken[row].every(([from, to]) => left >= to + 8 || left + wide <= from - 8);
      const before = at - 4 - wide;
      const sides = lines.some((line) => line >= before && line < at) ? [at + 4] : [at + 4, before];
      const place = sides.flatMap((left) => taken.map((_, row) => [left, row])).find(isFree);
      if (!place) continue;
      const [left, row] = place;
      taken[row].push([left, left + wide]);
      places.set(event, { left, row, wide });
    }
    return places;
  }
  function drawEvents(ctx, current) {
    // each is a line, its interval and its words; those of the current event have room in any case
    const { theme } = part;
    const { events } = part.cue;
    for (const event of events) {
      const [at, from, to] = [event.step, event.low, event.high].map((step) => xOf(placeOfStep(step)));
      fillBox(ctx, css(theme.muted, event === current ? 1 : 0.5), Math.round(at) - 0.5, 1, 1, TRACK - 1);
      fillBox(ctx, css(theme.muted, 0.55), from, TRACK - 6, Math.max(2, to - from), 3);
    }
    const isAmiss = current && !layout.words.has(current);
    const words = isAmiss ? placesOf(ctx, [current, ...events.filter((one) => one !== current)]) : layout.words;
    for (const [event, { left, row, wide }] of words) {
      const [weight, colour] = event === current ? [600, theme.text] : [400, theme.muted];
      ctx.font = `${weight} 11px ${theme.sans}`;
      fillBox(ctx, css(theme.page), left - 1, row * ROW, wide + 2, ROW); // over the line of another
      writeText(ctx, event.label, left, row * ROW + 2, { colour, align: "left", baseline: "top" });
    }
  }
  function curve(ctx, values, range, colour, wide) {
    ctx.strokeStyle = css(colour);
    ctx.lineWidth = wide;
    ctx.lineJoin = "round";
    ctx.beginPath();
    let open = false;
    for (const [i, value] of values.entries()) {
      if (!Number.isFinite(value)) continue;
      if (open) ctx.lineTo(xOf(i), yOf(value, range));
      else ctx.moveTo(xOf(i), yOf(value, range));
      open = true;
    }
    ctx.stroke();
  }
  const scoreColour = () => rampOf("score", part.theme.mode).at(5 / 6);
  function drawBase() {
    const { theme } = part;
    const ctx = sized(base, layout.width, SCRUBBER_HEIGHT);
    curve(ctx, layout.loss, layout.lossRange, mix(theme.muted, theme.page, 0.35), 1.5);
    curve(ctx, layout.score, layout.scoreRange, scoreColour(), 2);
    const look = { colour: theme.muted, font: `400 11px ${theme.mono}`, baseline: "top" };
    ctx.font = look.font;
    const last = count - 1;
    const wide = ctx.measureText(stepName(last)).width + 30;
    const places = layout.loss.map((_, i) => xOf(i));
    const written = namedOf(steps, places, wide);
    let ticked = Number.NEGATIVE_INFINITY;
    for (const [i, at] of places.entries()) {
      // a tick a record where there is room
      const named = written.has(i);
      if (!named && at - ticked < 3) continue;
      ticked = at;
      fillBox(ctx, named ? theme.muted : theme.line, Math.round(xOf(i)) - 0.5, TRACK + 2, 1, named ? 6 : 4);
      if (!named) continue;
      const text = part.cue.live && i === last ? "newest" : stepName(i);
      const half = ctx.measureText(text).width / 2 + 1;
      const x = clamp(xOf(i), half, layout.width - half); // below its tick, as far as the strip goes
      writeText(ctx, text, x, TRACK + 11, { ...look, align: "center" });
    }
  }
  function drawOver(sheet) {
    if (!layout) return;
    const { theme } = part;
    const i = now();
    const place = shown == null || calm.matches ? i : shown;
    const x = xOf(place);
    const ctx = sheet ?? over.getContext("2d");
    ctx.clearRect(0, 0, layout.width, SCRUBBER_HEIGHT);
    fillBox(ctx, css(theme.page, 0.6), x, 0, layout.width - x, TRACK - 4); // what is still to come
    const event = eventAt(i);
    drawEvents(ctx, pointed() ?? event);
    ctx.lineCap = "round";
    ctx.lineWidth = 3;
    strokeLine(ctx, theme.line, SCRUBBER_EDGE, TRACK, xOf(count - 1), TRACK);
    strokeLine(ctx, theme.text, SCRUBBER_EDGE, TRACK, x, TRACK);
    fillBox(ctx, css(theme.text, 0.7), x - 0.5, 0, 1, TRACK);
    const curves = [
      [layout.loss, layout.lossRange, theme.muted],
      [layout.score, layout.scoreRange, scoreColour()]
    ];
    for (const [values, range, colour] of curves) {
      const from = Math.floor(place);
      const value = values[from] + (place > from ? (values[from + 1] - values[from]) * (place - from) : 0);
      if (!Number.isFinite(value)) continue;
      fillDisc(ctx, theme.page, x, yOf(value, range), 5);
      fillDisc(ctx, colour, x, yOf(value, range), 3.5);
    }
    fillDisc(ctx, theme.page, x, TRACK, 9);
    fillDisc(ctx, theme.text, x, TRACK, 7);
    if (layout.said === i) return;
    layout.said = i;
    stepAt.replaceChildren("step ");
    element("b", "num", stepName(i), stepAt);
    lossAt.value.textContent = lossText(i);
    scoreAt.value.textContent = scoreText(i);
    const loss = lossAt.node.hidden ? "" : `, ${head.loss} ${lossText(i)}`;
    const measure = scoreAt.node.hidden ? "" : `, ${scoreLabel()} ${scoreText(i)}`;
    strip.ariaValueNow = `${i}`;
    const happened = event ? `, after step ${exactStep(event.step)}: ${event.says}` : "";
    strip.ariaValueText = `step ${stepName(i)}${loss}${measure}${happened}`;
  }
  stop();

  return {
    load(newHead, newArrays) {
      // a live run's film grows: stay at the step that is shown
      const at = shown == null ? null : steps[now()];
      head = newHead;
      arrays = newArrays;
      steps = arrays.steps;
      count = steps.length;
      shares = sharesOf(steps);
      isEven = shares.every((share, i) => Math.abs(share * (steps[count - 1] - steps[0]) - steps[i] + steps[0]) < 0.5);
      strip.title = isEven ? "" : "One tick is one record, the numbers are training steps.";
      told = -1;
      if (at == null) return;
      shown = nearestStep(steps, at);
      if (dragging || playing || waiting) tellFrame(shown);
    },
    draw() {
      if (waiting && !dragging && !playing && part.cue.seen >= part.sent) settle();
      const loss = [...arrays.loss];
      const scores = loss.map((_, i) => score(i));
      const { scale } = part.cue;
      const scoreRange = scale ? [scale.lo, scale.hi] : spanOf(scores);
      layout = { width: strip.clientWidth, loss, score: scores, lossRange: spanOf(loss), scoreRange };
      layout.words = placesOf(base.getContext("2d"), part.cue.events);
      layout.rows = Math.max(0, ...[...layout.words.values()].map(({ row }) => row + 1));
      lossAt.node.hidden = !loss.some(Number.isFinite);
      scoreAt.node.hidden = !scores.some(Number.isFinite);
      readout.style.cssText = `--score: ${css(scoreColour())}`;
      lossAt.name.textContent = head.loss;
      scoreAt.name.textContent = scoreLabel();
      noteAt.textContent = part.cue.heads_off ? "recorded with all heads on" : isEven ? "" : "1 tick = 1 record";
      noteAt.hidden = !noteAt.textContent;
      strip.ariaValueMax = `${count - 1}`;
      drawBase();
      drawOver(sized(over, layout.width, SCRUBBER_HEIGHT));
      const fields = [{ name: "step", text: stepName, exact: (i) => `${steps[i]}` }];
      if (!lossAt.node.hidden) fields.push({ name: head.loss, text: lossText, exact: (i) => exactOf(loss[i]) });
      if (!scoreAt.node.hidden) fields.push({ name: scoreLabel(), text: scoreText, exact: (i) => exactOf(scores[i]) });
      const at = (step) => part.cue.events.filter((event) => nearestStep(steps, event.step) === step);
      const happened = (i) =>
        at(i)
          .map(({ label }) => label)
          .join(", ");
      if (part.cue.events.length) fields.push({ name: "event", text: happened, exact: happened });
      const columns = fields.map(({ name }) => name);
      const rows = (kind) => () => loss.map((_, i) => fields.map((field) => field[kind](i)));
      tableOf(alt, "Show as table", columns, rows("text"), { columns, rows: rows("exact") });
    },
    end() {
      stop();
      stopHearing();
      document.removeEventListener("keydown", onKey);
      tellNothing();
    }
  };
}
