// What every picture uses: bytes from Python, numbers, axes, colours, topics.
import assert from "node:assert/strict";
import { suite, test } from "node:test";
import { load, python } from "./loading.mjs";

const shared = load([
  "headerOf",
  "arraysOf",
  "valueOfCode",
  "shareOfCode",
  "tintOf",
  "numberOf",
  "signedOf",
  "exactOf",
  "exactStep",
  "stepText",
  "chanceNote",
  "hasHead",
  "roundStride",
  "roundTicks",
  "decadeTicks",
  "tickText",
  "stepAxis",
  "draggedRange",
  "scaledRange",
  "rgb",
  "mix",
  "luminance",
  "inkOn",
  "lutOf",
  "inksOf",
  "tell",
  "hear",
  "frameCodes",
  "columnsSeen",
  "hideNear",
  "arrowOf",
  "alongOf",
  "keyOf",
  "PALETTES"
]);

suite("bytes from Python", () => {
  const packed = (code) =>
    new Uint8Array(
      python(`import sys, numpy as np; from tracer.pictures import payload; sys.stdout.buffer.write(${code})`)
    );

  test("arrays of every type come back in their shape", async () => {
    const bytes = packed(
      "payload.pack({'a': 'ö'}, small=np.array([[0, 255]], np.uint8), codes=np.array([1, 65535], np.uint16), " +
        "half=np.array([[0.5], [-2]], np.float32), exact=np.array([1e300]))"
    );
    const { head, body } = shared.headerOf(bytes);
    const { small, codes, half, exact } = await shared.arraysOf(head, body);
    assert.equal(head.a, "ö");
    assert.match(head.version, /^[0-9a-f]{16}$/);
    assert.deepEqual(
      [[...small], small.shape],
      [
        [0, 255],
        [1, 2]
      ]
    );
    assert.deepEqual([[...codes], codes.shape], [[1, 65535], [2]]);
    assert.deepEqual(
      [[...half], half.shape],
      [
        [0.5, -2],
        [2, 1]
      ]
    );
    assert.deepEqual([...exact], [1e300]);
  });

  test("a payload that lies inside other bytes is read from its own start", async () => {
    const bytes = packed("payload.pack({}, x=np.array([7], np.uint8))");
    const inside = new Uint8Array(bytes.length + 3);
    inside.set(bytes, 3);
    const { head, body } = shared.headerOf(inside.subarray(3));
    assert.deepEqual([...(await shared.arraysOf(head, body)).x], [7]);
  });

  test("codes are the values that Python coded", async () => {
    const bytes = packed(
      "payload.pack({}, linear=payload.quantise_linear([-1, 0, 3, np.nan], -1, 3), " +
        "root=payload.quantise_sqrt([0, .25, 1]))"
    );
    const { head, body } = shared.headerOf(bytes);
    const { linear, root } = await shared.arraysOf(head, body);
    const values = Array.from(linear, (code) => shared.valueOfCode(code, -1, 3));
    assert.deepEqual([values[0], values[2], Number.isNaN(values[3])], [-1, 3, true]);
    assert.ok(Math.abs(values[1]) < 4 / 131068);
    const shares = Array.from(root, shared.shareOfCode);
    assert.deepEqual([shares[0], shares[2]], [0, 1]);
    assert.ok(Math.abs(shares[1] - 0.25) < 0.003);
  });

  test("curves that Python packed have the steps that were measured", async () => {
    const { measuredSteps } = load(["measuredSteps"], "curves");
    const bytes = packed(
      "payload.pack({'labels': ['loss'], 'lo': 1, 'hi': 3}, steps=np.array([0., 10., 20.]), " +
        "lines=payload.quantise_linear([[1, np.nan, 3]], 1, 3))"
    );
    const { head, body } = shared.headerOf(bytes);
    const { steps, lines } = await shared.arraysOf(head, body);
    assert.deepEqual([...steps], [0, 10, 20]);
    assert.equal(shared.valueOfCode(lines[2], head.lo, head.hi), 3);
    assert.deepEqual(measuredSteps(lines), [0, 2]);
  });
});

