// As much of a document as a picture needs that is built and drawn without a browser: its words, not its pixels.

const canvas = () => {
  const ways = { measureText: (text) => ({ width: 7 * text.length }) };
  return new Proxy(ways, { get: (own, name) => own[name] ?? (() => {}) });
};

export function newNode() {
  const context = canvas();
  return {
    children: [],
    style: {},
    dataset: {},
    classList: { toggle() {}, add() {}, remove() {} },
    clientWidth: 600,
    append(...more) {
      this.children.push(...more);
      for (const one of more) if (one.children) one.parentElement = this;
    },
    replaceChildren(...all) {
      this.children = all;
    },
    setAttribute() {},
    toggleAttribute() {},
    querySelector: () => null,
    getBoundingClientRect: () => ({ left: 0, top: 0, width: 600, height: 600 }),
    getContext: () => context,
    get textContent() {
      return this.children.map((one) => one.textContent ?? one).join("");
    },
    set textContent(text) {
      this.children = [text];
    }
  };
}

/** A part that is shown nowhere. */
export function newPart(cue) {
  Object.assign(globalThis, {
    document: { createElement: newNode, documentElement: newNode(), addEventListener() {}, removeEventListener() {} },
    devicePixelRatio: 1,
    matchMedia: () => ({ matches: false }),
    requestAnimationFrame: (draw) => draw() ?? 0,
    cancelAnimationFrame() {},
    ImageData: class {
      constructor(width, height) {
        Object.assign(this, { width, height, data: new Uint8ClampedArray(4 * width * height) });
      }
    },
    OffscreenCanvas: class {
      getContext = canvas;
    }
  });
  const colour = [0, 0, 0];
  const theme = { page: colour, text: colour, muted: colour, line: colour, faint: colour, mode: "light" };
  return { root: newNode(), theme, cue, sent: 0, send() {}, draw() {} };
}
