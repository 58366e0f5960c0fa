// The prompt as text, shaded by what one token does (through one head, or through all on average), and a square for every
// head: the strongest link of that token. Tokens are counted from the start of this page in here, of the prompt outside.
export default function (args) { return live(args, makeTokenView); }

function makeTokenView(me) {
  const { root } = me;
  const bar = el("div", "choices", null, root), readout = el("p", "readout", null, root), both = el("div", "both", null, root);
  const reader = el("div", "reader", null, both), text = el("div", "text", null, reader);
  const every = el("div", "every", null, both), title = el("div", "name", null, every), stage = el("div", "stage", null, every), canvas = el("canvas", "", null, stage);
  const key = el("div", "legend", null, el("div", "legends", null, reader)), alt = el("details", "alt", null, root), spoken = el("div", "sr", null, root);
  spoken.setAttribute("aria-live", "polite"); text.setAttribute("role", "radiogroup"); canvas.tabIndex = 0;
  let head, arrays, n, cells, slots, layers, heads, spans = [], short = [], lut, geo, telling = 0;
  let back = false, mean = false, weighted = false, bare = false, hover = null, guest = null, tried = null, frame = null, ending = false, waiting = 0;

  const held = () => me.cue.value[0] == null ? null : inside(me.cue.value[0] - head.start), inside = (i) => (i >= 0 && i < n ? i : null);
  const active = () => hover ?? guest?.[back ? 1 : 0] ?? held() ?? rest();
  const rest = () => (back ? Math.min(+bare, n - 1) : n - 1); // the last token, from which the model goes on; the first, which all others see
  const eye = () => tried ?? me.cue.value[1], average = () => mean && !tried, kind = () => 2 * weighted + bare;
  const at = (q, k) => (head.triangle ? (q * (q + 1)) / 2 + k : q * n + k), decode = (code) => (arrays.shares instanceof Uint16Array ? code / 65534 : (code / 255) ** 2);
  const there = ([l, h]) => l >= 0 && h >= 0 && l < layers && h < heads && arrays.there[l * heads + h] > 0;
  const known = (l) => !!film() || average() || (l >= head.layers[0] && l < head.layers[1]); // is its pattern here, not just its strongest links?
  const later = (q, k) => k > q && (average() ? head.causal.every(Boolean) : head.causal[eye()[0]]);
  const film = () => (frame && !weighted && [...frame.n, frame.rows, frame.cols].every((size) => size === n) && frame.layers === layers && frame.heads === heads ? frame.thumbs : null); // a step that a scrubber plays, token by token
  const slot = (l, h) => (l - head.layers[0]) * heads + h, sum = (which, q, i = average() ? slots : slot(...eye())) => arrays.sums[(which * (slots + 1) + i) * n + q];
  function of(q, k, l, h) { // what one head pays
    const f = film(), row = ((l * heads + h) * n + q) * n, i = slot(l, h);
    if ((head.triangle && k > q) || (bare && head.start + k === 0)) return 0;
    const raw = f ? (f[row + k] / 255) ** 2 : decode(arrays.shares[i * cells + at(q, k)]) * (weighted ? arrays.norms[i * n + k] : 1);
    const total = f ? 1 - (bare ? (f[row] / 255) ** 2 : 0) : sum(kind(), q, i);
    return total > 0 ? Math.min(1, raw / total) : 0;
  }
  function share(q, k) {
    if (!average()) return of(q, k, ...eye());
    if (!film()) return head.triangle && k > q ? 0 : decode(arrays.means[kind() * cells + at(q, k)]);
    let total = 0, count = 0;
    for (let l = 0; l < layers; l++) for (let h = 0; h < heads; h++) if (there([l, h])) { total += of(q, k, l, h); count++; }
    return total / count;
  }
  const link = (i, j) => (back ? share(j, i) : share(i, j));
  function strongest(i, [l, h]) { // [share, token] of any head, whether its pattern is here or not
    if (film()) {
      let best = [0, i];
      for (let j = 0; j < n; j++) { const v = back ? of(j, i, l, h) : of(i, j, l, h); if (v > best[0]) best = [v, j]; }
      return best;
    }
    const cell = ((((back ? 1 : 0) * arrays.strongest.shape[1] + kind()) * layers + l) * heads + h) * n + i;
    return [arrays.strongest[cell] / 65534, arrays.at[cell]];
  }
  function top(i, count = 3) { // the strongest links of a token, most first
    if (!known(eye()[0])) { const [v, j] = strongest(i, eye()); return v > 0 ? [[v, j]] : []; }
    const best = [];
    for (let j = 0; j < n; j++) {
      const v = link(i, j);
      if (v > 0 && (best.length < count || v > best[count - 1][0])) { best.push([v, j]); best.sort((a, b) => b[0] - a[0]); best.length = Math.min(best.length, count); }
    }
    return best;
  }

  function name(node, i) { el("code", "", "“", node).append(el("bdi", "", head.tokens[i]), "”"); node.append(` (${head.start + i})`); }
  function say(i, links) {
    const among = head.part ? ", of these tokens," : "";
    readout.replaceChildren();
    if (film()) el("span", "soft", `step ${frame.step.toLocaleString("en-US")} · `, readout);
    name(readout, i);
    readout.append(average() ? ", on average over all heads, " : " through "); if (!average()) el("b", "num", `L${eye()[0]}H${eye()[1]}`, readout);
    if (!links.length) readout.append(back ? " is looked at by no token here" : " looks at nothing here");
    links.filter(([v], rank) => !rank || v >= 0.005).forEach(([v, j], rank) => {
      readout.append(rank ? ", then " : back ? ` is looked at most${among} by ` : ` looks most${among} at `); name(readout, j); readout.append(" ");
      el("span", "num", numberOf(v, { digits: 2 }), readout);
    });
    if (bare && !back && !film() && known(eye()[0]) && sum(kind() - 1, i) > 0) el("span", "soft", ` · ${numberOf(100 * (1 - sum(kind(), i) / sum(kind() - 1, i)), { digits: 0, plain: true })} % went to the first token and is left out`, readout);
  }
  function paint() { // everything that moves with the mouse
    if (ending && head.step === me.cue.step) { frame = null; ending = false; } // the bytes of the step itself have come
    const i = active(), links = top(i), ready = known(eye()[0]), other = guest && hover == null ? guest[back ? 0 : 1] : links[0]?.[1];
    say(i, links);
    spans.forEach((span, j) => {
      const blind = back ? later(j, i) : later(i, j), tint = ready && !blind ? Math.round(255 * Math.sqrt(Math.min(1, link(i, j)))) : 0;
      if (span.tint !== tint) { span.tint = tint; span.style.background = tint > 5 ? lut.tints[tint] : ""; span.style.color = tint > 5 ? lut.inks[tint] : ""; }
      const cls = `token${j === i ? (j === held() ? " focus held" : " focus") : j === held() ? " held" : j === other ? " other" : ""}${blind && j !== i ? " blind" : ""}`;
      if (span.className !== cls) span.className = cls;
    });
    drawEvery(i);
    return links;
  }
  function point(i) {
    if (i === hover) return;
    hover = i;
    const links = paint(), j = links[0]?.[1];
    clearTimeout(telling); // what others draw of it must not hold up what is under the mouse
    telling = setTimeout(() => tell("cursor", i == null || j == null ? null : { query: head.start + (back ? j : i), key: head.start + (back ? i : j), source: me }), 40);
  }
  function hold(i, wait = 0) {
    hover = null; me.send([i == null ? null : head.start + i, me.cue.value[1]], wait);
    mark(); paint(); spoken.textContent = readout.textContent;
  }
  function mark() { const now = held(); spans.forEach((span, i) => { span.setAttribute("aria-checked", i === now); span.tabIndex = i === (now ?? rest()) ? 0 : -1; }); }
  function focusOn(one, wait) { tried = null; mean = false; me.send([me.cue.value[0], one], wait); buttons(); paint(); spoken.textContent = readout.textContent; }

  function beside(i, way) { // the token above or below on the screen
    const spot = spans[i]; let line = null, best = i;
    for (let j = i + way; j >= 0 && j < n; j += way) {
      if (Math.abs(spans[j].offsetTop - spot.offsetTop) < 6) continue;
      line ??= spans[j].offsetTop;
      if (Math.abs(spans[j].offsetTop - line) > 6) break;
      if (best === i || Math.abs(spans[j].offsetLeft - spot.offsetLeft) < Math.abs(spans[best].offsetLeft - spot.offsetLeft)) best = j;
    }
    return best;
  }
  text.onkeydown = (e) => {
    if (e.altKey || e.ctrlKey || e.metaKey) return;
    if (e.key === "Escape") { hold(null); return; }
    const i = spans.indexOf(e.target), to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: n - 1, ArrowUp: -1, ArrowDown: -1, Enter: i, " ": i }[e.key];
    if (i < 0 || to === undefined) return;
    e.preventDefault();
    const j = e.key === "ArrowUp" ? beside(i, -1) : e.key === "ArrowDown" ? beside(i, 1) : Math.min(n - 1, Math.max(0, to));
    hold(j === held() && j === to && to === i ? null : j, 160); spans[j].focus();
  };
  text.onpointerleave = () => point(null);
  function write() {
    text.replaceChildren(); text.classList.toggle("apart", head.apart);
    spans = head.texts.map((string, i) => {
      const span = el("span", "token", null, text);
      string.split("\n").forEach((line, k) => { if (k) { el("i", "", null, span); span.append("\n"); } span.append(line); });
      span.setAttribute("role", "radio"); span.ariaLabel = `${head.start + i} ${head.tokens[i]}`;
      span.onpointerenter = () => point(i); span.onclick = () => hold(i === held() ? null : i);
      return span;
    });
  }

  const corner = ([l, h]) => [geo.left + h * (geo.w + 3), geo.top + l * (geo.h + 3)];
  function layout() {
    const left = 24, w = Math.min(104, Math.floor((every.clientWidth - left + 3) / heads) - 3), h = w >= 60 ? 40 : Math.max(12, Math.min(w, 30));
    if (geo?.w !== w) short = [];
    return { left, top: 18, w, h, width: left + heads * (w + 3), height: 18 + layers * (h + 3) };
  }
  function drawEvery(i) {
    const { theme } = me, ctx = canvas.getContext("2d"), { w, h } = geo;
    title.replaceChildren(back ? "Most attention to " : "Strongest look of "); name(title, i); title.append(", in every head");
    ctx.clearRect(0, 0, geo.width + 4, geo.height + 4); ctx.textBaseline = "middle"; ctx.textAlign = "center";
    ctx.font = `400 10.5px ${theme.mono}`; ctx.fillStyle = css(theme.muted);
    for (let k = 0; k < heads; k++) if (w >= 20 || k % 2 === 0) ctx.fillText(w >= 24 ? `H${k}` : k, corner([0, k])[0] + w / 2, 8);
    for (let l = 0; l < layers; l++) ctx.fillText(`L${l}`, 10, corner([l, 0])[1] + h / 2);
    for (let l = 0; l < layers; l++) for (let k = 0; k < heads; k++) {
      const [x, y] = corner([l, k]), [v, j] = strongest(i, [l, k]), tint = Math.round(255 * Math.sqrt(v));
      ctx.fillStyle = there([l, k]) ? lut.tints[tint] : css(theme.faint, 0.5); ctx.beginPath(); ctx.roundRect(x, y, w, h, 4); ctx.fill();
      if (!there([l, k]) || w < 26) continue;
      ctx.fillStyle = lut.inks[tint];
      if (h === 40) {
        ctx.font = `500 11.5px ${theme.mono}`; ctx.fillText(v ? (short[j] ??= clipped(ctx, head.tokens[j], w - 12)) : "–", x + w / 2, y + 13);
      }
      ctx.font = `400 10.5px ${theme.mono}`; if (v || h < 40) ctx.fillText(numberOf(v, { plain: true }), x + w / 2, y + (h === 40 ? 28 : h / 2 + 0.5));
    }
    const ring = (one, colour) => { if (!there(one)) return; const [x, y] = corner(one); ctx.lineWidth = 2; ctx.strokeStyle = css(theme.page); ctx.beginPath(); ctx.roundRect(x, y, w, h, 3); ctx.stroke(); ctx.strokeStyle = css(colour); ctx.beginPath(); ctx.roundRect(x - 1, y - 1, w + 2, h + 2, 4); ctx.stroke(); };
    if (tried) ring(tried, theme.muted);
    ring(me.cue.value[1], theme.accent);
  }
  canvas.onpointermove = (e) => {
    const box = canvas.getBoundingClientRect(), one = [Math.floor((e.clientY - box.top - geo.top) / (geo.h + 3)), Math.floor((e.clientX - box.left - geo.left) / (geo.w + 3))], now = there(one) ? one : null;
    if (String(now) !== String(tried)) { tried = now; paint(); }
  };
  canvas.onpointerleave = () => { if (tried) { tried = null; paint(); } };
  canvas.onclick = (e) => { canvas.onpointermove(e); if (tried) focusOn(tried, 0); };
  canvas.onkeydown = (e) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[e.key], next = step && me.cue.value[1].map((v, axis) => v + step[axis]);
    if (e.key === "Escape") hold(null);
    if (!step || e.altKey || e.ctrlKey || e.metaKey) return;
    e.preventDefault(); if (there(next)) focusOn(next, 140);
  };

  function choice(label, options, set) { // a row of buttons of which one is pressed, or one that is pressed or not
    const group = el("div", "ways", null, bar);
    group.setAttribute("role", "group"); group.setAttribute("aria-label", label);
    return options.map((option, i) => Object.assign(el("button", "", option, group), { type: "button", onclick: () => { set(i); me.draw(); } }));
  }
  const ways = choice("What the shading shows", ["Where it looks", "Who looks at it"], (i) => { back = !!i; });
  const eyes = choice("Through which head", ["", "All heads"], (i) => { mean = !!i; });
  const kinds = choice("What counts", ["Attention", "Value-weighted"], (i) => { weighted = !!i; });
  const [sink] = choice("The first token", ["Without the first token"], () => { bare = !bare; });
  function buttons() {
    for (const [pair, second] of [[ways, back], [eyes, mean], [kinds, weighted]]) pair.forEach((b, i) => b.setAttribute("aria-pressed", !!i === second));
    sink.setAttribute("aria-pressed", bare); eyes[0].textContent = `L${me.cue.value[1][0]}H${me.cue.value[1][1]}`;
  }
  const deaf = [hear("frame", (told) => {
    ending = !told && frame != null; frame = told ?? frame;
    waiting ||= requestAnimationFrame(() => { waiting = 0; if (geo) paint(); });
  }), hear("cursor", (cell) => {
    if (cell?.source === me || !geo) return;
    const spot = cell && [inside(cell.query - head.start), inside(cell.key - head.start)], next = spot && !spot.includes(null) ? spot : null;
    if (String(next) !== String(guest)) { guest = next; paint(); }
  })];

  return {
    load(newHead, newArrays) {
      head = newHead; arrays = newArrays; n = head.tokens.length; [layers, heads] = arrays.there.shape; slots = (head.layers[1] - head.layers[0]) * heads; cells = arrays.means.shape[1];
      hover = guest = tried = null; short = []; geo = null; kinds[0].parentElement.hidden = !arrays.norms.length; weighted &&= arrays.norms.length > 0;
      write();
    },
    draw() {
      const { theme } = me;
      lut = lutOf(PALETTES.attention[theme.mode]); geo = layout(); spans.forEach((span) => { span.tint = null; });
      sized(canvas, geo.width + 2, geo.height + 2);
      buttons(); mark(); paint();
      text.setAttribute("aria-label", "Tokens of the prompt: arrow keys hold one, Escape releases it");
      canvas.setAttribute("role", "application"); canvas.setAttribute("aria-label", `What each of ${arrays.there.reduce((a, b) => a + b, 0)} heads does with the token. Arrow keys move the head in focus, L${me.cue.value[1][0]}H${me.cue.value[1][1]}.`);
      const notes = [weighted && "attention × the length of what is read, each row made to sum to 1 again", bare && "first token left out, the rest made to sum to 1"].filter(Boolean);
      legend(key, { label: weighted ? "Value-weighted" : "Attention", unit: "", lo: 0, hi: 1, digits: 2 }, lut, { root: Math.sqrt, ticks: [0, 0.05, 0.25, 1], note: notes.join("; ") });
      tableOf(alt, "Show as table", ["token", back ? "looked at most by" : "looks most at", "share", "head with the strongest link", "share"], () => head.tokens.map((_, i) => {
        const named = (j) => `${head.start + j} \u2068${head.tokens[j]}\u2069`, [first] = top(i, 1);
        let most = [0, null];
        for (let l = 0; l < layers; l++) for (let h = 0; h < heads; h++) { const [v, j] = strongest(i, [l, h]); if (there([l, h]) && v > most[0]) most = [v, `L${l}H${h} ${named(j)}`]; }
        return [named(i), first ? named(first[1]) : "–", first ? numberOf(first[0]) : "–", most[1] ?? "–", most[1] ? numberOf(most[0]) : "–"];
      }));
    },
    end() { deaf.forEach((stop) => stop()); cancelAnimationFrame(waiting); clearTimeout(telling); if (hover != null) tell("cursor", null); },
  };
}
