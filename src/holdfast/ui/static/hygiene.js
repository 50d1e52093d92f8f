// What in the retained set is worth a look, and what can be done about it.

import { get } from "/static/api.js";
import { remove } from "/static/actions.js";
import { count, debounce, fill, h, size, span, when } from "/static/dom.js";

/** @import { HygieneReport } from "../api.d.ts" */

/** @param {HTMLElement} page */
export function hygiene(page) {
  const days = h("input", { type: "number", min: "0", step: "any", value: "30", class: "days", "aria-label": "Days" });
  const report = h("div", { class: "report" }, h("p", { class: "soft" }, "looking…"));
  fill(page, h("h1", {}, "Hygiene"),
    h("p", { class: "soft" }, "Not written, or not heard of, for ", days, " days."), report);
  days.addEventListener("input", debounce(400, look));
  look();

  async function look() {
    try {
      draw(await get("/api/v1/hygiene", { days: Number(days.value) || 0, limit: 50 }));
    } catch (error) {
      fill(report, h("p", { class: "problem" }, error.message));
    }
  }

  /** @param {string} topic */
  function link(topic) {
    return h("a", { href: `#explorer?${new URLSearchParams({ topic })}` }, topic);
  }

  /** @param {string} title
   * @param {string} text
   * @param {HTMLTableElement} table
   * @param {HTMLElement | null} [button] */
  function section(title, text, table, button) {
    return h("section", { class: "card" }, h("h2", {}, title), h("p", { class: "soft" }, text),
      table && table.rows.length > 1 ? h("div", { class: "scroll" }, table) : h("p", {}, "None."), button);
  }

  /** @param {string[]} titles
   * @param {(string | HTMLElement)[][]} rows */
  function table(titles, rows) {
    return h("table", {}, h("thead", {}, h("tr", {}, titles.map((one) => h("th", {}, one)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", {}, cell))))));
  }

  /** @param {HygieneReport} found */
  function draw(found) {
    /** @param {number} ms */
    const age = (ms) => h("span", { title: when(ms) }, `${span(Date.now() - ms)} ago`);
    const seconds = Math.round((Number(days.value) || 0) * 86400);
    fill(report,
      section(`Not written: ${count(found.stale.count)}`, `${size(found.stale.bytes)} of ${size(found.bytes)} in ${count(found.count)} messages`,
        table(["Topic", "Last written", "Publisher"], found.stale.messages.map((one) => [link(one.topic), age(one.stored_at_ms), one.publisher.client_id])),
        found.stale.count ? h("button", { type: "button", class: "danger", onclick: () => remove({ filter: "#", older_than: seconds }, look) }, "Delete all of these…") : null),
      section(`Publishers not heard of: ${count(found.publishers.length)}`, "No session, and no retained message written in that time",
        table(["Client", "Last write", "Messages", "For example", ""], found.publishers.map((one) => [one.client_id, age(one.last_write_ms), count(one.count), link(one.sample),
          h("button", { type: "button", class: "danger small", onclick: () => remove({ filter: "#", client_id: one.client_id }, look) }, "Delete…")]))),
      section(`Discovery without state: ${count(found.discovery.length)}`, "Home Assistant configurations whose state topic has nothing retained",
        table(["Topic", "State topic", "Written"], found.discovery.map((one) => [link(one.topic), one.state_topic, age(one.stored_at_ms)]))),
      section("Biggest subtrees", "By bytes, two levels deep",
        table(["Subtree", "Messages", "Bytes"], found.subtrees.slice(0, 15).map((one) => [link(one.prefix), count(one.count), size(one.bytes)]))),
      section(`Retained commands: ${count(found.commands.count)}`, "An order that is kept is carried out again at every reconnect",
        table(["Topic", "Written", "Publisher"], found.commands.messages.map((one) => [link(one.topic), age(one.stored_at_ms), one.publisher.client_id]))),
      section(`About to expire: ${count(found.expiring.count)}`, "Within the hour",
        table(["Topic", "Expires in"], found.expiring.messages.map((one) => [link(one.topic), span((one.expires_at_ms ?? 0) - Date.now())]))));
  }
}
