// One entry of the browser's history a view. The host moves to a page at an address that lacks the choices, and brings
// them a moment later, as entries of their own: what changes before anybody has touched the page is the same view.
// Back and Forward lead to where the reader was in it, as soon as it is that long again.
export default function () {
  if (HUB.address) return;
  HUB.address = true;
  const push = history.pushState.bind(history);
  const leaves = keepPlaces();
  let fresh = true;
  const touched = () => {
    fresh = false;
  };
  for (const kind of ["pointerdown", "click", "keydown"]) addEventListener(kind, touched, { capture: true });
  history.pushState = (state, unused, url) => {
    const from = new URL(location.href);
    const moved = from.pathname !== new URL(url ?? "", from).pathname;
    if (moved) leaves();
    if (fresh && !moved) history.replaceState(state, unused, url);
    else push(state, unused, url);
    fresh ||= moved;
  };
}

/** @returns {() => void} what says that this view is left by a click; by then the host may have gone to its top */
function keepPlaces() {
  const places = new Map(); // by address, in pixels from the top
  let clicked = 0;
  addEventListener("click", () => (clicked = hostScroller()?.scrollTop ?? 0), { capture: true });
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
  return () => places.set(location.href, clicked);
}
