// A drawing context that writes SVG: what the parts draw with and no more. Text stays text, lines stay lines; images go
// along as PNG. Points are moved as they are drawn, so an element needs no transform unless it is text or an image.
// Not a library: svgcanvas 2.6 (61 kB against 8 kB, in every file) smooths the cells of an enlarged image and sets text
// by other lines: 2.6 % and 1.7 % off the canvas, where this is 0 and 0.04 %.
// biome-ignore lint/suspicious/noControlCharactersInRegex: XML knows no such characters, so they are taken out
const UNWRITABLE = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u2066-\u2069\ufffe\uffff]/g;
const xml = (text) => `${text}`.replace(UNWRITABLE, "").replace(/[<>&"']/g, (c) => `&#${c.charCodeAt(0)};`);
const short = (v) => +v.toFixed(2);
const PAINTS = new Map();
function paintOf(colour) {
  // any colour of a style as [#rrggbb, alpha], which every program that opens an SVG knows
  if (!PAINTS.has(colour)) {
    const ctx = new OffscreenCanvas(1, 1).getContext("2d");
    ctx.fillStyle = colour;
    ctx.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = ctx.getImageData(0, 0, 1, 1).data;
    PAINTS.set(colour, [`#${[r, g, b].map((v) => v.toString(16).padStart(2, "0")).join("")}`, a / 255]);
  }
  return PAINTS.get(colour);
}
let marks = 0; // ids of clips and gradients, unique in a file

class Pen {
  /** @type {string[]} */
  out = [];
  d = [];
  kept = [];
  open = "";
  probe = document.createElement("canvas").getContext("2d");
  // from here on, what save() keeps
  fillStyle = "#000";
  strokeStyle = "#000";
  lineWidth = 1;
  lineJoin = "miter";
  lineCap = "butt";
  globalAlpha = 1;
  font = "10px sans-serif";
  textAlign = "start";
  textBaseline = "alphabetic";
  direction = "ltr";
  imageSmoothingEnabled = true;
  dash = [];
  at = [1, 0, 0, 1, 0, 0];
  cut = "";
  get body() {
    return this.out.join("") + (this.open ? "</g>" : "");
  }
  emit(element) {
    if (this.open !== this.cut) {
      this.out.push(this.open ? "</g>" : "", this.cut ? `<g clip-path="url(#${this.cut})">` : "");
      this.open = this.cut;
    }
    this.out.push(element);
  }
  save() {
    const { out, d, kept, open, probe, ...state } = this;
    kept.push(state);
  }
  restore() {
    Object.assign(this, this.kept.pop());
  }
  transform(a, b, c, d, e, f) {
    const [A, B, C, D, E, F] = this.at;
    this.at = [A * a + C * b, B * a + D * b, A * c + C * d, B * c + D * d, A * e + C * f + E, B * e + D * f + F];
  }
  translate(x, y) {
    this.transform(1, 0, 0, 1, x, y);
  }
  rotate(by) {
    this.transform(Math.cos(by), Math.sin(by), -Math.sin(by), Math.cos(by), 0, 0);
  }
  get moved() {
    const at = this.at.map((v) => +v.toFixed(4)).join(" ");
    return at === "1 0 0 1 0 0" ? "" : ` transform="matrix(${at})"`;
  }
  p(x, y) {
    const [a, b, c, d, e, f] = this.at;
    return `${short(a * x + c * y + e)} ${short(b * x + d * y + f)}`;
  }

  beginPath() {
    this.d = [];
  }
  moveTo(x, y) {
    this.d.push(`M${this.p(x, y)}`);
  }
  lineTo(x, y) {
    this.d.push(`${this.d.length ? "L" : "M"}${this.p(x, y)}`);
  }
  closePath() {
    this.d.push("Z");
  }
  bezierCurveTo(a, b, c, d, x, y) {
    this.d.push(`C${this.p(a, b)} ${this.p(c, d)} ${this.p(x, y)}`);
  }
  arc(x, y, r) {
    // of the parts' arcs each is a whole circle
    this.lineTo(x + r, y);
    for (const end of [x - r, x + r]) this.d.push(`A${short(r)} ${short(r)} 0 0 1 ${this.p(end, y)}`);
  }
  rect(x, y, w, h) {
    this.d.push(`M${this.p(x, y)}L${this.p(x + w, y)}L${this.p(x + w, y + h)}L${this.p(x, y + h)}Z`);
  }
  roundRect(x, y, w, h, radii) {
    // one radius, or one of each corner
    const most = Math.min(Math.abs(w), Math.abs(h)) / 2;
    const [a, b, c, d] = [0, 1, 2, 3].map((i) => Math.min(radii[i] ?? radii, most));
    const turn = (r, X, Y) => (r ? `A${short(r)} ${short(r)} 0 0 1 ${this.p(X, Y)}` : "");
    this.d.push(
      `M${this.p(x + a, y)}L${this.p(x + w - b, y)}${turn(b, x + w, y + b)}` +
        `L${this.p(x + w, y + h - c)}${turn(c, x + w - c, y + h)}` +
        `L${this.p(x + d, y + h)}${turn(d, x, y + h - d)}L${this.p(x, y + a)}${turn(a, x + a, y)}Z`
    );
  }
  clip() {
    const id = `me-${++marks}`;
    const outer = this.cut ? ` clip-path="url(#${this.cut})"` : "";
    this.emit(`<clipPath id="${id}"${outer}><path d="${this.d.join("")}"/></clipPath>`);
    this.cut = id;
  }

  ink(kind, style) {
    // fill="..." or stroke="..." with its opacity
    const [colour, alpha] = style.use ? [style.use(this), 1] : paintOf(style);
    const opacity = short(alpha * this.globalAlpha);
    return `${kind}="${colour}"${opacity < 1 ? ` ${kind}-opacity="${opacity}"` : ""}`;
  }
  get line() {
    const dash = this.dash.length ? ` stroke-dasharray="${this.dash.join(" ")}"` : "";
    const ends = `stroke-linejoin="${this.lineJoin}" stroke-linecap="${this.lineCap}"`;
    return `fill="none" ${this.ink("stroke", this.strokeStyle)} stroke-width="${short(this.lineWidth)}" ${ends}${dash}`;
  }
  fill() {
    this.emit(`<path d="${this.d.join("")}" ${this.ink("fill", this.fillStyle)}/>`);
  }
  stroke() {
    if (this.d.length) this.emit(`<path d="${this.d.join("")}" ${this.line}/>`);
  }
  aside(draw) {
    const d = this.d;
    this.d = [];
    draw();
    this.d = d;
  }
  fillRect(x, y, w, h) {
    this.aside(() => {
      this.rect(x, y, w, h);
      this.fill();
    });
  }
  strokeRect(x, y, w, h) {
    this.aside(() => {
      this.rect(x, y, w, h);
      this.stroke();
    });
  }
  clearRect() {} // every saved picture begins on an empty sheet
  setLineDash(dash) {
    this.dash = [...dash];
  }
  createLinearGradient(x0, y0, x1, y1) {
    const stops = [];
    const ends = [this.p(x0, y0), this.p(x1, y1)].join(" ").split(" ");
    return {
      addColorStop: (at, colour) => stops.push([at, ...paintOf(colour)]),
      use: (pen) => {
        const id = `me-${++marks}`;
        const [a, b, c, d] = ends;
        const inner = stops.map(
          ([at, colour, alpha]) => `<stop offset="${short(at)}" stop-color="${colour}" stop-opacity="${short(alpha)}"/>`
        );
        pen.emit(
          `<linearGradient id="${id}" gradientUnits="userSpaceOnUse" x1="${a}" y1="${b}" x2="${c}" y2="${d}">` +
            `${inner.join("")}</linearGradient>`
        );
        return `url(#${id})`;
      }
    };
  }

  measureText(text) {
    return Object.assign(this.probe, { font: this.font, textBaseline: "alphabetic" }).measureText(text);
  }
  type(text, x, y, paint) {
    // as wide as it is here, whatever font stands in for ours where the file is opened
    const { fontBoundingBoxAscent: level, width } = this.measureText(text);
    const raised = Object.assign(this.probe, { textBaseline: this.textBaseline }).measureText(
      text
    ).fontBoundingBoxAscent;
    const [, before, size, family] = this.probe.font.match(/^(.*?)([\d.]+)px(?:\/\S+)? (.*)$/);
    const weight = before.match(/\b(\d{3}|bold)\b/)?.[1] ?? 400;
    const anchor = { right: "end", end: "end", center: "middle" }[this.textAlign] ?? "start";
    const slant = before.includes("italic") ? ' font-style="italic"' : "";
    this.emit(
      `<text x="${short(x)}" y="${short(y + level - raised)}"${this.moved} ` +
        `font-family="${xml(family.replaceAll('"', "'"))}" font-size="${size}" font-weight="${weight}"${slant}` +
        `${anchor === "start" ? "" : ` text-anchor="${anchor}"`} textLength="${short(width)}" ` +
        `lengthAdjust="spacingAndGlyphs" style="white-space:pre" ${paint}>${xml(text)}</text>`
    );
  }
  fillText(text, x, y) {
    this.type(text, x, y, this.ink("fill", this.fillStyle));
  }
  strokeText(text, x, y) {
    this.type(text, x, y, this.line);
  }
  drawImage(image, ...place) {
    // 2, 4 or 8 numbers, as a canvas takes them
    const [sx, sy, sw, sh, x, y, w, h] =
      place.length === 8
        ? place
        : [0, 0, image.width, image.height, place[0], place[1], place[2] ?? image.width, place[3] ?? image.height];
    const copy = Object.assign(document.createElement("canvas"), { width: sw, height: sh });
    copy.getContext("2d").drawImage(image, sx, sy, sw, sh, 0, 0, sw, sh);
    const crisp = this.imageSmoothingEnabled ? "" : ' style="image-rendering:pixelated"';
    const faint = this.globalAlpha < 1 ? ` opacity="${short(this.globalAlpha)}"` : "";
    this.emit(
      `<image x="${short(x)}" y="${short(y)}" width="${short(w)}" height="${short(h)}"${this.moved} ` +
        `preserveAspectRatio="none"${crisp}${faint} href="${copy.toDataURL()}"/>`
    );
  }
}
