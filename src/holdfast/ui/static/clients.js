// Clients: search, sort, look, disconnect, ban.

import { call, get, live, server } from "/static/api.js";
import { banning } from "/static/bans.js";
import { ask, count, debounce, fill, h, size, span, toast, when } from "/static/dom.js";
import { address, liveTable, tellProblem } from "/static/table.js";

/** @import { Client, EmqxSubscription } from "../api.d.ts" */

const PAGE = 100;
/** @type {Record<string, boolean>} whether one wants to see the largest first */
const LARGEST_FIRST = { received: true, sent: true, queued: true, subscriptions: true };

/** @param {HTMLElement} page
 * @param {URLSearchParams} query */
export function clients(page, query) {
  const search = h("input", { type: "search", class: "search", placeholder: "Part of a client id, user or address", "aria-label": "Search", value: query.get("search") || "" });
  const state = h("select", { "aria-label": "State" }, [["", "All"], ["connected", "Connected"], ["offline", "Offline"]].map(([value, label]) => h("option", { value, selected: value === query.get("state") }, label)));
  let sort = query.get("sort") || "client_id";
  let descending = query.get("order") === "descending";
  let number = 1;
  /** @type {string} */
  let open = query.get("client") || "";
  /** @type {Client[]} */
  let shown = [];
  /** @type {Set<string>} */
  const chosen = new Set();

  const every = h("input", { type: "checkbox", "aria-label": "Select all on this page" });
  every.addEventListener("change", () => selectAll(every.checked));
  const table = liveTable({
    label: "Clients",
    keyOf: (/** @type {Client} */ one) => one.client_id,
    onPick: (one) => { open = one.client_id === open ? "" : one.client_id; remember(); drawDetail(); },
    onSort: (name) => {
      descending = name === sort ? !descending : Boolean(LARGEST_FIRST[name]);
      sort = name;
      number = 1;
      remember();
      look();
    },
    columns: [
      { title: "Select", class: "choose", make: (one) => h("label", { class: "target" }, h("input", { type: "checkbox", "aria-label": `Select ${one.client_id}`, data: { client: one.client_id }, onchange: (/** @type {Event} */ event) => select(one.client_id, /** @type {HTMLInputElement} */ (event.target).checked) })) },
      { title: "Client", class: "words", sort: "client_id", make: (one) => h("button", { type: "button", class: "link" }, one.client_id) },
      { title: "State", text: (one) => (one.connected ? "connected" : "offline"), look: (one) => `state ${one.connected ? "on" : "off"}` },
      { title: "User", sort: "user", text: (one) => one.user },
      ...(server.clustered ? [{ title: "Node", text: (/** @type {Client} */ one) => (one.connected ? one.node : "") }] : []),
      { title: "Address", class: "whole place", sort: "address", text: (one) => one.address },
      { title: "Since", class: "whole", sort: "since", text: (one) => span(Date.now() - (one.connected_at_ms ?? one.created_at_ms)), hint: (one) => when(one.connected_at_ms ?? one.created_at_ms) },
      { title: "Received", class: "right", sort: "received", text: (one) => (one.received ? size(one.received) : "") },
      { title: "Sent", class: "right", sort: "sent", text: (one) => (one.sent ? size(one.sent) : "") },
      { title: "Filters", class: "right", sort: "subscriptions", text: (one) => count(one.subscriptions) },
      { title: "Queued", class: "right", sort: "queued", text: (one) => count(one.queued) },
    ],
  });
  const firstHead = table.element.querySelector("th");
  if (firstHead) fill(firstHead, h("label", { class: "target" }, every));
  const problem = h("div");
  const total = h("p", { class: "soft", role: "status" }, "reading…");
  const selected = h("div", { class: "buttons selected", hidden: true });
  const pager = h("div", { class: "buttons pager" });
  const list = h("section", { class: "card list", "aria-label": "List" }, problem, h("div", { class: "bar" }, total, selected), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Clients" }, table.element), pager);
  const detail = h("section", { class: "card detailed", hidden: true, "aria-label": "Client" });
  fill(page, h("h1", {}, "Clients"), h("div", { class: "bar" }, search, state), h("div", { class: "pair" }, list, detail));
  const again = () => { number = 1; remember(); look(); };
  search.addEventListener("input", debounce(250, again));
  state.addEventListener("change", again);
  look();
  const timer = setInterval(look, 5000);
  const stop = live.whenBack(look);

  function remember() {
    address("clients", { search: search.value.trim(), state: state.value, sort: sort !== "client_id" && sort, order: descending && "descending", client: open });
  }

  async function look() {
    try {
      const asked = { search: search.value.trim(), state: state.value, sort, descending, page: number, limit: PAGE };
      const answer = await get("/api/v1/clients", asked);
      if (search.value.trim() !== asked.search) return; // a later question is under way
      fill(problem);
      shown = answer.clients;
      draw(answer.count);
    } catch (error) {
      tellProblem(problem, error);
    }
  }

  /** @param {number} found */
  function draw(found) {
    total.textContent = `${count(found)} client${found === 1 ? "" : "s"}`;
    table.draw(shown);
    table.mark(sort, descending);
    const here = new Set(shown.map((one) => one.client_id));
    for (const one of chosen) if (!here.has(one)) chosen.delete(one);
    drawSelected();
    const last = Math.max(1, Math.ceil(found / PAGE));
    const wanted = last > 1 ? `${number}/${last}` : "";
    if (pager.dataset.shown !== wanted) {
      pager.dataset.shown = wanted;
      fill(pager, wanted ? [
        h("button", { type: "button", disabled: number <= 1, onclick: () => { number -= 1; look(); } }, "Previous"),
        h("span", { class: "soft" }, `Page ${number} of ${count(last)}`),
        h("button", { type: "button", disabled: number >= last, onclick: () => { number += 1; look(); } }, "Next")] : null);
    }
    drawDetail();
  }

  /** @param {string} name
   * @param {boolean} on */
  function select(name, on) {
    if (on) chosen.add(name); else chosen.delete(name);
    drawSelected();
  }

  /** @param {boolean} on */
  function selectAll(on) {
    chosen.clear();
    if (on) for (const one of shown) chosen.add(one.client_id);
    drawSelected();
  }

  function drawSelected() {
    for (const box of table.element.querySelectorAll("tbody input")) {
      if (box instanceof HTMLInputElement) box.checked = chosen.has(box.dataset.client || "");
    }
    every.checked = shown.length > 0 && chosen.size === shown.length;
    every.indeterminate = chosen.size > 0 && chosen.size < shown.length;
    const wanted = String(chosen.size);
    selected.hidden = chosen.size === 0;
    if (selected.dataset.shown === wanted) return;
    selected.dataset.shown = wanted;
    fill(selected, h("button", { type: "button", class: "danger", onclick: () => end([...chosen]) }, `Disconnect ${count(chosen.size)}…`));
  }

  /** What is drawn of the client, so that it is not drawn anew while somebody reads it. */
  let drawn = "";

  async function drawDetail() {
    table.choose(open);
    const one = shown.find((client) => client.client_id === open);
    if (!one) { detail.hidden = true; drawn = ""; return; }
    const opened = drawn !== open;
    drawn = open;
    /** @type {EmqxSubscription[]} */
    let subscriptions = [];
    let subscribed = 0;
    try {
      const answer = await get("/api/v5/subscriptions", { clientid: open, limit: PAGE }); // none of one that has gone
      subscriptions = answer.data;
      subscribed = answer.meta.count;
    } catch (error) {
      if (error.status) toast(error.message);
    }
    if (drawn !== one.client_id) return;
    const facts = JSON.stringify([one, subscriptions, subscribed]);
    detail.hidden = false;
    if (detail.dataset.facts === facts && !opened) return;
    detail.dataset.facts = facts;
    const scrolled = detail.scrollTop;
    const focused = detail.contains(document.activeElement) ? document.activeElement?.className : null;
    /** @param {string} name
     * @param {string | null} value */
    const row = (name, value) => (value === null || value === "" ? null : h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, value)));
    fill(detail, h("div", { class: "bar" }, h("h2", { class: "topic" }, one.client_id), h("button", { type: "button", class: "plain shut", "aria-label": "Close", onclick: () => { open = ""; remember(); drawDetail(); } }, "×")),
      h("div", { class: "buttons" },
        h("button", { type: "button", class: "danger ends", onclick: () => end([one.client_id]) }, one.connected ? "Disconnect…" : "End session…"),
        h("button", { type: "button", class: "danger bans", onclick: () => banning({ kind: "clientid", who: one.client_id }, look) }, "Ban…")),
      h("table", { class: "facts" }, h("tbody", {},
        row("State", one.connected ? "connected" : "offline"), row("User", one.user), row("Address", one.address),
        row("Node", server.clustered && one.connected ? one.node : null),
        row("Connected", one.connected_at_ms ? `${when(one.connected_at_ms)}, ${span(Date.now() - one.connected_at_ms)} ago` : null),
        row("Session since", when(one.created_at_ms)),
        row("Protocol", one.protocol.startsWith("SN") ? `MQTT-${one.protocol}` : `MQTT ${one.protocol}`),
        row("Certificate", one.certificate ? "shown" : null),
        row("Keep alive", one.connected ? (one.keep_alive_s ? `${count(one.keep_alive_s)} s` : "none") : null),
        row("Session expiry", one.expiry_s === null ? "never" : one.expiry_s ? `${span(one.expiry_s * 1000)} after the connection` : "with the connection"),
        row("Session ends", one.expires_at_ms ? when(one.expires_at_ms) : null),
        row("Received", one.connected ? size(one.received) : null), row("Sent", one.connected ? size(one.sent) : null),
        row("In flight", one.connected ? `${count(one.inflight)} of ${count(one.inflight_most)}` : count(one.inflight)),
        row("Queued", `${count(one.queued)}${one.queued ? `, ${size(one.queued_bytes)}` : ""}`),
        row("Will", one.will ? `${one.will.topic}, ${size(one.will.size)}, QoS ${one.will.qos}${one.will.retain ? ", retained" : ""}${one.will.delay_s ? `, after ${span(one.will.delay_s * 1000)}` : ""}` : "none"))),
      h("h3", {}, `Subscriptions: ${count(subscribed)}`),
      subscriptions.length ? h("table", {}, h("thead", {}, h("tr", {}, ["Filter", "QoS", "Options"].map((title) => h("th", { scope: "col" }, title)))),
        h("tbody", {}, subscriptions.map((sub) => h("tr", {}, h("td", {}, sub.topic), h("td", {}, String(sub.qos)),
          h("td", {}, [sub.nl ? "no local" : "", sub.rap ? "retain as published" : ""].filter(Boolean).join(", ")))))) : null,
      subscribed > subscriptions.length ? h("p", { class: "soft" }, `and ${count(subscribed - subscriptions.length)} more`) : null);
    detail.scrollTop = scrolled;
    for (const button of detail.querySelectorAll("button")) if (focused && button.className === focused) button.focus({ preventScroll: true });
    if (opened && matchMedia("(max-width: 900px)").matches) detail.scrollIntoView();
  }

  /** @param {string[]} names */
  async function end(names) {
    const away = names.filter((name) => shown.some((one) => one.client_id === name && !one.connected)).length;
    const many = names.length === 1 ? names[0] : `${count(names.length)} clients`;
    const what = away === names.length ? "End the session of" : "Disconnect";
    const answer = await ask(`${what} ${many}?`, h("div", {},
      names.length > 1 ? h("ul", { class: "sample" }, names.slice(0, 20).map((name) => h("li", {}, name)), names.length > 20 ? h("li", {}, `and ${count(names.length - 20)} more`) : null) : null,
      h("p", {}, away === names.length ? "What waits for it is lost." : `A client that is connected may connect again at once; ban it to keep it out.${away ? " Those that are offline lose their session, and what waits for them." : ""}`)),
    [{ name: "yes", label: away === names.length ? "End session" : "Disconnect", class: "danger" }, { name: null, label: "Cancel" }]);
    if (answer !== "yes") return;
    let done = 0;
    let wrong = "";
    for (const name of names) {
      try {
        await call("DELETE", `/api/v5/clients/${encodeURIComponent(name)}`);
        done += 1;
      } catch (error) {
        if (error.status !== 404) wrong = error.message;
      }
    }
    toast(wrong || (names.length === 1 ? `${away ? "Ended" : "Disconnected"}: ${names[0]}` : `Disconnected ${count(done)}`));
    chosen.clear();
    if (names.includes(open)) { open = ""; remember(); }
    look();
  }

  return () => { clearInterval(timer); stop(); };
}
