// The parts of one view without a server: a file, or a frame in a notebook. What a reader picks in one part goes to the
// others. The token view holds every head's cells; the atlas and the pattern of any head are made of them here.
const { mounts, about } = JSON.parse(document.getElementById("view").textContent);
const known = new Map(mounts.map((one) => [one.key, one]));
const bytesOf = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
/** @returns {HTMLElement} */
const placeOf = (key) => document.querySelector(`.st-key-${key}`);
HUB.about = about;

/** A new cue for a part, of what the reader chose just now or before. */
function hand(key, changes) {
  const one = known.get(key);
  if (!one) return;
  one.cue = { ...one.cue, ...changes };
  HUB.cues.set(key, one.cue);
  for (const take of HUB.parts.get(key) ?? []) take(one.cue);
}
/** Where a part is mounted: in a page that was taken along any two may meet, so each keeps its style to itself. */
function rootOf(one) {
  const place = placeOf(one.key);
  if (!STYLES || place.shadowRoot) return place.shadowRoot ?? place;
  const root = place.attachShadow({ mode: "open" });
  dress(root, one.part);
  root.append(...place.childNodes);
  /** @type {HTMLElement} */ (root.firstElementChild).dataset.taken = "";
  return root;
}
function mount(one) {
  HUB.cues.set(one.key, one.cue);
  const setStateValue = (_, { value, time }) =>
    about.taken && one.part !== "scrubber" ? follow(one, value, time) : CHOSEN[one.key]?.(value, time);
  return VIEWS[one.part]({ data: one.data, parentElement: rootOf(one), setStateValue });
}

/** The bytes that tracer.pictures.payload.pack would make of them. */
async function packed(head, arrays) {
  const typeOf = (array) => array.constructor.name.replace("Array", "").toLowerCase();
  const layout = Object.entries(arrays).map(([name, a]) => ({ name, dtype: typeOf(a), shape: a.shape }));
  const top = new TextEncoder().encode(JSON.stringify({ ...head, arrays: layout }));
  const stream = new Blob(Object.values(arrays)).stream().pipeThrough(new CompressionStream("deflate"));
  const body = await new Response(stream).arrayBuffer();
  const all = new Uint8Array(4 + top.length + body.byteLength);
  new DataView(all.buffer).setUint32(0, top.length, true);
  all.set(top, 4);
  all.set(new Uint8Array(body), 4 + top.length);
  return all;
}
const shaped = (array, ...shape) => Object.assign(array, { shape });
/** One head's pattern out of the cells of all, which are squared when they are bytes. */
function cellsOf({ head, arrays }, l, h, into, code) {
  const { shares } = arrays;
  const n = head.tokens.length;
  const cells = shares.shape[2];
  const table = new Map();
  const coded = (c) =>
    table.get(c) ?? table.set(c, code(shares.BYTES_PER_ELEMENT === 1 ? shareOfCode(c) : c / 65534)).get(c);
  for (let q = 0, i = (l * shares.shape[1] + h) * cells; q < n; q++)
    for (let k = 0, end = head.triangle ? q + 1 : n; k < end; k++, i++) into[q * n + k] = coded(shares[i]);
  return into;
}
/** The atlas: every head small, as codes of a square root. */
async function pictureAll(one) {
  const { there } = reading.arrays;
  const [layers, heads] = there.shape;
  const n = reading.head.tokens.length;
  const size = n * n;
  const thumbs = new Uint8Array(layers * heads * size);
  for (let i = 0; i < layers * heads; i++)
    cellsOf(reading, Math.floor(i / heads), i % heads, thumbs.subarray(i * size, (i + 1) * size), tintOf);
  const { values, exist, ...head } = one.template;
  const measured = Float32Array.from(values.flat(2), (v) => v ?? Number.NaN);
  one.data = await packed(
    { ...head, version: reading.head.version },
    {
      thumbs: shaped(thumbs, layers, heads, n, n),
      values: shaped(measured, values.length, layers, heads),
      there: shaped(Uint8Array.from(exist.flat()), layers, heads)
    }
  );
  hand("atlas", { version: reading.head.version });
  mount(one);
}

