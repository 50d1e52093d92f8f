// The nodes of the cluster as this one sees them, the log they share, and draining one of them.

import { call, get } from "/static/api.js";
import { ask, count, fill, h, size, toast } from "/static/dom.js";
import { plainTable } from "/static/table.js";

/** @import { ClusterNode, ClusterStatus, Verified } from "../api.d.ts" */

/** @type {(string | [string, string])[]} */
const COLUMNS = ["Node", "State", ["Position", "right"], ["Behind", "right"], ["Clients", "right"], ["Hash", "words"], ["Address", "words"], "Version", ["", "act"]];

/** @param {HTMLElement} page */
export function cluster(page) {
  const problems = h("section");
  const cards = h("section", { class: "cards", "aria-label": "Now" });
  const nodes = h("section", { class: "card", "aria-label": "Nodes" });
  const log = h("section", { class: "card", "aria-label": "Log" });
  const compared = h("p", { class: "soft compared", role: "status" });
  const compare = h("button", { type: "button", class: "compare", onclick: verify }, "Compare the nodes");
  fill(page, h("h1", {}, "Cluster"), problems, cards, nodes, log,
    h("section", { class: "card" }, h("h2", {}, "State"),
      h("p", {}, "Every node works out a hash of its retained messages and sessions at the same position of the log."),
      h("div", { class: "buttons" }, compare), compared));
  look();
  const timer = setInterval(look, 2000);

  async function look() {
    try {
      draw(await get("/api/v1/cluster"));
    } catch (error) {
      fill(problems, h("p", { class: "problem" }, error.message));
    }
  }

  /** @param {ClusterStatus} told */
  function draw(told) {
    /** @param {string} title
     * @param {string} value
     * @param {string} more */
    const card = (title, value, more) => h("div", { class: "card number" }, h("span", {}, title), h("b", {}, value), h("small", {}, more));
    const up = told.nodes.filter((one) => one.up && one.heard).length;
    fill(problems, told.nodes.filter((one) => one.detail).map((one) => h("p", { class: "problem" }, `${one.name}: ${one.detail}`)),
      told.nodes.filter((one) => one.agrees === false).map((one) => h("p", { class: "problem" }, `${one.name} has read another log than ${told.node}`)));
    fill(cards,
      card("Nodes up", `${up} of ${told.nodes.length}`, `cluster ${told.name}`),
      card("Position", count(told.position), told.lag ? `${count(told.lag)} behind` : "up to date"),
      card("Clients", count(told.nodes.reduce((sum, one) => sum + (one.clients || 0), 0)), "of all nodes"),
      card("Seen from", told.node, told.ready ? "ready" : told.state));
    const focused = nodes.contains(document.activeElement) ? document.activeElement?.getAttribute("aria-label") : null;
    const table = plainTable("Nodes", COLUMNS, told.nodes.map((one) => row(one, told.node)));
    told.nodes.forEach((one, place) => { table.tBodies[0].rows[place].dataset.node = one.name; });
    fill(nodes, h("h2", {}, "Nodes"), h("div", { class: "wide" }, table));
    for (const button of nodes.querySelectorAll("button")) if (button.getAttribute("aria-label") === focused) button.focus();
    drawLog(told);
  }

  /** @param {ClusterNode} one
   * @param {string} here */
  function row(one, here) {
    const state = !one.up ? "down" : !one.heard ? "silent" : one.ready ? "ready" : (one.detail || "").startsWith("drained") ? "drained" : "not ready";
    const hash = one.hash ? `${one.hash.slice(0, 12)}${one.agrees === false ? ", differs" : one.agrees ? ", equal" : ""}` : "";
    return [h("span", {}, h("b", {}, one.name), one.name === here ? h("small", {}, " (this)") : null),
      h("span", { class: `state ${state === "ready" ? "on" : "off"}` }, state), count(one.position), count(one.lag), count(one.clients), hash, one.address, one.version,
      state === "ready" ? h("button", { type: "button", class: "danger", "aria-label": `Drain node ${one.name}`, onclick: () => drain(one.name) }, "Drain…") : null];
  }

  /** @param {ClusterStatus} told */
  function drawLog(told) {
    if (!told.log) return;
    /** @param {string} name
     * @param {string} value */
    const fact = (name, value) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, value));
    const lagging = Object.entries(told.log.lagging).map(([name, behind]) => behind ? `${name} by ${count(behind)}` : name).join(", ");
    fill(log, h("h2", {}, "Log"), h("table", { class: "facts" }, h("tbody", {},
      fact("Leader", told.log.leader || "none known"), fact("Servers behind or gone", lagging || "none"),
      fact("Messages", `${count(told.log.first)} to ${count(told.log.last)}`),
      fact("Not come back", `${count(told.log.unacknowledged)} messages, ${size(told.log.waiting_bytes)} wait`),
      fact("Sent again", count(told.log.sent_again)), fact("Passed over", count(told.log.passed_over)), fact("Lost between nodes at QoS 0", count(told.live_lost)))));
  }

  /** @param {string} name */
  async function drain(name) {
    const answer = await ask(`Drain node ${name}?`, h("p", {}, "Its clients are sent to the other nodes, and it accepts none until it is started again."),
      [{ name: "yes", label: "Drain", class: "danger" }, { name: null, label: "Cancel" }]);
    if (answer !== "yes") return;
    try {
      await call("POST", "/api/v1/cluster/drain", { node: name });
      toast(`Drained: ${name}`);
    } catch (error) {
      toast(error.message);
    }
    look();
  }

  async function verify() {
    compare.disabled = true;
    fill(compared, "comparing");
    try {
      say(await call("POST", "/api/v1/cluster/verify"));
    } catch (error) {
      fill(compared, error.message);
    }
    compare.disabled = false;
  }

  /** @param {Verified} found */
  function say(found) {
    const each = Object.entries(found.hashes).sort().map(([name, hash]) => `${name} ${hash ? hash.slice(0, 12) : "no answer"}`).join(", ");
    fill(compared, `${found.equal ? "All nodes are equal" : "The nodes are NOT equal"}: ${each}`);
  }

  return () => clearInterval(timer);
}
