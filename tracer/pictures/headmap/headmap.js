// A table whose cells are coloured by their number, so that a screen reader reads the picture itself.
export default function (args) { return live(args, makeHeadmap); }

function makeHeadmap(me) {
  const { root } = me;
  const scroll = el("div", "fit", null, root), key = el("div", "legend", null, el("div", "legends", null, root));
  return {
    load() {},
    draw() {
      const { values, title, scale, off, marked, notes, log } = me.cue, n = values[0].length, cell = Math.min(112, Math.floor((root.clientWidth - 34) / n) - 3);
      const pick = me.cue.pick, held = root.getRootNode().activeElement?.dataset.head;
      const lut = lutOf(scale.stops[me.theme.mode]), small = cell < (log ? 54 : 44), out = new Set(off.map(String));
      const span = Math.log(scale.hi / scale.lo), share = (v) => (log ? Math.log(v / scale.lo) / span : (v - scale.lo) / (scale.hi - scale.lo));
      const textOf = (v) => (log && v ? v.toExponential(1).replace("-", "−").replace("+", "") : numberOf(v, { ...scale, plain: true }));
      const table = el("table"), top = el("tr", "", null, el("thead", "", null, table)), body = el("tbody", "", null, table);
      el("caption", "", title, table); el("td", "", null, top);
      for (let h = 0; h < n; h++) el("th", "", small && n > 8 && h % 2 ? "" : `H${h}`, top).scope = "col";
      values.forEach((row, l) => {
        const tr = el("tr", "", null, body);
        el("th", "", `L${l}`, tr).scope = "row";
        row.forEach((v, h) => {
          const fill = v == null ? me.theme.faint : lut.at(share(v)), text = v == null ? "–" : textOf(v);
          const signed = scale.palette === "change" && !log && v > 0 && !/^[0.]+$/.test(text) ? `+${text}` : text, gone = out.has(`${l},${h}`);
          const dot = marked?.[l][h];
          const td = el("td", `cell${gone ? " off" : ""}${dot ? " dot" : ""}`, null, tr);
          td.style.cssText = `background:${css(fill)};color:${inkOn(fill)};width:${cell}px;min-width:${cell}px`;
          td.title = `L${l}H${h}${gone ? ", off" : ""} · ${scale.label} ${signed}${notes ? ` · ${notes[l][h]}` : ""}`;
          let into = td;
          if (pick && v != null) {
            into = Object.assign(el("button", "pick", null, td), { type: "button", onclick: () => { me.send([l, h]); me.draw(); } });
            into.dataset.head = `${l},${h}`; into.ariaPressed = String(me.cue.value) === `${l},${h}`; into.ariaLabel = td.title;
          }
          el("span", small ? "sr" : "", signed, into);
          if (dot) el("span", "sr", ", marked", td);
        });
      });
      table.classList.toggle("small", small);
      scroll.replaceChildren(table);
      if (held) table.querySelector(`[data-head="${held}"]`)?.focus();
      key.parentElement.hidden = me.cue.bare; // the one beside it has the colours
      const bent = (at) => (log ? Math.log(1 + at * (scale.hi / scale.lo - 1)) / span : at), middle = log ? [Math.sqrt(scale.lo * scale.hi)] : scale.lo < 0 ? [0] : [];
      legend(key, scale, lut, { root: bent, ticks: [scale.lo, ...middle, scale.hi], note: scale.chance == null ? "" : `at chance ${numberOf(scale.chance, { digits: 3 })}` });
    },
  };
}
