// Draws the part whose element the host put into a root of its own, in that part's style.
const SHEETS = new Map();
const sheetOf = (name) => {
  if (!SHEETS.has(name)) {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(STYLES[name]);
    SHEETS.set(name, sheet);
  }
  return SHEETS.get(name);
};
VIEWS.saver();
VIEWS.address();
export default (args) => {
  const root = args.parentElement;
  const name = root.querySelector(".part").classList[1];
  if (!root.adoptedStyleSheets.length) root.adoptedStyleSheets = [sheetOf("shared"), sheetOf(name)];
  return VIEWS[name](args);
};
