// What single pictures work out for themselves: windows, orders, links, snapshots.
import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { suite, test } from "node:test";
import { newPart } from "./dom.mjs";
import { COMMON, load, python, ROOT } from "./loading.mjs";

suite("overview", () => {
  const own = ["settleWindow", "draggedWindow", "makeOverview", "tell"];
  const { settleWindow, draggedWindow, makeOverview, tell } = load(own, "overview");
  const square = { sizes: [100, 100], causal: false };
  for (const [name, window, pattern, settled] of [
    ["inside", [10, 30, 40, 60], square, [10, 30, 40, 60]],
    ["beyond the start", [-5, 15, -7, 13], square, [0, 20, 0, 20]],
    ["beyond the end", [95, 115, 90, 110], square, [80, 100, 80, 100]],
    ["too large", [0, 90, 10, 100], square, [0, 50, 10, 60]],
    ["too small", [50, 51, 60, 62], square, [50, 58, 60, 68]],
    ["of a short prompt", [0, 90, 0, 90], { sizes: [5, 6], causal: false }, [0, 5, 0, 6]],
    ["masked, moved to the diagonal", [10, 30, 60, 80], { sizes: [100, 100], causal: true }, [10, 30, 20, 40]],
    ["below the diagonal", [60, 80, 10, 30], { sizes: [100, 100], causal: true }, [60, 80, 10, 30]]
  ])
    test(`a window ${name}`, () => assert.deepEqual(settleWindow(window, pattern, 50), settled));
  test("a drag either way is a window, and the largest one is pulled along", () => {
    assert.deepEqual(draggedWindow([10, 20], [14, 18], [50, 50]), { anchor: [10, 20], window: [10, 15, 18, 21] });
    assert.deepEqual(draggedWindow([10, 20], [70, 20], [50, 50]), { anchor: [21, 20], window: [21, 71, 20, 21] });
  });
  for (const [pool, top, still] of [
    ["max", 1, "queries 4–5 → keys 4–5: at most 1.00"],
    ["mean", 0.25, "queries 4–5 → keys 4–5: 0.25 on average"]
  ])
    test(`what is read is what is drawn, of a film too: ${pool}`, () => {
      // 12 x 12 tokens, of which query 5 looks at key 5, in blocks of 2 x 2
      const part = newPart({ largest: 256, max_size: 640, head: [0, 0], value: null });
      const view = makeOverview(part);
      const blocks = Object.assign(new Uint8Array(36), { shape: [6, 6] });
      blocks[14] = 255;
      view.load({ label: "L0H0", causal: true, pool, sizes: [12, 12], factors: [2, 2], top, version: "a" }, { blocks });
      view.draw();
      const [, readout, stage] = part.root.children;
      const read = () => {
        stage.children[0].onpointermove({ clientX: 32 + (4.2 * 566) / 12, clientY: 20 + (4.2 * 566) / 12 });
        return readout.textContent;
      };
      assert.equal(read(), still);
      for (const [factor, said] of [
        [1, "query 4 → key 4: 0.000"],
        [5, "queries 0–4 → keys 0–4: at most 0.000"]
      ]) {
        const side = Math.ceil(12 / factor);
        const thumbs = new Uint8Array(side * side);
        thumbs[Math.floor(5 / factor) * (side + 1)] = 255;
        const [rows, cols] = [side, side];
        tell("frame", {
          index: 1,
          step: 9,
          version: "b",
          thumbs,
          layers: 1,
          heads: 1,
          rows,
          cols,
          factors: [factor, factor]
        });
        assert.equal(read(), said);
        assert.equal(part.table.rows().length, side * side);
        assert.deepEqual(
          part.table.rows().filter(([, , share]) => share !== "0"),
          [[5, 5, "1"]]
        );
      }
      tell("frame", null);
      view.end();
    });
});

