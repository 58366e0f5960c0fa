// Not on a page that is being left: what is asked of it clears the page that comes, which then stays empty. Nor while
// the host works, or soon after a touch: a button may change the page, too. A beat that falls there comes as soon as it
// may, or of two pulses in step the second would never be heard; nor does a page's second one ask together with its
// first, for then the host would draw one part alone, and always the same.
let asked = 0; // by any pulse
const dues = new Map(); // of all pulses by their timers: who has waited longest asks first
export default function ({ data, parentElement, setTriggerValue }) {
  // of the page that it was mounted on, whatever has been drawn anew since
  parentElement.pulse ??= { path: location.pathname, left: false };
  const page = parentElement.pulse;
  let touched = 0;
  let due = Date.now() + data;
  const touch = (event) => {
    touched = Date.now();
    const link = event.composedPath()[0].closest?.("a[href]");
    const follows = link && event.type === "click" && !link.target && !link.download;
    if (follows && !event.ctrlKey && !event.metaKey && !event.shiftKey) page.left ||= link.pathname !== page.path;
  };
  const isLeft = () => page.left || location.pathname !== page.path; // Back changes the address first
  const isBusy = () =>
    document.hidden || Date.now() - touched <= 3000 || Date.now() - asked <= 300 || isScriptRunning();
  const kinds = ["pointerdown", "click"];
  parentElement.stop?.();
  const timer = setInterval(() => {
    if (isLeft()) return void dues.delete(timer); // nobody waits for it
    if (Date.now() < due || isBusy() || due > Math.min(...dues.values())) return;
    asked = Date.now();
    due = asked + data;
    dues.set(timer, due);
    setTriggerValue("tick", due);
  }, 150);
  dues.set(timer, due);
  for (const kind of kinds) addEventListener(kind, touch, true);
  parentElement.stop = () => {
    clearInterval(timer);
    dues.delete(timer);
    for (const kind of kinds) removeEventListener(kind, touch, true);
  };
  return parentElement.stop;
}
