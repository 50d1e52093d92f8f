// Clients and their subscriptions: search, look, disconnect.

import { call, get, server } from "/static/api.js";
import { ask, count, debounce, fill, h, span, toast, when } from "/static/dom.js";

/** @import { EmqxClient, EmqxClients, EmqxSubscription } from "../api.d.ts" */

/** @type {Record<number, string>} */
const VERSIONS = { 3: "3.1", 4: "3.1.1", 5: "5.0" };

/** @param {HTMLElement} page */
export function clients(page) {
  const search = h("input", { type: "search", class: "search", placeholder: "Part of a client id", "aria-label": "Search" });
  const list = h("section", { class: "card" });
  const detail = h("section", { class: "card", hidden: true });
  fill(page, h("h1", {}, "Clients"), h("div", { class: "bar" }, search), h("div", { class: "pair" }, list, detail));
  let number = 1;
  search.addEventListener("input", debounce(250, () => { number = 1; look(); }));
  look();
  const timer = setInterval(look, 5000);

  async function look() {
    try {
      draw(await get("/api/v5/clients", { like_clientid: search.value.trim(), page: number, limit: 50 }));
    } catch (error) {
      fill(list, h("p", { class: "problem" }, error.message));
    }
  }

  /** @param {EmqxClients} answer */
  function draw(answer) {
    const { meta } = answer;
    fill(list, h("p", { class: "soft" }, `${count(meta.count)} clients`),
      h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ["Client", "State", ...(server.clustered ? ["Node"] : []), "Address", "Version", "Subscriptions", "Queued"].map((one) => h("th", {}, one)))),
        h("tbody", {}, answer.data.map((one) => h("tr", { class: "pick", tabindex: "0", onclick: () => open(one), onkeydown: (event) => { if (event.key === "Enter") open(one); } },
          h("td", {}, one.clientid), h("td", {}, h("span", { class: `state ${one.connected ? "on" : "off"}` }, one.connected ? "connected" : "absent")),
          server.clustered ? h("td", {}, one.connected ? one.node : "") : null,
          h("td", {}, one.ip_address ? `${one.ip_address}:${one.port}` : ""), h("td", {}, VERSIONS[one.proto_ver] || one.proto_name),
          h("td", { class: "right" }, count(one.subscriptions_cnt)), h("td", { class: "right" }, count(one.mqueue_len))))))),
      h("div", { class: "buttons" },
        meta.page > 1 ? h("button", { type: "button", onclick: () => { number -= 1; look(); } }, "Before") : null,
        meta.hasnext ? h("button", { type: "button", onclick: () => { number += 1; look(); } }, "Next") : null));
  }

  /** @param {EmqxClient} one */
  async function open(one) {
    let subscriptions = { data: /** @type {EmqxSubscription[]} */ ([]), meta: { count: 0 } };
    try {
      subscriptions = await get("/api/v5/subscriptions", { clientid: one.clientid, limit: 500 });
    } catch (error) {
      toast(error.message);
    }
    detail.hidden = false;
    /** @param {string} name
     * @param {string | null} value */
    const row = (name, value) => (value === null || value === "" ? null : h("tr", {}, h("th", {}, name), h("td", {}, value)));
    fill(detail, h("h2", { class: "topic" }, one.clientid),
      h("table", { class: "facts" }, h("tbody", {}, row("User", one.username), row("Connected", one.connected_at ? `${when(Date.parse(one.connected_at))}, ${span(Date.now() - Date.parse(one.connected_at))} ago` : one.connected ? `to node ${one.node}` : "no"),
        row("Node", server.clustered && one.connected ? one.node : null),
        row("Session since", when(Date.parse(one.created_at))), row("Keep alive", one.keepalive ? `${one.keepalive} s` : "none"),
        row("Session expiry", one.expiry_interval === 4294967295 ? "never" : `${count(one.expiry_interval)} s`),
        row("Under way", `${count(one.inflight_cnt)} of ${count(one.inflight_max)}`), row("Queued", count(one.mqueue_len)))),
      h("div", { class: "buttons" }, h("button", { type: "button", class: "danger", onclick: () => end(one) }, one.connected ? "Disconnect…" : "End session…")),
      h("h3", {}, `Subscriptions: ${count(subscriptions.meta.count)}`),
      subscriptions.data.length ? h("table", {}, h("thead", {}, h("tr", {}, ["Filter", "QoS", ""].map((title) => h("th", {}, title)))),
        h("tbody", {}, subscriptions.data.map((sub) => h("tr", {}, h("td", {}, sub.topic), h("td", {}, String(sub.qos)),
          h("td", {}, [sub.nl ? "no local" : "", sub.rap ? "retain as published" : ""].filter(Boolean).join(", ")))))) : null);
    if (matchMedia("(max-width: 900px)").matches) detail.scrollIntoView();
  }

  /** @param {EmqxClient} one */
  async function end(one) {
    const what = one.connected ? "Disconnect" : "End the session of";
    const answer = await ask(`${what} ${one.clientid}?`, h("p", {}, one.connected ? "The client may connect again at once." : "What waits for it is lost."),
      [{ name: "yes", label: one.connected ? "Disconnect" : "End session", class: "danger" }, { name: null, label: "Cancel" }]);
    if (answer !== "yes") return;
    try {
      await call("DELETE", `/api/v5/clients/${encodeURIComponent(one.clientid)}`);
      toast(`${one.connected ? "Disconnected" : "Ended"}: ${one.clientid}`);
    } catch (error) {
      toast(error.message);
    }
    detail.hidden = true;
    look();
  }

  return () => clearInterval(timer);
}
