// A film of a prompt: its frames, the one that the page shows, and how a picture follows it.

const ROLE_NOT_SAID = 255;

/**
 * As tracer.pictures.scrubber packs it. `cells`: layers, heads, rows and columns of a frame; `reel`: of a live run, the
 * name under which its frames come, `every` so many of them in a part of its own. `only`: the head that is measured.
 * `words`: of its guesses.
 * @typedef {Header & { measures: string[], ranges: [number, number][], loss: string, cells: number[], n: number[],
 *   factors: number[], causal: boolean[], only?: Head, reel?: string, every?: number,
 *   words?: string[] }} ScrubberHeader
 */

/** The last of the steps that are nearest to one. @param {ArrayLike<number>} steps */
function nearestStep(steps, step) {
  let best = 0;
  for (let i = 1; i < steps.length; i++) if (Math.abs(steps[i] - step) <= Math.abs(steps[best] - step)) best = i;
  return best;
}

/** A measure of a head at the i-th step of a timeline. @param {ScrubberHeader} header */
function codedAt({ only, ranges }, arrays, measure, i, [layer, one]) {
  const codes = arrays[`measure${measure}`];
  const [lo, hi] = ranges[measure];
  if (only) return layer === only[0] && one === only[1] ? valueOfCode(codes[i], lo, hi) : Number.NaN;
  return valueOfCode(codes[(i * codes.shape[1] + layer) * codes.shape[2] + one], lo, hi);
}

/** What the model would say next in a frame. @param {ScrubberHeader} header @returns {Guesses | null} */
function guessesOf({ words }, { guessed, shares, losses }, place) {
  if (!guessed || guessed[place * guessed.shape[1]] === MISSING) return null;
  const [from, to] = [place * guessed.shape[1], (place + 1) * guessed.shape[1]];
  const said = [...guessed.subarray(from, to)].map((word) => words[word]);
  return { words: said, shares: [...shares.subarray(from, to)], loss: losses[place] };
}

/** The frame at the i-th step of a timeline, of which these are the pictures. @param {ScrubberHeader} header */
function frameOf(header, arrays, i, thumbs) {
  const [layers, heads, rows, cols] = header.cells;
  const { version, n, factors, causal } = header;
  const value = (name, layer, one) => {
    const measure = header.measures.indexOf(name);
    return measure < 0 ? Number.NaN : codedAt(header, arrays, measure, i, [layer, one]);
  };
  const codeIn = (codes, layer, one) => codes?.[(i * layers + layer) * heads + one];
  const role = (layer, one) => codeIn(arrays.roles, layer, one) ?? ROLE_NOT_SAID;
  const lost = (layer, one) => codeIn(arrays.lost, layer, one) ?? 0;
  const guesses = guessesOf(header, arrays, arrays.film[i]);
  const size = { layers, heads, rows, cols };
  return { index: i, step: arrays.steps[i], version, thumbs, ...size, n, factors, causal, value, role, lost, guesses };
}

/** Tells all pictures, and the page: a number of the host's is of another step. @param {Frame | null} frame */
function showFrame(frame) {
  document.documentElement.toggleAttribute("data-film", !!frame);
  tell("frame", frame);
}

/**
 * The frame of a film that plays; its own payload again once the host has drawn the step: then `settle` drops it.
 * @param {Part} part
 */
function followFilm(part, repaint) {
  /** @type {Frame | null} */
  let frame = null;
  let ending = false;
  let waiting = 0;
  const loaded = () => part.last?.[0].version; // not that of bytes which are still being read
  const stop = hear("frame", (told) => {
    ending = !told && frame != null;
    frame = told ?? frame;
    waiting ||= requestAnimationFrame(() => {
      waiting = 0;
      repaint();
    });
  });
  return {
    frame: () => frame,
    /** Have the bytes of the step come? @returns {boolean} whether a frame was dropped */
    settle(arrived = loaded() === (part.cue.version ?? loaded())) {
      if (!ending || !arrived) return false;
      frame = null;
      ending = false;
      return true;
    },
    stop() {
      stop();
      cancelAnimationFrame(waiting);
    }
  };
}

/**
 * Reads the bytes of one head's pattern in a frame by positions in the prompt.
 * @param {Frame} frame
 * @param {Head} head
 */
function frameCodes({ thumbs, heads, rows, cols, factors }, [layer, head]) {
  const start = (layer * heads + head) * rows * cols;
  return (query, key) => thumbs[start + Math.floor(query / factors[0]) * cols + Math.floor(key / factors[1])];
}
