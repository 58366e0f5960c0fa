// Charts of Plotly over training: while the timeline moves, a line in each goes with it; then the host draws them anew.
const OVER_STEPS = '[class*="_over_steps_chart"] .js-plotly-plot';

export default function () {
  if (HUB.rules) return; // of the whole page, once
  HUB.rules = true;
  hear("moment", (step) => {
    for (const line of document.querySelectorAll(".moment-line")) line.remove();
    if (step != null) for (const chart of document.querySelectorAll(OVER_STEPS)) drawRule(chart, step);
  });
}

/** A line over all panels of a chart, at a step that its axis shows; on a logarithmic one 0 stands at its start. */
function drawRule(chart, step) {
  const { type, range } = chart.layout.xaxis; // as it is after a zoom, in powers of ten where it is logarithmic
  const [from, to] = range.map(Number);
  const at = type === "log" ? Math.max(from, Math.log10(Math.max(step, 0))) : step;
  const panels = [...chart.querySelectorAll(".nsewdrag")].map((panel) => panel.getBoundingClientRect());
  if (!panels.length || at < from || at > to) return;
  const [place] = chart.querySelectorAll(".svg-container");
  const { left, top } = place.getBoundingClientRect();
  const high = Math.min(...panels.map((panel) => panel.top));
  const line = element("div", "moment-line", null, place);
  Object.assign(line.style, {
    position: "absolute",
    pointerEvents: "none",
    width: "1.5px",
    background: "currentColor",
    left: `${panels[0].left - left + ((at - from) / (to - from)) * panels[0].width}px`,
    top: `${high - top}px`,
    height: `${Math.max(...panels.map((panel) => panel.bottom)) - high}px`
  });
}