suite("guesses", () => {
  const { makeGuesses, tell } = load(["makeGuesses", "tell"], "guesses");
  const cue = { words: ["<b>", "a"], shares: [0.75, 0.001], before: [0.25, null], loss: 1.5, was: null };
  const draw = (told) => {
    const part = newPart(told);
    const view = makeGuesses(part);
    view.draw();
    const [body] = part.root.children;
    const [, list, loss] = body.children;
    const words = () => list.children.map((one) => one.textContent);
    return {
      view,
      body,
      words,
      loss,
      widths: () => list.children.map((one) => one.children.at(-1).children.map((bar) => bar.style.width))
    };
  };
  test("a token is text, and what is small or unknown says so", () => {
    const { words, loss, widths } = draw(cue);
    assert.deepEqual(words(), ["<b>0.25 → 0.75", "a– → <.01"]);
    assert.deepEqual(
      widths().map((pair) => pair.map(Number.parseFloat)),
      [
        [75, 25],
        [0.1, 0]
      ]
    );
    assert.equal(loss.textContent, "Loss on this text: – → 1.500 nats");
  });
  test("with every head on there is one number each", () => {
    const { words, loss } = draw({ ...cue, before: null });
    assert.deepEqual(words(), ["<b>0.75", "a<.01"]);
    assert.equal(loss.textContent, "Loss on this text: 1.500 nats");
  });
  test("the loss is not said twice", () => {
    assert.equal(draw({ ...cue, quiet: true }).loss.textContent, "");
  });
  test("a film's are of its step; where it has none, nothing is said; then the page's own stand there again", () => {
    const { view, body, words, loss } = draw(cue);
    tell("frame", { guesses: { words: ["c"], shares: [1], loss: 0.25 } });
    view.draw();
    assert.deepEqual([words(), loss.textContent], [["c1.00"], "Loss on this text: 0.250 nats"]);
    tell("frame", { guesses: null });
    view.draw();
    assert.equal(body.style.visibility, "hidden");
    tell("frame", null);
    view.draw();
    assert.equal(body.style.visibility, "");
    assert.deepEqual(words(), ["<b>0.25 → 0.75", "a– → <.01"]);
    view.end();
  });
});

suite("film beside a timeline of records", () => {
  const { makeFilm, tell, topicOf } = load(["makeFilm", "tell", "topicOf"], "film");
  const film = (steps) => {
    newPart({});
    const header = { cells: [1, 1, 1, 1], measures: [], n: [1, 1], factors: [1, 1], causal: [true], version: "a" };
    const frames = Uint8Array.from(steps.keys());
    const view = makeFilm();
    return { view, load: () => view.load(header, { steps, film: Uint16Array.from(steps.keys()), frames }) };
  };
  const shown = () => topicOf("frame").value?.thumbs[0];
  test("the nearest frame is shown, the first of two as near, as Python takes it", () => {
    const { view, load } = film([0, 100, 200]);
    load();
    for (const [moment, frame] of [
      [40, 0],
      [50, 0],
      [51, 1],
      [150, 1],
      [1000, 2]
    ]) {
      tell("moment", moment);
      assert.equal(shown(), frame, `${moment}`);
    }
    tell("moment", null);
    tell("frame", null); // as the timeline does
    view.end();
  });
  test("one that comes while the reader drags shows its frame at once, and takes it along when it goes", () => {
    const { view, load } = film([0, 100]);
    tell("moment", 90);
    assert.equal(shown(), undefined);
    load();
    assert.equal(shown(), 1);
    view.end();
    assert.equal(topicOf("frame").value, null);
    tell("moment", 10);
    assert.equal(shown(), undefined);
    tell("moment", null);
  });
});

