// What in the retained set is worth a look, and what can be done about it.

import { call, get, live } from "/static/api.js";
import { remove, undo } from "/static/actions.js";
import { ask, count, debounce, fill, h, size, span, toast, when } from "/static/dom.js";
import { address, plainTable, tellProblem } from "/static/table.js";

/** @import { HygieneReport, Whole } from "../api.d.ts" */

const FEW = 20;
const MOST = 1000;
const DAY_MS = 86_400_000;

/** @param {HTMLElement} page
 * @param {URLSearchParams} query */
export function hygiene(page, query) {
  const days = h("input", { type: "number", min: "0", step: "any", value: query.get("days") || "30", class: "days", "aria-label": "Days" });
  const problem = h("div");
  const summary = h("ul", { class: "summary", "aria-label": "Findings" });
  const report = h("div", { class: "report" }, h("p", { class: "soft" }, "looking…"));
  fill(page, h("h1", {}, "Hygiene"),
    h("p", { class: "soft" }, h("label", {}, "What has been silent for ", days, " days, and what else is worth a look.")), problem, summary, report);
  let limit = FEW;
  days.addEventListener("input", debounce(400, () => { address("hygiene", { days: days.value !== "30" && days.value }); look(); }));
  look();
  const stop = live.whenBack(look);

  /** @param {number} most */
  function reportOf(most) {
    return get("/api/v1/hygiene", { days: Number(days.value) || 0, limit: most });
  }

  async function look() {
    try {
      draw(await reportOf(limit));
      fill(problem);
    } catch (error) {
      if (error.status) fill(report);
      tellProblem(problem, error);
    }
  }

  /** A topic that goes on to the next line between its levels.
   * @param {string} topic */
  const levels = (topic) => topic.split(/(?<=\/)/).flatMap((level) => [level, h("wbr")]);

  /** @param {string} topic */
  function link(topic) {
    return h("a", { href: `#explorer?${new URLSearchParams({ topic })}` }, levels(topic));
  }

  /** @param {string} what
   * @param {() => void} run
   * @param {string} [label] */
  const button = (what, run, label = "Delete…") => h("button", { type: "button", class: `${label === "Delete…" ? "danger " : ""}small`, "aria-label": `${label} ${what}`, onclick: run }, label);

  /** @param {number} ms */
  const age = (ms) => h("span", { title: when(ms) }, `${span(Date.now() - ms)} ago`);

  /** Deletes topics one by one, as one operation.
   * @param {(found: HygieneReport) => string[]} pick */
  async function removeAll(pick) {
    try {
      const topics = pick(await reportOf(MOST));
      if (!topics.length) { toast("Nothing is left of it."); look(); return; }
      const answer = await ask("Delete", h("div", {}, h("p", {}, h("b", {}, `${count(topics.length)} retained message${topics.length === 1 ? "" : "s"}`), " will be deleted:"),
        h("ul", { class: "sample" }, topics.slice(0, 20).map((topic) => h("li", {}, topic))),
        topics.length > 20 ? h("p", { class: "soft" }, `and ${count(topics.length - 20)} more`) : null,
        h("p", { class: "soft" }, "Subscribers are told. It can be undone as long as the history reaches.")),
      [{ name: "delete", label: `Delete ${count(topics.length)}`, class: "danger" }, { name: null, label: "Cancel" }]);
      if (answer !== "delete") return;
      const done = await call("POST", "/api/v1/publish/batch", {}, topics.map((topic) => ({ topic, payload: "", retain: true, qos: 0 })));
      toast(`Deleted ${count(done.count - done.refused)}`, { label: "Undo", run: () => undo(done.operation, look) });
      look();
    } catch (error) {
      toast(error.message);
    }
  }

  /** Sets a message again as it is, without an end.
   * @param {string} topic */
  async function keep(topic) {
    const answer = await ask(`Keep ${topic}?`, h("p", {}, "It is set again as it is, and does not expire any more. Subscribers are told."),
      [{ name: "keep", label: "Keep", class: "main" }, { name: null, label: "Cancel" }]);
    if (answer !== "keep") return;
    try {
      const message = /** @type {Whole} */ (await get("/api/v1/retained/message", { topic }));
      const { payload, qos, content_type, response_topic, correlation_data, payload_format, user_properties } = message;
      const done = await call("POST", "/api/v1/publish", {}, { topic, payload, encoding: "base64", qos, retain: true, content_type, response_topic, correlation_data, payload_format, user_properties });
      toast(done.reason >= 0x80 ? `Refused: ${done.reason_name}` : `Kept: ${topic}`);
    } catch (error) {
      toast(error.message);
    }
    look();
  }

  /** @param {{ id: string, title: string, total: number, text: string, rows: (string | Node | null)[][], titles: (string | [string, string])[], all?: HTMLElement | null }} given */
  function section({ id, title, total, text, rows, titles, all }) {
    return h("section", { class: "card", id: `hygiene-${id}` }, h("h2", {}, `${title}: ${count(total)}`), h("p", { class: "soft" }, text),
      rows.length ? plainTable(title, titles, rows) : h("p", {}, "None."),
      h("div", { class: "buttons" },
        rows.length < total && limit < MOST ? h("button", { type: "button", onclick: () => { limit = MOST; look(); } }, `Show ${total > MOST ? `the first ${count(MOST)}` : "all"}`) : null,
        rows.length ? all : null));
  }

  /** @param {() => void} run */
  const deleteAll = (run) => h("button", { type: "button", class: "danger all", onclick: run }, "Delete all of these…");

  /** @param {HygieneReport} found */
  function draw(found) {
    const seconds = Math.round((Number(days.value) || 0) * 86400);
    const since = found.listening_since_ms;
    const heardMs = since === null ? Infinity : Date.now() - since;
    const early = heardMs < DAY_MS; // most devices report at least daily
    const listening = since === null ? "" : ` The broker has listened for ${span(heardMs)}${early ? " only: a device that reports less often than that is listed here and may be well" : ""}.`;
    const subtrees = found.subtrees.slice(0, limit === FEW ? 15 : MOST);
    const parts = [
      { id: "stale", title: "Not written", total: found.stale.count, text: `Messages that were not updated in that time: ${size(found.stale.bytes)} of ${size(found.bytes)} in ${count(found.count)} messages.`,
        titles: ["Topic", "Last written", "Publisher", ""],
        rows: found.stale.messages.map((one) => [link(one.topic), age(one.stored_at_ms), one.publisher.client_id, button(one.topic, () => remove({ filter: one.topic }, look))]),
        all: deleteAll(() => remove({ filter: "#", older_than: seconds }, look)) },
      { id: "publishers", title: "Inactive publishers", total: found.publishers_count, text: "Clients with a name of their own that have no session and have not written a retained message in that time.",
        titles: ["Client", "Last write", /** @type {[string, string]} */ (["Messages", "right"]), "For example", ""],
        rows: found.publishers.map((one) => [one.client_id, age(one.last_write_ms), count(one.count), link(one.sample), button(`what ${one.client_id} left`, () => remove({ filter: "#", client_id: one.client_id }, look))]) },
      { id: "discovery", title: "Discovery without state", total: found.discovery_count, text: `Home Assistant configurations whose state topic has nothing retained and is not published to.${listening}`,
        titles: ["Configuration", "State topic", "Last heard", ""],
        rows: found.discovery.map((one) => [link(one.topic), h("span", {}, levels(one.state_topic)), one.heard_at_ms ? age(one.heard_at_ms) : "never", button(one.topic, () => remove({ filter: one.topic }, look))]),
        doubtful: early, all: early ? null : deleteAll(() => removeAll((all) => all.discovery.map((one) => one.topic))) },
      { id: "commands", title: "Retained commands", total: found.commands.count, text: "A command that is retained is carried out again whenever its device reconnects.",
        titles: ["Topic", "Written", "Publisher", ""],
        rows: found.commands.messages.map((one) => [link(one.topic), age(one.stored_at_ms), one.publisher.client_id, button(one.topic, () => remove({ filter: one.topic }, look))]),
        all: deleteAll(() => removeAll((all) => all.commands.messages.map((one) => one.topic))) },
      { id: "expiring", title: "About to expire", total: found.expiring.count, text: "Within the hour.",
        titles: ["Topic", "Expires in", ""],
        rows: found.expiring.messages.map((one) => [link(one.topic), span((one.expires_at_ms ?? 0) - Date.now()), button(one.topic, () => keep(one.topic), "Keep…")]) },
      { id: "subtrees", title: "Biggest subtrees", total: found.subtrees_count, text: "By bytes, two levels deep.",
        titles: ["Subtree", /** @type {[string, string]} */ (["Messages", "right"]), /** @type {[string, string]} */ (["Bytes", "right"]), ""],
        rows: subtrees.map((one) => [link(one.prefix), count(one.count), size(one.bytes), button(`everything below ${one.prefix}`, () => remove({ filter: `${one.prefix}/#` }, look))]) },
    ];
    const scrolled = page.scrollTop;
    fill(summary, parts.map((one) => h("li", {}, h("button", { type: "button", class: one.total && one.id !== "subtrees" && !one.doubtful ? "some" : "", onclick: () => document.getElementById(`hygiene-${one.id}`)?.scrollIntoView() },
      h("b", {}, count(one.total)), ` ${one.id === "subtrees" ? "subtrees" : one.title.toLowerCase()}`))));
    fill(report, parts.map(section));
    page.scrollTop = scrolled;
  }

  return stop;
}
