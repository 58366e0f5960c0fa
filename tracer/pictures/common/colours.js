// Colours of the theme and of ramps.

const rgb = (hex) => [1, 3, 5].map((i) => Number.parseInt(hex.slice(i, i + 2), 16));
const css = (colour, alpha = 1) => `rgba(${colour[0]},${colour[1]},${colour[2]},${alpha})`;
const mix = (a, b, share) => a.map((v, i) => Math.round(v + (b[i] - v) * share));

/** Relative luminance as WCAG defines it. */
function luminance(colour) {
  const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return colour.reduce((sum, v, i) => sum + linear(v / 255) * [0.2126, 0.7152, 0.0722][i], 0);
}
/** Of black and white the one that stands out more: 4.58 to 1 at least, and nothing lighter than black does so. */
const inkOn = (colour) => (luminance(colour) > 0.179 ? "#000000" : "#ffffff");

/** The colours and fonts that the host gives an element. @returns {Theme} */
function themeOf(host) {
  const style = getComputedStyle(host);
  const probe = document.createElement("canvas").getContext("2d");
  const read = (name, otherwise) => {
    probe.fillStyle = otherwise;
    probe.fillStyle = style.getPropertyValue(`--st-${name}`).trim() || otherwise;
    const colour = `${probe.fillStyle}`;
    return colour.startsWith("#")
      ? rgb(colour)
      : colour
          .match(/[\d.]+/g)
          .slice(0, 3)
          .map(Number);
  };
  const page = read("background-color", "#ffffff");
  const text = read("text-color", "#111622");
  return {
    page,
    text,
    muted: mix(text, page, 0.36),
    line: mix(text, page, 0.84),
    faint: mix(text, page, 0.93),
    sans: style.getPropertyValue("--st-font") || "sans-serif",
    mono: style.getPropertyValue("--st-code-font") || "monospace",
    mode: luminance(page) < 0.18 ? "dark" : "light"
  };
}

/** Stops mixed to a ramp of 256 colours. @param {string[]} stops @returns {Ramp} */
function lutOf(stops) {
  const anchors = stops.map(rgb);
  const colours = Array.from({ length: 256 }, (_, i) => {
    const at = (i / 255) * (anchors.length - 1);
    const below = Math.min(Math.floor(at), anchors.length - 2);
    return mix(anchors[below], anchors[below + 1], at - below);
  });
  return {
    table: new Uint8ClampedArray(colours.flat()),
    at: (share) => colours[Math.round(255 * clamp(share, 0, 1))],
    tints: colours.map((colour) => css(colour)),
    inks: colours.map(inkOn),
    css: `linear-gradient(90deg, ${stops.join(",")})`
  };
}

const RAMPS = new Map(); // one takes longer to make than a frame to draw
/** The ramp of a palette in a mode. @returns {Ramp} */
function rampOf(palette, mode) {
  const name = `${palette} ${mode}`;
  if (!RAMPS.has(name)) RAMPS.set(name, lutOf(PALETTES[palette][mode]));
  return RAMPS.get(name);
}

/** A ramp as words of an image's pixels. */
const inksOf = ({ table }, code = (i) => i) =>
  Uint32Array.from({ length: 256 }, (_, i) => {
    const at = 3 * code(i);
    return (255 << 24) | (table[at + 2] << 16) | (table[at + 1] << 8) | table[at];
  });
