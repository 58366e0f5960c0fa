// All that the scripts lean on of how Streamlit and Plotly build a page; the rules of style are in
// dashboard/styles.css.
const APP = '[data-testid="stApp"]';
/** @returns {HTMLElement} */
const hostApp = () => document.querySelector(APP);
/** What scrolls: the page itself does not. @returns {HTMLElement | null} */
const hostScroller = () => document.querySelector('[data-testid="stMain"]');
const isScriptRunning = () => hostApp().dataset.testScriptState === "running";
/** The host calls the button that opens the menu after a sidebar, which nobody sees; it makes it anew each time. */
function nameMenu() {
  const header = document.querySelector('[data-testid="stHeader"]');
  const name = () => header?.querySelector('[data-testid="stExpandSidebarButton"]')?.setAttribute("aria-label", "Menu");
  name();
  if (header) new MutationObserver(name).observe(header, { childList: true, subtree: true });
}
const CHART = ".js-plotly-plot";
function chartSvg(chart, page) {
  // its layers as one, on the page's colour
  const layers = [...chart.querySelectorAll(".svg-container > .main-svg")];
  const whole = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const sheet = layers[0].cloneNode();
  const [width, height] = ["width", "height"].map((side) => layers[0].getAttribute(side));
  for (const [name, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) {
    whole.setAttribute(name, value);
  }
  sheet.style.background = page;
  whole.setAttribute("style", sheet.getAttribute("style"));
  for (const layer of layers) whole.append(layer.cloneNode(true));
  return new XMLSerializer().serializeToString(whole);
}

/**
 * The key of the element around a part, by which its two halves find each other. The container they share would not do:
 * while a list shifts, React lets the halves of two parts stand in one for a while.
 */
const keyOf = (parent) =>
  (parent.host ?? parent).closest('[class*="st-key-"]')?.className.match(/st-key-(\S+)/)[1] ?? "";
