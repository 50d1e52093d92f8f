// A topic's history: the list, the difference between two versions, and a chart of what is a number. What is new is added
// to what is shown: ticks, field, scroll position and marked text stay.

import { bytesOf, get } from "/static/api.js";
import { chart } from "/static/chart.js";
import { fill, h, size } from "/static/dom.js";
import { neat } from "/static/json.js";
import { exactly } from "/static/moment.js";
import { hex, numbersOf } from "/static/payload.js";

const LINES_MOST = 800;
const PAGE = 200;
const LATE_MS = 1000; // the table is a moment behind the broker
const LATE_MOST = 20;

/** @import { HistoryRow } from "../api.d.ts" */

/** @param {string} topic
 * @param {{ atMs: number, restore: (row: HistoryRow) => void }} options up to which moment, 0 being now; brings a version back */
export function past(topic, { atMs, restore }) {
  const state = h("p", { class: "soft" }, "reading…");
  const body = h("tbody", {});
  const table = h("table", { class: "versions" }, h("thead", {}, h("tr", {},
    ["Compare", "Time", "What", "By", "Payload", "Restore"].map((title, i) => h("th", { scope: "col", class: i === 0 || i === 5 ? "slim" : "" }, title)))), body);
  const scroll = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Versions", hidden: true }, table);
  const older = h("button", { type: "button", class: "older", hidden: true, onclick: () => loadOlder() }, "Older");
  const numbers = h("div", { class: "numbers", hidden: true });
  const picture = chart("Values over time", { fromZero: false, points: true });
  const pick = h("select", { "aria-label": "Field", onchange: () => drawNumbers() });
  numbers.append(pick, picture.element);
  const difference = h("div", { class: "difference", hidden: true });
  const element = h("section", { class: "past" }, h("h3", {}, "History"), state, numbers, scroll, older, difference);
  /** @type {HistoryRow[]} newest first */
  let rows = [];
  /** @type {Map<number, { line: HTMLElement, box: HTMLInputElement, mark: HTMLElement }>} */
  const lines = new Map();
  /** @type {number[]} the versions that are compared */
  let compared = [];
  let touched = false; // by hand; until then the newest two are
  /** @type {number | null} */
  let next = null;
  let closed = false;
  let reading = false;
  let wanted = 0;
  let late = 0;
  load();

  async function load() {
    if (reading || closed) return;
    reading = true;
    try {
      const answer = await get("/api/v1/history", { topic, limit: PAGE, to_ms: atMs || undefined });
      if (closed) return;
      const known = rows.length ? rows[0].version : -1;
      if (!rows.length) next = answer.next;
      const added = answer.rows.filter((row) => row.version > known);
      if (added.length || !rows.length) add(added, true);
      state.hidden = rows.length > 0;
      state.textContent = atMs ? "Nothing is recorded of this topic up to this moment." : "Nothing is recorded of this topic yet.";
      late = answer.upto < wanted ? late + 1 : 0;
      if (late && late < LATE_MOST) setTimeout(load, LATE_MS);
    } catch (error) {
      state.hidden = false;
      state.textContent = error.message;
    } finally {
      reading = false;
    }
  }

  async function loadOlder() {
    if (next === null) return;
    older.disabled = true;
    try {
      const answer = await get("/api/v1/history", { topic, limit: PAGE, before: next, to_ms: atMs || undefined });
      next = answer.next;
      add(answer.rows, false);
    } catch (error) {
      state.hidden = false;
      state.textContent = error.message;
    } finally {
      older.disabled = false;
    }
  }

  /** @param {HistoryRow[]} some
   * @param {boolean} front */
  function add(some, front) {
    rows = front ? [...some, ...rows] : [...rows, ...some];
    const before = scroll.scrollTop;
    const tall = body.offsetHeight;
    const made = some.map((row) => line(row));
    if (front) body.prepend(...made); else body.append(...made);
    if (front && before > 0) scroll.scrollTop = before + body.offsetHeight - tall; // what is read stays where it is
    scroll.hidden = !rows.length;
    older.hidden = next === null;
    mark();
    if (!touched) compared = rows.filter((row) => row.outcome !== "cleared").slice(0, 2).map((row) => row.version);
    for (const [version, { box }] of lines) box.checked = compared.includes(version);
    drawNumbers();
    drawDifference();
  }

  /** @param {HistoryRow} row */
  function line(row) {
    const box = h("input", { type: "checkbox", "aria-label": `Compare version ${row.version}`, onchange: () => {
      touched = true;
      compared = compared.filter((one) => one !== row.version);
      if (box.checked) compared = [...compared.slice(-1), row.version];
      for (const [version, one] of lines) one.box.checked = compared.includes(version);
      drawDifference();
    } });
    const marked = h("span", { class: "force" });
    const element = h("tr", { data: { version: String(row.version) } },
      h("td", { class: "slim" }, box),
      h("td", { class: "at", title: `offset ${row.version}` }, exactly(row.stored_at_ms)),
      h("td", {}, h("span", { class: `outcome ${row.outcome}` }, row.outcome.replace("_", " ")), marked),
      h("td", { class: "by" }, row.publisher.client_id),
      h("td", { class: "cut", title: row.preview ?? "" }, row.outcome === "cleared" ? "" : row.preview === null ? `${size(row.size)}, binary` : row.preview),
      h("td", { class: "slim" }, row.outcome === "set"
        ? h("button", { type: "button", class: "small restore", "aria-label": `Restore version ${row.version}`, onclick: () => restore(row) }, "Restore…") : null));
    lines.set(row.version, { line: element, box, mark: marked });
    return element;
  }

  /** Says which row is in force: the last that set or cleared the topic, if it set it and has not expired. */
  function mark() {
    const last = rows.find((row) => row.outcome === "set" || row.outcome === "cleared");
    const lives = last && last.outcome === "set" && !(last.expires_at_ms && last.expires_at_ms <= (atMs || Date.now()));
    for (const [version, one] of lines) {
      const is = lives && version === last.version;
      one.mark.textContent = is ? (atMs ? "in force then" : "in force") : "";
      one.line.classList.toggle("current", Boolean(is));
    }
  }

  function drawNumbers() {
    const known = rows.filter((row) => row.outcome !== "cleared")
      .map((row) => /** @type {[number, Record<string, number>]} */ ([row.stored_at_ms, numbersOf(row.text)])).reverse();
    const fields = [...new Set(known.flatMap(([, found]) => Object.keys(found)))];
    numbers.hidden = !fields.length || known.length < 2;
    if (numbers.hidden) return;
    const shown = [...pick.options].map((one) => one.value);
    if (JSON.stringify(shown) !== JSON.stringify(fields)) {
      const field = pick.value;
      fill(pick, fields.map((one) => h("option", { value: one }, one || "value")));
      if (fields.includes(field)) pick.value = field;
    }
    pick.hidden = fields.length < 2;
    const points = known.filter(([, found]) => pick.value in found);
    picture.draw(points.map(([at]) => at), [{ name: pick.value || "value", values: points.map(([, found]) => found[pick.value]) }], pick.value);
  }

  function drawDifference() {
    const [first, second] = compared.map((version) => rows.find((row) => row.version === version))
      .filter((row) => row !== undefined).sort((a, b) => a.version - b.version);
    difference.hidden = !second;
    const key = second ? `${first.version} ${second.version}` : "";
    if (!second || difference.dataset.key === key) return;
    difference.dataset.key = key;
    const changed = compare(linesOf(first), linesOf(second));
    const same = changed.every(([mark]) => mark === " ");
    fill(difference, h("h4", {}, `Difference from ${exactly(first.stored_at_ms)} to ${exactly(second.stored_at_ms)}`),
      same ? h("p", { class: "soft" }, "No difference: both have the same payload.")
        : h("pre", { tabindex: "0" }, changed.map(([mark, text]) => h("span", { class: mark === "+" ? "added" : mark === "-" ? "removed" : "same" }, `${mark} ${text}\n`))));
  }

  return {
    element,
    /** There is a newer version: show it when the table has it.
     * @param {number} version */
    refresh(version) { wanted = Math.max(wanted, version); late = 0; load(); },
    close() { closed = true; },
  };
}

/** A payload as lines to compare: JSON with a field on each, what is not text in hex.
 * @param {HistoryRow} row */
function linesOf(row) {
  if (row.text === null) return hex(bytesOf(row.payload)).split("\n").slice(0, LINES_MOST);
  return neat(row.text).split("\n").slice(0, LINES_MOST);
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
