// Switches for heads: real buttons, so keyboard and screen readers work; dragging paints with what the first one
// became.

export default (args) => live(args, makeGrid);

/** @param {Part} part @returns {View} */
function makeGrid(part) {
  const { root } = part;
  const line = element("div", "bar-line", null, root);
  const count = element("span", "", null, line);
  const clear = button("clear", "Clear", line, () => set(heads(), false));
  const grid = element("div", "grid", null, root);
  const key = element("div", "legend", null, element("div", "legends", null, root));
  count.ariaLive = "polite";
  Object.assign(grid, { role: "group", ariaLabel: "Heads to switch off" });
  let off = new Set(); // heads as "layer,head"
  let buttons = []; // { node, one }
  let shape = "";
  let brush = null; // what dragging makes of a head
  const isOff = (one) => off.has(String(one));
  const heads = () => [...off].map((name) => name.split(",").map(Number)).sort((a, b) => a[0] - b[0] || a[1] - b[1]);

  function show() {
    for (const { node, one } of buttons) node.ariaPressed = `${isOff(one)}`;
    count.textContent = off.size ? `${off.size} of ${buttons.length} heads off` : "All heads on";
    clear.disabled = !off.size;
  }
  function set(ones, on) {
    for (const one of ones) {
      if (on) off.add(String(one));
      else off.delete(String(one));
    }
    show();
    part.send(heads(), 120);
  }
  const flip = (ones) => set(ones, !ones.every(isOff));

  function buildHead(one) {
    const node = button("head", null, grid);
    element("span", "label", headName(one), node);
    element("span", "value", null, node);
    node.onpointerdown = (event) => {
      if (event.button) return;
      brush = !isOff(one);
      node.releasePointerCapture?.(event.pointerId);
      set([one], brush);
    };
    node.onkeydown = (event) => {
      if (event.key === " " || event.key === "Enter") {
        event.preventDefault();
        flip([one]);
      }
      const way = ARROWS[event.key];
      const to = way && String(one.map((place, axis) => place + way[axis]));
      const next = buttons.find((other) => String(other.one) === to);
      if (!next) return;
      event.preventDefault();
      for (const other of buttons) other.node.tabIndex = other === next ? 0 : -1;
      next.node.focus();
    };
    node.tabIndex = buttons.length ? -1 : 0;
    buttons.push({ node, one });
  }
  function build(values) {
    grid.replaceChildren();
    buttons = [];
    const axis = (text, className, name, ones) => {
      const node = button(`axis ${className}`, null, grid, () => flip(ones));
      element("span", "", text, node);
      Object.assign(node, { title: name, ariaLabel: name });
    };
    element("span", "", null, grid);
    values[0].forEach((_, h) => {
      const ones = values.map((_, layer) => [layer, h]);
      axis(`H${h}`, "column", `Toggle head ${h} in every layer`, ones);
    });
    values.forEach((row, layer) => {
      const ones = row.map((_, h) => [layer, h]);
      axis(`L${layer}`, "row", `Toggle every head of layer ${layer}`, ones);
      ones.forEach(buildHead);
    });
  }
  grid.onpointermove = (event) => {
    // touch keeps sending to the first button: ask what lies under the finger
    if (brush === null) return;
    if (!event.buttons) {
      brush = null;
      return;
    }
    const place = /** @type {ShadowRoot} */ (root.getRootNode()).elementFromPoint(event.clientX, event.clientY);
    const hit = buttons.find(({ node }) => node === place?.closest(".head"));
    if (hit && isOff(hit.one) !== brush) set([hit.one], brush);
  };
  grid.onpointerup = grid.onpointercancel = () => {
    if (brush !== null) part.send(heads()); // no need to wait for more
    brush = null;
  };

  return {
    load() {},
    draw() {
      const { values, scale, value } = part.cue;
      const { theme } = part;
      const columns = values[0].length;
      const room = Math.floor((root.clientWidth - 34) / columns);
      const gap = room < 18 ? 1 : room < 50 ? 3 : 4;
      const cell = Math.max(4, Math.min(76, room - gap));
      const every = cell < 22 ? Math.ceil(22 / (cell + gap)) : 1; // names of columns that have room
      const now = `${values.length},${columns}`;
      if (shape !== now) build(values);
      shape = now;
      if (brush === null) off = new Set((value ?? []).map(String));
      const lut = rampOf(scale.palette, theme.mode);
      grid.style.gridTemplateColumns = `30px repeat(${columns}, ${cell}px)`;
      grid.style.gap = `${gap}px`;
      grid.classList.toggle("small", cell < 46);
      grid.classList.toggle("tiny", cell < 22);
      for (const [h, node] of grid.querySelectorAll(".axis.column").entries())
        node.firstChild.textContent = cell >= 22 ? `H${h}` : h % every ? "" : `${h}`;
      for (const { node, one } of buttons) {
        const own = values[one[0]][one[1]];
        const fill = own == null ? theme.faint : lut.at((own - scale.lo) / (scale.hi - scale.lo));
        const text = own == null ? "" : numberOf(own, { ...scale, plain: true });
        node.style.background = css(fill);
        node.style.color = inkOn(fill);
        node.lastChild.textContent = text;
        node.ariaLabel = `Switch off ${headName(one)}${text && `, ${scale.label} ${text}`}`;
        node.title = `${headName(one)}${text && ` · ${scale.label} ${text}`}`;
      }
      legend(key, scale, lut, { note: chanceNote({ chance: scale.chance }) });
      const row = ({ one }) => [headName(one), exactOf(values[one[0]][one[1]]), isOff(one) ? "yes" : "no"];
      part.table = { columns: ["head", scale.label, "off"], rows: () => buttons.map(row) };
      show();
    }
  };
}
