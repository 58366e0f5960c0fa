// Heads in a column a layer, joined by what later ones read of earlier ones. Heads are buttons, so that a keyboard
// reaches them; edges are a canvas below: the excess over random heads is their width, what is within their spread
// stays faint.

/**
 * As tracer.pictures.bipartite packs it; `mean` and `sd` are of random heads, `edge` is the score from which an edge
 * stands out, `total` and `sure` count all edges.
 * @typedef {Header & { layers: number, heads: number, kinds: string[], mean: number, sd: number, edge: number,
 *   total: number, sure: number[] }} BipartiteHeader
 */

const FULL = 12; // standard deviations of random heads where an edge may be widest
const FEW_EDGES = 120; // so many are all shown, also the faint ones
const INPUT_NAMES = { k: "keys", q: "queries", v: "values" };

export default (args) => live(args, makeBipartite);

/** Where along a curve of `drawEdge` it has gone this share of its way across. */
function alongCurve(share) {
  let from = 0;
  let to = 1;
  for (let i = 0; i < 20; i++) {
    const t = (from + to) / 2;
    const across = 1.5 * (1 - t) ** 2 * t + 1.5 * (1 - t) * t * t + t ** 3;
    if (across < share) from = t;
    else to = t;
  }
  return from;
}

/** @param {Part} part @returns {View} */
function makeBipartite(part) {
  const { root } = part;
  const stage = element("div", "stage", null, root);
  const base = element("canvas", "", null, stage);
  const over = element("canvas", "", null, stage);
  const nodes = element("div", "heads", null, stage);
  const tip = tipIn(stage);
  const alt = element("details", "alt", null, root);
  base.role = "img";
  over.ariaHidden = "true";
  /** @type {BipartiteHeader} */
  let head;
  let edges; // [edge, (read layer, read head, reader layer, reader head)]
  let scores; // [kind, edge]
  let layout;
  let buttons = [];
  let hover = -1;
  let built = "";
  let drawn = []; // edges that are seen, in the order in which they cover each other

  const count = () => edges.length / 4;
  const allEdges = () => Array.from({ length: count() }, (_, i) => i);
  const readOf = (i) => [edges[4 * i], edges[4 * i + 1]];
  const readerOf = (i) => [edges[4 * i + 2], edges[4 * i + 3]];
  const kind = () => Math.max(0, head.kinds.indexOf(part.cue.into));
  const score = (i) => scores[kind() * count() + i];
  const above = (i) => score(i) - head.mean;
  const deviations = (i) => above(i) / head.sd;
  const isSure = (i) => score(i) > head.edge;
  const isSame = (a, b) => !!a && !!b && a[0] === b[0] && a[1] === b[1];
  const touches = (i) => isSame(readOf(i), part.cue.value) || isSame(readerOf(i), part.cue.value);
  const isFaintShown = (i) => count() <= FEW_EDGES || touches(i);
  const signed = (value, digits) => (value > 0 ? "+" : "") + numberOf(value, { digits, plain: true });
  const isOff = (one) => part.cue.off.some((other) => isSame(other, one));
  const roleOf = ([layer, one]) => (isOff([layer, one]) ? "off" : part.cue.roles[layer][one]);
  const named = (one) => (roleOf(one) ? `${headName(one)}, ${roleOf(one)}` : headName(one));
  const widthOf = (i) => 1.25 + Math.max(0, above(i) / layout.most) * layout.thick;
  function endsOf(i) {
    // the right side of one head and the left side of the other
    const [read, reader] = [readOf(i), readerOf(i)];
    const [from, to] = [layout.x(read[0]) + layout.w / 2, layout.x(reader[0]) - layout.w / 2];
    return [from, layout.y(read[1]), to, layout.y(reader[1])];
  }
  function drawEdge(ctx, i, colour, width) {
    const [x0, y0, x1, y1] = endsOf(i);
    const middle = (x0 + x1) / 2;
    ctx.strokeStyle = colour;
    ctx.lineWidth = width;
    ctx.beginPath();
    ctx.moveTo(x0, y0);
    ctx.bezierCurveTo(middle, y0, middle, y1, x1, y1);
    ctx.stroke();
  }
  function drawEdges() {
    const ctx = sized(base, root.clientWidth, layout.height);
    const { theme } = part;
    const lut = rampOf("score", theme.mode);
    const order = allEdges().sort((a, b) => above(a) - above(b));
    const sure = order.filter(isSure);
    const strong = sure.filter((i, rank) => touches(i) || sure.length - rank <= part.cue.most);
    const faint = order.filter((i) => !isSure(i) && isFaintShown(i));
    drawn = [...faint, ...strong];
    for (const i of faint) drawEdge(ctx, i, css(theme.line, touches(i) ? 1 : 0.75), touches(i) ? 1.25 : 0.75);
    for (const own of [false, true]) {
      for (const i of strong.filter((i) => touches(i) === own)) {
        const tint = lut.at(0.45 + 0.4 * Math.min(1, above(i) / layout.most));
        drawEdge(ctx, i, css(tint, own ? 1 : 0.38), widthOf(i));
      }
    }
  }
  function drawOver() {
    const ctx = sized(over, root.clientWidth, layout.height);
    if (hover < 0) return;
    drawEdge(ctx, hover, css(part.theme.page, 0.9), widthOf(hover) + 4);
    drawEdge(ctx, hover, css(part.theme.text), Math.max(2, widthOf(hover)));
  }
  function nearest([x, y]) {
    let found = -1;
    let least = 8;
    for (const i of drawn) {
      const [x0, y0, x1, y1] = endsOf(i);
      if (x < x0 || x > x1) continue;
      const t = alongCurve((x - x0) / (x1 - x0));
      const onCurve = y0 + (y1 - y0) * t * t * (3 - 2 * t);
      const far = Math.abs(onCurve - y) - (isSure(i) ? widthOf(i) / 2 : 0);
      if (far >= least) continue;
      least = far;
      found = i;
    }
    return found;
  }
  function showFacts(x, y, title, facts) {
    showTip(tip, stage, x, y, (node) => {
      element("b", "", title, node);
      factsIn(node, facts);
    });
  }
  function quiet() {
    tip.hidden = true;
    if (hover < 0) return;
    hover = -1;
    drawOver();
  }
  const isHead = (event) => !!event.target.closest?.(".head");
  stage.onpointermove = (event) => {
    if (!layout || isHead(event)) return;
    const [x, y] = pointIn(stage, event);
    const i = nearest([x, y]);
    stage.style.cursor = i < 0 ? "" : "pointer";
    if (i < 0) {
      quiet();
      return;
    }
    if (i !== hover) {
      hover = i;
      drawOver();
    }
    showFacts(x, y, `${headName(readerOf(i))} reads ${headName(readOf(i))}`, [
      ["score", numberOf(score(i), { digits: 3 })],
      ["above random heads", signed(above(i), 3)],
      ["in their sd", signed(deviations(i), 1)]
    ]);
  };
  stage.onpointerleave = quiet;
  stage.onclick = (event) => {
    if (!isHead(event) && hover >= 0) take(readerOf(hover));
  };

  function take(one) {
    part.send(one);
    part.draw();
  }
  function strongest(one, endOf) {
    // edge of a head as the reader, or as the read
    const own = allEdges().filter((i) => isSame(endOf(i), one));
    return own.length ? own.reduce((best, i) => (score(i) > score(best) ? i : best)) : -1;
  }
  function showHead(one) {
    const [reads, read] = [strongest(one, readerOf), strongest(one, readOf)];
    const facts = [];
    if (reads >= 0) facts.push([`reads most of ${headName(readOf(reads))}`, signed(above(reads), 3)]);
    if (read >= 0) facts.push([`read most by ${headName(readerOf(read))}`, signed(above(read), 3)]);
    showFacts(layout.x(one[0]), layout.y(one[1]) - layout.h / 2, named(one), facts);
  }
  function buildHead(one) {
    const { w, h, x, y } = layout;
    const name = `head${w < 40 ? " dot" : ""}${h < 16 ? " tiny" : ""}${isOff(one) ? " off" : ""}`;
    const node = button(name, w < 40 ? null : headName(one), nodes, () => take(one));
    node.style.cssText = `left:${x(one[0])}px;top:${y(one[1])}px;width:${w}px;height:${h}px`;
    if (roleOf(one) && w >= 96 && h >= 34) element("small", "", roleOf(one), node);
    node.onpointerenter = node.onfocus = () => showHead(one);
    node.onpointerleave = node.onblur = () => {
      tip.hidden = true;
    };
    node.onkeydown = (event) => {
      if (event.key === "Escape") tip.hidden = true;
      const way = arrowOf(event);
      if (!way) return;
      event.preventDefault();
      const [down, right] = way;
      buttons.find((other) => isSame(other.one, [one[0] + right, one[1] + down]))?.node.focus();
    };
    buttons.push({ one, node });
  }
  function build() {
    nodes.replaceChildren();
    buttons = [];
    for (let layer = 0; layer < head.layers; layer++) {
      const name = layout.w < 30 ? `${layer}` : layout.w < 60 ? `L${layer}` : `layer ${layer}`;
      const isNamed = layout.apart >= 18 || layer % 2 === 0;
      if (isNamed) element("span", "layer", name, nodes).style.left = `${layout.x(layer)}px`;
      for (let one = 0; one < head.heads; one++) buildHead([layer, one]);
    }
  }
  function layOut() {
    const width = root.clientWidth;
    const column = Math.floor((width / head.layers) * (head.layers > 2 ? 0.5 : 0.34));
    const wide = clamp(column, 6, 140);
    const { row } = part.cue;
    const h = wide < 40 ? Math.min(wide, row - 4) : Math.min(46, row - 6);
    const edge = Math.max(wide / 2 + 3, 16);
    const top = 26;
    const most = scores.reduce((most, value) => Math.max(most, value - head.mean), FULL * head.sd);
    const x = (layer) => (head.layers > 1 ? edge + ((width - 2 * edge) * layer) / (head.layers - 1) : width / 2);
    const y = (one) => top + row * (one + 0.5);
    const apart = (width - 2 * edge) / Math.max(1, head.layers - 1);
    const size = { w: wide < 40 ? h : wide, h, height: top + row * head.heads };
    layout = { ...size, thick: Math.min(11, row * 0.3), most, x, y, apart };
    stage.style.height = `${layout.height}px`;
  }
  function markHeads() {
    const ends = count() < head.total ? new Set(drawn.flatMap((i) => [String(readOf(i)), String(readerOf(i))])) : null;
    const isChosen = buttons.some(({ one }) => isSame(one, part.cue.value));
    buttons.forEach(({ one, node }, i) => {
      const on = isSame(one, part.cue.value);
      node.ariaPressed = `${on}`;
      node.classList.toggle("quiet", !!ends && !on && !ends.has(String(one))); // a line passes by, it does not end here
      node.ariaLabel = named(one);
      node.tabIndex = on || (!isChosen && i === 0) ? 0 : -1;
    });
  }
  function writeTable() {
    const order = allEdges().sort((a, b) => score(b) - score(a));
    const sure = order.filter(isSure);
    const names = (i) => [headName(readerOf(i)), headName(readOf(i))];
    const first = sure.slice(0, 3).map((i) => names(i).join(" reads "));
    const what = `What heads read of earlier ones for their ${INPUT_NAMES[part.cue.into] ?? part.cue.into}`;
    const many = `${head.sure[kind()]} of ${head.total} pairs are above what random heads reach, of so many pairs`;
    base.ariaLabel = `${what}: ${many}${first.length ? `, first ${first.join(", ")}` : ""}.`;
    const figures = (i) => [numberOf(score(i), { digits: 4 }), signed(above(i), 4), signed(deviations(i), 1)];
    const columns = ["reader", "read", "score", "above random heads", "in their sd"];
    const title =
      count() < head.total ? `Show the strongest of ${head.total.toLocaleString("en")} as table` : "Show as table";
    tableOf(alt, title, columns, () => order.map((i) => [...names(i), ...figures(i)]));
  }

  return {
    load(newHead, arrays) {
      head = newHead;
      ({ edges, scores } = arrays);
      hover = -1;
      built = "";
    },
    draw() {
      layOut();
      const now = JSON.stringify([root.clientWidth, part.cue.roles, part.cue.off, head.version]);
      if (now !== built) build();
      built = now;
      drawEdges();
      markHeads();
      drawOver();
      writeTable();
    }
  };
}
