// What was done through the API and this page, newest first, each to be undone: also after a reload, a restart, tomorrow.

import { get } from "/static/api.js";
import { undoWithPreview } from "/static/actions.js";
import { ask, count, fill, h } from "/static/dom.js";
import { exactly } from "/static/moment.js";

/** @import { Operation } from "../api.d.ts" */

const PAGE = 50;

/** @param {() => void} after called when something has been undone */
export async function showOperations(after) {
  const body = h("tbody", {});
  const state = h("p", { class: "soft", role: "status" }, "reading…");
  const older = h("button", { type: "button", hidden: true, onclick: () => load(next) }, "Older");
  let next = 0;
  load(0);
  await ask("Operations", h("div", {},
    h("p", { class: "soft" }, "Every delete, publish, restore and undo through this page, the API and the command line."),
    state,
    h("div", { class: "scroll operations", tabindex: "0", role: "region", "aria-label": "Operations" },
      h("table", {}, h("thead", {}, h("tr", {}, ["Time", "What", "Topic", "By", "Undo"].map((one) => h("th", { scope: "col" }, one)))), body)),
    older), [{ name: null, label: "Close" }]);

  /** @param {number} before */
  async function load(before) {
    try {
      const answer = await get("/api/v1/operations", { before: before || undefined, limit: PAGE });
      if (!before) fill(body);
      body.append(...answer.operations.map(row));
      next = answer.next ?? 0;
      older.hidden = answer.next === null;
      state.hidden = body.children.length > 0;
      state.textContent = "Nothing has been done yet, as far as the history reaches.";
    } catch (error) {
      state.hidden = false;
      state.textContent = error.message;
    }
  }

  /** @param {Operation} one */
  function row(one) {
    const more = one.set + one.cleared - 1;
    return h("tr", { data: { operation: one.operation } },
      h("td", { class: "at", title: one.operation }, exactly(one.at_ms)),
      h("td", { class: "at" }, whatOf(one)),
      h("td", {}, one.topic, more ? h("span", { class: "soft" }, ` and ${count(more)} more`) : null),
      h("td", {}, one.username),
      h("td", {}, h("button", { type: "button", class: "small", "aria-label": `Undo ${one.operation}`,
        onclick: () => undoWithPreview(one.operation, () => { after(); load(0); }) }, "Undo…")));
  }
}

/** @param {Operation} one */
function whatOf(one) {
  return [one.cleared ? `deleted ${count(one.cleared)}` : "", one.set ? `set ${count(one.set)}` : ""].filter(Boolean).join(", ");
}
