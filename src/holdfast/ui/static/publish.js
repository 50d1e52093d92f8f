// The dialog that publishes a message, new or in place of one that is there.

import { base64Of, bytesOf, call } from "/static/api.js";
import { ask, h, size, span, toast } from "/static/dom.js";
import { neat as neatly } from "/static/json.js";
import { jsonOf } from "/static/payload.js";
import { FORMS, formOf, read, write } from "/static/writing.js";

/** @import { Publication, Whole } from "../api.d.ts" */

const TYPED_MOST = 200000; // bytes of a file that are shown to be edited

/** @type {Publication | null} what was typed and not sent, for the next new message */
let draft = null;

/** Publishes what is typed. On a message that is there, only what is touched is changed: a payload that is not text is
 * edited as hex, and properties without a field in the form are sent on as they are.
 * @param {{ topic?: string, message?: Whole | null }} given
 * @returns {Promise<boolean>} whether it was published */
export async function publish({ topic: given = "", message = null } = {}) {
  const kept = message || (given && draft?.topic !== given) ? null : draft;
  const before = message ? bytesOf(message.payload) : kept?.payload ? bytesOf(kept.payload) : new Uint8Array();
  const topic = h("input", { name: "topic", required: true, value: given || kept?.topic || "", autocomplete: "off", spellcheck: false });
  const payload = h("textarea", { name: "payload", rows: 8, spellcheck: false });
  const form = h("select", { name: "form" }, FORMS.map(([name, label]) => h("option", { value: name }, label)));
  const chosenQos = message?.qos ?? kept?.qos ?? 1;
  const qos = h("select", { name: "qos" }, [0, 1, 2].map((one) => h("option", { value: String(one), selected: one === chosenQos }, String(one))));
  const retain = h("input", { name: "retain", type: "checkbox", checked: kept?.retain ?? true });
  const ends = message !== null && message.expires_at_ms !== null;
  const expiry = h("input", { name: "expiry", type: "number", min: "1",
    placeholder: message && message.expires_at_ms ? `in ${span(message.expires_at_ms - Date.now())}, as before` : "never" });
  const endless = h("input", { name: "endless", type: "checkbox" });
  const type = h("input", { name: "content_type", value: message?.content_type ?? kept?.content_type ?? "", placeholder: "none" });
  const file = h("input", { name: "file", type: "file", "aria-label": "Payload from a file" });
  const neat = h("button", { type: "button", class: "small neat", hidden: true, onclick: () => makeNeat() }, "Format JSON");
  const check = h("p", { class: "soft check-of", role: "status" });
  const warning = h("p", { class: "warning", role: "status", hidden: true },
    "An empty payload with Retain deletes the message that is retained on this topic.");
  const properties = propertyRows(message?.user_properties ?? /** @type {string[][]} */ (kept?.user_properties) ?? []);
  const body = h("div", { class: "form" },
    h("label", {}, "Topic", topic), h("label", {}, "Payload", payload),
    h("div", { class: "line under" }, check, neat, file),
    h("div", { class: "line" }, h("label", {}, "Written as", form), h("label", {}, "QoS", qos), h("label", {}, "Expires after, seconds", expiry),
      ends ? h("label", { class: "check" }, endless, "Never expires") : null,
      h("label", {}, "Content type", type), h("label", { class: "check" }, retain, "Retain")),
    properties.element, warning);

  let shown = formOf(before);
  form.value = shown;
  payload.value = write(before, shown);
  let untouched = payload.value; // as the text area gives it back
  let bytes = before; // what `untouched` stands for

  /** What the text area holds; throws what is wrong with it. */
  const typed = () => (payload.value === untouched ? bytes : read(payload.value, shown, before));
  /** @param {Uint8Array<ArrayBuffer>} content
   * @param {string} as */
  const put = (content, as) => {
    payload.value = write(content, as);
    untouched = payload.value;
    bytes = content;
    shown = as;
    form.value = as;
    payload.readOnly = false;
  };
  form.addEventListener("change", () => {
    if (payload.readOnly) { form.value = shown; return; }
    try {
      put(typed(), form.value);
    } catch (error) {
      form.value = shown;
      toast(error.message);
    }
  });
  file.addEventListener("change", async () => {
    const one = file.files?.[0];
    if (!one) return;
    const content = new Uint8Array(await one.arrayBuffer());
    if (content.length <= TYPED_MOST) put(content, formOf(content));
    else { // as it is: a text area this long would stop the browser
      payload.value = `${one.name}, ${size(content.length)}`;
      untouched = payload.value;
      bytes = content;
      payload.readOnly = true;
    }
    if (one.type && !type.value) type.value = one.type;
    inspect();
  });

  const makeNeat = () => {
    payload.value = neatly(payload.value);
    inspect();
  };
  const inspect = () => {
    const text = shown === "text" && !payload.readOnly ? payload.value.trim() : "";
    const meant = /json/i.test(type.value) || /^[[{]/.test(text);
    const good = jsonOf(text) !== undefined;
    check.textContent = !text || !meant ? "" : good ? "Valid JSON" : `Not valid JSON${reasonOf(text)}`;
    check.classList.toggle("warning", Boolean(text) && meant && !good);
    neat.hidden = !(meant && good);
    warning.hidden = !(retain.checked && payload.value === "");
  };
  let confirmed = false;
  body.addEventListener("input", () => { confirmed = false; inspect(); });
  inspect();
  warning.hidden = true; // nothing has been typed yet

  const what = () => {
    /** @type {Publication} */
    const sent = { topic: topic.value, payload: base64Of(typed()), encoding: "base64", qos: Number(qos.value), retain: retain.checked };
    if (expiry.value) sent.expiry_s = Number(expiry.value);
    else if (message && ends && !endless.checked) sent.expires_at_ms = message.expires_at_ms;
    if (type.value) sent.content_type = type.value;
    sent.user_properties = properties.pairs();
    if (message) {
      if (message.content_type === "" && !type.value) sent.content_type = "";
      sent.response_topic = message.response_topic;
      sent.correlation_data = message.correlation_data;
      sent.payload_format = message.payload_format;
    }
    return sent;
  };
  const send = async () => {
    try {
      const wrong = wrongWith(topic.value);
      if (wrong) { topic.focus(); return wrong; }
      const sent = what();
      const clears = sent.retain && !sent.payload;
      if (clears && !confirmed) {
        warning.hidden = false;
        confirmed = true;
        return "Press Publish again to delete it.";
      }
      const done = await call("POST", "/api/v1/publish", {}, sent);
      if (done.reason >= 0x80) return `Refused: ${done.reason_name}`;
      toast(clears ? `Deleted what was retained on ${sent.topic}` : `Published to ${sent.topic}`);
      return "";
    } catch (error) {
      return `Not published: ${error.message}`;
    }
  };
  body.addEventListener("keydown", (event) => {
    const inField = event.target instanceof HTMLInputElement && event.target.type !== "file";
    const inArea = event.target === payload && (event.ctrlKey || event.metaKey);
    if (event.key !== "Enter" || event.isComposing || !(inField || inArea)) return;
    event.preventDefault();
    /** @type {HTMLButtonElement | null | undefined} */ (body.closest("dialog")?.querySelector("button.main"))?.click();
  });
  const answer = await ask(message ? "Publish a new value" : "Publish", body, [
    { name: "publish", label: "Publish", class: "main" }, { name: null, label: "Cancel" }], send);
  if (!message) {
    draft = null;
    try { if (answer === null && (payload.value || topic.value !== given)) draft = what(); } catch { /* not in its form: not kept */ }
  }
  return answer === "publish";
}

/** @param {string} topic */
function wrongWith(topic) {
  if (!topic) return "A topic is missing.";
  if (/[+#]/.test(topic)) return "The topic has a wildcard, + or #: a message goes to one topic.";
  return "";
}

/** Where JSON ends to be JSON, as the browser tells it.
 * @param {string} text */
function reasonOf(text) {
  try { JSON.parse(text); } catch (error) { return `: ${error.message}`; }
  return "";
}

/** User properties, a pair in each row.
 * @param {string[][]} given */
function propertyRows(given) {
  const list = h("div", { class: "pairs" });
  /** @param {string} name
   * @param {string} value */
  const add = (name, value) => {
    /** @type {HTMLElement} */
    const row = h("div", { class: "line pair-row" },
      h("input", { "aria-label": "Name of the property", placeholder: "name", value: name, class: "property" }),
      h("input", { "aria-label": "Value of the property", placeholder: "value", value, class: "property" }),
      h("button", { type: "button", class: "plain", "aria-label": "Remove this property", onclick: () => row.remove() }, "×"));
    list.append(row);
    return row;
  };
  for (const [name, value] of given) add(name, value);
  const element = h("div", {}, h("span", { class: "soft" }, "User properties "),
    h("button", { type: "button", class: "small add", onclick: () => { add("", "").querySelector("input")?.focus(); } }, "Add"), list);
  return {
    element,
    /** @returns {[string, string][]} */
    pairs: () => [...list.children].map((row) => [...row.querySelectorAll("input")].map((one) => one.value))
      .filter(([name, value]) => name || value).map(([name, value]) => [name, value]),
  };
}
