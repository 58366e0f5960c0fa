// The timeline of a run: play or drag through its snapshots. What it shows is told to the page, the host hears commits.
export default function (args) { return live(args, makeScrubber); }

function makeScrubber(me) {
  const { root } = me, NONE = 65535, EDGE = 9, TRACK = 50, calm = matchMedia("(prefers-reduced-motion: reduce)");
  const top = el("div", "top", null, root), play = Object.assign(el("button", "play", null, top), { type: "button" });
  const readout = el("p", "readout", null, top), stepAt = el("span", "step num", null, readout);
  const lossAt = el("span", "loss", null, readout), scoreAt = el("span", "score", null, readout);
  const [[lossName, lossValue], [scoreName, scoreValue]] = [lossAt, scoreAt].map((at) => { const name = el("span", "what", null, at); at.append(" "); return [name, el("span", "num", null, at)]; });
  const keys = el("span", "keys", null, top), strip = el("div", "strip", null, root), base = el("canvas", "", null, strip), over = el("canvas", "", null, strip);
  const alt = el("details", "alt", null, root);
  ["[", "]"].forEach((key) => { el("kbd", "", key, keys); keys.append(" "); }); keys.append("step  "); el("kbd", "", "space", keys); keys.append(" play");
  strip.tabIndex = 0; strip.setAttribute("role", "slider"); strip.setAttribute("aria-label", "Step of training"); keys.setAttribute("aria-hidden", "true");
  let head, arrays, steps, names, n = 0, shown = null, waiting = false, dragging = false, playing = 0, before = 0, told = -1, geo;

  // `shown` is where the reader is while it differs from what the host has drawn: a place between 0 and n - 1.
  const nearest = (step) => { let best = 0; for (let i = 1; i < n; i++) if (Math.abs(steps[i] - step) <= Math.abs(steps[best] - step)) best = i; return best; };
  const now = () => (shown == null ? nearest(me.cue.value) : Math.round(shown));
  const coded = (m, i, l, h) => { const a = arrays[`measure${m}`], [lo, hi] = head.ranges[m], c = a[(i * a.shape[1] + l) * a.shape[2] + h]; return c === NONE ? NaN : lo + (c / 65534) * (hi - lo); };
  const score = (i) => { const m = head.measures.indexOf(me.cue.measure); return m >= 0 && me.cue.head ? coded(m, i, ...me.cue.head) : NaN; };
  const stepText = (i) => names[i], scoreLabel = () => `L${me.cue.head?.[0]}H${me.cue.head?.[1]} ${(me.cue.scale?.label ?? "").toLowerCase()}`;
  const lossText = (i) => numberOf(arrays.loss[i], { digits: 2 }), scoreText = (i) => numberOf(score(i), { ...me.cue.scale, plain: true });

  function thumbsOf(f) { // of a live run they come a few snapshots at a time, each in a part of its own
    const size = head.cells.reduce((a, b) => a * b, 1), at = head.reel ? f % head.every : f;
    const codes = head.reel ? HUB.reels?.get(head.reel)?.get(f - at) : arrays.frames;
    return codes?.length >= (at + 1) * size ? codes.subarray(at * size, (at + 1) * size) : null;
  }
  function tellFrame(i) {
    const thumbs = told === i || arrays.film[i] === NONE ? null : thumbsOf(arrays.film[i]), [layers, heads, rows, cols] = head.cells;
    if (!thumbs) return;
    told = i;
    tell("frame", { index: i, step: steps[i], version: head.version, thumbs, layers, heads, rows, cols, n: head.n, factors: head.factors, causal: head.causal,
      value: (name, l, h) => { const m = head.measures.indexOf(name); return m < 0 ? NaN : coded(m, i, l, h); } });
  }
  function settle() { shown = null; waiting = false; told = -1; tell("frame", null); }
  function go(place) { shown = Math.min(n - 1, Math.max(0, place)); tellFrame(now()); drawOver(); }
  function stop() { cancelAnimationFrame(playing); playing = 0; play.setAttribute("aria-pressed", "false"); play.setAttribute("aria-label", "Play the training"); }
  function commit(wait = 0) {
    stop();
    if (shown == null) return;
    shown = now();
    if (me.cue.seen >= me.sent && shown === nearest(me.cue.value)) { settle(); drawOver(); return; }
    waiting = true; me.send(steps[shown], wait);
  }
  function cancel() { stop(); dragging = false; if (!waiting) settle(); drawOver(); }
  function start() {
    waiting = false; before = performance.now(); play.setAttribute("aria-pressed", "true"); play.setAttribute("aria-label", "Pause");
    go(now() === n - 1 ? 0 : now());
    const rate = calm.matches ? 4 : Math.min(24, Math.max(6, (n - 1) / 8)); // snapshots a second: a whole run in about 8
    const tick = (time) => {
      const next = shown + rate * Math.min(0.1, Math.max(0, time - before) / 1000);
      before = time; playing = requestAnimationFrame(tick); go(next);
      if (next >= n - 1) commit();
    };
    playing = requestAnimationFrame(tick);
  }
  const toggle = () => { if (playing) commit(); else start(); };
  const move = (by) => { stop(); go(now() + by); commit(160); };

  play.onclick = toggle;
  const placeOf = (e) => Math.round(((e.clientX - strip.getBoundingClientRect().left - EDGE) / (geo.width - 2 * EDGE)) * (n - 1));
  strip.onpointerdown = (e) => { if (e.button || !geo) return; stop(); strip.setPointerCapture(e.pointerId); dragging = true; waiting = false; go(placeOf(e)); };
  strip.onpointermove = (e) => { if (dragging) go(placeOf(e)); };
  strip.onpointerup = () => { if (dragging) { dragging = false; commit(); } };
  strip.onpointercancel = cancel;
  strip.onkeydown = (e) => {
    const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10, Home: -n, End: n }[e.key];
    if (e.altKey || e.ctrlKey || e.metaKey || !n) return;
    if (by) { e.preventDefault(); move(by); } else if (e.key === "Enter") { e.preventDefault(); commit(); } else if (e.key === "Escape") cancel();
  };
  const TYPING = "input, textarea, select, [contenteditable], [role=textbox], [role=combobox], [role=listbox], [role=dialog] *", PRESSED = "button, a, summary, [role=button], [role=option], [role=tab], [role=radio], [role=switch], [role=checkbox], [role=menuitem]";
  const onKey = (e) => { // the whole page; on some keyboards a bracket is typed with Alt, or with AltGr, which reads as Ctrl and Alt
    const at = e.composedPath()[0], by = { "[": -1, "]": 1 }[e.key];
    if (!n || !geo || e.defaultPrevented || e.metaKey || (e.ctrlKey && !e.altKey) || at.closest?.(TYPING)) return;
    if (by) { e.preventDefault(); move(by); } else if (e.key === " " && !e.repeat && !at.closest?.(PRESSED)) { e.preventDefault(); toggle(); }
  };
  document.addEventListener("keydown", onKey);
  const deaf = hear("reel", (name) => { if (arrays && name === head.reel && shown != null) { told = -1; tellFrame(now()); } });

  const px = (i) => EDGE + (i / Math.max(1, n - 1)) * (geo.width - 2 * EDGE);
  const span = (values) => { const v = values.filter(Number.isFinite), lo = Math.min(...v), hi = Math.max(...v); return [lo, hi > lo ? hi : lo + 1]; };
  function height(v, [lo, hi]) { return 4 + (1 - Math.min(1, Math.max(0, (v - lo) / (hi - lo)))) * (TRACK - 14); }
  function curve(ctx, values, range, colour, wide) {
    ctx.strokeStyle = css(colour); ctx.lineWidth = wide; ctx.lineJoin = "round"; ctx.beginPath();
    let open = false;
    values.forEach((v, i) => { if (!Number.isFinite(v)) return; if (open) ctx.lineTo(px(i), height(v, range)); else ctx.moveTo(px(i), height(v, range)); open = true; });
    ctx.stroke();
  }
  function drawBase() {
    const { theme } = me, ctx = sized(base, geo.width, 72), apart = (geo.width - 2 * EDGE) / Math.max(1, n - 1);
    curve(ctx, geo.loss, geo.lossRange, mix(theme.muted, theme.page, 0.35), 1.5);
    curve(ctx, geo.score, geo.scoreRange, theme.accent, 2);
    ctx.font = `400 10.5px ${theme.mono}`; ctx.textBaseline = "top";
    const wide = ctx.measureText(stepText(n - 1)).width + 22, stride = Math.max(1, Math.ceil(wide / apart));
    for (let i = 0; i < n; i++) { // a tick a snapshot where there is room; its step under every few, and under the last
      const named = i === n - 1 || (i % stride === 0 && (n - 1 - i) * apart >= wide);
      if (!named && apart < 3) continue;
      ctx.fillStyle = css(named ? theme.muted : theme.line); ctx.fillRect(Math.round(px(i)) - 0.5, TRACK + 2, 1, named ? 6 : 4);
      if (!named) continue;
      ctx.textAlign = i === 0 ? "left" : i === n - 1 ? "right" : "center"; ctx.fillStyle = css(theme.muted);
      ctx.fillText(me.cue.live && i === n - 1 ? "newest" : stepText(i), i === 0 ? 1 : i === n - 1 ? geo.width - 1 : px(i), TRACK + 11);
    }
  }
  function drawOver(sheet) {
    if (!geo) return;
    const { theme } = me, i = now(), place = shown == null || calm.matches ? i : shown, x = px(place), ctx = sheet ?? over.getContext("2d");
    ctx.clearRect(0, 0, geo.width, 72);
    ctx.fillStyle = css(theme.page, 0.6); ctx.fillRect(x, 0, geo.width - x, TRACK - 4); // what is still to come
    ctx.lineCap = "round"; ctx.lineWidth = 3;
    for (const [from, to, colour] of [[EDGE, px(n - 1), theme.line], [EDGE, x, theme.text]]) { ctx.strokeStyle = css(colour); ctx.beginPath(); ctx.moveTo(from, TRACK); ctx.lineTo(to, TRACK); ctx.stroke(); }
    ctx.fillStyle = css(theme.text, 0.7); ctx.fillRect(x - 0.5, 0, 1, TRACK);
    for (const [values, range, colour] of [[geo.loss, geo.lossRange, theme.muted], [geo.score, geo.scoreRange, theme.accent]]) {
      const from = Math.floor(place), v = values[from] + (place > from ? (values[from + 1] - values[from]) * (place - from) : 0);
      if (!Number.isFinite(v)) continue;
      ctx.fillStyle = css(theme.page); ctx.beginPath(); ctx.arc(x, height(v, range), 5, 0, 7); ctx.fill();
      ctx.fillStyle = css(colour); ctx.beginPath(); ctx.arc(x, height(v, range), 3.5, 0, 7); ctx.fill();
    }
    ctx.fillStyle = css(theme.page); ctx.beginPath(); ctx.arc(x, TRACK, 9, 0, 7); ctx.fill();
    ctx.fillStyle = css(theme.text); ctx.beginPath(); ctx.arc(x, TRACK, 7, 0, 7); ctx.fill();
    if (geo.said === i) return;
    geo.said = i;
    stepAt.textContent = `step ${stepText(i)}`; lossValue.textContent = lossText(i); scoreValue.textContent = scoreText(i);
    strip.setAttribute("aria-valuenow", i);
    strip.setAttribute("aria-valuetext", [`step ${stepText(i)}`, lossAt.hidden ? "" : `${head.loss} ${lossText(i)}`, scoreAt.hidden ? "" : `${scoreLabel()} ${scoreText(i)}`].filter(Boolean).join(", "));
  }
  stop();

  return {
    load(newHead, newArrays) { // a live run's film grows: stay at the step that is shown
      const at = shown == null ? null : steps[now()];
      head = newHead; arrays = newArrays; steps = arrays.steps; names = [...steps].map((step) => step.toLocaleString("en-US")); n = steps.length; told = -1;
      if (at != null) { shown = nearest(at); if (dragging || playing || waiting) tellFrame(shown); }
    },
    draw() {
      if (waiting && !dragging && !playing && me.cue.seen >= me.sent) settle();
      const loss = [...arrays.loss], scores = loss.map((_, i) => score(i)), { scale } = me.cue;
      geo = { width: strip.clientWidth, loss, score: scores, lossRange: span(loss), scoreRange: scale ? [scale.lo, scale.hi] : span(scores) };
      lossAt.hidden = !loss.some(Number.isFinite); scoreAt.hidden = !scores.some(Number.isFinite);
      lossName.textContent = head.loss; scoreName.textContent = scoreLabel();
      strip.setAttribute("aria-valuemin", 0); strip.setAttribute("aria-valuemax", n - 1);
      drawBase(); drawOver(sized(over, geo.width, 72));
      const columns = ["step", ...(lossAt.hidden ? [] : [head.loss]), ...(scoreAt.hidden ? [] : [scoreLabel()])];
      tableOf(alt, "Show as table", columns, () => loss.map((_, i) => [stepText(i), ...(lossAt.hidden ? [] : [lossText(i)]), ...(scoreAt.hidden ? [] : [scoreText(i)])]));
    },
    end() { stop(); deaf(); document.removeEventListener("keydown", onKey); tell("frame", null); },
  };
}
