// JSON with its parts coloured and its objects and lists to be folded. Every token is shown as it was sent: nothing is
// parsed and written again, so that long numbers, escapes and repeated names stay what they are.

import { h } from "/static/dom.js";

const TOKENS = /"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|true|false|null|[{}[\],:]/g;
const TOKENS_MOST = 20000;

/** @param {string} text valid JSON
 * @param {Set<string>} folded the places that are folded, by path; kept while the message changes
 * @returns {HTMLElement | null} null where it is too long to be worth it */
export function jsonView(text, folded) {
  const tokens = text.match(TOKENS) || [];
  if (tokens.length > TOKENS_MOST) return null;
  const top = h("pre", { class: "payload json", tabindex: "0" });
  let at = 0;

  /** @param {HTMLElement} into
   * @param {string} indent
   * @param {string} path */
  function value(into, indent, path) {
    const token = tokens[at];
    at += 1;
    if (token === "{" || token === "[") group(into, token, indent, path);
    else into.append(h("span", { class: kindOf(token) }, token));
  }

  /** @param {HTMLElement} into
   * @param {string} open
   * @param {string} indent
   * @param {string} path */
  function group(into, open, indent, path) {
    const close = open === "{" ? "}" : "]";
    if (tokens[at] === close) {
      at += 1;
      into.append(open + close);
      return;
    }
    const inner = h("span", { class: "inner" });
    let entries = 0;
    for (;;) {
      const line = h("span", { class: "entry" }, `\n${indent}  `);
      let name = String(entries);
      if (open === "{") {
        name = tokens[at];
        line.append(h("span", { class: "key" }, name), ": ");
        at += 2;
      }
      value(line, `${indent}  `, `${path}/${name}`);
      entries += 1;
      const more = tokens[at] === ",";
      at += 1;
      if (more) line.append(",");
      inner.append(line);
      if (!more) break;
    }
    inner.append(`\n${indent}`);
    const hint = h("span", { class: "folded", hidden: true }, ` … ${entries} `);
    const button = h("button", { type: "button", class: "fold plain", onclick: () => turn(!folded.has(path)) });
    /** @param {boolean} closed */
    const turn = (closed) => {
      if (closed) folded.add(path); else folded.delete(path);
      inner.hidden = closed;
      hint.hidden = !closed;
      button.setAttribute("aria-expanded", String(!closed));
      button.setAttribute("aria-label", `${closed ? "Unfold" : "Fold"} ${entries} ${open === "{" ? "fields" : "items"}`);
    };
    turn(folded.has(path));
    into.append(button, open, inner, hint, close);
  }

  value(top, "", "");
  return top;
}

/** The same with a field or item on each line; other text as it is.
 * @param {string} text */
export function neat(text) {
  try { JSON.parse(text); } catch { return text; }
  const tokens = text.match(TOKENS) || [];
  let indent = "";
  return tokens.map((token, i) => {
    const next = tokens[i + 1];
    const empty = (token === "{" && next === "}") || (token === "[" && next === "]");
    if (token === "{" || token === "[") { if (!empty) indent += "  "; return empty ? token : `${token}\n${indent}`; }
    if (token === "}" || token === "]") {
      const before = tokens[i - 1];
      if (before === "{" || before === "[") return token;
      indent = indent.slice(2);
      return `\n${indent}${token}`;
    }
    if (token === ",") return `,\n${indent}`;
    return token === ":" ? ": " : token;
  }).join("");
}

/** @param {string} token */
function kindOf(token) {
  if (token.startsWith('"')) return "string";
  return /^[-\d]/.test(token) ? "digits" : "word";
}
