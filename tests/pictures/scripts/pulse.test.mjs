// Pulses of one page: how they share the asking.
import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./loading.mjs";

test("eight pulses that ring at once are all heard, one at a time", (t) => {
  const app = { dataset: { testScriptState: "notRunning" } };
  Object.assign(globalThis, {
    document: { hidden: false, querySelector: () => app },
    location: { pathname: "/specimens" },
    addEventListener() {},
    removeEventListener() {}
  });
  t.mock.timers.enable({ apis: ["setInterval", "Date"] });
  const { entry } = load(["entry"], "pulse");
  const heard = [];
  const stops = Array.from({ length: 8 }, (_, i) =>
    entry({ data: 2000, parentElement: {}, setTriggerValue: () => heard.push([i, Date.now()]) })
  );
  for (let beat = 0; beat < 200; beat++) t.mock.timers.tick(150);
  for (const stop of stops) stop();
  const times = heard.map(([, at]) => at);
  assert.ok(times.every((at, i) => i === 0 || at - times[i - 1] > 300));
  const counts = Array.from({ length: 8 }, (_, i) => heard.filter(([who]) => who === i).length);
  assert.ok(Math.min(...counts) >= 7 && Math.max(...counts) - Math.min(...counts) <= 1, `${counts}`);
  const before = heard.length;
  t.mock.timers.tick(5000);
  assert.equal(heard.length, before);
});
