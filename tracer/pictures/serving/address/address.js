// One entry of the browser's history a view. The host moves to a page at an address that lacks the choices and brings
// them a moment later, as an entry of its own: Back from there would lead to the same view.
export default function () {
  if (HUB.address) return;
  HUB.address = true;
  const push = history.pushState.bind(history);
  let bare = "";
  history.pushState = (state, unused, url) => {
    const from = new URL(location.href);
    const to = new URL(url ?? "", from);
    const moved = from.pathname !== to.pathname;
    if (!moved && bare === from.href) history.replaceState(state, unused, url);
    else push(state, unused, url);
    bare = moved && !to.search ? to.href : "";
  };
}
