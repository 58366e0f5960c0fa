// A button that takes the page along: it tells Python how the charts stand that only a browser can draw, and saves the
// file that comes back.
export default function ({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".part");
  let me = TAKERS.get(root);
  if (!me) {
    me = { button: button("take", "", root), said: element("p", "said", "", root), saved: 0 };
    me.said.role = "status";
    TAKERS.set(root, me);
  }
  me.button.textContent = data.label;
  me.button.onclick = () => {
    me.button.disabled = true;
    me.said.textContent = "Putting it together …";
    const page = getComputedStyle(root).getPropertyValue("--st-background-color");
    const charts = [...document.querySelectorAll(CHART)].map((chart) => [keyOf(chart), chartSvg(chart, page)]);
    setTriggerValue("take", { time: Date.now(), stills: Object.fromEntries(charts) });
  };
  if (!data.html) return () => {};
  if (data.time !== me.saved) {
    me.saved = data.time;
    saveAs(data.name, new Blob([data.html], { type: "text/html" }));
    me.said.textContent = `Saved ${data.name}, ${(data.html.length / 1e6).toFixed(1)} MB.`;
  }
  me.button.disabled = false;
  return () => {};
}

const TAKERS = new WeakMap();
