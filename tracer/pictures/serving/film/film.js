// A film on a page whose timeline has more steps than it: of each moment the nearest of its frames.

export default (args) => live(args, makeFilm, { saves: false });

/** @returns {View} */
function makeFilm() {
  /** @type {ScrubberHeader} */
  let head;
  let arrays;
  /** Where its frames stand on its own timeline. @type {number[]} */
  let places = [];
  let told = -1;
  const stop = hear("moment", show);
  function show(step) {
    if (step == null)
      told = -1; // the timeline says so to all
    // of two that are as near the first, as the host takes it: steps are whole
    else if (places.length)
      go(
        places[
          nearestStep(
            places.map((i) => arrays.steps[i]),
            step - 0.25
          )
        ]
      );
  }
  function go(i) {
    if (told === i) return;
    told = i;
    const size = head.cells.reduce((a, b) => a * b, 1);
    showFrame(frameOf(head, arrays, i, arrays.frames.subarray(arrays.film[i] * size, (arrays.film[i] + 1) * size)));
  }
  return {
    load(header, given) {
      head = header;
      arrays = given;
      places = [...arrays.film.keys()].filter((i) => arrays.frames && arrays.film[i] !== MISSING);
      told = -1;
      show(topicOf("moment").value);
    },
    draw() {},
    end() {
      stop();
      if (told >= 0) showFrame(null);
    }
  };
}
