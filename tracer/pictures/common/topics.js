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
