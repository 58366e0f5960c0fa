// What a model would say next, the likeliest first, and its loss on the text: of the page's step, or of a film's.

export default (args) => live(args, makeGuesses, { saves: false });

/** To two digits: there are five of them in a line. */
const shareText = (value) => (Number.isFinite(value) && value < 0.005 ? "<.01" : numberOf(value ?? Number.NaN));

/** @param {Part} part @returns {View} */
function makeGuesses(part) {
  const body = element("div", "next", null, part.root);
  element("b", "", "Next token", body);
  const list = element("ol", "", null, body);
  const loss = element("span", "loss", null, body);
  const playing = followFilm(part, part.draw);

  function addWord(word, now, before, most) {
    const one = element("li", "", null, list);
    element("code", "", null, one).append(element("bdi", "", word));
    if (before !== undefined) element("small", "", `${shareText(before)} → `, one);
    one.append(shareText(now));
    const bars = element("i", "", null, one);
    for (const share of before === undefined ? [now] : [now, before])
      element("u", "", null, bars).style.width = `${most > 0 ? (100 * (share ?? 0)) / most : 0}%`;
  }

  return {
    load() {},
    draw() {
      playing.settle();
      const frame = playing.frame();
      /** @type {Guesses | null} */
      const told = frame ? frame.guesses : /** @type {any} */ (part.cue);
      body.style.visibility = told ? "" : "hidden";
      if (!told) return; // what stands there is of another step
      const { words, shares, before, was } = told;
      const most = Math.max(...shares.map(Number), ...(before ?? []).map(Number));
      list.replaceChildren();
      words.forEach((word, i) => {
        addWord(word, shares[i], before?.[i], most);
      });
      const said = (value) => numberOf(value ?? Number.NaN, { digits: 3 });
      loss.textContent = `Loss on this text: ${before ? `${said(was)} → ` : ""}${said(told.loss)} nats`;
    },
    end: playing.stop
  };
}