suite("numbers", () => {
  for (const [value, options, text] of [
    [0.123456, {}, "0.12"],
    [-0.5, {}, "−0.50"],
    [-0.001, { plain: true }, "0.00"],
    [0.001, {}, "1.0e-3".replace("-", "−")],
    [0.001, { plain: true }, "0.00"],
    [123456, {}, "1.2e+5"],
    [0, { digits: 3 }, "0.000"],
    [Number.NaN, {}, "–"],
    [Number.POSITIVE_INFINITY, {}, "–"]
  ])
    test(`${value} ${JSON.stringify(options)} is ${text}`, () => assert.equal(shared.numberOf(value, options), text));

  test("a change has its sign unless it rounds to nothing", () => {
    const changes = [0.25, -0.25, 0.0001, 0].map((v) => shared.signedOf(v, { plain: true }));
    assert.deepEqual(changes, ["+0.250", "−0.250", "0.000", "0.000"]);
  });
  test("steps", () => {
    const texts = [0, 999, 9999, 10000, 12345, 999999, 1e6, 2.54e6].map(shared.stepText);
    assert.deepEqual(texts, ["0", "999", "9,999", "10k", "12.3k", "1000k", "1M", "2.5M"]);
    assert.equal(shared.exactStep(1234567), "1,234,567");
  });
  test("a file has six digits and a dash for nothing", () =>
    assert.deepEqual([1 / 3, 1e-9, null, Number.NaN].map(shared.exactOf), ["0.333333", "1e-9", "–", "–"]));
  test("the note of a legend", () => {
    assert.equal(shared.chanceNote({ chance: null }), "");
    assert.equal(shared.chanceNote({ chance: 0.128 }), "at chance 0.13");
    assert.equal(shared.chanceNote({ chance: 0.128, mark: "uniform" }), "uniform 0.13");
  });
});

