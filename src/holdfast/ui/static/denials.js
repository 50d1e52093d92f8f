// Who was turned away, and why: failed logins, refused connections, protocol errors, what the rules do not allow.

import { get, live } from "/static/api.js";
import { banning } from "/static/bans.js";
import { count, debounce, fill, h, span, when } from "/static/dom.js";
import { address, liveTable, tellProblem } from "/static/table.js";

/** @import { DenialEntry } from "../api.d.ts" */

/** @param {HTMLElement} page
 * @param {URLSearchParams} query */
export function denials(page, query) {
  const search = h("input", { type: "search", class: "search", placeholder: "Part of a client, user, address or topic", "aria-label": "Search", value: query.get("search") || "" });
  const kind = h("select", { "aria-label": "What was denied" });
  let wanted = query.get("kind") || "";
  const problem = h("div");
  const total = h("p", { class: "soft", role: "status" }, "reading…");
  const table = liveTable({
    label: "Denials",
    keyOf: (/** @type {DenialEntry} */ one) => JSON.stringify([one.event, one.client_id, one.username, one.host, one.topic]),
    columns: [
      { title: "Last", class: "whole", text: (one) => `${span(Date.now() - one.last_ms)} ago`, hint: (one) => when(one.last_ms) },
      { title: "What", text: (one) => one.event },
      { title: "Times", class: "right", text: (one) => count(one.count), hint: (one) => (one.count > 1 ? `first ${when(one.first_ms)}` : "") },
      { title: "User", class: "words", text: (one) => one.username },
      { title: "Client", class: "words", text: (one) => one.client_id },
      { title: "Address", class: "whole", text: (one) => one.host },
      { title: "Topic", class: "words", text: (one) => one.topic },
      { title: "Reason", text: (one) => one.reason },
      { title: "", class: "act", make: (one) => h("button", { type: "button", class: "small", "aria-label": `Ban ${one.client_id || one.host}`, onclick: () => banning(one.event.includes("login") || !one.client_id ? { kind: "peerhost", who: one.host } : { kind: "clientid", who: one.client_id }, look) }, "Ban…") },
    ],
  });
  const none = h("p", { class: "empty", hidden: true }, "Nobody has been denied anything since the broker started.");
  fill(page, h("h1", {}, "Denials"),
    h("p", { class: "soft" }, "The latest 500 since the start; what repeats is one line with a count. Names are what clients say of themselves. What the rules allow is on the page ", h("a", { href: "#users" }, "Users"), "."),
    h("div", { class: "bar" }, search, kind), problem, h("section", { class: "card" }, total, none, h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Denials" }, table.element)));
  /** @type {DenialEntry[]} */
  let found = [];
  let ever = 0;
  const again = () => { address("denials", { search: search.value.trim(), kind: wanted }); draw(); };
  search.addEventListener("input", debounce(150, again));
  kind.addEventListener("change", () => { wanted = kind.value; again(); });
  look();
  const timer = setInterval(look, 3000);
  const stop = live.whenBack(look);

  async function look() {
    try {
      const answer = await get("/api/v1/denials");
      found = answer.denials;
      ever = answer.total;
      fill(problem);
      draw();
    } catch (error) {
      tellProblem(problem, error);
    }
  }

  function draw() {
    const kinds = [...new Set([...found.map((one) => one.event), ...(wanted ? [wanted] : [])])].sort();
    if (kind.dataset.kinds !== kinds.join()) {
      kind.dataset.kinds = kinds.join();
      fill(kind, h("option", { value: "" }, "Everything"), kinds.map((one) => h("option", { value: one, selected: one === wanted }, one)));
    }
    const text = search.value.trim().toLowerCase();
    const shown = found.filter((one) => (!wanted || one.event === wanted)
      && [one.client_id, one.username, one.host, one.topic, one.reason].some((part) => part.toLowerCase().includes(text)));
    total.textContent = `${count(ever)} denial${ever === 1 ? "" : "s"} since the start${shown.length < found.length ? `, ${count(shown.length)} of ${count(found.length)} lines shown` : ""}`;
    none.hidden = found.length > 0;
    table.element.hidden = shown.length === 0;
    table.draw(shown);
  }

  return () => { clearInterval(timer); stop(); };
}