suite("atlas", () => {
  const own = ["strongestFirst", "pooled", "drawRole", "makeAtlas", "tell"];
  const { strongestFirst, pooled, drawRole, makeAtlas, tell } = load(own, "atlas");
  test("the strongest first; what was not measured, then what does not exist, at the end", () => {
    assert.deepEqual(strongestFirst([0.1, 0.9, 0.5]), [1, 2, 0]);
    assert.deepEqual(strongestFirst([0.5, 0.5, 0.9]), [2, 0, 1]);
    assert.deepEqual(strongestFirst([null, Number.NaN, -1]), [2, 1, 0]);
  });
  test("the brightest cell of a pool, of a pattern that lies after another", () => {
    const thumbs = Uint8Array.of(9, 9, 9, 9, 9, 9, 1, 2, 3, 4, 5, 6);
    assert.deepEqual([...pooled(thumbs, 6, [2, 3], [2, 2], new Uint8Array(2))], [5, 6]);
    assert.deepEqual([...pooled(thumbs, 6, [2, 3], [1, 2], new Uint8Array(4))], [2, 3, 5, 6]);
  });
  for (const [name, role, lost, width, words, struck, beside = 0] of [
    ["alone", "first token", "", 176, ["first token"], 0],
    ["after what it was", "first token", "induction", 176, ["induction", "first token"], 1],
    ["before which there is too little room", "first token", "induction", 130, ["first token"], 0],
    ["that is none", "no role", "induction", 176, ["induction", "no role"], 1],
    ["beside its number", "first token", "induction", 176, ["first token"], 0, 34]
  ])
    test(`the line of a role ${name}`, () => {
      const { theme } = newPart({});
      const [texts, boxes] = [[], []];
      const ctx = {
        measureText: (text) => ({ width: 7 * text.replace(/[\u2068\u2069]/g, "").length }),
        fillText: (text, x, y, most) => texts.push({ text: text.replace(/[\u2068\u2069]/g, ""), x, y, most }),
        fillRect: (x, y, wide, high) => boxes.push({ x, y, wide, high }),
        beginPath() {},
        roundRect() {},
        fill() {}
      };
      drawRole(ctx, theme, { role, lost }, 100, 200, width, 18, beside);
      assert.deepEqual(
        texts.map(({ text }) => text),
        words
      );
      assert.equal(boxes.length, struck);
      const last = texts.at(-1);
      assert.ok(last.most > 0 && last.x + last.most <= 100 + width - beside - 4 && last.x >= 106);
      for (const line of boxes) {
        assert.ok(line.x === texts[0].x && Math.abs(line.y + line.high / 2 - texts[0].y) <= 1 && line.y > 200);
        assert.equal(line.wide, 7 * words[0].length);
      }
    });
  test("what a head was is said, while the film plays too", () => {
    const details = { "first token": ["m", "away"], induction: ["other", "back"] };
    const roles = { labels: ["induction", "first token"], details, measures: {}, codes: [[2, 0]], lost: [[1, 0]] };
    const part = newPart({ measure: "m", scales: {}, max_cell: 176, order: "index", lit: null, roles, value: [0, 0] });
    const view = makeAtlas(part);
    const bytes = (...values) => Uint8Array.of(...values);
    const thumbs = Object.assign(new Uint8Array(2), { shape: [1, 2, 1, 1] });
    const [values, there] = [Float32Array.of(3, 0.1), Object.assign(bytes(1, 1), { shape: [1, 2] })];
    const head = { measures: ["m"], causal: [true], factors: [1, 1], layers: [], version: "a" };
    view.load(head, { thumbs, values, there });
    view.draw();
    const [canvas] = part.root.children[0].children;
    assert.match(canvas.ariaLabel, /Selected L0H0: m 3.00, first token, 3 away, was induction$/);
    const said = () => {
      canvas.onclick({ clientX: 20, clientY: 40 });
      return part.root.children.find((node) => node.className === "sr").textContent;
    };
    assert.match(said(), /, first token, 3 away, was induction$/);
    const size = { layers: 1, heads: 2, rows: 1, cols: 1, factors: [1, 1], causal: [true] };
    const frame = { index: 1, step: 9, version: "b", thumbs, ...size, value: () => 0.2 };
    tell("frame", { ...frame, role: () => 1, lost: () => 0 });
    assert.match(said(), /: m 0.20, induction$/);
    tell("frame", { ...frame, index: 2, role: () => 0, lost: () => 1 });
    assert.match(said(), /, no role, was induction$/);
    tell("frame", null);
    view.draw();
    for (const [scored, words] of [
      ["anew", /, first token, 3 away, induction with all heads on, switched off$/],
      ["recorded", /, first token, 3 away, was induction, recorded with all heads on, switched off$/]
    ]) {
      Object.assign(part.cue, { scored, off: [[0, 0]] });
      view.draw();
      assert.match(canvas.ariaLabel, words);
    }
    view.end();
  });
  for (const [told, measures, numbers, codes = [[2, 0]], scored = ""] of [
    ["the score of its role", { "first token": "other" }, ["0.77"]],
    ["the chosen measure, where no score of a role was recorded", {}, ["0.90", "0.10"]],
    [
      "what is left of the score of a role that it lost, with heads off",
      { induction: "other" },
      ["0.77"],
      [[0, 0]],
      "anew"
    ]
  ])
    test(`the number of a tile is ${told}`, () => {
      const lost = scored ? [[1, 0]] : [[0, 0]];
      const roles = { labels: ["induction", "first token"], details: {}, measures, codes, lost };
      const part = newPart({
        measure: "m",
        scales: {},
        max_cell: 176,
        order: "index",
        lit: null,
        roles,
        scored,
        value: [0, 0]
      });
      const view = makeAtlas(part);
      const thumbs = Object.assign(new Uint8Array(2), { shape: [1, 2, 1, 1] });
      const there = Object.assign(Uint8Array.of(1, 1), { shape: [1, 2] });
      const head = { measures: ["m", "other"], causal: [true], factors: [1, 1], layers: [], version: "a" };
      view.load(head, { thumbs, values: Float32Array.of(0.9, 0.1, 0.77, 0.3), there });
      const [canvas] = part.root.children[0].children;
      const texts = [];
      const ways = { measureText: (text) => ({ width: 7 * text.length }), fillText: (text) => texts.push(text) };
      canvas.getContext = () => new Proxy(ways, { get: (own, name) => own[name] ?? (() => {}) });
      view.draw();
      const written = texts.map((text) => text.replace(/[\u2068\u2069]/g, "")).filter((text) => /^[\d.]+$/.test(text));
      assert.deepEqual(written, numbers);
      view.end();
    });
  /** A slim atlas of `layers` x `heads` whose switches hand on what they are told. */
  function slimOf(layers, heads, value, width = 600) {
    const sent = [];
    const scales = { m: { label: "Score", unit: "", lo: 0, hi: 1, digits: 2, chance: null, palette: "score" } };
    const none = Array.from({ length: layers }, () => Array(heads).fill(0));
    const roles = { labels: ["induction"], codes: none.with(0, [0, 1, ...none[0].slice(2)]), lost: none };
    const cue = { measure: "m", scales, max_cell: 176, order: "index", lit: null, slim: true, roles, value };
    const send = (picked) => {
      cue.value = picked;
      sent.push(picked);
    };
    const part = Object.assign(newPart(cue), { send });
    const view = makeAtlas(part);
    for (const node of [part.root, part.root.children[0]]) Object.assign(node, { clientWidth: width, scrollLeft: 0 });
    const n = layers * heads;
    const there = Object.assign(
      Uint8Array.from({ length: n }, (_, i) => i !== n - 2),
      { shape: [layers, heads] }
    );
    const thumbs = Object.assign(new Uint8Array(n), { shape: [layers, heads, 1, 1] });
    const head = { measures: ["m"], causal: Array(layers).fill(true), factors: [1, 1], layers: [], version: "a" };
    view.load(head, { thumbs, values: Float32Array.from({ length: n }, (_, i) => i / n), there });
    view.draw();
    const [canvas] = part.root.children[0].children;
    const said = () => part.root.children.find((node) => node.className === "focused");
    const press = (key) => canvas.onkeydown({ key, preventDefault() {} });
    return { view, sent, canvas, said, press, root: part.root };
  }
  test("slim: on a phone cards are swiped, and the switch is as high as its card", () => {
    const { view, sent, canvas, root } = slimOf(2, 4, { head: [1, 3], off: [] }, 360);
    const [stage] = root.children;
    const [wide, gap, edge] = [150, 8, 4];
    assert.equal(stage.scrollLeft, edge + 6 * (wide + gap) - (360 - wide) / 2, "the head in focus is in sight");
    canvas.onclick({ clientX: edge + wide - 3, clientY: edge + 50 });
    assert.deepEqual(sent.at(-1), { head: [1, 3], off: [[0, 0]] });
    view.draw();
    assert.equal(stage.scrollLeft, edge - (360 - wide) / 2, "the head that is off now is in sight");
    stage.scrollLeft = 400;
    view.draw();
    assert.equal(stage.scrollLeft, 400, "then it is the reader who scrolls");
    canvas.onclick({ clientX: edge + wide + gap + 20, clientY: edge + 50 });
    assert.deepEqual(sent.at(-1).head, [0, 1]);
  });
  test("slim: a row of cards, past heads that do not exist, each with its switch", () => {
    const { view, sent, canvas, said, press } = slimOf(2, 2, { head: [0, 1], off: [] });
    assert.equal(said().hidden, true);
    assert.match(canvas.ariaLabel, /^3 attention heads in 2 layers.* Selected L0H1: Score 0.25, induction$/);
    for (const [key, head] of [
      ["ArrowRight", [1, 1]], // L1H0 does not exist
      ["Home", [0, 0]],
      ["End", [1, 1]],
      ["ArrowLeft", [0, 1]]
    ]) {
      press(key);
      assert.deepEqual(sent.at(-1), { head, off: [] });
    }
    const count = sent.length;
    press("ArrowDown"); // there is no second row
    press("Home");
    press("ArrowLeft"); // nor a head before the first
    assert.equal(sent.length, count + 1);
    const wide = Math.floor((600 - 4 + 8) / 3) - 8;
    const at = (i, x, y) => canvas.onclick({ clientX: 2 + i * (wide + 8) + x, clientY: 2 + y });
    at(2, wide - 20, 12);
    assert.deepEqual(sent.at(-1), { head: [0, 0], off: [[1, 1]] });
    at(1, 20, 30);
    assert.deepEqual(sent.at(-1), { head: [0, 1], off: [[1, 1]] });
    at(2, wide + 4, 20); // between two cards
    assert.equal(sent.length, count + 3);
    view.end();
  });
  test("slim: of many heads the patterns, and in words what is known of the selected one, with its switch", () => {
    const { view, sent, said, press } = slimOf(4, 16, { head: [0, 1], off: [] });
    const words = () => said().textContent;
    assert.equal(words(), "L0H1 · induction · Score 0.02Switch off");
    const button = said().children.at(-1);
    button.onclick();
    assert.deepEqual(sent.at(-1), { head: [0, 1], off: [[0, 1]] });
    view.draw();
    assert.equal(words(), "L0H1 · induction · offOn again");
    assert.equal(said().children.at(-1), button); // which may be in focus
    press("End");
    assert.deepEqual(sent.at(-1).head, [3, 15]);
    press("ArrowLeft");
    assert.deepEqual(sent.at(-1).head, [3, 13]); // past the one that does not exist
    view.draw();
    assert.equal(words(), "L3H13 · no role · Score 0.95Switch off");
    press("ArrowUp"); // a row has one layer
    assert.deepEqual(sent.at(-1).head, [2, 13]);
    press("ArrowRight");
    const count = sent.length;
    press("ArrowDown"); // onto the head that does not exist
    assert.equal(sent.length, count);
    view.end();
  });
});

