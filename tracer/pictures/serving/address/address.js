// One entry of the browser's history a touch. The host tells one choice in several addresses, each as an entry of its
// own: without choices, with some that the page lacks, of the old page before it moves to the new one. The first after
// a touch is an entry, the others take its place.
// Back and Forward lead to where the reader was in a view, as soon as it is that long again.
export default function () {
  if (HUB.address) return;
  HUB.address = true;
  const push = history.pushState.bind(history);
  const leaves = keepPlaces();
  let touched = false; // since the last entry
  for (const kind of ["pointerdown", "click", "keydown"]) {
    addEventListener(kind, () => (touched = true), { capture: true });
  }
  history.pushState = (state, unused, url) => {
    const from = new URL(location.href);
    if (from.pathname !== new URL(url ?? "", from).pathname) leaves();
    if (touched) push(state, unused, url);
    else history.replaceState(state, unused, url);
    touched = false;
  };
}

/** @returns {() => void} what says that this view is left by a click; by then the host may have gone to its top */
function keepPlaces() {
  const places = new Map(); // by address, in pixels from the top
  let clicked = { view: location.href, top: 0 };
  const note = () => (clicked = { view: location.href, top: hostScroller()?.scrollTop ?? 0 });
  addEventListener("click", note, { capture: true });
  const hands = ["wheel", "touchstart", "pointerdown", "keydown"];
  let timer = 0;
  const leave = () => {
    clearInterval(timer);
    timer = 0;
  };
  const scrolled = (event) => {
    if (!timer && event.target === hostScroller()) places.set(location.href, event.target.scrollTop);
  };
  addEventListener("scroll", scrolled, { capture: true, passive: true });
  for (const hand of hands) addEventListener(hand, leave, { capture: true, passive: true });
  addEventListener("popstate", () => {
    const place = places.get(location.href);
    leave();
    if (!place) return;
    let still = 0;
    let left = 100; // ten seconds of a page that is done: a view may have become shorter
    timer = setInterval(() => {
      const scroller = hostScroller();
      if (!scroller) return;
      scroller.scrollTop = place;
      still = Math.abs(scroller.scrollTop - place) < 2 && !isScriptRunning() ? still + 1 : 0;
      if (!isScriptRunning()) left -= 1;
      if (still > 5 || !left) leave();
    }, 100);
  });
  return () => places.set(clicked.view, clicked.top);
}
