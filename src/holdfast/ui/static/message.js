// One topic at one moment: its payload, what it carries, what is below it, and its history. A new value is put into what is
// there; while somebody has marked text in it, it waits until they let go.

import { get } from "/static/api.js";
import { remove, restore } from "/static/actions.js";
import { count, fill, h, size, span, toast } from "/static/dom.js";
import { exactly } from "/static/moment.js";
import { past } from "/static/past.js";
import { formsOf } from "/static/payload.js";
import { publish } from "/static/publish.js";

/** @import { Whole } from "../api.d.ts" */

let shownForm = ""; // the form that was chosen last, for every topic

/** @param {string} topic
 * @param {{ atMs: number, hasHistory: boolean, onClose: () => void, onChanged: () => void }} options */
export function messageView(topic, { atMs, hasHistory, onClose, onChanged }) {
  /** @type {Whole | null} */
  let message = null;
  /** @type {Whole | null | undefined} one that waits, undefined when none does */
  let waiting;
  let closed = false;
  let drawnForms = "";
  let asked = 0;
  /** @type {Set<string>} */
  const folded = new Set();

  const note = h("p", { class: "soft note" }, "reading…");
  const newer = h("p", { class: "newer", role: "status", hidden: true }, "A newer value has come. ",
    h("button", { type: "button", class: "small", onclick: () => { getSelection()?.removeAllRanges(); settle(); } }, "Show it"));
  const tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "Payload as" });
  const area = h("div", { class: "shape", role: "tabpanel", "aria-label": "Payload" });
  const facts = h("table", { class: "facts" });
  const total = h("p", {}, "counting…");
  const below = h("div", { class: "below", hidden: true }, h("h3", {}, "This topic and everything below"), total,
    atMs ? h("button", { type: "button", class: "subtree", onclick: () => restore(`Restore ${topic} and everything below`, { filter: `${topic}/#`, at_ms: atMs }, true, onChanged) }, "Restore all of it to this moment…")
      : h("button", { type: "button", class: "danger subtree", onclick: () => remove({ filter: `${topic}/#` }, onChanged) }, "Delete all of it…"));
  const copyButton = h("button", { type: "button", onclick: () => { if (message) copy(message.text ?? message.payload, message.text === null ? "Copied as base64" : "Copied"); } }, "Copy");
  const editButton = atMs ? null : h("button", { type: "button", class: "edit",
    onclick: async () => { if (await publish({ topic, message })) { refresh(); onChanged(); } } }, "Edit…");
  const deleteButton = atMs ? null : h("button", { type: "button", class: "danger", onclick: () => remove({ filter: topic }, onChanged) }, "Delete…");
  const download = h("a", { class: "button", href: `/api/v1/retained/message/payload?${new URLSearchParams({ topic })}`, download: "payload" }, "Download");
  const restoreButton = atMs ? h("button", { type: "button", class: "restore", onclick: () => { if (message) bringBack(message); } }, "Restore this version…") : null;
  const history = hasHistory ? past(topic, { atMs, restore: bringBack }) : null;
  // Nothing can be done with a message that has not been read.
  const buttons = h("div", { class: "buttons", hidden: true }, copyButton, editButton, restoreButton, deleteButton, atMs ? null : download);
  const element = h("div", { class: "message" },
    h("button", { type: "button", class: "plain close", onclick: onClose }, "‹ Topics"),
    h("div", { class: "head" }, h("h2", { class: "topic" }, topic),
      h("button", { type: "button", class: "plain small copy-topic", onclick: () => copy(topic, "Copied the topic") }, "Copy topic")),
    note, newer,
    buttons,
    tabs, area, facts, below, history?.element);

  const ticking = setInterval(tick, 1000);
  const released = () => { if (waiting !== undefined && !isHeld()) settle(); };
  document.addEventListener("selectionchange", released);
  refresh();
  recount();

  async function refresh() {
    asked += 1;
    const mine = asked;
    let found;
    try {
      // Lists, not the message itself: that there is none is no error here.
      const answer = atMs ? await get("/api/v1/retained/at", { filter: topic, at_ms: atMs, limit: 1 })
        : await get("/api/v1/retained", { filter: topic, payload: "true", limit: 1 });
      found = /** @type {Whole | undefined} */ (answer.messages[0]) ?? null;
    } catch (error) {
      if (closed || mine !== asked) return;
      note.className = "problem note";
      note.textContent = error.message;
      note.hidden = false;
      return;
    }
    if (closed || mine !== asked) return; // a later question has the newer answer
    history?.refresh(found?.version ?? (message ? message.version + 1 : 0)); // what took it away came later
    waiting = found;
    if (!isHeld()) settle();
    else newer.hidden = message?.version === found?.version;
  }

  /** Whether somebody has marked text here. */
  function isHeld() {
    const marked = getSelection();
    return Boolean(marked && !marked.isCollapsed && marked.anchorNode && (area.contains(marked.anchorNode) || facts.contains(marked.anchorNode)));
  }

  function settle() {
    if (waiting === undefined) return;
    message = waiting;
    waiting = undefined;
    newer.hidden = true;
    draw();
  }

  function draw() {
    note.className = "soft note";
    const missing = atMs ? "Nothing was retained on this topic." : "Nothing is retained on this topic itself.";
    note.textContent = [atMs ? `As it was ${exactly(atMs)}.` : "", message ? "" : missing].filter(Boolean).join(" ");
    note.hidden = !note.textContent;
    buttons.hidden = false;
    for (const one of [copyButton, deleteButton, download, restoreButton]) if (one) one.hidden = !message;
    if (editButton) editButton.textContent = message ? "Edit…" : "Publish…";
    tabs.hidden = area.hidden = facts.hidden = !message;
    if (!message) return;
    drawForm();
    fill(facts, factsOf(message));
    tick();
  }

  function drawForm() {
    if (!message) return;
    const forms = formsOf(message, folded);
    const [title, make] = forms.find(([one]) => one === shownForm) || forms[0];
    const names = forms.map(([one]) => one).join();
    const top = area.firstElementChild?.scrollTop ?? 0;
    const focused = [...area.querySelectorAll("button")].findIndex((one) => one === document.activeElement);
    fill(area, make());
    if (area.firstElementChild) area.firstElementChild.scrollTop = top;
    if (focused >= 0) area.querySelectorAll("button")[focused]?.focus();
    if (drawnForms !== `${names} ${title}`) {
      drawnForms = `${names} ${title}`;
      fill(tabs, forms.map(([one]) => h("button", { type: "button", role: "tab", "aria-selected": String(one === title),
        tabindex: one === title ? "0" : "-1", onclick: () => { shownForm = one; drawForm(); },
        onkeydown: (event) => {
          const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
          const next = forms[(forms.findIndex(([name]) => name === one) + step + forms.length) % forms.length];
          if (!step || !next) return;
          event.preventDefault();
          shownForm = next[0];
          drawForm();
          /** @type {HTMLElement | null} */ (tabs.querySelector("[aria-selected=true]"))?.focus();
        } }, one)));
    }
  }

  /** @param {Whole} one */
  function factsOf(one) {
    /** @param {string} name
     * @param {string | HTMLElement | null} value */
    const row = (name, value) => (value === null || value === "" ? null : h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, value)));
    const who = one.publisher;
    const by = who.protocol === "api" ? "through the API" : `MQTT ${who.protocol}`;
    const name = [who.client_id, who.username ? `(user ${who.username})` : ""].filter(Boolean).join(" ");
    return h("tbody", {},
      row("Size", size(one.size)), row("QoS", String(one.qos)),
      row("Set", h("span", {}, `${exactly(one.stored_at_ms)}, `, h("span", { class: "age", data: { ms: String(one.stored_at_ms) } }))),
      row("Publisher", name ? `${name}, ${by}` : by),
      row("Expires", one.expires_at_ms ? h("span", {}, h("span", { class: "countdown", data: { ms: String(one.expires_at_ms) } }), `, ${exactly(one.expires_at_ms)}`) : "never"),
      row("Version", String(one.version)),
      row("Content type", one.content_type), row("Response topic", one.response_topic), row("Correlation data", one.correlation_data),
      one.user_properties.map(([key, value]) => row(`Property ${key}`, value)));
  }

  function tick() {
    if (isHeld()) return;
    for (const one of /** @type {NodeListOf<HTMLElement>} */ (facts.querySelectorAll(".age"))) {
      one.textContent = `${span(Date.now() - Number(one.dataset.ms))} ago`;
    }
    for (const one of /** @type {NodeListOf<HTMLElement>} */ (facts.querySelectorAll(".countdown"))) {
      const left = Number(one.dataset.ms) - Date.now();
      one.textContent = left > 0 ? `in ${span(left)}` : `${span(-left)} ago`;
    }
  }

  /** What lies below, if anything does. */
  async function recount() {
    try {
      const level = await get("/api/v1/tree", { prefix: topic, limit: 1, at_ms: atMs || undefined });
      if (!level.total || closed) { below.hidden = true; return; }
      below.hidden = false;
      const found = await get("/api/v1/retained/usage", { prefix: topic, at_ms: atMs || undefined });
      total.textContent = `${count(found.count)} message${found.count === 1 ? "" : "s"}${found.bytes === null ? "" : `, ${size(found.bytes)}`}`;
    } catch (error) {
      total.textContent = error.message;
    }
  }

  /** @param {{ version: number, stored_at_ms: number }} version */
  function bringBack(version) {
    restore(`Restore ${topic} as of ${exactly(version.stored_at_ms)}`, { filter: topic, offset: version.version }, false, onChanged);
  }

  return {
    element, refresh, recount,
    /** @param {number} version whether it is another than the one shown */
    isOther: (version) => (waiting === undefined ? message : waiting)?.version !== version,
    close() {
      closed = true;
      clearInterval(ticking);
      document.removeEventListener("selectionchange", released);
      history?.close();
    },
  };
}

/** @param {string} text
 * @param {string} said */
async function copy(text, said) {
  try {
    await navigator.clipboard.writeText(text);
    toast(said);
  } catch {
    toast("The browser does not let this page copy; mark the text instead.");
  }
}
