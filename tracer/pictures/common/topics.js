// What the parts of a page share (HUB), and what one tells all others at once, without the host: `moment`, the step
// that the timeline is moved to; `frame`, its picture where it was filmed; `cursor`, the cell of the prompt under the
// mouse. Who asks later hears the last word.

globalThis.manyeyes ??= {};
const HUB = globalThis.manyeyes;
HUB.cues ??= new Map();
HUB.parts ??= new Map();
HUB.topics ??= new Map();
// parts that wait for `saver`, which draws them into a file; `press` then makes their contexts
HUB.waiting ??= new Set();

function topicOf(name) {
  if (!HUB.topics.has(name)) HUB.topics.set(name, { value: null, listeners: new Set() });
  return HUB.topics.get(name);
}

function tell(name, value) {
  const topic = topicOf(name);
  topic.value = value;
  for (const listener of topic.listeners) listener(value);
}

/** Calls `listener` with every word on a topic; returns what stops it. */
function hear(name, listener) {
  const topic = topicOf(name);
  topic.listeners.add(listener);
  if (topic.value != null) listener(topic.value);
  return () => topic.listeners.delete(listener);
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