let reading = null;
let wanted = 0;
/** Brings every part that follows the head in focus up to date. */
async function show(l, h) {
  const label = `L${l}H${h}`;
  const turn = ++wanted;
  const one = known.get("pattern");
  for (const node of document.querySelectorAll(".head-label")) node.textContent = label;
  if (!one || !reading) return;
  const version = `${reading.head.version} ${label}`;
  const here = reading.arrays.there[l * reading.arrays.there.shape[1] + h] > 0;
  const n = reading.head.tokens.length;
  const codes = cellsOf(reading, l, h, new Uint16Array(n * n), (share) => Math.round(65534 * share));
  const shares = shaped(codes, n, n);
  const data = await packed({ ...one.template, label, causal: reading.head.causal[l], version }, { shares });
  if (turn !== wanted) return; // another head was chosen meanwhile
  one.data = data;
  placeOf("pattern").closest("section").classList.toggle("absent", !here);
  hand("pattern", { head: [l, h], version });
  mount(one);
}
function focus([l, h], time = 0) {
  hand("atlas", { value: [l, h], seen: time });
  hand("scrubber", { head: [l, h] });
  hand("history", { value: `L${l}H${h}`, seen: time });
  hand("reading", { value: [known.get("reading")?.cue.value[0] ?? null, [l, h]], seen: time });
  show(l, h);
}
const CHOSEN = {
  atlas: focus,
  history: (name, time) => name && focus(name.match(/\d+/g).map(Number), time),
  reading: ([token, head], time) => {
    hand("reading", { value: [token, head], seen: time });
    focus(head, time);
  },
  pattern: (value, time) => hand("pattern", { value, seen: time }),
  scrubber: (step, time) => {
    HUB.about = { ...about, step };
    if (step === about.step) hand("scrubber", { value: step, seen: time }); // any other step is in the film only
  }
};

// In a page that was taken along, parts that named the same line or head go on to name the same.
const labelled = [(v) => v, (name) => name];
const tiled = [(v) => v && `L${v[0]}H${v[1]}`, (name) => name.match(/\d+/g)?.map(Number)];
const NAMED = {
  curves: labelled,
  step_heatmap: labelled,
  atlas: tiled,
  headmap: tiled,
  bipartite: tiled,
  token_view: [(v) => tiled[0](v[1]), (name, v) => [v[0], tiled[1](name)]]
};
function follow(one, value, time) {
  const [nameOf] = NAMED[one.part] ?? [];
  const was = nameOf?.(one.cue.value);
  const now = nameOf?.(value);
  hand(one.key, { value, seen: time });
  for (const other of mounts) {
    if (other === one) continue;
    const [read, write] = NAMED[other.part] ?? [];
    if (was && now && read?.(other.cue.value) === was)
      hand(other.key, { value: write(now, other.cue.value), seen: time });
  }
}

VIEWS.saver();
for (const one of mounts) {
  one.data = one.blob ? bytesOf(one.blob) : {};
  if (!one.template) mount(one);
}
if (!about.taken && known.has("reading")) {
  const { head, body } = headerOf(known.get("reading").data);
  arraysOf(head, body).then((arrays) => {
    reading = { head, arrays };
    pictureAll(known.get("atlas"));
    show(about.head[0], about.head[1]);
  });
}
matchMedia("(prefers-color-scheme: dark)").onchange = () => {
  for (const one of mounts) mount(one);
};
for (const copy of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("button.copy"))) {
  copy.onclick = async () => {
    const code = copy.parentElement.querySelector("code");
    getSelection().selectAllChildren(code);
    try {
      await navigator.clipboard.writeText(code.textContent);
      copy.textContent = "Copied";
    } catch {
      // a frame may not
      copy.textContent = "Selected";
    }
  };
}
