// The life of a part: mount, load, cue, resize, theme switch, fonts.

/** @type {WeakMap<Element, Part>} */
const PARTS = new WeakMap();

/** @param {(part: Part) => View} make @returns {Part} */
function newPart(root, host, key, make, saves) {
  let frame = 0;
  let width = 0;
  let timer = 0;
  const show = () => {
    frame = 0;
    if (!part.ready || !part.cue || !root.clientWidth) return;
    part.view.draw();
    host.dataset.drawn = "";
    part.offers?.();
  };
  /** @type {Part} */
  const part = {
    root,
    key,
    sent: 0,
    draw() {
      frame ||= requestAnimationFrame(show);
    },
    send(value, wait = 0) {
      part.cue.value = value;
      part.sent = Date.now();
      clearTimeout(timer);
      const pick = { value, time: part.sent };
      timer = setTimeout(() => part.state("pick", pick), wait);
    },
    take(cue) {
      // a cue older than the reader's last pick must not take the pick back
      part.cue = { ...cue, value: cue.seen < part.sent ? part.cue.value : cue.value };
      part.draw();
    },
    end() {
      part.view.end?.();
      observer.disconnect();
      cancelAnimationFrame(frame);
      clearTimeout(timer);
      PARTS.delete(root);
      HUB.waiting.delete(part);
    }
  };
  const observer = new ResizeObserver(() => {
    if (root.clientWidth === width) return;
    width = root.clientWidth;
    part.draw();
  });
  observer.observe(root);
  part.view = make(part);
  if (saves && HUB.saver) HUB.saver(part);
  else if (saves) HUB.waiting.add(part);
  PARTS.set(root, part);
  document.fonts?.ready.then(part.draw);
  return part;
}

/** Makes a part or brings it up to date. @param {HostArguments} args @param {(part: Part) => View} make */
async function live({ data, parentElement, setStateValue }, make, { saves = true } = {}) {
  const root = parentElement.querySelector(".part");
  const host = parentElement.host ?? parentElement;
  const key = keyOf(parentElement);
  const part = PARTS.get(root) ?? newPart(root, host, key, make, saves);
  part.state = setStateValue;
  part.theme = themeOf(host);
  root.dataset.mode = part.theme.mode;
  const takes = HUB.parts.get(key) ?? new Set();
  HUB.parts.set(key, takes.add(part.take));
  if (HUB.cues.has(key)) part.take(HUB.cues.get(key));
  if (!(data instanceof Uint8Array)) part.ready = true;
  else {
    const { head, body } = headerOf(data);
    if (part.version !== head.version) {
      part.version = head.version;
      const arrays = await arraysOf(head, body);
      if (part.version === head.version) {
        part.last = [head, arrays];
        part.view.load(head, arrays);
        part.ready = true;
      }
    }
  }
  part.draw();
  return () => {
    // also called, late, for a payload that another one has overtaken: then the part lives on
    if (root.isConnected) return;
    part.end();
    takes.delete(part.take);
  };
}

/** @type {Map<string, CSSStyleSheet>} */
const SHEETS = new Map();
const sheetOf = (name) => {
  if (!SHEETS.has(name)) {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(STYLES[name]);
    SHEETS.set(name, sheet);
  }
  return SHEETS.get(name);
};

/** Gives a root of its own the style of its part. */
function dress(root, name) {
  if (!root.adoptedStyleSheets.length) root.adoptedStyleSheets = [sheetOf("shared"), sheetOf(name)];
}

/** Draws the part that an element of the host names, in a root of its own. @param {HostArguments} args */
function drawElement(args) {
  const name = args.parentElement.querySelector(".part").classList[1];
  dress(args.parentElement, name);
  return VIEWS[name](args);
}