suite("pattern", () => {
  const { makePattern } = load(["makePattern"], "pattern");
  for (const [what, causal, n, filled] of [
    ["among later tokens", true, 20, true],
    ["outside, where every token is seen", false, 20, false],
    ["outside, where later tokens leave no room", true, 4, false]
  ])
    test(`the scale stands ${what}`, () => {
      const part = newPart({ max_size: 620, head: null, value: [], text: false });
      const view = makePattern(part);
      const tokens = Array(n).fill("a");
      const head = { label: "L0H0", causal, starts: [0, 0], tokens, breaks: [], keys: null, key_breaks: [] };
      view.load(head, { shares: Object.assign(new Uint16Array(n * n), { shape: [n, n] }) });
      view.draw();
      const [readout, both] = part.root.children;
      const key = both.children[0].children[1].children[0];
      assert.deepEqual(
        [readout, key].map((node) => !!node.style.right && !!node.style.maxWidth),
        [filled, filled]
      );
      assert.equal(key.children.at(-1).textContent === "blank: later tokens", causal);
      view.end();
    });
  for (const [explained, shown] of [
    [false, "num"],
    [true, "hint"]
  ])
    test(`what the page says of a pinned cell is not said twice: ${explained}`, () => {
      const part = newPart({ max_size: 620, head: null, value: [3, 1], text: false, explained });
      const view = makePattern(part);
      const head = { label: "L0H0", causal: true, starts: [0, 0], tokens: [..."abcd"], breaks: [], keys: null };
      view.load({ ...head, key_breaks: [] }, { shares: Object.assign(new Uint16Array(16), { shape: [4, 4] }) });
      view.draw();
      assert.equal(part.root.children[0].children.at(-1).className, shown);
      view.end();
    });
});

