// The parts of one view without a server: a file, or a frame in a notebook. What a reader picks in one part goes to the
// others. The token view holds every head's cells; the atlas and the pattern of any head are made of them here.
const { mounts, about } = JSON.parse(document.getElementById("view").textContent);
const known = new Map(mounts.map((one) => [one.key, one]));
const bytesOf = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const placeOf = (key) => document.querySelector(`.st-key-${key}`);
HUB.about = about;

function hand(key, changes) { // a new cue for a part, of what the reader chose just now or before
  const one = known.get(key);
  if (!one) return;
  one.cue = { ...one.cue, ...changes };
  HUB.cues.set(key, one.cue);
  HUB.parts.get(key)?.forEach((take) => take(one.cue));
}
function rootOf(one) { // in a page that was taken along any two parts may meet: each keeps its style to itself, as there
  const place = placeOf(one.key);
  if (!STYLES || place.shadowRoot) return place.shadowRoot ?? place;
  const root = place.attachShadow({ mode: "open" }), sheet = new CSSStyleSheet();
  sheet.replaceSync(STYLES[one.part]);
  root.adoptedStyleSheets = [sheet]; root.append(...place.childNodes); root.firstElementChild.dataset.taken = "";
  return root;
}
function mount(one) {
  HUB.cues.set(one.key, one.cue);
  const setStateValue = (_, { value, time }) => (about.taken && one.part !== "scrubber" ? follow(one, value, time) : CHOSEN[one.key]?.(value, time));
  return VIEWS[one.part]({ data: one.data, parentElement: rootOf(one), setStateValue });
}

async function packed(head, arrays) { // as tracer.pictures.payload.pack
  const layout = Object.entries(arrays).map(([name, a]) => ({ name, dtype: a.constructor.name.replace("Array", "").toLowerCase(), shape: a.shape }));
  const top = new TextEncoder().encode(JSON.stringify({ ...head, arrays: layout }));
  const body = await new Response(new Blob(Object.values(arrays)).stream().pipeThrough(new CompressionStream("deflate"))).arrayBuffer();
  const all = new Uint8Array(4 + top.length + body.byteLength);
  new DataView(all.buffer).setUint32(0, top.length, true);
  all.set(top, 4); all.set(new Uint8Array(body), 4 + top.length);
  return all;
}
const shaped = (array, ...shape) => Object.assign(array, { shape });
function cellsOf({ head, arrays }, l, h, into, code) { // one head's pattern out of the cells of all, which are squared when they are bytes
  const { shares } = arrays, n = head.tokens.length, cells = shares.shape[2], table = new Map();
  const coded = (c) => table.get(c) ?? table.set(c, code(shares.BYTES_PER_ELEMENT === 1 ? (c / 255) ** 2 : c / 65534)).get(c);
  for (let q = 0, i = (l * shares.shape[1] + h) * cells; q < n; q++) for (let k = 0, end = head.triangle ? q + 1 : n; k < end; k++, i++) into[q * n + k] = coded(shares[i]);
  return into;
}
async function pictureAll(one) { // the atlas: every head small, as codes of a square root
  const { there } = reading.arrays, [layers, heads] = there.shape, n = reading.head.tokens.length, size = n * n, thumbs = new Uint8Array(layers * heads * size);
  for (let i = 0; i < layers * heads; i++) cellsOf(reading, Math.floor(i / heads), i % heads, thumbs.subarray(i * size, (i + 1) * size), (v) => Math.round(255 * Math.sqrt(v)));
  const { values, exist, ...head } = one.template, measured = Float32Array.from(values.flat(2), (v) => v ?? NaN);
  one.data = await packed({ ...head, version: reading.head.version }, {
    thumbs: shaped(thumbs, layers, heads, n, n), values: shaped(measured, values.length, layers, heads), there: shaped(Uint8Array.from(exist.flat()), layers, heads),
  });
  hand("atlas", { version: reading.head.version });
  mount(one);
}

let reading = null, wanted = 0;
async function show(l, h) { // every part that follows the head in focus
  const label = `L${l}H${h}`, turn = ++wanted, one = known.get("pattern");
  for (const node of document.querySelectorAll(".head-label")) node.textContent = label;
  if (!one || !reading) return;
  const version = `${reading.head.version} ${label}`, here = reading.arrays.there[l * reading.arrays.there.shape[1] + h] > 0;
  const n = reading.head.tokens.length, shares = shaped(cellsOf(reading, l, h, new Uint16Array(n * n), (v) => Math.round(65534 * v)), n, n);
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
  hand("reading", { value: [known.get("reading")?.cue.value[0] ?? null, [l, h]], seen: time });
  show(l, h);
}
const CHOSEN = {
  atlas: focus,
  reading: ([token, head], time) => { hand("reading", { value: [token, head], seen: time }); focus(head, time); },
  pattern: (value, time) => hand("pattern", { value, seen: time }),
  scrubber: (step, time) => {
    HUB.about = { ...about, step };
    if (step === about.step) hand("scrubber", { value: step, seen: time }); // any other step is in the film only
  },
};

// In a page that was taken along, parts that named the same line or head go on to name the same.
const labelled = [(v) => v, (name) => name], tiled = [(v) => v && `L${v[0]}H${v[1]}`, (name) => name.match(/\d+/g)?.map(Number)];
const NAMED = { curves: labelled, carpet: labelled, atlas: tiled, headmap: tiled, bipartite: tiled,
  token_view: [(v) => tiled[0](v[1]), (name, v) => [v[0], tiled[1](name)]] };
function follow(one, value, time) {
  const [nameOf] = NAMED[one.part] ?? [], was = nameOf?.(one.cue.value), now = nameOf?.(value);
  hand(one.key, { value, seen: time });
  for (const other of mounts) {
    if (other === one) continue;
    const [read, write] = NAMED[other.part] ?? [];
    if (was && now && read?.(other.cue.value) === was) hand(other.key, { value: write(now, other.cue.value), seen: time });
  }
}

VIEWS.saver();
for (const one of mounts) { one.data = one.blob ? bytesOf(one.blob) : {}; if (!one.template) mount(one); }
if (!about.taken && known.has("reading")) {
  const { head, body } = headerOf(known.get("reading").data);
  arraysOf(head, body).then((arrays) => { reading = { head, arrays }; pictureAll(known.get("atlas")); show(...about.head); });
}
matchMedia("(prefers-color-scheme: dark)").onchange = () => mounts.forEach(mount);
for (const button of document.querySelectorAll("button.copy")) button.onclick = async () => {
  const code = button.parentElement.querySelector("code");
  getSelection().selectAllChildren(code);
  try { await navigator.clipboard.writeText(code.textContent); button.textContent = "Copied"; } catch { button.textContent = "Selected"; } // a frame may not
};