suite("axes", () => {
  test("round strides", () =>
    assert.deepEqual([0.03, 1, 1.1, 2.2, 26, 5.01].map(shared.roundStride), [0.05, 1, 2, 2.5, 50, 10]));
  for (const [lo, hi, want, ticks] of [
    [0, 1, 4, [0, 0.25, 0.5, 0.75, 1]],
    [-1, 1, 4, [-1, -0.5, 0, 0.5, 1]],
    [3, 97, 5, [20, 40, 60, 80]]
  ])
    test(`ticks from ${lo} to ${hi}`, () => assert.deepEqual(shared.roundTicks(lo, hi, want), ticks));
  test("ticks of numbers that are hardly different come to an end", () => {
    for (const lo of [0.3, 2, -7, 1e16])
      for (let ulps = 1; ulps < 100; ulps++)
        assert.ok(shared.roundTicks(lo, lo + ulps * 2 ** -52 * Math.abs(lo), 4.6).length < 20);
  });

  test("decades, thinned where there are many, parted where there are few", () => {
    assert.deepEqual(shared.decadeTicks(-3, 0), [-3, -2, -1, 0]);
    assert.deepEqual(shared.decadeTicks(-10, 3), [-10, -8, -6, -4, -2, 0, 2]);
    const parted = shared.decadeTicks(0, 1).map((v) => Math.round(10 ** v));
    assert.deepEqual(parted, [1, 2, 5, 10]);
    const between = shared.decadeTicks(Math.log10(2.1), Math.log10(4.9)).map((v) => +(10 ** v).toFixed(9));
    assert.deepEqual(between, [2.5, 3, 3.5, 4, 4.5]);
  });
  for (const [value, stride, text] of [
    [0.5, 0.25, "0.5"],
    [0.25, 0.25, "0.25"],
    [-2, 1, "−2"],
    [20000, 5000, "20,000"],
    [200000, 50000, "2e+5"],
    [250000, 50000, "2.5e+5"],
    [0.0002, 0, "2e−4"],
    [0, 0.0001, "0"]
  ])
    test(`${value} among ticks ${stride} apart is ${text}`, () => assert.equal(shared.tickText(value, stride), text));

  const steps = Float64Array.of(0, 1, 10, 100, 1000);
  test("a linear axis", () => {
    const axis = shared.stepAxis(steps, false, 50, 500);
    assert.deepEqual([0, 500, 1000].map(axis.px), [50, 300, 550]);
    assert.deepEqual([axis.nearest(400), axis.nearest(600), axis.under(50), axis.under(549)], [3, 4, 0, 4]);
    assert.equal(axis.stepAt(300), 500);
    assert.deepEqual(axis.ticks(), [0, 200, 400, 600, 800, 1000]);
  });
  test("a logarithmic axis puts step 0 where the first one above it is", () => {
    const axis = shared.stepAxis(steps, true, 0, 300);
    assert.deepEqual([0, 1, 10, 1000].map(axis.px), [0, 0, 100, 300]);
    assert.deepEqual(axis.ticks().map(Math.round), [1, 10, 100, 1000]);
    assert.equal(axis.nearest(40), 3); // nearer to 100 than to 10, as the eye sees it
    assert.ok(Math.abs(axis.stepAt(150) - 31.6227766) < 1e-6);
  });
  test("an axis that is looked at closer", () => {
    const axis = shared.stepAxis(steps, false, 0, 100, [10, 110]);
    assert.deepEqual([10, 60, 110].map(axis.px), [0, 50, 100]);
    assert.deepEqual(axis.ticks(), [50, 100]);
    const hundreds = Array.from({ length: 200 }, (_, i) => i * 100);
    const ticks = (range, width) => shared.stepAxis(hundreds, true, 0, width, range).ticks();
    assert.deepEqual(ticks([2100, 4900], 600), [2500, 3000, 3500, 4000, 4500]);
    assert.deepEqual(ticks([2100, 4900], 250), [3000, 4000]);
    assert.deepEqual(ticks([3000, 3000], 600), [3000]);
  });
  test("an axis of whole steps has no tick between them", () =>
    assert.deepEqual(shared.stepAxis([0, 1, 2], false, 0, 1000).ticks(), [0, 1, 2]));
  test("a narrow axis has two ticks where it has two steps", () => {
    const ticks = (log, width, ...range) => shared.stepAxis(range, log, 0, width).ticks();
    assert.deepEqual(ticks(false, 300, 1, 8), [2, 4, 6, 8]);
    assert.deepEqual(ticks(true, 300, 6, 13), [6, 8, 10, 12]);
    assert.deepEqual(ticks(true, 250, 6, 12), [6, 8, 10, 12]);
    assert.deepEqual(shared.stepAxis([0, 9], false, 0, 300, [3.3, 4.6]).ticks(), [4]);
  });

  for (const [name, from, to, only, range] of [
    ["a click", [10, 10], [12, 12], "", null],
    ["along x", [10, 10], [110, 14], "", { x: [10, 110], y: null }],
    ["backwards along x", [110, 14], [10, 10], "", { x: [10, 110], y: null }],
    ["along y", [10, 10], [14, 110], "", { x: null, y: [10, 110] }],
    ["over a field", [10, 20], [110, 90], "", { x: [10, 110], y: [20, 90] }],
    ["below the plot", [10, 20], [110, 90], "x", { x: [10, 110], y: null }],
    ["beside the plot", [10, 20], [110, 90], "y", { x: null, y: [20, 90] }],
    ["a short one", [10, 10], [20, 10], "", { x: [10, 20], y: null }]
  ])
    test(`a drag: ${name}`, () => assert.deepEqual(shared.draggedRange(from, to, only), range));

  test("looking closer stays inside, and looking at more ends with all", () => {
    assert.deepEqual(shared.scaledRange([0, 100], 0.5, 50, [0, 100]), [25, 75]);
    assert.deepEqual(shared.scaledRange([0, 100], 0.5, 100, [0, 100]), [50, 100]);
    assert.deepEqual(shared.scaledRange([0, 40], 2, 40, [0, 100]), [0, 80]);
    assert.equal(shared.scaledRange([25, 75], 2, 50, [0, 100]), null);
  });
});

