// All heads on one canvas: a strip coloured by the measure (label and value when they fit) over the pooled pattern; or,
// slim, one after the other as cards, and of many the patterns alone.
// With switches a head is taken out of the model: by its switch, by o, or several by Shift and drag.
// While a scrubber tells frames, their patterns and values are drawn; its own payload again once the host caught up.

/**
 * As tracer.pictures.atlas packs it.
 * @typedef {Header & { measures: string[], causal: boolean[], factors: number[], layers: string[] }} AtlasHeader
 */

const LEVELS = 39; // of a payload's thumbnails; those of a frame are brought down to as many
const LABELLED = 72; // pixels of a tile from which on it has a label, a role and a switch
const CARD = { least: 128, most: 220, high: 52, picture: 40, gap: 8, margin: 6, rows: 2, row: 9, swiped: 150 }; // slim
const PHONE = 640; // pixels of a page below which cards scroll
const ALL_ON = "with all heads on";
const SLIM = { most: 40, height: 112, between: 6 }; // of more heads than that

export default (args) => live(args, makeAtlas);

/** @param {Part} part @returns {View} */
function makeAtlas(part) {
  const { root } = part;
  const stage = element("div", "stage", null, root);
  const canvas = element("canvas", "", null, stage);
  const over = element("div", "ring hover", null, stage);
  const ring = element("div", "ring chosen", null, stage);
  const legends = element("div", "legends", null, root);
  const scoreKey = element("div", "legend", null, legends);
  const shareKey = element("div", "legend", null, legends);
  const focused = element("p", "focused", null, root);
  const about = element("span", "", null, focused);
  // one for all draws: it may be in focus; the key `o` presses it where it does not show, too
  const turner = button("turn", null, focused, () => held() && turn(held(), !isOff(held())));
  const alt = element("details", "alt", null, root);
  const spoken = element("div", "sr", null, root);
  const tip = tipIn(stage);
  spoken.ariaLive = "polite";
  Object.assign(canvas, { role: "application", tabIndex: 0 });
  /** @type {AtlasHeader} */
  let head;
  let arrays;
  let layers;
  let heads;
  let layout;
  let sheet; // every pattern at once
  let sheetKey;
  let pixels;
  let tile; // rows and columns of one pattern on the sheet
  let seats; // of a layer, its heads from left to right
  let line; // slim: all heads, one after the other
  let lit; // the heads that fit what is looked for
  let brought = ""; // the card in focus that was scrolled to
  let gone = []; // heads that were off when that was looked at
  let brush = null; // what dragging with Shift makes of a head: off, or on

  const playing = followFilm(part, () => {
    if (!layout) return;
    paint(canvas.getContext("2d"));
    if (!focused.hidden) sayFocused(held());
  });
  const unnamed = { unit: "", lo: 0, hi: 1, digits: 2, chance: null, palette: "score" };
  /** @returns {Scale} */
  const scaleOf = (name) => part.cue.scales[name] ?? { label: name, ...unnamed };
  const measure = () => Math.max(0, head.measures.indexOf(part.cue.measure));
  function film() {
    const frame = playing.frame();
    return frame?.layers === layers && frame?.heads === heads ? frame : null;
  }
  const own = (m, layer, one) => arrays.values[(m * layers + layer) * heads + one];
  const value = (m, layer, one) => (film() ? film().value(head.measures[m], layer, one) : own(m, layer, one));
  const fits = (one) => !lit || lit.has(String(one));
  const exists = (one) => hasHead(arrays.there, layers, heads, one); // layers differ in their number of heads
  const hasSwitches = () => !!part.cue.value?.off;
  const chosen = () => (hasSwitches() ? part.cue.value.head : part.cue.value);
  /** The measure whose number a tile has: the score of its role, and where nobody speaks of roles the chosen one. */
  const numberedBy = (one) => (hasScores() ? (scoreOf(roleOf(one)) ?? lostScoreOf(one)) : head.measures[measure()]);
  const scoreOf = (role) => part.cue.roles.measures[role];
  const lostScoreOf = (one) => (isAnew() ? scoreOf(lostOf(one)) : undefined);
  /** With heads off: is all that is said of heads computed anew, or was it recorded with all heads on? */
  const isAnew = () => part.cue.scored === "anew" && !film();
  const isOfAllOn = () => !!part.cue.scored && !isAnew();
  const hasScores = () => Object.keys(part.cue.roles?.measures ?? {}).length > 0;
  function numberFor(name, /** @type {number[]} */ [layer, one]) {
    const m = head.measures.indexOf(name);
    return m < 0 ? Number.NaN : value(m, layer, one);
  }
  /** In words, by what a head is called; empty where nothing is said of it. */
  function roleOf(/** @type {number[]} */ [layer, one]) {
    const { roles } = part.cue;
    const code = film() ? film().role(layer, one) : (roles?.codes[layer][one] ?? ROLE_UNSAID);
    if (!roles || code === ROLE_UNSAID) return "";
    return { [NO_ROLE]: "no role", [ROLE_UNKNOWN]: "role unknown" }[code] ?? roles.labels[code - 1];
  }
  /** By what a head was called before and is no more; empty where by nothing. */
  function lostOf(/** @type {number[]} */ [layer, one]) {
    const { roles } = part.cue;
    const code = film() ? film().lost(layer, one) : (roles?.lost[layer][one] ?? NO_ROLE);
    return roles?.labels[code - 1] ?? "";
  }
  /** What its number says of a head with a role: 2 back. */
  function detailOf(/** @type {number[]} */ one) {
    const [name, after] = part.cue.roles?.details?.[roleOf(one)] ?? [];
    const number = numberFor(name, one);
    return Number.isFinite(number) ? `${Math.round(number)} ${after}` : "";
  }
  const wholeRoleOf = (one) => [roleOf(one), detailOf(one)].filter(Boolean).join(", ");
  /** The role, and what a head was before, as it is spoken. */
  const rolesOf = (one) => [wholeRoleOf(one), ...wasOf(one)].filter(Boolean).join(", ");
  function wasOf(one) {
    const lost = lostOf(one);
    const was = isAnew() ? `${lost} ${ALL_ON}` : `was ${lost}`;
    return [lost && was, isOfAllOn() && roleOf(one) && `recorded ${ALL_ON}`];
  }
  const rolesIn = (one) => ({ role: roleOf(one), lost: lostOf(one), muted: isOfAllOn() || isOff(one) });
  const held = () => (chosen() && exists(chosen()) ? chosen() : null);
  const isOff = (one) => (part.cue.value?.off ?? part.cue.off ?? []).some((other) => String(other) === String(one));
  const allHeads = () => Array.from({ length: layers * heads }, (_, i) => [Math.floor(i / heads), i % heads]);
  const isByMeasure = () => part.cue.order === "measure";

  /** Paints every pattern once; keys that the query cannot see stay transparent. */
  function paintSheet(lut, { thumbs, rows, cols, factors, causal }, /** @type {number[]} */ [poolQ, poolK], levels) {
    const [high, wide] = [Math.ceil(rows / poolQ), Math.ceil(cols / poolK)];
    const [full, tall] = [heads * wide, layers * high];
    if (pixels?.width !== full || pixels.height !== tall) {
      pixels = new ImageData(full, tall);
      sheet = new OffscreenCanvas(full, tall);
    }
    const words = new Uint32Array(pixels.data.buffer);
    const inks = inksOf(lut, (code) => Math.round((Math.round((code * levels) / 255) * 255) / levels));
    const top = new Uint8Array(high * wide);
    const [tokensQ, tokensK] = [poolQ * factors[0], poolK * factors[1]]; // in a pixel of the sheet
    words.fill(0);
    allHeads().forEach(([layer, one], i) => {
      if (!exists([layer, one])) return;
      const start = i * rows * cols;
      const alone = poolQ * poolK === 1;
      const from = alone ? thumbs : pooled(thumbs, start, [rows, cols], [poolQ, poolK], top);
      for (let q = 0; q < high; q++) {
        const at = (alone ? start : 0) + q * wide;
        const to = (layer * high + q) * full + one * wide;
        const end = causal[layer] ? Math.min(wide, Math.ceil(((q + 1) * tokensQ) / tokensK)) : wide;
        for (let k = 0; k < end; k++) words[to + k] = inks[from[at + k]];
      }
    });
    tile = [high, wide];
    sheet.getContext("2d").putImageData(pixels, 0, 0);
  }
  function layOut(width) {
    if (part.cue.slim) {
      layOutSlim(width);
      return;
    }
    const roomy = Math.min(part.cue.max_cell, Math.floor((width - (heads - 1) * 10) / heads));
    const labels = roomy >= LABELLED;
    const close = (width - 30) / heads < 18 ? 2 : 4;
    const cell = labels ? roomy : Math.max(6, Math.floor((width - 30 - (heads - 1) * close) / heads));
    const narrow = cell >= 34 ? 15 : cell < 14 ? 4 : isByMeasure() ? 12 : 6;
    const [left, top, gap, strip] = labels ? [2, 2, 10, 22] : [28, 18, close, narrow];
    const foot = labels && part.cue.roles ? footOf(cell) : 0;
    layout = { labels, cell, wide: cell, left, top, gap, strip, foot, high: cell + strip + foot };
    layout.switchAt = labels ? [cell - SWITCH.margin - SWITCH.width, strip + SWITCH.margin] : null;
    layout.width = left + heads * (cell + gap) - gap + 2;
    layout.height = top + layers * (layout.high + gap) - gap + 2;
  }
  /** Cards in a row, or in two that a phone scrolls; more heads are patterns alone, whole layers beside each other. */
  function layOutSlim(width) {
    line = allHeads().filter(exists);
    const fit = Math.floor((width - 4 + CARD.gap) / (CARD.least + CARD.gap));
    const needed = Math.ceil(line.length / Math.max(1, fit));
    const scrolls = needed > CARD.rows && width < PHONE && line.length <= CARD.rows * CARD.row;
    const cards = needed <= CARD.rows || scrolls;
    if (cards) {
      const { gap, margin, high } = CARD;
      const rows = scrolls ? Math.ceil(line.length / CARD.row) : needed;
      const [columns, strip] = [Math.ceil(line.length / rows), (high - CARD.picture) / 2];
      const wide = scrolls ? CARD.swiped : Math.min(CARD.most, Math.floor((width - 4 + gap) / columns) - gap);
      const edge = scrolls ? 4 : 2; // what scrolls cuts the frame around a card
      layout = {
        cards,
        scrolls,
        cell: CARD.picture,
        wide,
        high,
        gap,
        strip,
        columns,
        left: edge,
        top: edge,
        between: 0
      };
      layout.switchAt = [wide - margin - SWITCH.width, margin];
    } else {
      line = allHeads();
      const lay = (cell) => {
        const gap = cell < 14 ? 2 : 4;
        const most = Math.max(1, Math.floor((width - 4 + gap) / (cell + gap)));
        const layersOf = (room) => Math.floor((room + SLIM.between) / (heads * (cell + gap) + SLIM.between));
        const columns = heads > most ? most : Math.max(1, layersOf(width - 4 + gap)) * heads;
        return { cell, wide: cell, high: cell, gap, columns, strip: 0, left: 2, top: 2, between: SLIM.between };
      };
      const highOf = ({ columns, high, gap }) => Math.ceil(line.length / columns) * (high + gap);
      let cell = SLIM.most;
      while (cell > 6 && highOf(lay(cell)) > SLIM.height) cell--;
      layout = { cards, switchAt: null, ...lay(cell) };
    }
    layout.places = new Map(line.map((one, i) => [String(one), i]));
    layout.width = layout.scrolls ? layout.columns * (layout.wide + layout.gap) : width;
    layout.height = Math.ceil(line.length / layout.columns) * (layout.high + layout.gap) - layout.gap + 2 * layout.top;
  }
  function corner(/** @type {number[]} */ [layer, one]) {
    const { left, top, cell, gap, high } = layout;
    if (part.cue.slim) {
      const i = layout.places.get(`${layer},${one}`); // of 1,024 heads it is asked at every move of the mouse
      const column = i % layout.columns;
      const apart = Math.floor(column / heads) * layout.between;
      return [left + column * (layout.wide + gap) + apart, top + Math.floor(i / layout.columns) * (high + gap)];
    }
    return [left + seats[layer].indexOf(one) * (cell + gap), top + layer * (high + gap)];
  }
  function place(node, one) {
    node.style.display = one ? "block" : "none";
    if (!one) return;
    const [x, y] = corner(one);
    const box = { left: x, top: y, width: layout.wide, height: layout.high };
    for (const [side, size] of Object.entries(box)) node.style[side] = `${size}px`;
  }
  function under(event) {
    const { left, top, cell, gap, high } = layout;
    const [x, y] = pointIn(canvas, event);
    if (part.cue.slim) {
      const isAt = (one) =>
        corner(one).every((from, axis) => {
          const [at, size] = axis ? [y, layout.high] : [x, layout.wide];
          return at >= from && at < from + size;
        });
      return line.find((one) => exists(one) && isAt(one)) ?? null;
    }
    const seat = Math.floor((x - left + gap / 2) / (cell + gap));
    const layer = Math.floor((y - top + gap / 2) / (high + gap));
    const one = [layer, seats[layer]?.[seat] ?? -1];
    return exists(one) ? one : null;
  }
  function describe(one) {
    const values = head.measures.map((name, m) => {
      const scale = scaleOf(name);
      return `${scale.label} ${numberOf(value(m, one[0], one[1]), scale)}`;
    });
    const role = rolesOf(one) ? `, ${rolesOf(one)}` : "";
    const note = `${role}${isOff(one) ? ", switched off" : ""}${fits(one) ? "" : ", does not fit what is looked for"}`;
    return `${headName(one)}: ${values.join(", ")}${note}`;
  }
  /** What a card says and does of the selected head, below patterns that have no room for it. */
  function sayFocused(one) {
    const name = numberedBy(one) ?? head.measures[measure()];
    const scale = name ? scaleOf(name) : null;
    const number = scale && !isOff(one) ? `${scale.label} ${numberOf(numberFor(name, one), scale)}` : "";
    about.textContent = [headName(one), wholeRoleOf(one), isOff(one) ? "off" : number].filter(Boolean).join(" · ");
    turner.textContent = isOff(one) ? "On again" : "Switch off";
  }
  function choose(one, wait) {
    part.send(hasSwitches() ? { head: one, off: part.cue.value.off } : one, wait);
    place(ring, one);
    spoken.textContent = describe(one);
  }
  function turn(one, off, wait = 0) {
    if (isOff(one) === off) return;
    const others = part.cue.value.off.filter((other) => String(other) !== String(one));
    part.send({ head: chosen(), off: off ? [...others, one] : others }, wait);
    tip.hidden = true; // what it said of the switch
    spoken.textContent = `${headName(one)} is ${off ? "off" : "on"}`;
    part.draw();
  }
  /** Is the pointer on the switch of this head, or so near that a finger means it? */
  function isOnSwitch(event, one) {
    if (!hasSwitches() || !layout.switchAt) return false;
    const [x, y] = pointIn(canvas, event).map((at, axis) => at - corner(one)[axis] - layout.switchAt[axis]);
    if (layout.scrolls) return x >= -2 * SWITCH.margin; // as high as its card: for a thumb
    return x >= -SWITCH.margin && y >= -SWITCH.margin && y <= SWITCH.height + SWITCH.margin;
  }

  canvas.onpointermove = (event) => {
    const hit = layout && under(event);
    place(over, hit);
    tip.hidden = !hit || layout.scrolls;
    if (tip.hidden) return;
    if (brush !== null && event.buttons) turn(hit, brush, 120);
    else brush = null;
    const [layer, one] = hit;
    const describeIn = (node) => {
      element("b", "num", headName(hit), node);
      if (isOnSwitch(event, hit)) {
        element("div", "how", isOff(hit) ? "Click: on again" : "Click: out of the model", node);
        return;
      }
      if (head.layers.length) element("div", "path", head.layers[layer], node);
      const facts = head.measures.map((name, m) => {
        const scale = scaleOf(name);
        const text = numberOf(value(m, layer, one), scale) + (scale.unit ? ` ${scale.unit}` : "");
        return [scale.label, text, m === measure() ? "on" : ""];
      });
      if (lostOf(hit)) facts.unshift([isAnew() ? "All heads on" : "Was", lostOf(hit), ""]);
      if (roleOf(hit)) facts.unshift(["Role", wholeRoleOf(hit), isNamed(roleOf(hit)) ? "on" : ""]);
      factsIn(node, facts);
      if (isOfAllOn()) element("div", "how", `Recorded ${ALL_ON}`, node);
      if (!hasSwitches()) return;
      element("div", "how", `Shift and click switches it ${isOff(hit) ? "on" : "off"}`, node);
    };
    const [x, y] = corner(hit);
    const slim = !!part.cue.slim; // beside one are the switches of others
    showTip(tip, stage, slim ? x - layout.wide - 14 : x, y, describeIn, [layout.wide, layout.high], slim);
  };
  canvas.onpointerleave = () => {
    tip.hidden = true;
    place(over, null);
  };
  canvas.onpointerdown = (event) => {
    const hit = event.shiftKey && hasSwitches() && !event.button && layout && under(event);
    if (!hit) return;
    brush = !isOff(hit);
    turn(hit, brush, 120);
  };
  canvas.onclick = (event) => {
    const hit = layout && under(event);
    if (!hit || (event.shiftKey && hasSwitches())) return;
    if (isOnSwitch(event, hit)) turn(hit, !isOff(hit));
    else choose(hit, 0);
  };
  canvas.onkeydown = (event) => {
    if (event.key === "o" && !isModified(event) && hasSwitches() && held()) {
      event.preventDefault(); // the page has the same key
      turn(held(), !isOff(held()));
    }
    const ends = isModified(event) ? {} : { Home: [0, 1], End: [0, -1] };
    const way = arrowOf(event) ?? ends[event.key];
    if (!way) return;
    event.preventDefault();
    tip.hidden = true;
    place(over, null);
    if (!held()) {
      const first = allHeads().find(exists);
      if (first) choose(first, 140);
      return;
    }
    if (part.cue.slim) {
      const one = along(way, !!ends[event.key]);
      if (one) choose(one, 140);
      return;
    }
    let [layer, seat] = [held()[0], seats[held()[0]].indexOf(held()[1])]; // as it is seen
    if (ends[event.key]) seat = way[1] > 0 ? -1 : heads;
    const next = () => [layer, seats[layer]?.[seat] ?? -1];
    do {
      layer += way[0];
      seat += way[1];
    } while (seat >= 0 && layer >= 0 && seat < heads && layer < layers && !exists(next()));
    if (exists(next())) choose(next(), 140);
  };

  /** Scrolls to the card in focus and to one that goes off, once: then it is the reader who does. */
  function scroll() {
    const off = allHeads().filter(isOff).map(String);
    const fresh = off.find((one) => !gone.includes(one));
    gone = off;
    if (held() && String(held()) !== brought) bringIntoSight(held());
    brought = String(held());
    if (fresh) bringIntoSight(fresh.split(",").map(Number));
  }
  function bringIntoSight(one) {
    const [x] = corner(one);
    const isIn = x >= stage.scrollLeft && x + layout.wide <= stage.scrollLeft + stage.clientWidth;
    if (!isIn) stage.scrollLeft = x - (stage.clientWidth - layout.wide) / 2;
  }
  /** Slim: the head that a key leads to, past those that do not exist. */
  function along(/** @type {number[]} */ [down, right], toEnd) {
    const there = line.filter(exists);
    if (toEnd) return there.at(right > 0 ? 0 : -1); // onwards from there
    const at = line.findIndex((one) => String(one) === String(held()));
    if (down) return [line[at + down * layout.columns]].find((one) => one && exists(one)) ?? null;
    return there[there.findIndex((one) => String(one) === String(held())) + right] ?? null;
  }

  function paint(ctx) {
    playing.settle();
    const { theme } = part;
    const { cell } = layout;
    const [, , rows, cols] = arrays.thumbs.shape;
    const frame = film();
    const source = frame ?? { ...head, thumbs: arrays.thumbs, rows, cols };
    const pool = [source.rows, source.cols].map((size) => Math.ceil(size / (cell * devicePixelRatio)));
    const want = `${frame ? `${frame.version} ${frame.index}` : head.version} ${theme.mode} ${pool}`;
    if (sheetKey !== want) paintSheet(rampOf("attention", theme.mode), source, pool, frame ? LEVELS : 255);
    sheetKey = want;
    ctx.clearRect(0, 0, layout.width, layout.height);
    ctx.imageSmoothingEnabled = (cell * devicePixelRatio) / Math.max(...tile) < 2;
    ctx.imageSmoothingQuality = "low";
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    if (part.cue.slim) {
      for (const one of line) drawSlim(ctx, one);
      return;
    }
    const font = layout.labels ? 11.5 : 9.5;
    ctx.font = `600 ${font}px ${theme.mono}`;
    const letter = ctx.measureText("0").width; // all are as wide, and measuring takes long
    const name = head.measures[measure()];
    const scale = name ? scaleOf(name) : null;
    // a change of font takes longer than a word
    const numbers = allHeads().map((one) => drawHead(ctx, one, scale, letter));
    const named = layout.labels || (isByMeasure() && cell >= 14);
    const look = { font: `400 ${font}px ${theme.mono}`, align: named ? "right" : "center" };
    for (const number of numbers.filter(Boolean))
      writeText(ctx, number.text, number.x, number.y, { ...look, colour: number.ink });
    if (!layout.labels) drawNames(ctx);
  }
  /** A head as it stands in a slim atlas. */
  function drawSlim(ctx, one) {
    const { theme } = part;
    const { cards, cell, wide, high, strip, switchAt } = layout;
    const [[layer, index], [x, y], [tall, across]] = [one, corner(one), tile];
    fillRound(ctx, exists(one) ? theme.line : css(theme.faint, 0.6), x, y, wide, high, 4);
    if (!exists(one)) return;
    fillRound(ctx, theme.page, x + 1, y + 1, wide - 2, high - 2, 3);
    const [left, top, size] = cards ? [x + strip, y + strip, cell] : [x + 1, y + 1, cell - 2];
    // half a pixel in: a smoothed edge would show the next pattern's
    const [inset, x0, y0] = [Math.min(tall, across) > 4 ? 0.5 : 0, index * across, layer * tall];
    const from = [x0 + inset, y0 + inset, across - 2 * inset, tall - 2 * inset];
    ctx.drawImage(sheet, ...from, left, top, size, size);
    const gone = isOff(one);
    if (gone) hatch(ctx, theme, left, top, size, size);
    if (!cards) return;
    const words = left + cell + 2;
    const look = { colour: theme.text, font: `600 11.5px ${theme.mono}`, align: "left" };
    writeText(ctx, headName(one), words + 6, y + 15, look);
    drawRole(ctx, theme, rolesIn(one), words, y + high - FOOT - 5, x + wide - words);
    if (hasSwitches()) drawSwitch(ctx, theme, x + switchAt[0], y + switchAt[1] + 2, gone);
  }
  function drawHead(ctx, one, scale, letter) {
    // returns the number that it has room for
    const { theme } = part;
    const { cell, strip, foot, high, labels } = layout;
    const [layer, index] = one;
    const [x, y] = corner(one);
    const scores = scale && rampOf(scale.palette, theme.mode);
    if (!exists(one)) {
      fillRound(ctx, css(theme.faint, 0.6), x, y, cell, high, 4);
      return null;
    }
    const gone = isOff(one);
    const number = scale && !gone ? value(measure(), layer, index) : Number.NaN;
    const isMeasured = Number.isFinite(number);
    const code = isMeasured ? Math.round(255 * clamp((number - scale.lo) / (scale.hi - scale.lo), 0, 1)) : 0;
    fillRound(ctx, theme.line, x, y, cell, high, 4);
    fillBox(ctx, theme.page, x + 1, y + strip, cell - 2, cell - 1);
    fillRound(ctx, isMeasured ? scores.tints[code] : theme.faint, x, y, cell, strip, [4, 4, 0, 0]);
    const [tall, wide] = tile;
    ctx.drawImage(sheet, index * wide, layer * tall, wide, tall, x + 1, y + strip, cell - 2, cell - 1);
    if (gone) hatch(ctx, theme, x + 1, y + strip, cell - 2, cell - 1);
    const own = numberedBy(one);
    const text = gone ? "off" : own ? numberOf(numberFor(own, one), { ...scaleOf(own), plain: true }) : "";
    const beside = text && foot === FOOT ? text.length * letter + 6 : 0;
    if (foot) drawRole(ctx, theme, rolesIn(one), x, y + high - foot, cell, foot, beside);
    if (hasSwitches() && labels) drawSwitch(ctx, theme, x + layout.switchAt[0], y + layout.switchAt[1], gone);
    const dim = !fits(one);
    if (dim) fillRound(ctx, css(theme.page, 0.75), x - 1, y - 1, cell + 2, high + 2, 4);
    if (isOfAllOn()) fillRound(ctx, css(theme.page, 0.85), x + 1, y + 1, cell - 2, strip - 1, [3, 3, 0, 0]);
    const ink = dim || isOfAllOn() ? css(theme.muted) : isMeasured ? scores.inks[code] : inkOn(theme.faint);
    const named = labels || (isByMeasure() && cell >= 14);
    const label = labels ? headName(one) : `${index}`;
    const margin = labels ? 6 : 3;
    const middle = y + strip / 2 + 0.5;
    if (named) writeText(ctx, label, x + margin, middle, { colour: ink });
    if (foot) {
      const quiet = dim || isOfAllOn() || gone;
      const at = { x: x + cell - margin, y: y + high - FOOT / 2 + 0.5 };
      return scale && text ? { ink: css(quiet ? theme.muted : theme.text), text, ...at } : null;
    }
    const taken = (named ? label.length * letter + 2 * margin + (labels ? 2 : 0) : 0) + (labels ? 0 : margin);
    if (!scale || !text || strip <= 6 || text.length * letter > cell - taken) return null;
    return { ink, text, x: named ? x + cell - margin : x + cell / 2, y: middle };
  }
  function drawNames(ctx) {
    // of columns and rows, where the strips have no room for them
    const { theme } = part;
    const { left, cell, high } = layout;
    const look = { colour: theme.muted, font: `400 10.5px ${theme.mono}`, align: "center" };
    if (isByMeasure())
      writeText(ctx, "strongest first", left, 9, { ...look, font: `400 10.5px ${theme.sans}`, align: "left" });
    else
      for (let one = 0; one < heads; one += cell < 14 ? 2 : 1)
        writeText(ctx, cell >= 24 ? `H${one}` : `${one}`, corner([0, one])[0] + cell / 2, 9, look);
    for (let layer = 0; layer < layers; layer++) {
      const [, y] = corner([layer, seats[layer][0]]);
      writeText(ctx, `L${layer}`, left - 6, y + high / 2, { ...look, align: "right" });
    }
  }

  function seatsOf(layer) {
    const all = Array.from({ length: heads }, (_, one) => one);
    if (!isByMeasure() || !head.measures.length) return all;
    return strongestFirst(all.map((one) => (exists([layer, one]) ? own(measure(), layer, one) : null)));
  }
  function nameAll(scale) {
    // for a screen reader
    const every = allHeads().filter(exists);
    const found = every.filter(fits);
    const names = found.length && found.length <= 12 ? `: ${found.map(headName).join(", ")}` : "";
    const looked = lit ? ` ${found.length} of them fit what is looked for${names}.` : "";
    const order = isByMeasure() && scale ? `, the strongest by ${scale.label.toLowerCase()} first` : "";
    const off = allHeads().filter(isOff).map(headName);
    const gone = off.length ? ` Switched off: ${off.join(", ")}.` : "";
    const how = hasSwitches() ? "Arrow keys move the selection, o switches the selected head off and on." : "";
    const now = held() ? `Selected ${describe(held())}` : "Nothing selected";
    const what = `${every.length} attention heads in ${layers} layers${order}.${looked}`;
    canvas.ariaLabel = `${what}${gone} ${how || "Arrow keys move the selection."} ${now}`;
  }
  function writeTable() {
    const switched = hasSwitches() || part.cue.off ? ["off"] : [];
    const roled = part.cue.roles ? ["role"] : [];
    const columns = [
      "head",
      ...(lit ? ["fits"] : []),
      ...switched,
      ...roled,
      ...head.measures.map((name) => scaleOf(name).label)
    ];
    const row = (one) => {
      const values = head.measures.map((_, m) => numberOf(own(m, one[0], one[1]), { digits: 3 }));
      const gone = switched.map(() => (isOff(one) ? "yes" : "no"));
      return [
        headName(one),
        ...(lit ? [fits(one) ? "yes" : "no"] : []),
        ...gone,
        ...roled.map(() => rolesOf(one)),
        ...values
      ];
    };
    const seated = () => seats.flatMap((line, layer) => line.map((one) => [layer, one]));
    tableOf(alt, "Show as table", columns, () => seated().filter(exists).map(row));
  }

  return {
    load(newHead, newArrays) {
      head = newHead;
      arrays = newArrays;
      [layers, heads] = arrays.thumbs.shape;
      sheetKey = "";
    },
    draw() {
      const name = head.measures[measure()];
      const scale = name ? scaleOf(name) : null;
      lit = part.cue.lit && new Set(part.cue.lit.map(String));
      seats = Array.from({ length: layers }, (_, layer) => seatsOf(layer));
      layOut(root.clientWidth);
      paint(sized(canvas, layout.width, layout.height));
      place(ring, held());
      root.classList.toggle("swiped", !!layout.scrolls);
      if (layout.scrolls) scroll();
      nameAll(scale);
      scoreKey.hidden = !scale;
      legends.hidden = !!part.cue.slim;
      root.classList.toggle("slim", legends.hidden);
      focused.hidden = !part.cue.slim || layout.cards || !held();
      turner.hidden = !hasSwitches() || !held();
      if (!focused.hidden) sayFocused(held());
      const { mode } = part.theme;
      const notes = [scale && chanceNote(scale), isOfAllOn() && `recorded ${ALL_ON}`];
      if (scale) legend(scoreKey, scale, rampOf(scale.palette, mode), { note: notes.filter(Boolean).join(", ") });
      const [factorQ, factorK] = head.factors;
      const note = factorQ * factorK > 1 ? `brightest of ${factorQ} × ${factorK} tokens` : "";
      attentionLegend(shareKey, rampOf("attention", mode), { note });
      writeTable();
    },
    end: playing.stop
  };
}
