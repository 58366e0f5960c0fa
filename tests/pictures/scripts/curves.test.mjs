// Head curves: which line is under the mouse, and where names stand.
import assert from "node:assert/strict";
import { test } from "node:test";
import { newPart } from "./dom.mjs";
import { load, python } from "./loading.mjs";

const own = ["nearestLine", "spreadNames", "dashesAcross", "quietOf", "luminance", "rgb", "newChart"];
const { nearestLine, spreadNames, dashesAcross, quietOf, luminance, rgb, newChart } = load(own, "curves");
const LINES = JSON.parse(
  `${python("import json; from tracer.pictures.colours import LINES; print(json.dumps(LINES))")}`
);
const XS = [0, 100, 200];
const HEIGHTS = [
  [0, 0, 0],
  [50, 150, 50]
];
const yOf = (line, step) => HEIGHTS[line][step];
const EVERY = [
  [0, 1, 2],
  [0, 1, 2]
];

for (const [name, spot, found] of [
  ["on the flat line", [90, 2], { line: 0, step: 1 }],
  ["on the slope, near its start", [20, 72], { line: 1, step: 0 }],
  ["on the slope, near its top", [90, 140], { line: 1, step: 1 }],
  ["too far from any", [100, 75], null],
  ["past the end", [230, 50], { line: 1, step: 2 }]
])
  test(`the line ${name}`, () => assert.deepEqual(nearestLine(EVERY, XS, yOf, spot), found));

test("a line is found between its measured steps", () =>
  assert.deepEqual(nearestLine([[0, 2]], XS, yOf, [100, 0]), { line: 0, step: 0 }));
test("names are pushed apart and kept above the foot", () => {
  assert.deepEqual(spreadNames([10, 100], 14, 200), [10, 100]);
  assert.deepEqual(spreadNames([12, 10], 14, 200), [24, 10]);
  assert.deepEqual(spreadNames([200, 198, 10], 14, 200), [200, 186, 10]);
});
test("a legend draws a way of dashing as the lines do", () => {
  assert.equal(dashesAcross([]), "currentColor");
  const two = "currentColor 0px 6px, transparent 6px 10px, currentColor 10px 12px, transparent 12px 15px";
  assert.equal(dashesAcross([6, 4, 2, 3]), `repeating-linear-gradient(90deg, ${two})`);
});
test("steps of a chart stand below those of the timeline, on a wide page", () => {
  globalThis.getComputedStyle = () => ({ fontSize: "16px" });
  const cue = { colours: { light: ["#000000"] }, scale: { label: "", unit: "" }, height: 260, on_timeline: true };
  const ways = { measureText: () => ({ width: 7 }) };
  for (const [wide, ends] of [
    [1392, [174.2, 1392 - 196.6]],
    [600, [52, 588]]
  ]) {
    const part = newPart({ ...cue, x_label: "step" });
    part.root.clientWidth = wide;
    const chart = newChart(part);
    const head = { labels: ["a"], groups: [0], group_names: [], dashes: [], log_y: false, lo: 0, hi: 1 };
    chart.load(head, { steps: Float64Array.of(0, 10), lines: new Uint16Array(2) });
    chart.layOut(new Proxy(ways, { get: (from, name) => from[name] ?? (() => {}), set: () => true }));
    assert.deepEqual(chart.layout.xs, ends);
  }
});
test("names of lines in focus that end low stand apart, and above the foot", () => {
  const labels = Array.from({ length: 20 }, (_, i) => `L0H${i}`);
  const scale = { label: "", unit: "" };
  const part = newPart({ colours: { light: ["#000000"] }, scale, height: 260, selectable: true, x_label: "step" });
  const chart = newChart(part);
  const head = { labels, groups: labels.map(() => 0), group_names: [], dashes: [], log_y: false, lo: 0, hi: 1 };
  const lines = new Uint16Array(40);
  lines[39] = 65534;
  chart.load(head, { steps: Float64Array.of(0, 10), lines });
  const names = new Map();
  const ways = { measureText: (text) => ({ width: 7 * text.length }), fillText: (text, _, y) => names.set(text, y) };
  const ctx = new Proxy(ways, { get: (from, name) => from[name] ?? (() => {}), set: () => true });
  chart.layOut(ctx);
  chart.drawNames(ctx, [0, 1, 2, 3], true);
  const heights = [...names.values()].sort((a, b) => a - b);
  assert.equal(heights.length, 4);
  for (let i = 1; i < 4; i++) assert.ok(heights[i] - heights[i - 1] >= 12.9, `${heights}`);
  assert.ok(heights[3] <= chart.layout.top + chart.layout.height);
});
test("lines that end near chance have one name, but for the chosen one", () => {
  const labels = Array.from({ length: 8 }, (_, i) => `L0H${i}`);
  const scale = { label: "", unit: "", chance: 0.02, mark: "chance" };
  const cue = { colours: { light: ["#000000"] }, scale, height: 260, selectable: true, x_label: "step", value: "L0H1" };
  const chart = newChart(newPart(cue));
  const head = { labels, groups: labels.map(() => 0), group_names: [], dashes: [], log_y: false, lo: 0, hi: 1 };
  const lines = new Uint16Array(16);
  lines[1] = 65534; // L0H0 ends at 1, the others at 0
  chart.load(head, { steps: Float64Array.of(0, 10), lines });
  const names = [];
  const ways = { measureText: (text) => ({ width: 7 * text.length }), fillText: (text) => names.push(text) };
  const ctx = new Proxy(ways, { get: (from, name) => from[name] ?? (() => {}), set: () => true });
  chart.layOut(ctx);
  chart.drawNames(ctx, [1], false);
  assert.deepEqual(names.toSorted(), ["6 others near chance", "L0H0", "L0H1"]);
  assert.equal(chart.namedAt([chart.layout.right + 20, chart.layout.ends.at(-1).at]), -1);
  cue.scale.mark = "a hundredth";
  chart.layOut(ctx);
  assert.equal(chart.layout.ends.length, 8);
});

for (const [mode, page] of [
  ["light", rgb("#ffffff")],
  ["dark", rgb("#0f1218")]
])
  test(`lines that step back can still be seen: ${mode}`, () => {
    for (const colour of LINES[mode].map(rgb)) {
      const lights = [quietOf(colour, page), page].map((one) => luminance(one) + 0.05);
      assert.ok(Math.max(...lights) / Math.min(...lights) >= 3);
      assert.notDeepEqual(quietOf(colour, page), colour);
    }
  });
