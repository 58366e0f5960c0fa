// How the two halves of a part find each other: by the key that the host writes into the class of the element around each.
// The container they share would not do: while a list shifts, React lets the halves of two parts stand in one for a moment.
const HUB = (globalThis.manyeyes ??= { cues: new Map(), parts: new Map(), topics: new Map() });
const keyOf = (parent) => (parent.host ?? parent).closest('[class*="st-key-"]')?.className.match(/st-key-(\S+)/)[1] ?? "";
// What one part tells all others on the page at once, without the host: `frame`, the step that a film shows now; `cursor`,
// the cell of the prompt under the mouse. Who asks later hears the last word.
const topicOf = (name) => HUB.topics.get(name) ?? HUB.topics.set(name, { value: null, ears: new Set() }).get(name);
const tell = (name, value) => { const topic = topicOf(name); topic.value = value; for (const ear of topic.ears) ear(value); };
const hear = (name, ear) => { const topic = topicOf(name); topic.ears.add(ear); if (topic.value != null) ear(topic.value); return () => topic.ears.delete(ear); };
