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
  const stop = hear("moment", (step) => {
    if (step == null)
      told = -1; // the timeline says so to all
    else if (places.length)
      go(
        places[
          nearestStep(
            places.map((i) => arrays.steps[i]),
            step
          )
        ]
      );
  });
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
    },
    draw() {},
    end: stop
  };
}
