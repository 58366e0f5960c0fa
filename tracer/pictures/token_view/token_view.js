// The prompt as text, shaded by what one token does (through one head, or through all on average), and a square for
// every head: the strongest link of that token. Tokens are counted from the start of this page in here, of the prompt
// outside.

/**
 * As tracer.pictures.reading packs it.
 * @typedef {Header & { tokens: string[], texts: string[], start: number, part: boolean, apart: boolean,
 *   triangle: boolean, causal: boolean[], layers: number[] }} TokenViewHeader
 */

const HEAD_GAP = 3; // between the squares of heads

export default function (args) {
  return live(args, makeTokenView);
}

/** The largest links, most first. @param {Iterable<number[]>} links [share, token] */
function largestLinks(links, count) {
  const best = [];
  for (const link of links) {
    if (link[0] <= 0 || (best.length === count && link[0] <= best[count - 1][0])) continue;
    best.push(link);
    best.sort((a, b) => b[0] - a[0]);
    best.length = Math.min(best.length, count);
  }
  return best;
}

/**
 * The token above (-1) or below (1) another on the screen.
 * @param {{ offsetTop: number, offsetLeft: number }[]} spans
 */
function tokenBeside(spans, i, way) {
  const spot = spans[i];
  let line = null;
  let best = i;
  const far = (j) => Math.abs(spans[j].offsetLeft - spot.offsetLeft);
  for (let j = i + way; j >= 0 && j < spans.length; j += way) {
    if (Math.abs(spans[j].offsetTop - spot.offsetTop) < 6) continue;
    line ??= spans[j].offsetTop;
    if (Math.abs(spans[j].offsetTop - line) > 6) break;
    if (best === i || far(j) < far(best)) best = j;
  }
  return best;
}

