// A Plotly chart of the page to take away: its own layers as one SVG, and the numbers behind its cells as a table.
export default function (args) { return live(args, makePlotted); }

function makePlotted(me) {
  const chart = () => document.querySelector(`.st-key-${me.cue.of} ${CHART}`);
  const svg = () => chartSvg(chart(), css(me.theme.page));
  async function png() {
    const image = Object.assign(new Image(), { src: `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg())}` });
    await image.decode();
    const canvas = Object.assign(document.createElement("canvas"), { width: 2 * image.naturalWidth, height: 2 * image.naturalHeight });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return new Promise((done) => { canvas.toBlob(done); });
  }
  function rows() { // a grid by its row and column, or points by their head and the grid they lie on
    const traces = chart()._fullData.filter((trace) => trace.customdata), grid = (t) => t.customdata.flatMap?.((row, i) => Array.from(row, (v, j) => [t.y[i], t.x[j], exactOf(v)]));
    return traces.flatMap((t, n) => (t.type === "heatmap" ? grid(t) : Array.from(t.customdata, (v, i) => [`L${t.y[i]}H${t.x[i]}`, me.cue.series[n], exactOf(v)])));
  }
  return { load() {}, draw() { me.key = me.cue.of; me.table = { columns: me.cue.columns, rows }; }, svg, png };
}