suite("colours", () => {
  test("hex, mixing and luminance", () => {
    assert.deepEqual(shared.rgb("#0a10ff"), [10, 16, 255]);
    assert.deepEqual(shared.mix([0, 0, 0], [255, 100, 1], 0.5), [128, 50, 1]);
    assert.equal(shared.luminance([255, 255, 255]), 1);
    assert.equal(shared.luminance([0, 0, 0]), 0);
    assert.deepEqual([shared.inkOn([255, 255, 255]), shared.inkOn([0, 0, 0])], ["#000000", "#ffffff"]);
    for (let v = 0; v < 256; v++) {
      for (const colour of [
        [v, v, v],
        [v, 104, 15],
        [15, v, 104]
      ]) {
        const light = shared.luminance(colour);
        const contrast = shared.inkOn(colour) === "#ffffff" ? 1.05 / (light + 0.05) : (light + 0.05) / 0.05;
        assert.ok(contrast >= 4.5, `${colour} has ${contrast}`);
      }
    }
  });
  test("a ramp goes through its stops and stays at its ends", () => {
    const ramp = shared.lutOf(["#000000", "#ff0000", "#ffffff"]);
    assert.deepEqual([-1, 0, 1, 2].map(ramp.at), [
      [0, 0, 0],
      [0, 0, 0],
      [255, 255, 255],
      [255, 255, 255]
    ]);
    assert.deepEqual(ramp.at(0.5), [255, 1, 1]); // 128 of 255 is just past the middle
    assert.equal(ramp.tints[0], "rgba(0,0,0,1)");
    assert.equal(shared.inksOf(ramp)[255], 0xffffffff);
    assert.equal(shared.inksOf(ramp)[0], 0xff000000);
  });
  test("every palette is nine stops in both themes", () => {
    for (const modes of Object.values(shared.PALETTES))
      for (const mode of ["light", "dark"])
        assert.equal(modes[mode].filter((s) => /^#[0-9a-f]{6}$/i.test(s)).length, 9);
  });
  test("a share's tint is that of its root", () =>
    assert.deepEqual([0, 0.25, 1, 1.5].map(shared.tintOf), [0, 128, 255, 255]));
});

suite("what parts tell each other", () => {
  test("the last word is heard late, and nothing after the end", () => {
    const heard = [];
    shared.tell("a topic", 1);
    const stop = shared.hear("a topic", (value) => heard.push(value));
    shared.tell("a topic", 2);
    stop();
    shared.tell("a topic", 3);
    assert.deepEqual(heard, [1, 2]);
  });
  test("a frame is read by positions of the prompt", () => {
    const frame = { thumbs: Uint8Array.from({ length: 16 }, (_, i) => i), heads: 2, rows: 2, cols: 2, factors: [2, 3] };
    const code = shared.frameCodes(frame, [1, 1]); // the last four bytes
    assert.deepEqual([code(0, 0), code(1, 2), code(0, 3), code(2, 0), code(3, 5)], [12, 12, 13, 14, 15]);
  });
});

suite("heads, cells and keys", () => {
  test("heads that exist", () => {
    const there = [1, 0, 1, 1];
    const found = [
      [0, 0],
      [0, 1],
      [1, 1],
      [2, 0],
      [-1, 0],
      [0, 2]
    ].map((head) => shared.hasHead(there, 2, 2, head));
    assert.deepEqual(found, [true, false, true, false, false, false]);
  });
  test("what a row sees of a window", () => {
    assert.equal(shared.columnsSeen(2, 8, true, [0, 0]), 3);
    assert.equal(shared.columnsSeen(0, 8, true, [4, 6]), 0);
    assert.equal(shared.columnsSeen(7, 8, true, [4, 0]), 8);
    assert.equal(shared.columnsSeen(0, 8, false, [0, 0]), 8);
  });

  test("a plate hides the tokens that it would cut, and no others", () => {
    const hidden = (i, named, size) => {
      const middles = [];
      const ctx = { fillRect: (_x, y, _width, height) => middles.push(y + height / 2) };
      shared.hideNear(ctx, { page: [255, 255, 255] }, { named: [named, named], size: [size, size] }, 0, i, 40);
      return middles;
    };
    assert.deepEqual(hidden(17, [0, 2], 11), [-11, 11], "both beside it, 11 px away");
    assert.deepEqual(hidden(16, [0, 2], 11), [0], "its own; the next are 22 px away");
    assert.deepEqual(hidden(3, [0, 1], 16), [0]);
    assert.deepEqual(hidden(12, [1, 10], 3), [-3], "numbers, of which the first is at 1");
  });
  test("arrows, and none with a modifier", () => {
    const way = (key, more) => [shared.arrowOf({ key, ...more }), shared.alongOf({ key, ...more })];
    assert.deepEqual(way("ArrowLeft"), [[0, -1], -1]);
    assert.deepEqual(way("ArrowDown"), [[1, 0], 1]);
    assert.deepEqual(way("ArrowDown", { altKey: true }), [undefined, 0]);
    assert.deepEqual(way("a"), [undefined, 0]);
  });
});
