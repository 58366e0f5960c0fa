// The invisible half of a part: hands what changes often (selection, measure, colours) to the part of the same key.
export default function ({ data, parentElement }) {
  const key = keyOf(parentElement).replace(/-cue$/, "");
  HUB.cues.set(key, data);
  for (const take of HUB.parts.get(key) ?? []) take(data);
  return () => {};
}
