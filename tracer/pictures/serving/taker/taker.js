// A button that takes the page along: it tells Python how the charts stand that only a browser can draw, and saves the
// file that comes back.
export default function ({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".part");
  let me = TAKERS.get(root);
  if (!me) {
    const button = Object.assign(element("button", "take", "", root), { type: "button" });
    const said = element("p", "said", "", root);
    said.setAttribute("role", "status");
    me = { button, said, saved: 0 };
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
    const link = element("a");
    const url = URL.createObjectURL(new Blob([data.html], { type: "text/html" }));
    me.saved = data.time;
    Object.assign(link, { href: url, download: data.name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 30_000);
    me.said.textContent = `Saved ${data.name}, ${(data.html.length / 1e6).toFixed(1)} MB.`;
  }
  me.button.disabled = false;
  return () => {};
}

const TAKERS = new WeakMap();
