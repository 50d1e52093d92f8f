// A topic's history: the list, the difference between two versions, and a chart of what is a number.

import { get } from "/static/api.js";
import { chart } from "/static/chart.js";
import { fill, h, size, when } from "/static/dom.js";
import { jsonOf, numbersOf } from "/static/payload.js";

const LINES_MOST = 800;

/** @import { HistoryOf, HistoryRow } from "../api.d.ts" */

/** @param {string} topic */
export function past(topic) {
  const element = h("section", { class: "past" }, h("h3", {}, "History"), h("p", { class: "soft" }, "reading…"));
  /** @type {HistoryRow[]} */
  let rows = [];
  /** @type {number[]} the versions that are compared */
  let chosen = [];
  load();

  async function load() {
    try {
      const answer = await get("/api/v1/history", { topic, limit: 200 });
      rows = answer.rows;
      chosen = rows.slice(0, 2).map((row) => row.version);
      draw(answer);
    } catch (error) {
      fill(element, h("h3", {}, "History"), h("p", { class: "soft" }, error.message));
    }
  }

  /** @param {HistoryOf} answer */
  function draw(answer) {
    const table = h("table", { class: "versions" }, h("thead", {}, h("tr", {},
      ["", "Time", "What", "By", "Payload"].map((title) => h("th", {}, title)))),
    h("tbody", {}, rows.map((row) => h("tr", {},
      h("td", {}, box(row, answer)),
      h("td", { title: `offset ${row.version}` }, when(row.stored_at_ms)),
      h("td", {}, h("span", { class: `outcome ${row.outcome}` }, row.outcome.replace("_", " "))),
      h("td", { class: "by" }, row.publisher.client_id),
      h("td", { class: "cut" }, row.preview === null ? size(row.size) : row.preview)))));
    fill(element, h("h3", {}, "History"), rows.length ? null : h("p", { class: "soft" }, "no rows yet"),
      numbers(), rows.length ? h("div", { class: "scroll" }, table) : null,
      answer.next ? h("p", { class: "soft" }, "older rows are left out here; the API has them all") : null, difference());
  }

  /** @param {HistoryRow} row
   * @param {HistoryOf} answer */
  function box(row, answer) {
    const one = h("input", { type: "checkbox", checked: chosen.includes(row.version), "aria-label": `compare version ${row.version}`,
      onchange: () => { choose(row.version, one.checked); draw(answer); } });
    return one;
  }

  /** @param {number} version
   * @param {boolean} on */
  function choose(version, on) {
    chosen = chosen.filter((one) => one !== version);
    if (on) chosen = [...chosen.slice(-1), version];
  }

  function numbers() {
    const known = rows.filter((row) => row.outcome !== "cleared")
      .map((row) => /** @type {[number, Record<string, number>]} */ ([row.stored_at_ms, numbersOf(row.text)])).reverse();
    const fields = [...new Set(known.flatMap(([, found]) => Object.keys(found)))];
    if (!fields.length || known.length < 2) return null;
    const picture = chart("Values over time", { fromZero: false, points: true });
    /** @param {string} field */
    const drawField = (field) => {
      const points = known.filter(([, found]) => field in found);
      picture.draw(points.map(([at]) => at), [{ name: field, values: points.map(([, found]) => found[field]) }], field);
    };
    const pick = h("select", { "aria-label": "Field", onchange: () => { drawField(pick.value); } },
      fields.map((field) => h("option", { value: field }, field || "value")));
    drawField(fields[0]);
    return h("div", { class: "numbers" }, fields.length > 1 ? pick : null, picture.element);
  }

  function difference() {
    if (chosen.length < 2) return null;
    const [older, newer] = chosen.map((version) => rows.find((row) => row.version === version))
      .filter((row) => row !== undefined).sort((a, b) => a.version - b.version);
    if (!newer || older.text === null || newer.text === null) return null;
    const lines = compare(pretty(older.text), pretty(newer.text));
    return h("div", { class: "difference" },
      h("h4", {}, `Difference from ${when(older.stored_at_ms)} to ${when(newer.stored_at_ms)}`),
      h("pre", {}, lines.map(([mark, text]) => h("span", { class: mark === "+" ? "added" : mark === "-" ? "removed" : "same" }, `${mark} ${text}\n`))));
  }

  return element;
}

/** @param {string} text */
function pretty(text) {
  const parsed = jsonOf(text);
  return (parsed && typeof parsed === "object" ? JSON.stringify(parsed, null, 2) : text).split("\n").slice(0, LINES_MOST);
}

/** Lines that are gone, new, or the same, by their longest common subsequence.
 * @param {string[]} a
 * @param {string[]} b */
export function compare(a, b) {
  const table = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      table[i][j] = a[i] === b[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
    }
  }
  /** @type {[" " | "+" | "-", string][]} */
  const lines = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { lines.push([" ", a[i]]); i += 1; j += 1; }
    else if (j < b.length && (i === a.length || table[i][j + 1] > table[i + 1][j])) { lines.push(["+", b[j]]); j += 1; }
    else { lines.push(["-", a[i]]); i += 1; }
  }
  return lines;
}
