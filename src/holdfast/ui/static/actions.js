// What changes something: publish, delete with preview, undo. Each says what it did.

import { base64Of, bytesOf, call } from "/static/api.js";
import { ask, count, h, size, span, toast } from "/static/dom.js";
import { FORMS, formOf, read, write } from "/static/writing.js";

/** @import { Cleared, DryRun, Publication, Whole } from "../api.d.ts" */

/** Publishes what is typed. On a message that is there, only what is touched is changed: a payload that is not text is
 * edited as hex, and properties without a field in the form are sent on as they are.
 * @param {{ topic?: string, message?: Whole | null }} given
 * @returns {Promise<boolean>} whether it was published */
export async function publish({ topic: given = "", message = null } = {}) {
  const before = message ? bytesOf(message.payload) : new Uint8Array();
  const topic = h("input", { name: "topic", required: true, value: given });
  const payload = h("textarea", { name: "payload", rows: 8, spellcheck: false });
  const form = h("select", { name: "form" }, FORMS.map(([name, label]) => h("option", { value: name }, label)));
  const qos = h("select", { name: "qos" }, [0, 1, 2].map((one) => h("option", { value: String(one), selected: one === (message ? message.qos : 1) }, String(one))));
  const retain = h("input", { name: "retain", type: "checkbox", checked: true });
  const ends = message !== null && message.expires_at_ms !== null;
  const expiry = h("input", { name: "expiry", type: "number", min: "1",
    placeholder: message && message.expires_at_ms ? `in ${span(message.expires_at_ms - Date.now())}, as before` : "never" });
  const endless = h("input", { name: "endless", type: "checkbox" });
  const type = h("input", { name: "content_type", value: message ? message.content_type || "" : "", placeholder: "none" });
  const warning = h("p", { class: "warning", role: "status", hidden: true },
    "An empty payload with Retain deletes the message that is retained on this topic.");
  const body = h("div", { class: "form" },
    h("label", {}, "Topic", topic), h("label", {}, "Payload", payload),
    h("div", { class: "line" }, h("label", {}, "Written as", form), h("label", {}, "QoS", qos), h("label", {}, "Expires after, seconds", expiry),
      ends ? h("label", { class: "check" }, endless, "Never expires") : null,
      h("label", {}, "Content type", type), h("label", { class: "check" }, retain, "Retain")),
    warning);

  let shown = formOf(before);
  form.value = shown;
  payload.value = write(before, shown);
  let untouched = payload.value; // as the text area gives it back
  let bytes = before; // what `untouched` stands for

  /** What the text area holds; throws what is wrong with it. */
  const typed = () => (payload.value === untouched ? bytes : read(payload.value, shown, before));
  form.addEventListener("change", () => {
    try {
      bytes = typed();
      payload.value = write(bytes, form.value);
      untouched = payload.value;
      shown = form.value;
    } catch (error) {
      form.value = shown;
      toast(error.message);
    }
  });
  let confirmed = false;
  body.addEventListener("input", () => {
    confirmed = false;
    warning.hidden = !(retain.checked && payload.value === "");
  });

  const send = async () => {
    try {
      const content = typed();
      /** @type {Publication} */
      const sent = { topic: topic.value, payload: base64Of(content), encoding: "base64", qos: Number(qos.value), retain: retain.checked };
      if (expiry.value) sent.expiry_s = Number(expiry.value);
      else if (message && ends && !endless.checked) sent.expires_at_ms = message.expires_at_ms;
      if (type.value) sent.content_type = type.value;
      if (message) {
        if (message.content_type === "" && !type.value) sent.content_type = "";
        sent.response_topic = message.response_topic;
        sent.correlation_data = message.correlation_data;
        sent.payload_format = message.payload_format;
        sent.user_properties = message.user_properties;
      }
      if (sent.retain && !content.length && !confirmed) {
        warning.hidden = false;
        confirmed = true;
        return "Press Publish again to delete it.";
      }
      const done = await call("POST", "/api/v1/publish", {}, sent);
      if (done.reason >= 0x80) return `Refused: ${done.reason_name}`;
      toast(sent.retain && !content.length ? `Deleted what was retained on ${sent.topic}` : `Published to ${sent.topic}`);
      return "";
    } catch (error) {
      return `Not published: ${error.message}`;
    }
  };
  const answer = await ask(message ? "Publish a new value" : "Publish", body, [
    { name: "publish", label: "Publish", class: "main" }, { name: null, label: "Cancel" }], send);
  return answer === "publish";
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
