// What stands beside the tree while no topic is chosen: how to send the first message, why there is nothing to see, or the
// whole of a past moment.

import { get } from "/static/api.js";
import { restore } from "/static/actions.js";
import { count, h, size } from "/static/dom.js";
import { exactly } from "/static/moment.js";
import { publish } from "/static/publish.js";

/** @import { ResourceReport, Who } from "../api.d.ts" */

/** @param {{ who: Who, isEmpty: boolean, atMs: number, onChanged: () => void }} given */
export function beginning({ who, isEmpty, atMs, onChanged }) {
  if (atMs) return wholeMoment(atMs, onChanged);
  if (isEmpty && !who.admin) return noRights(who.name ?? "");
  if (isEmpty) return firstMessage(onChanged);
  return h("div", { class: "empty" }, h("p", {}, "Choose a topic."),
    h("p", { class: "keys" }, h("kbd", {}, "/"), " searches, ", h("kbd", {}, "↑"), " ", h("kbd", {}, "↓"), " move in the tree, ",
      h("kbd", {}, "←"), " ", h("kbd", {}, "→"), " close and open, letters jump to a name."));
}

/** The flags with which a client on the reader's machine reaches the broker.
 * @param {ResourceReport["listeners"]} listeners */
export function flagsTo(listeners) {
  const { hostname } = location;
  const host = /^(localhost$|127\.|\[::1\]$)/.test(hostname) ? "" : ` -h ${hostname}`;
  const plain = listeners.find((one) => one.address.startsWith("tcp://"));
  const port = plain?.address.split(":").at(-1) ?? "1883";
  return `${host}${port === "1883" ? "" : ` -p ${port}`}${plain && !plain.anonymous ? " -u NAME -P PASSWORD" : ""}`;
}

/** @param {() => void} onChanged */
function firstMessage(onChanged) {
  const ours = h("pre", { tabindex: "0" });
  const mosquittos = h("pre", { tabindex: "0" });
  /** @param {ResourceReport["listeners"]} listeners */
  const write = (listeners) => {
    ours.textContent = `holdfast pub${flagsTo(listeners)} -r -t hello/world -m 'it works'`;
    mosquittos.textContent = `mosquitto_pub${flagsTo(listeners)} -r -t hello/world -m 'it works'`;
  };
  write([]);
  get("/api/v1/resources").then((found) => write(found.listeners), () => {}); // without the answer they name the usual port
  return h("div", { class: "begin" }, h("h2", {}, "Nothing is retained yet"),
    h("p", {}, "Send the first message from a terminal on any machine that can reach the broker:"), ours,
    h("p", {}, "or with mosquitto's client, which takes the same options:"), mosquittos,
    h("p", { class: "soft" }, "-r retains it: the broker keeps the last message of the topic, and it appears here at once."),
    h("div", { class: "buttons" }, h("button", { type: "button", class: "main first", onclick: async () => {
      if (await publish({ topic: "hello/world" })) onChanged();
    } }, "Send it from here…")));
}

/** @param {string} name */
function noRights(name) {
  return h("div", { class: "begin" }, h("h2", {}, "No topic to show"),
    h("p", {}, `You are logged in as ${name}. You see the retained messages that the broker's access rules let you read, and there are none now.`),
    h("p", {}, "Either nothing is retained on those topics yet, or no rule gives you any. An administrator can ask for the reason:"),
    h("pre", { tabindex: "0" }, `holdfast check-config --config holdfast.toml --who ${name} --can receive some/topic`),
    h("p", { class: "soft" }, "Users named in api.admins, and API keys, see everything."));
}

/** @param {number} atMs
 * @param {() => void} onChanged */
function wholeMoment(atMs, onChanged) {
  const total = h("p", {}, "counting…");
  get("/api/v1/retained/usage", { at_ms: atMs }).then(
    (found) => { total.textContent = `${count(found.count)} message${found.count === 1 ? " was" : "s were"} retained${found.bytes === null ? "" : `, ${size(found.bytes)}`}.`; },
    (error) => { total.textContent = error.message; });
  return h("div", { class: "begin" }, h("h2", {}, "Everything"), h("p", { class: "soft" }, `As it was ${exactly(atMs)}.`), total,
    h("button", { type: "button", class: "restore", onclick: () => restore("Restore everything", { filter: "#", at_ms: atMs }, true, onChanged) }, "Restore everything to this moment…"));
}
