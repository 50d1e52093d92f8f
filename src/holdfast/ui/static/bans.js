// Who is banned: the list, one more, one less.

import { call, get, live } from "/static/api.js";
import { ask, count, debounce, fill, h, toast, when } from "/static/dom.js";
import { address, liveTable, tellProblem } from "/static/table.js";

/** @import { EmqxBan } from "../api.d.ts" */

/** @type {[string, string][]} */
const KINDS = [["clientid", "Client id"], ["username", "User"], ["peerhost", "Address"], ["peerhost_net", "Network"]];
/** @type {[number, string][]} */
const LENGTHS = [[3600, "1 hour"], [86400, "1 day"], [7 * 86400, "7 days"], [0, "no end"]];

/** @param {string} kind */
const kindName = (kind) => (KINDS.find(([one]) => one === kind) || ["", kind])[1];

/** Asks for what is missing and bans; `after` is called when it is done.
 * @param {{ kind?: string, who?: string }} given
 * @param {() => void} after */
export async function banning(given, after) {
  const kind = h("select", { name: "kind" }, KINDS.map(([value, label]) => h("option", { value, selected: value === given.kind }, label)));
  const who = h("input", { name: "who", required: true, value: given.who || "" });
  const reason = h("input", { name: "reason", placeholder: "for your own notes" });
  const length = h("select", { name: "length" }, LENGTHS.map(([seconds, label]) => h("option", { value: String(seconds) }, label)));
  const body = h("div", { class: "form" }, h("div", { class: "line" }, h("label", {}, "Ban", kind), h("label", { class: "grow" }, "Who", who)),
    h("div", { class: "line" }, h("label", {}, "For", length), h("label", { class: "grow" }, "Reason", reason)),
    h("p", { class: "soft" }, "A reload of the configuration ends it early. For a permanent ban, use [bans] in the configuration."));
  const carryOut = async () => {
    if (!who.value) return "Expected somebody to ban.";
    const seconds = Number(length.value);
    try {
      const until = seconds ? new Date(Date.now() + seconds * 1000).toISOString() : null;
      await call("POST", "/api/v5/banned", {}, { as: kind.value, who: who.value, reason: reason.value, until });
      return "";
    } catch (error) {
      return error.message;
    }
  };
  const answer = await ask("Ban", body, [{ name: "ban", label: "Ban", class: "danger" }, { name: null, label: "Cancel" }], carryOut);
  if (answer !== "ban") return;
  toast(`Banned: ${who.value}`);
  after();
}

/** @param {HTMLElement} page
 * @param {URLSearchParams} query */
export function bans(page, query) {
  const search = h("input", { type: "search", class: "search", placeholder: "Part of a name, address or reason", "aria-label": "Search", value: query.get("search") || "" });
  const problem = h("div");
  const total = h("p", { class: "soft", role: "status" }, "reading…");
  const table = liveTable({
    label: "Bans",
    keyOf: (/** @type {EmqxBan} */ one) => `${one.as} ${one.who}`,
    columns: [
      { title: "Ban", text: (one) => kindName(one.as) },
      { title: "Who", class: "words", text: (one) => one.who },
      { title: "By", text: (one) => one.by },
      { title: "Reason", text: (one) => one.reason },
      { title: "Since", class: "whole", text: (one) => (one.at ? when(Date.parse(one.at)) : "") },
      { title: "Until", class: "whole", text: (one) => (one.until === "infinity" ? "no end" : one.until ? when(Date.parse(one.until)) : "for a while") },
      { title: "", class: "act", make: (one) => h("button", { type: "button", class: "small", "aria-label": `Lift the ban of ${one.who}`, onclick: () => lift(one) }, "Lift…") },
    ],
  });
  const none = h("p", { class: "empty", hidden: true }, "Nobody is banned.");
  fill(page, h("h1", {}, "Bans"),
    h("p", { class: "soft" }, "From the configuration, added here, or automatic after too many failed logins from an address."),
    h("div", { class: "bar" }, search, h("button", { type: "button", class: "danger add", onclick: () => banning({}, look) }, "Ban…")),
    problem, h("section", { class: "card" }, total, none, table.element));
  /** @type {EmqxBan[]} */
  let found = [];
  search.addEventListener("input", debounce(150, () => { address("bans", { search: search.value.trim() }); draw(); }));
  look();
  const timer = setInterval(look, 5000);
  const stop = live.whenBack(look);

  async function look() {
    try {
      found = (await get("/api/v5/banned", { limit: 10000 })).data;
      fill(problem);
      draw();
    } catch (error) {
      tellProblem(problem, error);
    }
  }

  function draw() {
    const text = search.value.trim().toLowerCase();
    const shown = found.filter((one) => [one.who, one.by, one.reason, kindName(one.as)].some((part) => part.toLowerCase().includes(text)));
    total.textContent = text ? `${count(shown.length)} of ${count(found.length)} bans` : `${count(found.length)} ban${found.length === 1 ? "" : "s"}`;
    none.hidden = found.length > 0;
    table.element.hidden = shown.length === 0;
    table.draw(shown);
  }

  /** @param {EmqxBan} one */
  async function lift(one) {
    const answer = await ask(`Lift the ban of ${one.who}?`, h("p", {}, one.by === "configuration" ? "It is in the configuration, and comes back when that is reloaded." : "It may connect again at once."),
      [{ name: "lift", label: "Lift", class: "main" }, { name: null, label: "Cancel" }]);
    if (answer !== "lift") return;
    try {
      await call("DELETE", `/api/v5/banned/${one.as}/${encodeURIComponent(one.who)}`);
      toast(`Lifted: ${one.who}`);
    } catch (error) {
      toast(error.message);
    }
    look();
  }

  return () => { clearInterval(timer); stop(); };
}
