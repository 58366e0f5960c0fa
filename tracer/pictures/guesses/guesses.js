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

  function addWord(word, now, before) {
    const one = element("li", "", null, list);
    element("code", "", null, one).append(element("bdi", "", word));
    const said = element("span", "", null, one);
    if (before !== undefined) element("small", "", `${shareText(before)} → `, said);
    said.append(shareText(now));
    const bars = element("i", "", null, one); // from 0 to 1, of every token
    for (const share of before === undefined ? [now] : [now, before])
      element("u", "", null, bars).style.width = `${100 * (share ?? 0)}%`;
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
      list.replaceChildren();
      words.forEach((word, i) => {
        addWord(word, shares[i], before?.[i]);
      });
      const said = (value) => numberOf(value ?? Number.NaN, { digits: 3 });
      const change = `${before ? `${said(was)} → ` : ""}${said(told.loss)}`;
      loss.textContent = told.quiet ? "" : `Loss on this text: ${change} nats`;
    },
    end: playing.stop
  };
}
