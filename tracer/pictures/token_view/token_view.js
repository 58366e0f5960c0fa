// The prompt as text, shaded by what one token does (through one head, or through all on average), and a square for
// every head: the strongest link of that token. Tokens are counted from the start of this page in here, of the prompt
// outside.

const HEAD_GAP = 3; // between the squares of heads

export default (args) => live(args, makeTokenView);

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
  spoken.ariaLive = "polite";
  Object.assign(text, { role: "radiogroup", ariaLabel: "Tokens of the prompt: arrow keys pin one, Escape unpins it" });
  Object.assign(canvas, { role: "application", tabIndex: 0 });
  /** @type {TokenViewHeader} */
  let head;
  let links;
  let spans = [];
  let short = []; // tokens as they fit into a square
  let lut;
  let layout;
  let telling = 0;
  /** @type {Asked} */
  const asked = { back: false, mean: false, weighted: false, bare: false };
  let mean = false; // chosen, and in force unless a head is under the mouse
  let hover = null;
  let told = null; // the cell that another part points at
  let tried = null; // the head under the mouse

  const playing = followFilm(part, () => layout && paint());
  const inHere = (position) => (position != null && spans[position - head.start] ? position - head.start : null);
  const held = () => inHere(part.cue.value[0]);
  // the token that goes on; the first, which all see
  const rest = () => (asked.back ? Math.min(+asked.bare, spans.length - 1) : spans.length - 1);
  const active = () => hover ?? told?.[+asked.back] ?? held() ?? rest();
  const quoted = (node, i) => quote(node, head.tokens[i], head.start + i);
  function say(i, found) {
    const among = head.part ? ", of these tokens," : "";
    const { back, bare, film } = asked;
    readout.replaceChildren();
    if (film) element("span", "soft", `step ${exactStep(playing.frame().step)} · `, readout);
    quoted(readout, i);
    readout.append(asked.mean ? ", on average over all heads, " : " through ");
    if (!asked.mean) element("b", "num", headName(asked.head), readout);
    if (!found.length) readout.append(back ? " is looked at by no token here" : " looks at nothing here");
    const first = back ? ` is looked at most${among} by ` : ` looks most${among} at `;
    for (const [rank, [value, j]] of found.entries()) {
      if (rank && value < 0.005) continue;
      readout.append(rank ? ", then " : first);
      quoted(readout, j);
      readout.append(" ");
      element("span", "num", numberOf(value), readout);
    }
    const left = bare && !back && !film && links.isKnown(asked.head[0]) ? links.shareLeft(i) : Number.NaN;
    if (Number.isNaN(left)) return;
    const percent = numberOf(100 * (1 - left), { digits: 0, plain: true });
    element("span", "soft", ` · ${percent} % went to the first token and is left out`, readout);
  }
  function paint() {
    // everything that moves with the mouse
    playing.settle(head.step === part.cue.step); // the bytes of the step itself have come
    Object.assign(asked, { mean: mean && !tried, head: tried ?? part.cue.value[1] });
    asked.film = links.filmOf(playing.frame());
    const i = active();
    const found = links.linksOf(i);
    const ready = links.isKnown(asked.head[0]);
    const other = told && hover == null ? told[+!asked.back] : found[0]?.[1];
    say(i, found);
    spans.forEach((span, j) => {
      const blind = asked.back ? links.isLater(j, i) : links.isLater(i, j);
      const tint = ready && !blind ? tintOf(links.link(i, j)) : 0;
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
    return found;
  }
  function point(i) {
    if (i === hover) return;
    hover = i;
    const other = paint()[0]?.[1];
    const [query, key] = asked.back ? [other, i] : [i, other];
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
      span.ariaChecked = `${i === now}`;
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
    const places = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: spans.length - 1, Enter: i, " ": i };
    const beside = arrowOf(event)?.[0];
    if (i < 0 || (!beside && places[key] === undefined)) return;
    event.preventDefault();
    const j = beside ? tokenBeside(spans, i, beside) : clamp(places[key], 0, spans.length - 1);
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
      span.role = "radio";
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
    const wide = Math.min(104, Math.floor((every.clientWidth - left + HEAD_GAP) / links.heads) - HEAD_GAP);
    const high = wide >= 60 ? 40 : Math.max(12, Math.min(wide, 30));
    if (layout?.wide !== wide) short = [];
    const width = left + links.heads * (wide + HEAD_GAP);
    layout = { left, top: 18, wide, high, width, height: 18 + links.layers * (high + HEAD_GAP) };
  }
  function drawHead(ctx, one, i) {
    const { theme } = part;
    const { wide, high } = layout;
    const [x, y] = corner(one);
    const [value, j] = links.strongest(i, one);
    const tint = tintOf(value);
    fillRound(ctx, links.exists(one) ? lut.tints[tint] : css(theme.faint, 0.5), x, y, wide, high, 4);
    if (!links.exists(one) || wide < 26) return;
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
    if (!links.exists(one)) return;
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
    const { layers, heads } = links;
    const ctx = canvas.getContext("2d");
    title.replaceChildren(asked.back ? "Most attention to " : "Strongest attention of ");
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
    ring(ctx, part.cue.value[1], theme.text);
  }
  canvas.onpointermove = (event) => {
    if (!layout) return; // not drawn yet
    const [x, y] = pointIn(canvas, event);
    const layer = Math.floor((y - layout.top) / (layout.high + HEAD_GAP));
    const one = Math.floor((x - layout.left) / (layout.wide + HEAD_GAP));
    const now = links.exists([layer, one]) ? [layer, one] : null;
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
    if (links.exists(next)) focusOn(next, 140);
  };

  const ask = (name, options, set) =>
    choice("ways", name, options, bar, (i) => {
      set(i === 1);
      part.draw();
    });
  const ways = ask("What the shading shows", ["Where it looks", "Who looks at it"], (on) => (asked.back = on));
  const eyes = ask("Through which head", ["", "All heads"], (on) => (mean = on));
  const kinds = ask("What counts", ["Attention", "Value-weighted"], (on) => (asked.weighted = on));
  const [sink] = ask("The first token", ["Without the first token"], () => (asked.bare = !asked.bare));
  function markChoices() {
    press(ways, +asked.back);
    press(eyes, +mean);
    press(kinds, +asked.weighted);
    sink.ariaPressed = `${asked.bare}`;
    eyes[0].textContent = headName(part.cue.value[1]);
    const focused = `Arrow keys move the head in focus, ${headName(part.cue.value[1])}.`;
    canvas.ariaLabel = `What each of ${links.every.length} heads does with the token. ${focused}`;
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
      const [first] = links.linksOf(i, 1);
      let most = [0, null];
      for (const one of links.every) {
        const [value, j] = links.strongest(i, one);
        if (value > most[0]) most = [value, `${headName(one)} ${named(j)}`];
      }
      const own = first ? [named(first[1]), numberOf(first[0])] : ["–", "–"];
      return [named(i), ...own, ...(most[1] ? [most[1], numberOf(most[0])] : ["–", "–"])];
    };
    const columns = [
      "token",
      asked.back ? "looked at most by" : "looks most at",
      "share",
      "head with the strongest link",
      "share"
    ];
    tableOf(alt, "Show as table", columns, () => head.tokens.map((_, i) => row(i)));
  }

  return {
    load(newHead, arrays) {
      head = newHead;
      links = newLinks(head, arrays, asked);
      hover = told = tried = layout = null;
      short = [];
      kinds[0].parentElement.hidden = !arrays.norms.length;
      asked.weighted &&= arrays.norms.length > 0;
      write();
    },
    draw() {
      lut = rampOf("attention", part.theme.mode);
      layOut();
      for (const span of spans) span.tint = null;
      sized(canvas, layout.width + 2, layout.height + 2);
      markChoices();
      mark();
      paint();
      const notes = [
        asked.weighted && "attention × the length of what is read, each row made to sum to 1 again",
        asked.bare && "first token left out, the rest made to sum to 1"
      ];
      const label = asked.weighted ? "Value-weighted" : "Attention";
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
