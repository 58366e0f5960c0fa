// Not while the host works, nor soon after a click: it may be changing the page. A beat that falls there comes as soon
// as it may, or of two pulses in step the second would never be heard.
export default function ({ data, parentElement, setTriggerValue }) {
  const kinds = ["pointerdown", "click"];
  let touched = 0;
  let due = Date.now() + data;
  const touch = () => {
    touched = Date.now();
  };
  const isBusy = () => document.hidden || Date.now() - touched <= 3000 || isScriptRunning();
  parentElement.stop?.();
  const timer = setInterval(() => {
    if (Date.now() < due || isBusy()) return;
    due = Date.now() + data;
    setTriggerValue("tick", due);
  }, 150);
  for (const kind of kinds) addEventListener(kind, touch, true);
  parentElement.stop = () => {
    clearInterval(timer);
    for (const kind of kinds) removeEventListener(kind, touch, true);
  };
  return parentElement.stop;
}
