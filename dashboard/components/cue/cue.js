// The invisible half of a part: hands what changes often (selection, measure, colours) to the part in the same box.
export default function ({ data, parentElement }) {
  const box = boxOf(parentElement);
  HUB.cues.set(box, data);
  HUB.apply.get(box)?.(data);
  return () => {};
}
