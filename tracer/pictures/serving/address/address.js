// One entry of the browser's history a view. The host moves to a page at an address that lacks the choices, and brings
// them a moment later, as entries of their own: what changes before anybody has touched the page is the same view.
export default function () {
  if (HUB.address) return;
  HUB.address = true;
  const push = history.pushState.bind(history);
  let fresh = false;
  const touched = () => {
    fresh = false;
  };
  for (const kind of ["pointerdown", "click", "keydown"]) addEventListener(kind, touched, { capture: true });
  history.pushState = (state, unused, url) => {
    const from = new URL(location.href);
    const moved = from.pathname !== new URL(url ?? "", from).pathname;
    if (fresh && !moved) history.replaceState(state, unused, url);
    else push(state, unused, url);
    fresh ||= moved;
  };
}
