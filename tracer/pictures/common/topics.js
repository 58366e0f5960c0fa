// What one part tells all others on the page at once, without the host: `frame`, the step that a film shows now; `cursor`,
// the cell of the prompt under the mouse. Who asks later hears the last word.
const topicOf = (name) => HUB.topics.get(name) ?? HUB.topics.set(name, { value: null, ears: new Set() }).get(name);
const tell = (name, value) => { const topic = topicOf(name); topic.value = value; for (const ear of topic.ears) ear(value); };
const hear = (name, ear) => { const topic = topicOf(name); topic.ears.add(ear); if (topic.value != null) ear(topic.value); return () => topic.ears.delete(ear); };
