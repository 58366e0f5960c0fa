// Charts of Plotly come in the colours of one scheme: where the page wears the other one, it is asked for again, once.
export default function ({ data, parentElement, setTriggerValue }) {
  const { mode } = themeOf(parentElement.querySelector(".part"));
  if (mode === data) HUB.asked = null;
  else if (HUB.asked !== mode) {
    HUB.asked = mode;
    setTimeout(() => setTriggerValue("turned", mode), 100);
  }
  return () => {};
}
