// Asks for its fragment again every `data` milliseconds, with the host's own timer's fault mended: that one also fires
// while a click is changing the page, and the host then clears the page that came. So not soon after a click or a key.
export default function ({ data, parentElement, setTriggerValue }) {
  const QUIET = 3000, app = document.querySelector('[data-testid="stApp"]');
  let touched = 0;
  const isTyping = ({ target }) => target instanceof HTMLElement && target.matches("input, textarea");
  const touch = (event) => {
    if (event.type !== "keydown" || event.key === "Enter" || (event.key === " " && !isTyping(event))) touched = Date.now();
  };
  const kinds = ["pointerdown", "click", "keydown"];
  const isBusy = () => document.hidden || Date.now() - touched < QUIET || app?.dataset.testScriptState === "running";
  parentElement.stopPulse?.();
  const timer = setInterval(() => { if (!isBusy()) setTriggerValue("tick", Date.now()); }, data);
  for (const kind of kinds) document.addEventListener(kind, touch, true);
  return (parentElement.stopPulse = () => {
    clearInterval(timer);
    for (const kind of kinds) document.removeEventListener(kind, touch, true);
  });
}
