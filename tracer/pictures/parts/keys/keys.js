// The keys of every page: `?` lists them, `/` goes to the text box that finds heads, or else to the prompt; `[` and `]`
// move the slider of the step where no timeline does; `n` goes on with the tour, whose card may be many tabs away.
export default function (args) { return live(args, makeKeys, { saves: false }); }

const FIELDS = ["Find heads", "Prompt"];
const LIST = [
  [["←", "→", "↑", "↓"], "move over heads, tokens and cells"],
  [["Enter"], "choose, hold, or switch off what is in focus"],
  [["[", "]"], "one snapshot back or on", () => timeline() || slider() ? "" : ", where a page has a step"],
  [["Space"], "play training, or stop it", () => timeline() ? "" : ", on Heads"],
  [["/"], "find heads, or write a prompt"],
  [["n"], "the tour's next step", () => card() ? "" : ", while you take it"],
  [["Esc"], "let go of what is held"],
  [["?"], "show or hide these keys"],
];
const timeline = () => document.querySelector(".st-key-me-scrubber");
const slider = () => document.querySelector('.st-key-step_box input[type="range"]');
const card = () => document.querySelector(".st-key-tour");
const isTyping = (event) => {
  const target = event.composedPath()[0];
  return target instanceof HTMLElement && (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName)) && target.type !== "range";
};
function move(way) { // as its own arrow keys do
  const init = { key: `Arrow${way}`, code: `Arrow${way}`, bubbles: true, cancelable: true };
  for (const kind of ["keydown", "keyup"]) slider().dispatchEvent(new KeyboardEvent(kind, init));
}

function makeKeys(me) {
  const { root } = me;
  const opener = el("button", "", null, root);
  el("span", "", "Keys ", opener); el("kbd", "", "?", opener);
  opener.type = "button"; opener.ariaLabel = "Keyboard help"; opener.ariaHasPopup = "dialog"; opener.ariaKeyShortcuts = "?";
  const panel = el("dialog", "", null, root), top = el("header", "", null, panel);
  const title = el("h2", "", "Keys", top), close = el("button", "", "✕", top), list = el("dl", "", null, panel);
  title.id = "keys-title"; panel.setAttribute("aria-labelledby", title.id);
  close.type = "button"; close.ariaLabel = "Close";
  const write = () => {
    list.replaceChildren();
    for (const [keys, does, where] of LIST) {
      const term = el("dt", "", null, list);
      for (const key of keys) el("kbd", "", key, term);
      el("dd", "", does + (where?.() ?? ""), list);
    }
  };
  const toggle = () => { if (panel.open) panel.close(); else { write(); panel.showModal(); } };
  opener.onclick = toggle;
  close.onclick = () => panel.close();
  panel.onclick = (event) => { if (event.target === panel) panel.close(); };  // beside it, on the backdrop
  const pressed = (event) => {
    if (!root.isConnected) return document.removeEventListener("keydown", pressed);
    if (event.defaultPrevented || event.metaKey || isTyping(event)) return;
    const way = { "[": "Left", "]": "Right" }[event.key]; // on some keyboards typed with Alt, or with AltGr: Ctrl and Alt
    if (way && !panel.open && !timeline() && slider() && event.altKey >= event.ctrlKey) { event.preventDefault(); move(way); return; }
    if (event.ctrlKey || event.altKey) return;
    if (event.key === "?") toggle();
    else if (event.key === "/" && !panel.open) {
      const field = FIELDS.map((name) => document.querySelector(`:is(input, textarea)[aria-label="${name}"]`)).find(Boolean);
      if (!field) return;
      field.focus(); field.select();
    } else if (event.key === "n" && card() && !panel.open) card().querySelector(":is(.st-key-tour_next, .st-key-tour_there, .st-key-tour_finish) button")?.click();
    else return;
    event.preventDefault();
  };
  document.addEventListener("keydown", pressed);
  let was = null;
  return {
    load() {},
    draw() {
      if (was !== null && me.cue.top !== was) root.scrollIntoView({ block: "end" }); // it stands on top
      was = me.cue.top;
    },
  };
}
