// A whole pattern in pooled blocks, drawn once; the window on a second canvas, so a drag redraws one rectangle.
// While a scrubber tells frames, the blocks are those of its frame.

/**
 * As tracer.pictures.overview packs it.
 * @typedef {Header & { label: string, causal: boolean, pool: "max" | "mean", sizes: number[], factors: number[],
 *   top: number }} OverviewHeader
 */

const OVERVIEW_TOP = 20; // room above the picture,
const OVERVIEW_FOOT = 38; // and below it
const LEAST_SIDE = 8; // the fewest tokens a side of a window

export default (args) => live(args, makeOverview);

/**
 * A window [first query, end, first key, end] moved inside the pattern, neither too large nor too small; of a causal
 * pattern mostly what is not masked.
 */
function settleWindow([q0, q1, k0, k1], { sizes, causal }, largest) {
  const [queries, keys] = [
    [q0, q1],
    [k0, k1]
  ].map(([from, to], axis) => {
    const most = Math.min(largest, sizes[axis]);
    const size = clamp(to - from, Math.min(LEAST_SIDE, most), most);
    const start = clamp(from, 0, sizes[axis] - size);
    return [start, start + size];
  });
  const late = causal ? Math.max(0, keys[0] - Math.floor((queries[0] + queries[1]) / 2)) : 0;
  return [...queries, keys[0] - late, keys[1] - late];
}

/** A drag from one token to another as a window; one at its largest is pulled along by the pointer. */
function draggedWindow(anchor, at, most) {
  const pulled = anchor.map((token, axis) => clamp(token, at[axis] - most[axis] + 1, at[axis] + most[axis] - 1));
  const sides = at.flatMap((token, axis) => [Math.min(token, pulled[axis]), Math.max(token, pulled[axis]) + 1]);
  return { anchor: pulled, window: sides };
}

