// The keys of every page: `?` lists them, `/` goes to the text box that finds heads, or else to the prompt; `o` presses
// the switch of the head in focus, which a strip has inside it; `n` goes on with the tour, whose card may be many tabs
// away. Those of the timeline are its own. A prompt that nobody writes in shows its end.
export default (args) => live(args, makeKeys, { saves: false });

const FIELD_NAMES = ["Find heads", "Prompt"];
const BELOW = ", where a page has a timeline";
const PROMPT = 'textarea[aria-label="Prompt"]';
const TOUCH = globalThis.matchMedia?.("(pointer: coarse)").matches; // no Shift to begin a line with
const TAB_NAME = "Your text"; // behind which Ablate has its prompt
/** @type {{ keys: string[], does: string, where?: () => string }[]} */
const LIST = [
  { keys: ["←", "→", "↑", "↓"], does: "move over heads, tokens and cells" },
  { keys: ["Enter"], does: "choose, hold, or switch off what is in focus" },
  {
    keys: ["o"],
    does: "switch the head in focus off or on",
    where: () => (headSwitch() ? "" : ", where a page has its switch")
  },
  { keys: ["[", "]"], does: "one step back or on along the timeline", where: () => (timeline() ? "" : BELOW) },
  { keys: ["Space"], does: "play training, or stop it", where: () => (timeline() ? "" : BELOW) },
  { keys: ["/"], does: "find heads, or write a prompt: Enter reads it, Shift and Enter begin a line" },
  { keys: ["n"], does: "the tour's next step", where: () => (card() ? "" : ", while you take it") },
  { keys: ["Esc"], does: "let go of what is held" },
  { keys: ["?"], does: "show or hide these keys" }
];
/** @returns {HTMLElement | null} */
const timeline = () => document.querySelector(".st-key-me-scrubber");
/** @returns {HTMLElement | null} */
const headSwitch = () => document.querySelector(".st-key-switch_focus button:enabled") ?? stripSwitch();
function stripSwitch() {
  for (const { shadowRoot } of document.querySelectorAll(".st-key-me-strip *")) {
    /** @type {HTMLElement | null | undefined} */
    const turner = shadowRoot?.querySelector(".turn");
    if (turner && !turner.hidden) return turner;
  }
  return null;
}
/** @returns {HTMLElement | null} */
const card = () => document.querySelector(".st-key-tour");
const field = () => {
  const fields = FIELD_NAMES.map((name) => document.querySelector(`:is(input, textarea)[aria-label="${name}"]`));
  return /** @type {HTMLInputElement | undefined} */ (fields.find(Boolean));
};
function write() {
  const there = field();
  there?.focus();
  there?.select();
  return Boolean(there);
}
/** Open the tab that has the field, and write there once it is drawn; not when another key or click came first. */
function openField() {
  const tab = [...document.querySelectorAll('[role="tab"]')].find((one) => one.textContent === TAB_NAME);
  if (!tab) return false;
  const drawn = new MutationObserver(() => write() && ended.abort());
  const ended = new AbortController();
  ended.signal.addEventListener("abort", () => drawn.disconnect());
  drawn.observe(document.body, { childList: true, subtree: true });
  /** @type {HTMLElement} */ (tab).click();
  for (const kind of ["keydown", "pointerdown"]) {
    document.addEventListener(kind, () => ended.abort(), { signal: ended.signal });
  }
  return true;
}
const isTyping = (event) => {
  const target = event.composedPath()[0];
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable || target.matches("input:not([type=range]), textarea, select"))
  );
};

/** @param {Part} part @returns {View} */
function makeKeys(part) {
  const { root } = part;
  const opener = button("", null, root, () => toggle());
  element("span", "", "Keys ", opener);
  element("kbd", "", "?", opener);
  opener.ariaLabel = "Keyboard help";
  opener.ariaHasPopup = "dialog";
  opener.ariaKeyShortcuts = "?";
  const panel = element("dialog", "", null, root);
  const top = element("header", "", null, panel);
  const title = element("h2", "", "Keys", top);
  const close = button("", "✕", top, () => panel.close());
  const list = element("dl", "", null, panel);
  title.id = "keys-title";
  panel.setAttribute("aria-labelledby", title.id);
  close.ariaLabel = "Close";
  const listKeys = () => {
    list.replaceChildren();
    for (const { keys, does, where } of LIST) {
      const term = element("dt", "", null, list);
      for (const key of keys) element("kbd", "", key, term);
      element("dd", "", does + (where?.() ?? ""), list);
    }
  };
  const toggle = () => {
    if (panel.open) panel.close();
    else {
      listKeys();
      panel.showModal();
    }
  };
  panel.onclick = (event) => {
    // beside it, on the backdrop
    if (event.target === panel) panel.close();
  };
  const pressed = (event) => {
    if (!root.isConnected) return document.removeEventListener("keydown", pressed);
    const box = event.composedPath()[0];
    const composes = event.isComposing || event.keyCode === 229; // the second as Safari says it
    if (event.key === "Enter" && !event.shiftKey && !composes && !TOUCH && box.matches?.(PROMPT)) {
      event.preventDefault();
      box.blur(); // the host reads it then
      return;
    }
    if (event.defaultPrevented || event.metaKey || isTyping(event)) return;
    if (event.ctrlKey || event.altKey) return;
    if (event.key === "?") toggle();
    else if (event.key === "/" && !panel.open) {
      if (!write() && !openField()) return;
    } else if (event.key === "o" && headSwitch() && !panel.open) {
      headSwitch().click();
    } else if (event.key === "n" && card() && !panel.open) {
      const next = ":is(.st-key-tour_next, .st-key-tour_there, .st-key-tour_finish) button";
      /** @type {HTMLElement | null} */ (card().querySelector(next))?.click();
    } else return;
    event.preventDefault();
  };
  const showEnd = (box) => {
    box.scrollLeft = box.scrollWidth;
  };
  const rested = ({ target, animationName }) => {
    if (!root.isConnected) return document.removeEventListener("animationstart", rested);
    if (animationName === "prompt-rests") showEnd(target);
  };
  document.querySelectorAll(PROMPT).forEach(showEnd); // one that was there before this was
  document.addEventListener("keydown", pressed);
  document.addEventListener("animationstart", rested); // styles.css begins one wherever a prompt comes to rest
  nameMenu();
  let was = null;
  return {
    load() {},
    draw() {
      if (was !== null && part.cue.top !== was) root.scrollIntoView({ block: "end" }); // it stands on top
      was = part.cue.top;
    }
  };
}
