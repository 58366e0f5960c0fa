// Whoever follows a link to a card finds it open, and in view until the page stands: what comes above it would push it
// away. A link that opens a single card leads there too. Nothing is held against the reader's own hand.
export default function () {
  if (HUB.landing) return;
  HUB.landing = true;
  const hands = ["wheel", "touchstart", "pointerdown", "keydown"];
  let timer = 0;
  const leave = () => {
    clearInterval(timer);
    for (const hand of hands) removeEventListener(hand, leave, true);
  };
  const land = () => {
    leave();
    const id = decodeURIComponent(location.hash.slice(1)) || new URLSearchParams(location.search).get("cards");
    let still = 0;
    let top = Number.NaN;
    let pressed = false;
    if (!id) return;
    for (const hand of hands) addEventListener(hand, leave, { capture: true, passive: true });
    timer = setInterval(() => {
      const place = document.getElementById(id);
      const card = place?.closest('[class*="st-key-specimen-"]');
      const fold = /** @type {HTMLElement} */ (card?.querySelector("details:not([open]) > summary"));
      if (fold && !pressed) {
        pressed = true;
        fold.click();
      }
      place?.scrollIntoView();
      const now = place?.getBoundingClientRect().top;
      still = now === top && !isScriptRunning() ? still + 1 : 0;
      top = now;
      if (still > 20) leave();
    }, 100);
  };
  addEventListener("hashchange", land);
  land();
}
