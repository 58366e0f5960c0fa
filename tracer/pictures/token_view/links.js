// Which token looks at which, and by how much: what a token view reads out of its bytes, or out of a film that plays.

/**
 * As tracer.pictures.token_view packs it.
 * @typedef {Header & { tokens: string[], texts: string[], start: number, part: boolean, apart: boolean,
 *   triangle: boolean, causal: boolean[], layers: number[] }} TokenViewHeader
 */

/**
 * What of a token is asked: who looks at it instead of where it looks (`back`), through `head` or on average of all
 * (`mean`), by the length of the value too (`weighted`), without the first token (`bare`); `film`: the patterns of the
 * step that plays.
 * @typedef {{ back: boolean, mean: boolean, weighted: boolean, bare: boolean, head?: Head, film?: Uint8Array }} Asked
 */

/** The largest links, most first. @param {Iterable<number[]>} links [share, token] */
function largestLinks(links, count) {
  const best = [];
  for (const link of links) {
    if (link[0] <= 0 || (best.length === count && link[0] <= best[count - 1][0])) continue;
    best.push(link);
    best.sort((a, b) => b[0] - a[0]);
    best.length = Math.min(best.length, count);
  }
  return best;
}

/** @param {TokenViewHeader} head @param {Asked} asked */
function newLinks(head, arrays, asked) {
  const count = head.tokens.length;
  const [layers, heads] = arrays.there.shape;
  const slots = (head.layers[1] - head.layers[0]) * heads; // heads whose patterns are here
  const cells = arrays.means.shape[1]; // of a pattern
  const exists = (one) => hasHead(arrays.there, layers, heads, one);
  const every = Array.from({ length: layers * heads }, (_, i) => [Math.floor(i / heads), i % heads]).filter(exists);
  const kind = () => 2 * +asked.weighted + +asked.bare;
  const cellOf = (q, k) => (head.triangle ? (q * (q + 1)) / 2 + k : q * count + k);
  const decode = (code) => (arrays.shares instanceof Uint16Array ? code / (MISSING - 1) : shareOfCode(code));
  const slotOf = ([layer, one]) => (layer - head.layers[0]) * heads + one;
  /** Are all links of the heads of a layer here? */
  const isKnown = (layer) => !!asked.film || asked.mean || (layer >= head.layers[0] && layer < head.layers[1]);
  /** May q not look at k, which is later? */
  const isLater = (q, k) => k > q && (asked.mean ? head.causal.every(Boolean) : head.causal[asked.head[0]]);

  /** The patterns of a film's frame, if it is of this prompt, token by token. @param {Frame} frame */
  function filmOf(frame) {
    if (!frame || asked.weighted || frame.layers !== layers || frame.heads !== heads) return null;
    return [...frame.n, frame.rows, frame.cols].every((size) => size === count) ? frame.thumbs : null;
  }
  function sum(which, q, slot) {
    // of what a query pays, as `which` kind counts it
    return arrays.sums[(which * (slots + 1) + slot) * count + q];
  }
  /** The share of what a query pays that is left without the first token; NaN where it pays nothing. */
  function shareLeft(q) {
    const slot = asked.mean ? slots : slotOf(asked.head);
    return sum(kind(), q, slot) / sum(kind() - 1, q, slot);
  }
  function shareThrough(/** @type {number[]} */ [layer, one], q, k) {
    if ((head.triangle && k > q) || (asked.bare && head.start + k === 0)) return 0;
    const { film } = asked;
    const row = ((layer * heads + one) * count + q) * count;
    const slot = slotOf([layer, one]);
    const norm = asked.weighted ? arrays.norms[slot * count + k] : 1;
    const raw = film ? shareOfCode(film[row + k]) : decode(arrays.shares[slot * cells + cellOf(q, k)]) * norm;
    const total = film ? 1 - (asked.bare ? shareOfCode(film[row]) : 0) : sum(kind(), q, slot);
    return total > 0 ? Math.min(1, raw / total) : 0;
  }
  function share(q, k) {
    if (!asked.mean) return shareThrough(asked.head, q, k);
    if (!asked.film) return head.triangle && k > q ? 0 : decode(arrays.means[kind() * cells + cellOf(q, k)]);
    return every.reduce((total, one) => total + shareThrough(one, q, k), 0) / every.length;
  }
  const link = (i, j) => (asked.back ? share(j, i) : share(i, j));
  /** [share, token] of any head, whether its pattern is here or not. */
  function strongest(i, /** @type {number[]} */ one) {
    if (asked.film) {
      let best = [0, i];
      for (let j = 0; j < count; j++) {
        const value = asked.back ? shareThrough(one, j, i) : shareThrough(one, i, j);
        if (value > best[0]) best = [value, j];
      }
      return best;
    }
    const [, kinds] = arrays.strongest.shape;
    const cell = (((+asked.back * kinds + kind()) * layers + one[0]) * heads + one[1]) * count + i;
    return [arrays.strongest[cell] / (MISSING - 1), arrays.at[cell]];
  }
  /** The strongest links of a token. */
  function linksOf(i, most = 3) {
    if (!isKnown(asked.head[0])) return largestLinks([strongest(i, asked.head)], 1);
    return largestLinks(
      head.tokens.map((_, j) => [link(i, j), j]),
      most
    );
  }

  return { count, layers, heads, every, exists, isKnown, isLater, filmOf, shareLeft, link, strongest, linksOf };
}
