// Some frames of a film that is still being shot, where the scrubber finds them by the film's name and their place.

export default (args) => live(args, makeReel, { saves: false });

/** @returns {View} */
function makeReel() {
  HUB.reels ??= new Map();
  const { reels } = HUB;
  let name;
  let first;
  let codes;
  function drop() {
    // unless another part has taken the place
    if (reels.get(name)?.get(first) === codes) reels.get(name)?.delete(first);
    if (!reels.get(name)?.size) reels.delete(name);
  }
  return {
    load(head, { frames }) {
      drop();
      name = head.reel;
      first = head.first;
      codes = frames;
      if (!reels.has(name)) reels.set(name, new Map());
      reels.get(name).set(first, codes);
      tell("reel", name);
    },
    draw() {},
    end: drop
  };
}
