// Bytes as a person types them: text where a text area can hold it, hex or base64 otherwise. What is written and read again
// unchanged is the same bytes.

import { base64Of, bytesOf } from "/static/api.js";

/** @type {[string, string][]} */
export const FORMS = [["text", "Text"], ["hex", "Hex"], ["base64", "Base64"]];

/** The form in which these bytes survive a text area, which keeps only one kind of line end.
 * @param {Uint8Array} bytes */
export function formOf(bytes) {
  const text = textOf(bytes);
  if (text === null || text.includes("\0")) return "hex";
  return hasMixedLineEnds(text) ? "hex" : "text";
}

/** @param {Uint8Array} bytes
 * @param {string} form
 * @returns {string} throws when the bytes cannot be written so */
export function write(bytes, form) {
  if (form === "base64") return base64Of(bytes);
  if (form === "hex") {
    const digits = [...bytes].map((byte) => byte.toString(16).padStart(2, "0"));
    const lines = [];
    for (let at = 0; at < digits.length; at += 16) lines.push(digits.slice(at, at + 16).join(" "));
    return lines.join("\n");
  }
  const text = textOf(bytes);
  if (text === null) throw new Error("These bytes are not UTF-8 text.");
  if (formOf(bytes) !== "text") throw new Error("Its line ends or NULs would be lost as text.");
  return text;
}

/** @param {string} written
 * @param {string} form
 * @param {Uint8Array} before whose line ends new text is given
 * @returns {Uint8Array<ArrayBuffer>} throws when it is not in that form */
export function read(written, form, before) {
  if (form === "base64") {
    try { return bytesOf(written.replace(/\s/g, "")); } catch { throw new Error("This is not base64."); }
  }
  if (form === "hex") {
    const digits = written.replace(/\s/g, "");
    if (!/^([0-9a-f]{2})*$/i.test(digits)) throw new Error("This is not hex: expected two digits for each byte.");
    return Uint8Array.from(digits.match(/../g) || [], (pair) => parseInt(pair, 16));
  }
  const old = textOf(before);
  const text = old !== null && old.includes("\r\n") && !hasMixedLineEnds(old) ? written.replaceAll("\n", "\r\n") : written;
  return new TextEncoder().encode(text);
}

/** @param {string} text */
function hasMixedLineEnds(text) {
  const rest = text.replaceAll("\r\n", "");
  return rest.includes("\r") || (rest.includes("\n") && text.includes("\r\n"));
}

/** @param {Uint8Array} bytes */
function textOf(bytes) {
  try { return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes); } catch { return null; }
}