/** @param {Part} part @returns {View} */
function makeTokenView(part) {
  const { root } = part;
  const bar = element("div", "choices", null, root);
  const readout = element("p", "readout", null, root);
  const both = element("div", "both", null, root);
  const reader = element("div", "reader", null, both);
  const text = element("div", "text", null, reader);
  const every = element("div", "every", null, both);
  const title = element("div", "name", null, every);
  const canvas = element("canvas", "", null, element("div", "stage", null, every));
  const key = element("div", "legend", null, element("div", "legends", null, reader));
  const alt = element("details", "alt", null, root);
  const spoken = element("div", "sr", null, root);
  spoken.setAttribute("aria-live", "polite");
  text.setAttribute("role", "radiogroup");
  canvas.tabIndex = 0;
  /** @type {TokenViewHeader} */
  let head;
  let arrays;
  let count; // of tokens
  let cells; // of a pattern
  let slots; // heads whose patterns are here
  let layers;
  let heads;
  let spans = [];
  let short = []; // tokens as they fit into a square
  let lut;
  let layout;
  let telling = 0;
  let back = false; // who looks at a token, instead of where it looks
  let mean = false; // of all heads
  let weighted = false; // by the length of the value
  let bare = false; // without the first token
  let hover = null;
  let told = null; // the cell that another part points at
  let tried = null; // the head under the mouse

  const playing = followFilm(() => layout && paint());
  const isInside = (i) => i >= 0 && i < count;
  const inHere = (position) => (position != null && isInside(position - head.start) ? position - head.start : null);
  const held = () => inHere(part.cue.value[0]);
  // the token that goes on; the first, which all see
  const rest = () => (back ? Math.min(+bare, count - 1) : count - 1);
  const active = () => hover ?? told?.[+back] ?? held() ?? rest();
  const eye = () => tried ?? part.cue.value[1];
  const isMean = () => mean && !tried;
  const kind = () => 2 * +weighted + +bare;
  const cellOf = (q, k) => (head.triangle ? (q * (q + 1)) / 2 + k : q * count + k);
  const decode = (code) => (arrays.shares instanceof Uint16Array ? code / (MISSING - 1) : shareOfCode(code));
  const exists = (one) => hasHead(arrays.there, layers, heads, one);
  // all its links?
  const isKnown = (layer) => !!film() || isMean() || (layer >= head.layers[0] && layer < head.layers[1]);
  const isLater = (q, k) => k > q && (isMean() ? head.causal.every(Boolean) : head.causal[eye()[0]]);
  const slotOf = ([layer, one]) => (layer - head.layers[0]) * heads + one;
  const allHeads = () =>
    Array.from({ length: layers * heads }, (_, i) => [Math.floor(i / heads), i % heads]).filter(exists);
  function film() {
    // a step that a scrubber plays, token by token
    const frame = playing.frame();
    if (!frame || weighted || frame.layers !== layers || frame.heads !== heads) return null;
    return [...frame.n, frame.rows, frame.cols].every((size) => size === count) ? frame.thumbs : null;
  }
  function sum(which, q, slot = isMean() ? slots : slotOf(eye())) {
    // of what a query pays, as `which` kind counts it
    return arrays.sums[(which * (slots + 1) + slot) * count + q];
  }
  function shareThrough(/** @type {number[]} */ [layer, one], q, k) {
    if ((head.triangle && k > q) || (bare && head.start + k === 0)) return 0;
    const thumbs = film();
    const row = ((layer * heads + one) * count + q) * count;
    const slot = slotOf([layer, one]);
    const norm = weighted ? arrays.norms[slot * count + k] : 1;
    const raw = thumbs ? shareOfCode(thumbs[row + k]) : decode(arrays.shares[slot * cells + cellOf(q, k)]) * norm;
    const total = thumbs ? 1 - (bare ? shareOfCode(thumbs[row]) : 0) : sum(kind(), q, slot);
    return total > 0 ? Math.min(1, raw / total) : 0;
  }
  function share(q, k) {
    if (!isMean()) return shareThrough(eye(), q, k);
    if (!film()) return head.triangle && k > q ? 0 : decode(arrays.means[kind() * cells + cellOf(q, k)]);
    const all = allHeads();
    return all.reduce((total, one) => total + shareThrough(one, q, k), 0) / all.length;
  }
  const link = (i, j) => (back ? share(j, i) : share(i, j));
  function strongest(i, one) {
    // [share, token] of any head, whether its pattern is here or not
    if (film()) {
      let best = [0, i];
      for (let j = 0; j < count; j++) {
        const value = back ? shareThrough(one, j, i) : shareThrough(one, i, j);
        if (value > best[0]) best = [value, j];
      }
      return best;
    }
    const [, kinds] = arrays.strongest.shape;
    const cell = (((+back * kinds + kind()) * layers + one[0]) * heads + one[1]) * count + i;
    return [arrays.strongest[cell] / (MISSING - 1), arrays.at[cell]];
  }
  function linksOf(i, most = 3) {
    // the strongest links of a token
    if (!isKnown(eye()[0])) return largestLinks([strongest(i, eye())], 1);
    return largestLinks(
      spans.map((_, j) => [link(i, j), j]),
      most
    );
  }

  const quoted = (node, i) => quote(node, head.tokens[i], head.start + i);
  function say(i, links) {
    const among = head.part ? ", of these tokens," : "";
    readout.replaceChildren();
    if (film()) element("span", "soft", `step ${exactStep(playing.frame().step)} · `, readout);
    quoted(readout, i);
    readout.append(isMean() ? ", on average over all heads, " : " through ");
    if (!isMean()) element("b", "num", headName(eye()), readout);
    if (!links.length) readout.append(back ? " is looked at by no token here" : " looks at nothing here");
    const first = back ? ` is looked at most${among} by ` : ` looks most${among} at `;
    for (const [rank, [value, j]] of links.entries()) {
      if (rank && value < 0.005) continue;
      readout.append(rank ? ", then " : first);
      quoted(readout, j);
      readout.append(" ");
      element("span", "num", numberOf(value), readout);
    }
    if (!bare || back || film() || !isKnown(eye()[0]) || !(sum(kind() - 1, i) > 0)) return;
    const gone = 100 * (1 - sum(kind(), i) / sum(kind() - 1, i));
    const percent = numberOf(gone, { digits: 0, plain: true });
    element("span", "soft", ` · ${percent} % went to the first token and is left out`, readout);
  }
  function paint() {
    // everything that moves with the mouse
    playing.settle(head.step === part.cue.step); // the bytes of the step itself have come
    const i = active();
    const links = linksOf(i);
    const ready = isKnown(eye()[0]);
    const other = told && hover == null ? told[+!back] : links[0]?.[1];
    say(i, links);
    spans.forEach((span, j) => {
      const blind = back ? isLater(j, i) : isLater(i, j);
      const tint = ready && !blind ? tintOf(link(i, j)) : 0;
      if (span.tint !== tint) {
        span.tint = tint;
        span.style.background = tint > 5 ? lut.tints[tint] : "";
        span.style.color = tint > 5 ? lut.inks[tint] : "";
      }
      const names = [
        "token",
        j === i && "focus",
        j === held() && "held",
        j !== i && j !== held() && j === other && "other"
      ];
      const className = [...names, blind && j !== i && "blind"].filter(Boolean).join(" ");
      if (span.className !== className) span.className = className;
    });
    drawEvery(i);
    return links;
  }
  function point(i) {
    if (i === hover) return;
    hover = i;
    const other = paint()[0]?.[1];
    const [query, key] = back ? [other, i] : [i, other];
    const cell = i == null || other == null ? null : { query: head.start + query, key: head.start + key, source: part };
    clearTimeout(telling); // what others draw of it must not hold up what is under the mouse
    telling = setTimeout(() => tell("cursor", cell), 40);
  }
  function hold(i, wait = 0) {
    hover = null;
    part.send([i == null ? null : head.start + i, part.cue.value[1]], wait);
    mark();
    paint();
    spoken.textContent = readout.textContent;
  }
  function mark() {
    const now = held();
    spans.forEach((span, i) => {
      span.setAttribute("aria-checked", `${i === now}`);
      span.tabIndex = i === (now ?? rest()) ? 0 : -1;
    });
  }
  function focusOn(one, wait) {
    tried = null;
    mean = false;
    part.send([part.cue.value[0], one], wait);
    markChoices();
    paint();
    spoken.textContent = readout.textContent;
  }

  text.onkeydown = (event) => {
    if (isModified(event)) return;
    if (event.key === "Escape") hold(null);
    const i = spans.indexOf(event.target);
    const { key } = event;
    const places = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: count - 1, Enter: i, " ": i };
    const beside = arrowOf(event)?.[0];
    if (i < 0 || (!beside && places[key] === undefined)) return;
    event.preventDefault();
    const j = beside ? tokenBeside(spans, i, beside) : clamp(places[key], 0, count - 1);
    hold(j === held() && places[key] === i ? null : j, 160);
    spans[j].focus();
  };
  text.onpointerleave = () => point(null);
  function write() {
    text.replaceChildren();
    text.classList.toggle("apart", head.apart);
    spans = head.texts.map((string, i) => {
      const span = element("span", "token", null, text);
      string.split("\n").forEach((line, k) => {
        if (k) {
          element("i", "", null, span);
          span.append("\n");
        }
        span.append(line);
      });
      span.setAttribute("role", "radio");
      span.ariaLabel = `${head.start + i} ${head.tokens[i]}`;
      span.onpointerenter = () => point(i);
      span.onclick = () => hold(i === held() ? null : i);
      return span;
    });
  }

  const corner = ([layer, one]) => [
    layout.left + one * (layout.wide + HEAD_GAP),
    layout.top + layer * (layout.high + HEAD_GAP)
  ];
  function layOut() {
    const left = 24;
    const wide = Math.min(104, Math.floor((every.clientWidth - left + HEAD_GAP) / heads) - HEAD_GAP);
    const high = wide >= 60 ? 40 : Math.max(12, Math.min(wide, 30));
    if (layout?.wide !== wide) short = [];
    const width = left + heads * (wide + HEAD_GAP);
    layout = { left, top: 18, wide, high, width, height: 18 + layers * (high + HEAD_GAP) };
  }
  function drawHead(ctx, one, i) {
    const { theme } = part;
    const { wide, high } = layout;
    const [x, y] = corner(one);
    const [value, j] = strongest(i, one);
    const tint = tintOf(value);
    fillRound(ctx, exists(one) ? lut.tints[tint] : css(theme.faint, 0.5), x, y, wide, high, 4);
    if (!exists(one) || wide < 26) return;
    const middle = x + wide / 2;
    const tall = high === 40; // room for the token too
    ctx.fillStyle = lut.inks[tint];
    if (tall) {
      ctx.font = `500 11.5px ${theme.mono}`;
      short[j] ??= clipped(ctx, head.tokens[j], wide - 12);
      ctx.fillText(value ? short[j] : "–", middle, y + 13);
    }
    ctx.font = `400 10.5px ${theme.mono}`;
    if (value || !tall) ctx.fillText(numberOf(value, { plain: true }), middle, y + (tall ? 28 : high / 2 + 0.5));
  }
  function ring(ctx, one, colour) {
    if (!exists(one)) return;
    const [x, y] = corner(one);
    ctx.lineWidth = 2;
    for (const [style, out] of [
      [part.theme.page, 0],
      [colour, 1]
    ]) {
      ctx.strokeStyle = css(style);
      ctx.beginPath();
      ctx.roundRect(x - out, y - out, layout.wide + 2 * out, layout.high + 2 * out, 3 + out);
      ctx.stroke();
    }
  }
  function drawEvery(i) {
    const { theme } = part;
    const { wide, high } = layout;
    const ctx = canvas.getContext("2d");
    title.replaceChildren(back ? "Most attention to " : "Strongest look of ");
    quoted(title, i);
    title.append(", in every head");
    ctx.clearRect(0, 0, layout.width + 4, layout.height + 4);
    const look = { colour: theme.muted, font: `400 10.5px ${theme.mono}`, align: "center", baseline: "middle" };
    for (let one = 0; one < heads; one++) {
      const [x] = corner([0, one]);
      if (wide >= 20 || one % 2 === 0) writeText(ctx, wide >= 24 ? `H${one}` : `${one}`, x + wide / 2, 8, look);
    }
    for (let layer = 0; layer < layers; layer++)
      writeText(ctx, `L${layer}`, 10, corner([layer, 0])[1] + high / 2, look);
    for (let layer = 0; layer < layers; layer++) for (let one = 0; one < heads; one++) drawHead(ctx, [layer, one], i);
    if (tried) ring(ctx, tried, theme.muted);
    ring(ctx, part.cue.value[1], theme.accent);
  }
  canvas.onpointermove = (event) => {
    const [x, y] = pointIn(canvas, event);
    const layer = Math.floor((y - layout.top) / (layout.high + HEAD_GAP));
    const one = Math.floor((x - layout.left) / (layout.wide + HEAD_GAP));
    const now = exists([layer, one]) ? [layer, one] : null;
    if (String(now) === String(tried)) return;
    tried = now;
    paint();
  };
  canvas.onpointerleave = () => {
    if (!tried) return;
    tried = null;
    paint();
  };
  canvas.onclick = (event) => {
    canvas.onpointermove(event);
    if (tried) focusOn(tried, 0);
  };
  canvas.onkeydown = (event) => {
    if (event.key === "Escape") hold(null);
    const way = arrowOf(event);
    if (!way) return;
    event.preventDefault();
    const next = part.cue.value[1].map((place, axis) => place + way[axis]);
    if (exists(next)) focusOn(next, 140);
  };

  function choice(label, options, set) {
    // a row of buttons of which one is pressed, or one that is pressed or not
    const group = element("div", "ways", null, bar);
    group.setAttribute("role", "group");
    group.setAttribute("aria-label", label);
    return options.map((option, i) =>
      button("", option, group, () => {
        set(!!i);
        part.draw();
      })
    );
  }
  const ways = choice("What the shading shows", ["Where it looks", "Who looks at it"], (on) => {
    back = on;
  });
  const eyes = choice("Through which head", ["", "All heads"], (on) => {
    mean = on;
  });
  const kinds = choice("What counts", ["Attention", "Value-weighted"], (on) => {
    weighted = on;
  });
  const [sink] = choice("The first token", ["Without the first token"], () => {
    bare = !bare;
  });
  function markChoices() {
    for (const [pair, second] of /** @type {[HTMLElement[], boolean][]} */ ([
      [ways, back],
      [eyes, mean],
      [kinds, weighted]
    ]))
      for (const [i, one] of pair.entries()) one.setAttribute("aria-pressed", `${!!i === second}`);
    sink.setAttribute("aria-pressed", `${bare}`);
    eyes[0].textContent = headName(part.cue.value[1]);
  }
  const stopHearing = hear("cursor", (cell) => {
    if (cell?.source === part || !layout) return;
    const spot = cell && [inHere(cell.query), inHere(cell.key)];
    const next = spot && !spot.includes(null) ? spot : null;
    if (String(next) === String(told)) return;
    told = next;
    paint();
  });

  function writeTable() {
    const named = (i) => `${head.start + i} \u2068${head.tokens[i]}\u2069`;
    const row = (i) => {
      const [first] = linksOf(i, 1);
      let most = [0, null];
      for (const one of allHeads()) {
        const [value, j] = strongest(i, one);
        if (value > most[0]) most = [value, `${headName(one)} ${named(j)}`];
      }
      const own = first ? [named(first[1]), numberOf(first[0])] : ["–", "–"];
      return [named(i), ...own, ...(most[1] ? [most[1], numberOf(most[0])] : ["–", "–"])];
    };
    const columns = [
      "token",
      back ? "looked at most by" : "looks most at",
      "share",
      "head with the strongest link",
      "share"
    ];
    tableOf(alt, "Show as table", columns, () => head.tokens.map((_, i) => row(i)));
  }

  return {
    load(newHead, newArrays) {
      head = newHead;
      arrays = newArrays;
      count = head.tokens.length;
      [layers, heads] = arrays.there.shape;
      slots = (head.layers[1] - head.layers[0]) * heads;
      cells = arrays.means.shape[1];
      hover = told = tried = layout = null;
      short = [];
      kinds[0].parentElement.hidden = !arrays.norms.length;
      weighted &&= arrays.norms.length > 0;
      write();
    },
    draw() {
      lut = lutOf(PALETTES.attention[part.theme.mode]);
      layOut();
      for (const span of spans) span.tint = null;
      sized(canvas, layout.width + 2, layout.height + 2);
      markChoices();
      mark();
      paint();
      text.setAttribute("aria-label", "Tokens of the prompt: arrow keys pin one, Escape unpins it");
      canvas.setAttribute("role", "application");
      const focused = `Arrow keys move the head in focus, ${headName(part.cue.value[1])}.`;
      const what = `What each of ${allHeads().length} heads does with the token.`;
      canvas.setAttribute("aria-label", `${what} ${focused}`);
      const notes = [
        weighted && "attention × the length of what is read, each row made to sum to 1 again",
        bare && "first token left out, the rest made to sum to 1"
      ];
      const label = weighted ? "Value-weighted" : "Attention";
      attentionLegend(key, lut, { label, note: notes.filter(Boolean).join("; ") });
      writeTable();
    },
    end() {
      stopHearing();
      playing.stop();
      clearTimeout(telling);
      if (hover != null) tell("cursor", null);
    }
  };
}