suite("heads over steps", () => {
  const { makeHeatmap } = load(["makeHeatmap"], "step_heatmap");
  for (const [step, said] of [
    [20, "ratio"],
    [30, "ratio, step 20"]
  ])
    test(`values beside the rows say of which step they are: ${step}`, () => {
      globalThis.getComputedStyle = () => ({ fontSize: "16px" });
      const scale = { label: "Where it looks: ratio", unit: "", lo: 0, hi: 1, palette: "score", chance: null };
      const cue = { value: "", step, scale, log_x: false, notes: { L0H0: "" }, span: [0, 30], height: 90, bare: true };
      const part = newPart(cue);
      part.root.clientWidth = 1200;
      const view = makeHeatmap(part);
      const head = { labels: ["L0H0"], groups: [0], order: [0], changes: [], lo: 0, hi: 1, log: false };
      const cells = Object.assign(Uint16Array.of(0, 30000, 65534), { shape: [1, 3] });
      view.load(head, { steps: Float64Array.of(0, 10, 20), cells });
      const texts = [];
      const ways = {
        measureText: (text) => ({ width: 7 * text.length }),
        fillText: (text) => texts.push(text.replace(/[\u2068\u2069]/g, ""))
      };
      const over = part.root.children.find((node) => node.className === "stage").children[1];
      over.getContext = () => new Proxy(ways, { get: (own, name) => own[name] ?? (() => {}) });
      view.draw();
      assert.ok(texts.includes(said) && texts.includes("1.000"), texts.join());
      view.end();
    });
});

