// A payload as text, JSON, hex or picture. Whatever it holds, it is shown as data.

import { bytesOf } from "/static/api.js";
import { h } from "/static/dom.js";
import { jsonView, neat } from "/static/json.js";

/** @import { Whole } from "../api.d.ts" */

const SHOWN = 200000;
/** @type {[string, number[]][]} types and the bytes they begin with */
const PICTURES = [
  ["image/png", [0x89, 0x50, 0x4e, 0x47]], ["image/jpeg", [0xff, 0xd8, 0xff]], ["image/gif", [0x47, 0x49, 0x46, 0x38]],
  ["image/webp", [0x52, 0x49, 0x46, 0x46]],
];

/** Each form by its name.
 * @param {Whole} message
 * @param {Set<string>} folded what of its JSON is folded */
export function formsOf(message, folded) {
  const bytes = bytesOf(message.payload);
  /** @type {[string, () => HTMLElement][]} */
  const forms = [];
  const picture = PICTURES.find(([, magic]) => magic.every((byte, i) => bytes[i] === byte));
  if (picture) forms.push(["Image", () => image(bytes, picture[0])]);
  const { text } = message;
  const parsed = jsonOf(text);
  if (text !== null && typeof parsed === "object" && parsed !== null) {
    forms.push(["JSON", () => jsonView(text, folded) || block(neat(text))]);
  }
  if (text !== null) forms.push(["Text", () => block(text)]);
  forms.push(["Hex", () => block(hex(bytes))]);
  return forms;
}

/** @param {string | null | undefined} text
 * @returns {unknown} undefined when it is none */
export function jsonOf(text) {
  if (text === null || text === undefined) return undefined;
  try { return JSON.parse(text); } catch { return undefined; }
}

/** @param {string} text */
function block(text) {
  const cut = text.length > SHOWN ? `${text.slice(0, SHOWN)}\n… ${text.length - SHOWN} more characters` : text;
  return h("pre", { class: "payload", tabindex: "0" }, cut);
}

/** @param {Uint8Array<ArrayBuffer>} bytes
 * @param {string} type */
function image(bytes, type) {
  const url = URL.createObjectURL(new Blob([bytes], { type }));
  return h("img", { class: "payload", alt: "the payload as a picture", src: url, onload: () => URL.revokeObjectURL(url) });
}

/** @param {Uint8Array} bytes */
export function hex(bytes) {
  const lines = [];
  for (let at = 0; at < Math.min(bytes.length, 16384); at += 16) {
    const row = [...bytes.slice(at, at + 16)];
    const digits = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const letters = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${digits.padEnd(47)}  ${letters}`);
  }
  if (bytes.length > 16384) lines.push(`… ${bytes.length - 16384} more bytes`);
  return lines.join("\n");
}

/** Numbers in a payload, by the path that leads to them; "" is the payload itself.
 * @param {string | null} text */
export function numbersOf(text) {
  /** @type {Record<string, number>} */
  const found = {};
  /** @param {unknown} value
   * @param {string} path
   * @param {number} depth */
  const walk = (value, path, depth) => {
    if (typeof value === "number" && Number.isFinite(value)) found[path] = value;
    else if (typeof value === "boolean") found[path] = value ? 1 : 0;
    else if (value && typeof value === "object" && depth < 4) {
      for (const [name, one] of Object.entries(value).slice(0, 50)) walk(one, path ? `${path}.${name}` : name, depth + 1);
    }
  };
  const parsed = jsonOf(text);
  if (parsed !== undefined) walk(parsed, "", 0);
  return found;
}
