// How the patterns of a few heads formed, again and again: a film without sound that stops when it is asked to.

/**
 * As tracer.pictures.forming packs it.
 * @typedef {Header & { labels: string[], steps: number[], scores: number[][] }} FormingHeader
 */

const FRAME_MS = 130;
const REST_MS = 2400; // at the end, before it begins again
const LINE_HEIGHT = 92;
const RIGHT = 44; // pixels for the names of the curves
const NAME_GAP = 12;

/** "L0H1" of "Previous-token head L0H1: what it does". @param {string} label */
const headOf = (label) => label.split(": ")[0].split(" ").at(-1);

export default (args) => live(args, makeForming, { saves: false });

/** @param {Part} part @returns {View} */
function makeForming(part) {
  const { root } = part;
  const heads = element("div", "heads", null, root);
  const below = element("div", "below", null, root);
  const line = element("canvas", "", null, element("div", "line", null, below));
  const bar = element("div", "bar", null, below);
  const play = button("play", null, bar, () => turn(!going));
  const said = element("span", "", null, bar);
  /** @type {FormingHeader} */
  let head;
  let cells;
  let canvases = [];
  let images = [];
  let drawnIn = "";
  let at = 0;
  let going = !matchMedia("(prefers-reduced-motion: reduce)").matches;
  let timer = 0;

  function turn(on) {
    going = on;
    if (on && at === head.steps.length - 1) at = -1;
    next();
  }
  function next() {
    clearTimeout(timer);
    play.textContent = going ? "❚❚" : "▶";
    play.ariaLabel = going ? "Pause the film" : "Play the film";
    if (!going) return;
    if (root.checkVisibility()) {
      at = (at + 1) % head.steps.length;
      paint();
    }
    timer = setTimeout(next, at === head.steps.length - 1 ? REST_MS : FRAME_MS);
  }
  /** Every frame as an image, in the colours of the theme. */
  function develop() {
    if (drawnIn === part.theme.mode) return;
    drawnIn = part.theme.mode;
    const lut = rampOf("attention", drawnIn);
    const [frames, n, side] = cells.shape;
    images = Array.from({ length: frames }, (_, f) =>
      Array.from({ length: n }, (_, h) => {
        const from = (f * n + h) * side * side;
        return heat(side, side, 1, (row, col) => (col > row ? -1 : cells[from + row * side + col]), lut);
      })
    );
  }
  function paint() {
    if (!head || !root.clientWidth) return;
    const size = Math.floor(Math.min(part.cue.max_size, heads.firstElementChild.clientWidth));
    canvases.forEach((canvas, h) => {
      drawHeat(sized(canvas, size, size), images[at][h], 0, 0, size, size);
    });
    drawLine();
    said.textContent = `step ${exactStep(head.steps[at])}`;
  }
  function drawLine() {
    const width = below.clientWidth;
    const ctx = sized(line, width, LINE_HEIGHT);
    const { theme } = part;
    const last = head.steps.length - 1;
    const px = (i) => 30 + ((width - 30 - RIGHT) * head.steps[i]) / head.steps[last];
    const py = (v) => 14 + (LINE_HEIGHT - 32) * (1 - v);
    const look = { colour: theme.muted, font: `400 11px ${theme.mono}`, align: "right", baseline: "middle" };
    for (const v of [0, 1]) {
      strokeLine(ctx, theme.line, 30, py(v), width - RIGHT, py(v));
      writeText(ctx, `${v}`, 22, py(v), look);
    }
    const colours = [theme.muted, theme.text];
    const ends = head.scores.map((scores) => py(scores[last]));
    const named = spreadNames(ends, NAME_GAP, LINE_HEIGHT);
    head.scores.forEach((scores, h) => {
      for (const [upto, alpha] of [
        [last, 0.28],
        [at, 1]
      ]) {
        ctx.strokeStyle = css(colours[h % 2], alpha);
        ctx.lineWidth = 2;
        ctx.beginPath();
        for (let i = 0; i <= upto; i++) ctx.lineTo(px(i), py(scores[i]));
        ctx.stroke();
      }
      fillDisc(ctx, colours[h % 2], px(at), py(scores[at]), 4);
      const bold = { ...look, colour: colours[h % 2], font: `600 11px ${theme.mono}`, align: "left" };
      writeText(ctx, headOf(head.labels[h]), width - RIGHT + 6, named[h], bold);
    });
    writeText(ctx, width > 220 ? "score of each head, step by step" : "score", 30, LINE_HEIGHT - 2, {
      ...look,
      font: `400 11px ${theme.sans}`,
      align: "left",
      baseline: "bottom"
    });
  }

  return {
    load(loaded, arrays) {
      head = loaded;
      cells = arrays.cells;
      drawnIn = "";
      at = head.steps.length - 1;
      heads.replaceChildren();
      canvases = head.labels.map((label, h) => {
        const box = element("div", "", null, heads);
        const [name, does] = label.split(": ");
        element("small", "", does, element("p", "", name, box));
        const canvas = element("canvas", "", null, box);
        canvas.role = "img";
        const [first, final] = [head.scores[h][0], head.scores[h][at]].map((v) => numberOf(v));
        canvas.ariaLabel = `${label}; its score goes from ${first} to ${final} over ${exactStep(head.steps[at])} steps`;
        return canvas;
      });
      line.ariaHidden = "true";
    },
    draw() {
      root.classList.toggle("in-a-line", part.cue.in_a_line);
      develop();
      paint();
      if (!timer) next();
    },
    end: () => clearTimeout(timer)
  };
}