suite("token view", () => {
  const names = ["largestLinks", "tokenBeside", "newLinks", "headerOf", "arraysOf"];
  const { largestLinks, tokenBeside, newLinks, headerOf, arraysOf } = load(names, "token_view");
  test("links forward and back, without the first token, by the value and on average", async () => {
    // two heads on three tokens: one looks at the token before, one at the first and at itself alike
    const code =
      "import sys, numpy as np; from tracer.pictures import token_view; " +
      "rows = np.array([[[1, 0, 0], [1, 0, 0], [0, 1, 0]], [[1, 0, 0], [0.5, 0.5, 0], [0.5, 0, 0.5]]]); " +
      "sys.stdout.buffer.write(token_view.pack(lambda layer, head: rows[head], ['a', 'b', 'c'], " +
      "there=np.ones((1, 2)), causal=[True], norms=np.array([[[1, 3, 1], [1, 3, 1]]])))";
    const { head, body } = headerOf(new Uint8Array(python(code)));
    const arrays = await arraysOf(head, body);
    const asking = (change) =>
      newLinks(head, arrays, { back: false, mean: false, weighted: false, bare: false, head: [0, 1], ...change });
    const near = (found, told) => assert.ok(Math.abs(found - told) < 1e-4, `${found} is not ${told}`);
    near(asking({}).link(2, 0), 0.5);
    near(asking({ back: true }).link(0, 2), 0.5);
    near(asking({ bare: true }).link(2, 2), 1);
    near(asking({ bare: true }).shareLeft(2), 0.5);
    near(asking({ weighted: true }).link(1, 1), 0.75);
    near(asking({ mean: true }).link(2, 1), 0.5);
    near(asking({}).strongest(2, [0, 0])[0], 1);
    assert.equal(asking({}).strongest(2, [0, 0])[1], 1);
    assert.equal(asking({}).link(0, 2), 0);
  });
  test("the largest links, the first of equals, and none of nothing", () => {
    const links = [
      [0.1, 0],
      [0.4, 1],
      [0, 2],
      [0.4, 3],
      [0.2, 4]
    ];
    assert.deepEqual(largestLinks(links, 3), [
      [0.4, 1],
      [0.4, 3],
      [0.2, 4]
    ]);
    assert.deepEqual(largestLinks(links, 1), [[0.4, 1]]);
    assert.deepEqual(largestLinks([[0, 0]], 3), []);
  });
  test("the token above and below, the nearest to the left edge of this one", () => {
    const spans = [
      [0, 0],
      [40, 0],
      [80, 0],
      [0, 20],
      [50, 20],
      [0, 40]
    ];
    const nodes = spans.map(([offsetLeft, offsetTop]) => ({ offsetLeft, offsetTop }));
    assert.deepEqual([tokenBeside(nodes, 1, 1), tokenBeside(nodes, 4, -1), tokenBeside(nodes, 4, 1)], [4, 1, 5]);
    assert.deepEqual([tokenBeside(nodes, 2, -1), tokenBeside(nodes, 5, 1)], [2, 5]);
  });
});

