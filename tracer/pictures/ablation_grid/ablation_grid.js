// Switches for heads: real buttons, so keyboard and screen readers work; dragging paints with what the first one became.
export default function (args) { return live(args, makeGrid); }

function makeGrid(me) {
  const { root } = me;
  const line = el("div", "bar-line", null, root), count = el("span", "", null, line), clear = Object.assign(el("button", "clear", "Clear", line), { type: "button" });
  const grid = el("div", "grid", null, root), key = el("div", "legend", null, el("div", "legends", null, root));
  count.setAttribute("aria-live", "polite"); grid.setAttribute("role", "group"); grid.setAttribute("aria-label", "Heads to switch off");
  let off = new Set(), buttons = [], shape = "", brush = null;
  const id = (l, h) => `${l},${h}`;
  const heads = () => [...off].map((s) => s.split(",").map(Number)).sort((a, b) => a[0] - b[0] || a[1] - b[1]);

  function show() {
    for (const { node, l, h } of buttons) node.setAttribute("aria-pressed", off.has(id(l, h)));
    count.textContent = off.size ? `${off.size} of ${buttons.length} heads off` : "All heads on";
    clear.disabled = !off.size;
  }
  function set(cells, on) { for (const [l, h] of cells) if (on) off.add(id(l, h)); else off.delete(id(l, h)); show(); me.send(heads(), 120); }
  const flip = (cells) => set(cells, !cells.every(([l, h]) => off.has(id(l, h))));

  function build(values) {
    grid.replaceChildren(); buttons = [];
    const layers = values.length, n = values[0].length, column = (h) => values.map((_, l) => [l, h]), row = (l) => values[l].map((_, h) => [l, h]);
    const axis = (text, cls, name, cells) => Object.assign(el("button", `axis ${cls}`, text, grid), { type: "button", title: name, ariaLabel: name, onclick: () => flip(cells) });
    el("span", "", null, grid);
    for (let h = 0; h < n; h++) axis(`H${h}`, "", `Toggle head ${h} in every layer`, column(h));
    for (let l = 0; l < layers; l++) {
      axis(`L${l}`, "row", `Toggle every head of layer ${l}`, row(l));
      for (let h = 0; h < n; h++) {
        const node = Object.assign(el("button", "head", null, grid), { type: "button" });
        el("span", "label", `L${l}H${h}`, node); el("span", "value", null, node);
        node.onpointerdown = (e) => { if (e.button) return; brush = !off.has(id(l, h)); node.releasePointerCapture?.(e.pointerId); set([[l, h]], brush); };
        node.onkeydown = (e) => {
          if (e.key === " " || e.key === "Enter") { e.preventDefault(); flip([[l, h]]); }
          const to = { ArrowLeft: [l, h - 1], ArrowRight: [l, h + 1], ArrowUp: [l - 1, h], ArrowDown: [l + 1, h] }[e.key], next = to && buttons.find((b) => b.l === to[0] && b.h === to[1]);
          if (next) { e.preventDefault(); for (const b of buttons) b.node.tabIndex = -1; next.node.tabIndex = 0; next.node.focus(); }
        };
        node.tabIndex = l || h ? -1 : 0;
        buttons.push({ node, l, h });
      }
    }
  }
  grid.onpointermove = (e) => { // touch keeps sending to the first button: ask what lies under the finger
    if (brush === null) return;
    if (!e.buttons) { brush = null; return; }
    const node = root.getRootNode().elementFromPoint(e.clientX, e.clientY)?.closest(".head"), hit = buttons.find((b) => b.node === node);
    if (hit && off.has(id(hit.l, hit.h)) !== brush) set([[hit.l, hit.h]], brush);
  };
  grid.onpointerup = grid.onpointercancel = () => { if (brush !== null) me.send(heads()); brush = null; }; // no need to wait for more
  clear.onclick = () => set(heads(), false);

  return {
    load() {},
    draw() {
      const { values, scale, value } = me.cue, n = values[0].length, wide = root.clientWidth, cell = Math.min(76, Math.floor((wide - 34 - n * 4) / n));
      if (shape !== `${values.length},${n}`) { build(values); shape = `${values.length},${n}`; }
      if (brush === null) off = new Set((value ?? []).map(([l, h]) => id(l, h)));
      const lut = lutOf(scale.stops[me.theme.mode]);
      grid.style.gridTemplateColumns = `30px repeat(${n}, ${Math.max(cell, 14)}px)`;
      grid.classList.toggle("small", cell < 46);
      for (const { node, l, h } of buttons) {
        const v = values[l][h], fill = v == null ? me.theme.faint : lut.at((v - scale.lo) / (scale.hi - scale.lo)), text = v == null ? "" : numberOf(v, { ...scale, plain: true });
        node.style.background = css(fill); node.style.color = inkOn(fill); node.lastChild.textContent = text;
        node.ariaLabel = `Switch off L${l}H${h}${text && `, ${scale.label} ${text}`}`; node.title = `L${l}H${h}${text && ` · ${scale.label} ${text}`}`;
      }
      legend(key, scale, lut, { note: scale.chance == null ? "" : `at chance ${numberOf(scale.chance, { digits: 3 })}` });
      me.table = { columns: ["head", scale.label, "off"], rows: () => buttons.map(({ l, h }) => [`L${l}H${h}`, exactOf(values[l][h]), off.has(id(l, h)) ? "yes" : "no"]) };
      show();
    },
  };
}
