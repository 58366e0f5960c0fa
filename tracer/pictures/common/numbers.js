// Numbers as a page writes them.

const clamp = (value, lo, hi) => Math.max(lo, Math.min(value, hi));

/** A number in few digits. `plain`: never an exponent, for the cells of a grid. */
function numberOf(value, { digits = 2, plain = false } = {}) {
  if (!Number.isFinite(value)) return "–";
  const small = !plain && value !== 0 && Math.abs(value) < 0.5 * 10 ** -digits;
  const text = small || Math.abs(value) >= 1e5 ? value.toExponential(1) : value.toFixed(digits);
  return text.replace("-", "−").replace(/^−(0\.?0*)$/, "$1");
}

/** A size in two digits, as a person writes it: 37, 0.018, 0.0030, 4.6e−5. */
function briefOf(value) {
  if (!Number.isFinite(value)) return "–";
  const near = Math.abs(value) >= 1e-3 && Math.abs(value) < 1e5;
  const two = Math.abs(value) < 10 ? value.toPrecision(2) : `${+value.toPrecision(2)}`;
  const text = near ? two : value.toExponential(1).replace("+", "").replace(".0e", "e");
  return text.replace("-", "−");
}

/** A change: with its sign, unless it rounds to nothing. */
function signedOf(value, options = {}) {
  const text = numberOf(value, { digits: 3, ...options });
  return value > 0 && /[1-9]/.test(text) ? `+${text}` : text;
}

/** A number for a file. */
const exactOf = (value) => (value == null || !Number.isFinite(value) ? "–" : `${+value.toPrecision(6)}`);
/** A step as the text of a page writes it. */
const exactStep = (step) => Math.round(step).toLocaleString("en-US");

/** A step on an axis. */
function stepText(step) {
  if (step >= 1e6) return `${+(step / 1e6).toFixed(1)}M`;
  return step >= 1e4 ? `${+(step / 1e3).toFixed(1)}k` : exactStep(step);
}

const headName = (/** @type {number[]} */ [layer, head]) => `L${layer}H${head}`;
const titleOf = ({ label, unit }) => label + (unit ? ` (${unit})` : "");
/** What a legend says of a measure of heads that know nothing. */
const chanceNote = (/** @type {{ chance?: number, mark?: string }} */ { chance, mark }) =>
  chance == null ? "" : `${mark && mark !== "chance" ? mark : "at chance"} ${numberOf(chance)}`;
const hasHead = (there, layers, heads, /** @type {number[]} */ [layer, head]) =>
  layer >= 0 && head >= 0 && layer < layers && head < heads && there[layer * heads + head] > 0;
