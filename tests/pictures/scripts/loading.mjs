// The scripts of the pictures as a test takes them: joined as a host joins them, without a browser.
import { execFileSync } from "node:child_process";
import { globSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

export const ROOT = fileURLToPath(new URL("../../..", import.meta.url));
const PYTHON = `${ROOT}.venv/bin/python`;

/** What Python says. */
export const python = (code) => execFileSync(PYTHON, ["-c", code], { cwd: ROOT, maxBuffer: 1 << 24 });

export const COMMON = `${python("from tracer.pictures.assets import common; print(common(), end='')")}`;

/** These names of the scripts that every picture shares, and of one picture's own. */
export function load(names, picture = "") {
  const own = globSync(`tracer/pictures/**/${picture || "-"}/*.js`, { cwd: ROOT }).sort();
  const code = own
    .map((path) => readFileSync(ROOT + path, "utf-8").replace(/^export default /m, "const entry = "))
    .join("");
  if (picture && !code) throw new Error(`no script of ${picture}`);
  return new Function(`${COMMON}${code}\nreturn { ${names.join(", ")} };`)();
}
