// A text as buttons, one a token: colour is the change, the tooltip has the numbers, a click or the arrow keys choose.
export default function (args) { return live(args, makeTokens); }

function makeTokens(me) {
  const { root } = me;
  const area = el("div", "area", null, root), text = el("div", "text", null, area), tip = el("div", "tip", null, area);
  const key = el("div", "legend", null, el("div", "legends", null, root));
  let buttons = [], shown = "";
  tip.hidden = true; text.setAttribute("role", "radiogroup");
  const signed = (v) => (v > 0 ? "+" : "") + numberOf(v, { digits: 3 });

  function choose(i, wait) { me.send(i, wait); mark(); }
  function mark() { buttons.forEach((b, i) => { const on = i === me.cue.value; b.setAttribute("aria-checked", on); b.tabIndex = on ? 0 : -1; }); }
  function tell(b, i) {
    const { before, after, scale, names } = me.cue, box = b.getBoundingClientRect(), base = area.getBoundingClientRect();
    showTip(tip, area, box.left - base.left, box.top - base.top, (node) => {
      el("b", "", `${i}  ${me.cue.tokens[i]}`, node);
      const list = el("dl", "", null, node);
      for (const [name, v] of names ? [[names[0], before[i]], [names[1], after[i]]] : []) { el("dt", "", name, list); el("dd", "", v == null ? "–" : numberOf(v, { digits: 3 }), list); }
      el("dt", "on", scale.label, list); el("dd", "on", before[i] == null ? "–" : signed(after[i] - before[i]), list);
    });
  }
  function build() {
    text.replaceChildren();
    buttons = me.cue.tokens.map((token, i) => {
      const b = Object.assign(el("button", "token", null, text), { type: "button" });
      el("bdi", "", token, b); b.setAttribute("role", "radio");
      b.onclick = () => choose(i, 0);
      b.onpointerenter = () => tell(b, i); b.onfocus = () => tell(b, i); b.onpointerleave = b.onblur = () => { tip.hidden = true; };
      b.onkeydown = (e) => {
        const way = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[e.key];
        if (!way || e.altKey || e.ctrlKey || e.metaKey) return;
        e.preventDefault();
        const j = Math.min(buttons.length - 1, Math.max(0, i + way));
        choose(j, 160); buttons[j].focus();
      };
      if (me.cue.breaks.includes(i)) el("br", "", null, text);
      return b;
    });
  }

  return {
    load() {},
    draw() {
      const { tokens, before, after, scale, names } = me.cue, lut = lutOf(scale.stops[me.theme.mode]), now = JSON.stringify(tokens);
      if (now !== shown) { build(); shown = now; }
      buttons.forEach((b, i) => {
        const none = before[i] == null || after[i] == null, change = none ? 0 : after[i] - before[i], fill = lut.at((change - scale.lo) / (scale.hi - scale.lo));
        b.style.background = none ? "transparent" : css(fill); b.style.color = none ? "" : inkOn(fill);
        b.ariaLabel = `${i} ${tokens[i]}${none ? "" : `, ${scale.label} ${signed(change)}`}`;
      });
      mark(); me.table = { columns: ["position", "token", ...(names ?? []), scale.label], rows: () => tokens.map((token, i) => [i, token, ...(names ? [exactOf(before[i]), exactOf(after[i])] : []), exactOf(before[i] == null || after[i] == null ? null : after[i] - before[i])]) };
      text.ariaLabel = "Tokens of the prompt: choose one to see what the model predicts after it";
      legend(key, scale, lut, { ticks: [scale.lo, 0, scale.hi] });
    },
  };
}
