// Not while the host works, nor soon after a click: it may be changing the page.
export default function ({ data, parentElement, setTriggerValue }) {
  const app = document.querySelector("[data-testid=stApp]"), kinds = ["pointerdown", "click"];
  let touched = 0;
  const touch = () => { touched = Date.now(); };
  parentElement.stop?.();
  const timer = setInterval(() => {
    if (!document.hidden && Date.now() - touched > 3000 && app.dataset.testScriptState !== "running") setTriggerValue("tick", Date.now());
  }, data);
  for (const kind of kinds) addEventListener(kind, touch, true);
  return (parentElement.stop = () => { clearInterval(timer); for (const kind of kinds) removeEventListener(kind, touch, true); });
}