suite("scrubber", () => {
  const own = ["nearestStep", "spanOf", "sharesOf", "namedOf", "makeScrubber", "MISSING"];
  const { nearestStep, spanOf, sharesOf, namedOf, makeScrubber, MISSING } = load(own, "scrubber");
  test("the snapshot nearest to a step, the later of two that are as near", () =>
    assert.deepEqual(
      [0, 7, 15, 99].map((step) => nearestStep([0, 10, 20], step)),
      [0, 1, 2, 2]
    ));
  test("the span of what was measured is never empty", () => {
    assert.deepEqual(spanOf([3, Number.NaN, 1]), [1, 3]);
    assert.deepEqual(spanOf([2, 2]), [2, 3]);
  });
  for (const [what, steps, shares] of [
    ["at its step", [0, 1, 25, 50, 75, 100], [0, 0.01, 0.25, 0.5, 0.75, 1]],
    ["evenly, of steps that double", [1, 2, 4, 8, 16, 32, 64, 128, 256], [0, 1, 2, 3, 4, 5, 6, 7, 8].map((i) => i / 8)],
    ["at the start, alone", [7], [0]],
    ["at an end, of two", [5, 9], [0, 1]]
  ])
    test(`a record stands ${what}`, () => assert.deepEqual(sharesOf(Float64Array.from(steps)), shares));
  const every = (gap, count) => Array.from({ length: count }, (_, i) => gap * i);
  for (const [what, steps, named] of [
    ["round ones", every(25, 53), [0, 200, 400, 600, 800, 1000, 1300]],
    ["all, where there is room", [0, 10, 20], [0, 10, 20]],
    ["whichever have room, where none is round", [3, 8, 13, 18, 23], [3, 13, 23]]
  ])
    test(`steps that are written: ${what}`, () => {
      const places = steps.map((step) => (500 * (step - steps[0])) / (steps.at(-1) - steps[0]));
      const written = [...namedOf(steps, places, what.includes("whichever") ? 200 : 70)].map((i) => steps[i]);
      assert.deepEqual(
        written.sort((a, b) => a - b),
        named
      );
    });
  test("a file of its table has whole steps, exact values and what happened", () => {
    const events = [{ step: 900, low: 800, high: 950, label: "L0H1: previous token" }];
    const part = newPart({ value: 0, head: null, measure: "", scale: null, seen: 0, live: false, events });
    const view = makeScrubber(part);
    const arrays = { steps: Float64Array.of(0, 1000), loss: Float64Array.of(5.25, 1.23456), film: [MISSING, MISSING] };
    view.load({ measures: [], loss: "loss" }, arrays);
    view.draw();
    assert.deepEqual(part.root.children[0].children.at(-1).table.rows(), [
      ["0", "5.25", ""],
      ["1000", "1.23456", "L0H1: previous token"]
    ]);
    view.end();
  });
  test("words of events stand right of their lines, left where the strip ends, in a second row where one is taken", () => {
    const label = (name) => name.repeat(20); // of 140 pixels; 5.82 are a step
    const events = [30, 90, 50].map((step, i) => ({ step, low: step, high: step, label: label("ABC"[i]) }));
    const part = newPart({ value: 2, head: null, measure: "", scale: null, seen: 0, live: false, events });
    const view = makeScrubber(part);
    const [drawn, ways] = [{}, { measureText: (text) => ({ width: 7 * text.length }) }];
    ways.fillText = (text, x, y) => {
      drawn[text.replace(/[\u2068\u2069]/g, "")] = [Math.round(x), y];
    };
    const context = new Proxy(ways, { get: (own, name) => own[name] ?? (() => {}) });
    for (const canvas of part.root.children[0].children[1].children) canvas.getContext = () => context;
    const arrays = { steps: Float64Array.of(0, 50, 100), loss: Float64Array.of(9, 9, 1), film: [MISSING] };
    view.load({ measures: [], loss: "loss" }, arrays);
    view.draw();
    const named = Object.entries(drawn).filter(([text]) => text.length === 20);
    assert.deepEqual(Object.fromEntries(named.map(([text, at]) => [text[0], at])), {
      A: [188, 2],
      B: [389, 2],
      C: [304, 15]
    });
    view.end();
  });
  for (const [steps, said, heads_off = false] of [
    [[0, 25, 50], ""],
    [[0, 1, 25, 50, 75], ""],
    [[0, 1, 25], "1 tick = 1 record"],
    [[0, 1, 25], "recorded with all heads on", true]
  ])
    test(`a tick is said to be a record where records don't stand at their steps: ${steps} ${heads_off}`, () => {
      const cue = { value: 0, head: null, measure: "", scale: null, seen: 0, live: false, events: [], heads_off };
      const part = newPart(cue);
      const view = makeScrubber(part);
      const loss = new Float64Array(steps.length);
      view.load({ measures: [], loss: "loss" }, { steps: Float64Array.from(steps), loss, film: [MISSING] });
      const readout = part.root.children[0].children.at(-2);
      view.draw();
      const note = readout.children.at(-1);
      assert.equal(note.hidden ? "" : note.textContent, said);
      view.end();
    });
  test("of one head that was sent there is a score, of another none", () => {
    const arrays = {
      steps: Float64Array.of(0, 10),
      loss: Float64Array.of(2, 1),
      film: [MISSING, MISSING],
      measure0: Uint16Array.of(0, 65534)
    };
    const shown = { value: 0, measure: "induction", scale: null, seen: 0, live: false, events: [] };
    const scores = [
      [1, 2],
      [0, 0]
    ].map((head) => {
      const part = newPart({ ...shown, head });
      const view = makeScrubber(part);
      view.load({ measures: ["induction"], ranges: [[0, 0.5]], loss: "loss", only: [1, 2] }, arrays);
      view.draw();
      view.end();
      return part.root.children[0].children
        .at(-1)
        .table.rows()
        .map((row) => row.slice(2));
    });
    assert.deepEqual(scores, [
      [["0"], ["0.5"]],
      [[], []]
    ]);
  });
});