/** @param {Part} part @returns {View} */
function makeOverview(part) {
  const { root } = part;
  const chosen = element("p", "chosen", null, root);
  const readout = element("p", "readout", null, root);
  const stage = element("div", "stage", null, root);
  const base = element("canvas", "", null, stage);
  const over = element("canvas", "", null, stage);
  const key = element("div", "legend", null, element("div", "legends", null, root));
  chosen.ariaLive = "polite";
  Object.assign(base, { role: "application", tabIndex: 0 });
  /** @type {OverviewHeader} */
  let head;
  let blocks;
  let rows;
  let cols;
  let layout;
  let baseKey;
  let drag = null;
  let hover = null;

  const playing = followFilm(part, () => {
    if (!layout || !part.cue.head) return;
    playing.settle();
    paint();
    drawOver();
    say();
  });
  const film = () => (part.cue.head ? playing.frame() : null);
  /** The blocks that are drawn: the pattern's, or those of a film's frame, which are the brightest of their tokens. */
  function drawn() {
    const frame = film();
    const { factors, size, pool, top } = frame
      ? { factors: frame.factors, size: [frame.rows, frame.cols], pool: "max", top: 1 }
      : { ...head, size: [rows, cols] };
    const played = frame && frameCodes({ ...frame, factors: [1, 1] }, part.cue.head);
    const code = played ?? ((row, col) => blocks[row * cols + col]);
    return { factors, size, pool, top, code, share: (row, col) => top * shareOfCode(code(row, col)) };
  }
  const range = (from, to) => (to - from > 1 ? `${from}–${to - 1}` : `${from}`);
  const words = ([q0, q1, k0, k1]) => `queries ${range(q0, q1)}, keys ${range(k0, k1)}`;
  const most = () => head.sizes.map((size) => Math.min(part.cue.largest, size));
  const settle = (window) => settleWindow(window, head, part.cue.largest);
  const current = () => drag?.window ?? (part.cue.value ? settle(part.cue.value) : null);
  function around(middle, sides) {
    const starts = middle.map((at, axis) => Math.round(at - sides[axis] / 2));
    return settle(starts.flatMap((start, axis) => [start, start + sides[axis]]));
  }
  function spotOf(event) {
    // the token under the pointer, on both axes
    const [x, y] = pointIn(base, event);
    const at = [(y - OVERVIEW_TOP) / layout.zoom[0], (x - layout.left) / layout.zoom[1]].map(Math.floor);
    const inside = at.every((token, axis) => token >= 0 && token < head.sizes[axis]);
    const token = at.map((place, axis) => clamp(place, 0, head.sizes[axis] - 1));
    return { at: token, inside, masked: head.causal && at[1] > at[0] };
  }
  // what a click chooses; the future is taken as the present
  const centred = ([q, k]) => around([q + 0.5, (head.causal ? Math.min(q, k) : k) + 0.5], most());

  function drawOver() {
    if (!layout) return; // not drawn yet
    const ctx = sized(over, layout.width, layout.height);
    const { theme } = part;
    const window = current();
    const boxOf = (/** @type {number[]} */ [q0, q1, k0, k1]) => {
      // at least 7 pixels a side, else nobody finds it
      const wide = Math.max(7, (k1 - k0) * layout.zoom[1]);
      const high = Math.max(7, (q1 - q0) * layout.zoom[0]);
      const x = layout.left + ((k0 + k1) / 2) * layout.zoom[1] - wide / 2;
      return { x, y: OVERVIEW_TOP + ((q0 + q1) / 2) * layout.zoom[0] - high / 2, wide, high };
    };
    if (hover && !drag) {
      // what a click would choose
      const { x, y, wide, high } = boxOf(centred(hover.at));
      ctx.setLineDash([3, 3]);
      strokeBox(ctx, css(theme.text, 0.6), 1, x, y, wide, high);
      ctx.setLineDash([]);
    }
    if (!window) return;
    const { x, y, wide, high } = boxOf(window);
    strokeBox(ctx, css(theme.page, 0.9), 4, x, y, wide, high);
    strokeBox(ctx, theme.text, 2, x, y, wide, high);
    fillBox(ctx, theme.text, layout.left - 6, y - 1, 3, high + 2);
    fillBox(ctx, theme.text, x - 1, OVERVIEW_TOP + layout.high + 3, wide + 2, 3);
  }
  function say() {
    if (drag?.moved) readout.replaceChildren(`New window: ${words(drag.window)}`);
    else if (!hover) readout.replaceChildren("Drag across the picture for a window, click to centre one.");
    else if (hover.masked) readout.replaceChildren("masked, later tokens");
    else sayBlock(hover.at);
  }
  function sayBlock(token) {
    const { factors, pool, share } = drawn();
    const single = factors[0] * factors[1] === 1;
    const block = token.map((place, axis) => Math.floor(place / factors[axis]));
    const named = (axis, name, plural) => {
      const [factor, size] = [factors[axis], head.sizes[axis]];
      const [from, to] = [block[axis] * factor, Math.min(size, (block[axis] + 1) * factor)];
      return `${to - from > 1 ? plural : name} ${range(from, to)}`;
    };
    const value = share(block[0], block[1]);
    const bound = single || pool === "mean" ? "" : "at most ";
    readout.replaceChildren(`${named(0, "query", "queries")} → ${named(1, "key", "keys")}: ${bound}`);
    const digits = value < 0.1 ? 3 : 2;
    element("span", "num", numberOf(value, { digits, plain: pool === "max" }), readout);
    if (!single && pool === "mean") readout.append(" on average");
  }
  function nameWindow() {
    // in words, beside the picture and in its name
    const window = current();
    const now = window ? `Window: ${words(window)}` : "No window chosen";
    if (chosen.textContent !== now) {
      chosen.replaceChildren(window ? element("b", "", "Window") : now);
      if (window) chosen.append(`: ${words(window)}`);
    }
    const [queries, keys] = head.sizes;
    base.ariaLabel =
      `Overview of the attention pattern of ${head.label || "a head"}: ${queries} queries, ${keys} keys. ` +
      "Arrow keys move the window by half, plus and minus zoom it, Home and End go to the ends of the diagonal. " +
      now;
  }
  function choose(window, wait = 0) {
    if (String(window) !== String(part.cue.value)) part.send(window, wait);
    drawOver();
    say();
    nameWindow();
  }

  base.onpointerdown = (event) => {
    if (!layout || event.button || !event.isPrimary) return;
    const here = spotOf(event);
    if (!here.inside) return;
    drag = { x: event.clientX, y: event.clientY, anchor: here.at, moved: false, window: null };
    base.setPointerCapture(event.pointerId);
  };
  base.onpointermove = (event) => {
    if (!layout) return;
    const here = spotOf(event);
    if (!drag) hover = here.inside ? here : null;
    else {
      if (!drag.moved && Math.hypot(event.clientX - drag.x, event.clientY - drag.y) < 4) return;
      hover = null;
      const { anchor, window } = draggedWindow(drag.anchor, here.at, most());
      Object.assign(drag, { moved: true, anchor, window: settle(window) });
    }
    drawOver();
    say();
  };
  base.onpointerup = (event) => {
    if (!drag) return;
    const { moved, window, anchor } = drag;
    drag = null;
    hover = event.pointerType === "mouse" ? spotOf(event) : null;
    choose(moved ? window : centred(anchor));
  };
  function drop() {
    drag = hover = null;
    if (!layout) return;
    drawOver();
    say();
  }
  base.onpointercancel = drop;
  base.onpointerleave = () => {
    if (!drag) drop();
  };
  base.onkeydown = (event) => {
    if (!layout || isModified(event)) return;
    if (event.key === "Escape") drop();
    const [q0, q1, k0, k1] = current() ?? around([0, 0], most());
    const sides = [q1 - q0, k1 - k0];
    const [queries, keys] = head.sizes;
    const way = arrowOf(event);
    const zoom = { "+": 0.5, "=": 0.5, "-": 2, _: 2 }[event.key];
    let next = null;
    if (way) {
      const [down, right] = way.map((to, axis) => to * Math.max(1, Math.floor(sides[axis] / 2)));
      next = [q0 + down, q1 + down, k0 + right, k1 + right];
    } else if (zoom) {
      const scaled = sides.map((side, axis) =>
        clamp(Math.round(side * zoom), Math.min(LEAST_SIDE, most()[axis]), most()[axis])
      );
      next = around([(q0 + q1) / 2, (k0 + k1) / 2], scaled);
    } else if (event.key === "Home") next = [0, sides[0], 0, sides[1]];
    else if (event.key === "End") next = [queries - sides[0], queries, keys - sides[1], keys];
    if (!next) return;
    event.preventDefault();
    hover = null;
    choose(settle(next), 140);
  };

  function layOut(ctx) {
    const [queries, keys] = head.sizes;
    const ratio = devicePixelRatio || 1;
    ctx.font = `400 11px ${part.theme.mono}`;
    const left = Math.ceil(ctx.measureText(`${queries}`).width) + 18;
    const room = Math.min(part.cue.max_size, root.clientWidth - left - 2);
    const shape = clamp(queries / keys, 0.25, 4);
    const [wide, high] = [room / shape, room * shape].map((side) => Math.round(Math.min(room, side) * ratio) / ratio);
    const height = OVERVIEW_TOP + high + OVERVIEW_FOOT;
    layout = { left, wide, high, width: left + wide + 2, height, zoom: [high / queries, wide / keys] };
  }
  function outline(ctx) {
    // of a causal pattern where the future begins
    const { left, wide, high } = layout;
    const foot = OVERVIEW_TOP + high;
    ctx.strokeStyle = css(part.theme.line);
    ctx.lineWidth = 1;
    ctx.beginPath();
    if (head.causal) {
      const square = Math.min(...head.sizes);
      const end = square * layout.zoom[1];
      ctx.moveTo(left, OVERVIEW_TOP);
      ctx.lineTo(left + end, OVERVIEW_TOP + square * layout.zoom[0]);
      ctx.lineTo(left + (end < wide - 0.5 ? end : wide), foot);
      ctx.lineTo(left, foot);
      ctx.closePath();
    } else ctx.rect(left - 0.5, OVERVIEW_TOP - 0.5, wide + 1, high + 1);
    ctx.stroke();
  }
  function drawAxes(ctx) {
    const { left, wide, high, zoom } = layout;
    const { theme } = part;
    const foot = OVERVIEW_TOP + high;
    outline(ctx);
    ctx.font = `400 11px ${theme.mono}`;
    const strides = [1, 10, 100, 1000, 1e4].flatMap((ten) => [1, 2, 5].map((times) => times * ten));
    head.sizes.forEach((size, axis) => {
      const stride = strides.find((tokens) => tokens * zoom[axis] >= (axis ? 56 : 40)) ?? size;
      for (let token = 0; token < size; token += stride) {
        const at = (token + 0.5) * zoom[axis];
        const half = ctx.measureText(`${token}`).width / 2;
        const look = { colour: theme.muted, align: axis ? "center" : "right", baseline: axis ? "top" : "middle" };
        if (axis) writeText(ctx, `${token}`, clamp(left + at, left + half, left + wide - half), foot + 9, look);
        else writeText(ctx, `${token}`, left - 10, OVERVIEW_TOP + clamp(at, 5, high - 5), look);
      }
    });
    const look = { colour: theme.muted, font: `400 11px ${theme.sans}`, align: "right", baseline: "top" };
    writeText(ctx, "key position →", left + wide, foot + 24, look);
    if (head.causal && wide > 180) writeText(ctx, "later tokens, masked", left + wide, OVERVIEW_TOP + 2, look);
    writeText(ctx, "query position ↓", 0, OVERVIEW_TOP - 8, { align: "left", baseline: "alphabetic" });
  }
  function paint() {
    // the picture under the window
    const lut = rampOf("attention", part.theme.mode);
    const { factors, size, pool: kind, top, code, share } = drawn();
    const [factorQ, factorK] = factors;
    const pool = Math.max(poolFor(size[0], layout.high), poolFor(size[1], layout.wide));
    const lift = Math.sqrt(top / head.top);
    const isLater = (q, k) => head.causal && k * factorK >= (q + 1) * factorQ;
    const tint = (q, k) => (isLater(q, k) ? -1 : Math.min(255, Math.round(code(q, k) * lift)));
    const image = heat(size[0], size[1], pool, tint, lut);
    const ctx = sized(base, layout.width, layout.height);
    ctx.save();
    ctx.beginPath();
    ctx.rect(layout.left, OVERVIEW_TOP, layout.wide, layout.high); // the last blocks may be short of tokens
    ctx.clip();
    const [wide, high] = [image.width * factorK * layout.zoom[1], image.height * factorQ * layout.zoom[0]];
    drawHeat(ctx, image, layout.left, OVERVIEW_TOP, pool * wide, pool * high);
    ctx.restore();
    drawAxes(ctx);
    const pooled = kind === "max" ? "brightest" : "mean";
    const blockNote = `${pooled} of ${factorQ} × ${factorK} tokens${film() ? " while it moves" : ""}`;
    attentionLegend(key, lut, { top: head.top, note: factorQ * factorK === 1 ? "" : blockNote });
    part.table = {
      columns: ["first query", "first key", kind === "max" ? "largest share" : "mean share"],
      rows: () => {
        const blocks = Array.from({ length: size[0] * size[1] }, (_, i) => [Math.floor(i / size[1]), i % size[1]]);
        return blocks.map(([row, col]) => [row * factors[0], col * factors[1], exactOf(share(row, col))]);
      }
    };
  }

  return {
    load(newHead, arrays) {
      head = newHead;
      blocks = arrays.blocks;
      [rows, cols] = blocks.shape;
      baseKey = "";
      drag = hover = null;
      playing.settle(true);
    },
    draw() {
      playing.settle();
      layOut(base.getContext("2d"));
      const { wide, high } = layout;
      const screen = [part.theme.mode, wide, high, devicePixelRatio, document.fonts?.status];
      const want = [head.version, ...screen, film()?.index, String(film() && part.cue.head)].join(" ");
      if (baseKey !== want) {
        baseKey = want;
        paint();
      }
      drawOver();
      say();
      nameWindow();
    },
    end: playing.stop
  };
}
