// What changes something: publish, delete with preview, undo. Each says what it did.

import { call } from "/static/api.js";
import { ask, count, h, size, toast } from "/static/dom.js";

/** @import { Cleared, Publication, DryRun } from "../api.d.ts" */

/** @param {{ title?: string, topic?: string, payload?: string, qos?: number, retain?: boolean, fixed?: boolean,
 *   content_type?: string | null, user_properties?: string[][] }} given
 * @returns {Promise<boolean>} whether it was published */
export async function publish(given = {}) {
  const topic = h("input", { name: "topic", required: true, value: given.topic || "", readOnly: Boolean(given.fixed) });
  const payload = h("textarea", { name: "payload", rows: 8, value: given.payload || "" });
  const qos = h("select", { name: "qos" }, [0, 1, 2].map((one) => h("option", { value: String(one), selected: one === (given.qos ?? 1) }, String(one))));
  const retain = h("input", { name: "retain", type: "checkbox", checked: given.retain ?? true });
  const expiry = h("input", { name: "expiry", type: "number", min: "1", placeholder: "never" });
  const type = h("input", { name: "content_type", value: given.content_type || "", placeholder: "none" });
  const body = h("div", { class: "form" },
    h("label", {}, "Topic", topic), h("label", {}, "Payload", payload),
    h("div", { class: "line" }, h("label", {}, "QoS", qos), h("label", {}, "Expires after, seconds", expiry), h("label", {}, "Content type", type),
      h("label", { class: "check" }, retain, "Retain")));
  const answer = await ask(given.title || "Publish", body, [
    { name: "publish", label: "Publish", class: "main" }, { name: null, label: "Cancel" }]);
  if (answer !== "publish") return false;
  try {
    /** @type {Publication} */
    const message = { topic: topic.value, payload: payload.value, qos: Number(qos.value), retain: retain.checked };
    if (expiry.value) message.expiry_s = Number(expiry.value);
    if (type.value) message.content_type = type.value;
    if (given.user_properties && given.user_properties.length) message.user_properties = given.user_properties;
    const done = await call("POST", "/api/v1/publish", {}, message);
    if (done.reason >= 0x80) toast(`Refused: ${done.reason_name}`);
    else toast(`Published to ${message.topic}`);
    return true;
  } catch (error) {
    toast(`Not published: ${error.message}`);
    return false;
  }
}

/** Deletes what matches, after showing how much that is. `after` is called when something has changed.
 * @param {{ filter: string, older_than?: number, client_id?: string }} conditions
 * @param {() => void} after */
export async function remove(conditions, after = () => {}) {
  /** @type {DryRun} */
  let seen;
  try {
    seen = /** @type {DryRun} */ (await call("DELETE", "/api/v1/retained", { ...conditions, dry_run: "true" }));
  } catch (error) {
    toast(error.message);
    return;
  }
  if (!seen.count) { toast("Nothing matches any more."); return; }
  const body = h("div", {},
    h("p", {}, h("b", {}, `${count(seen.count)} retained message${seen.count === 1 ? "" : "s"}`), `, ${size(seen.bytes)}, will be deleted:`),
    h("ul", { class: "sample" }, seen.sample.map((topic) => h("li", {}, topic))),
    seen.count > seen.sample.length ? h("p", { class: "soft" }, `and ${count(seen.count - seen.sample.length)} more`) : null,
    h("p", { class: "soft" }, "Subscribers are told. It can be undone as long as the history reaches."));
  const answer = await ask("Delete", body, [
    { name: "delete", label: `Delete ${count(seen.count)}`, class: "danger" }, { name: null, label: "Cancel" }]);
  if (answer !== "delete") return;
  try {
    const done = /** @type {Cleared} */ (
      await call("DELETE", "/api/v1/retained", { ...conditions, dry_run: "false", token: seen.token }));
    after();
    toast(`Deleted ${count(done.count)}`, { label: "Undo", run: () => undo(done.operation, after) });
  } catch (error) {
    toast(error.message);
  }
}

/** @param {string} operation
 * @param {() => void} after */
export async function undo(operation, after) {
  try {
    const done = await call("POST", `/api/v1/operations/${operation}/undo`);
    const left = done.present + done.expired + done.refused;
    toast(`Brought back ${count(done.restored)}${left ? `; ${count(left)} left alone` : ""}`);
    after();
  } catch (error) {
    toast(`Not undone: ${error.message}`);
  }
}