suite("files", () => {
  const { csvOf } = load(["csvOf"], "saver");
  test("numbers are numbers in a spreadsheet, and what it would compute is text", () => {
    const cells = ["+0.081", "−0.020", "+4.6e−5", "–", "1e+5", "+1+1", "=A1", 'a "b", c'];
    assert.equal(
      csvOf({ columns: ["x"], rows: () => cells.map((cell) => [cell]) }),
      `\ufeffx\r\n0.081\r\n-0.020\r\n4.6e-5\r\n\r\n1e+5\r\n'+1+1\r\n'=A1\r\n"a ""b"", c"\r\n`
    );
  });
});

suite("who reads whom", () => {
  const { alongCurve } = load(["alongCurve"], "bipartite");
  test("a curve is at its middle halfway, and its ends are its ends", () => {
    for (const [share, along] of [
      [0, 0],
      [0.5, 0.5],
      [1, 1]
    ])
      assert.ok(Math.abs(alongCurve(share) - along) < 1e-5);
    // x(t) of the control points 0, 1/2, 1/2, 1 is 3/2 (1-t) t + t^3 = 0.28125 + 0.015625 for t = 1/4
    assert.ok(Math.abs(alongCurve(0.296875) - 0.25) < 1e-5);
  });
});

suite("passages", () => {
  const { distanceText } = load(["distanceText"], "passages");
  test("distances in words", () => {
    const texts = [0, 1, 24, -1, -3].map(distanceText);
    assert.deepEqual(texts, ["the token itself", "1 token back", "24 tokens back", "1 token ahead", "3 tokens ahead"]);
  });
});

test("no name of the shared scripts is without use", () => {
  const names = [...COMMON.matchAll(/^(?:const|function|async function) (\w+)/gm)].map(([, name]) => name);
  const paths = [...globSync("tracer/pictures/**/*.js", { cwd: ROOT }), "tracer/pictures/assets.py"];
  const scripts = paths.map((path) => readFileSync(ROOT + path, "utf-8"));
  const all = scripts.join("\n");
  const uses = (name) => all.match(new RegExp(`\\b${name}\\b`, "g"))?.length ?? 0;
  assert.ok(names.length > 50);
  assert.deepEqual(
    names.filter((name) => uses(name) < 2),
    []
  );
});
