// How the two halves of a part find each other: by the key that the host writes into the class of the element around
// each. The container they share would not do: while a list shifts, React lets the halves of two parts stand in one for
// a while.

globalThis.manyeyes ??= {};
const HUB = globalThis.manyeyes;
HUB.cues ??= new Map();
HUB.parts ??= new Map();
HUB.topics ??= new Map();
// parts that wait for `saver`, which draws them into a file; `press` then makes their contexts
HUB.waiting ??= new Set();

/** The key of the element around a part. */
const keyOf = (parent) =>
  (parent.host ?? parent).closest('[class*="st-key-"]')?.className.match(/st-key-(\S+)/)[1] ?? "";
