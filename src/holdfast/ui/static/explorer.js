// The retained explorer: tree or search on one side, the message on the other, and a slider into the past.

import { get, live } from "/static/api.js";
import { publish, remove } from "/static/actions.js";
import { count, debounce, fill, h, size, span, toast, when } from "/static/dom.js";
import { past } from "/static/past.js";
import { formsOf } from "/static/payload.js";
import { branch, Tree } from "/static/tree.js";

/** @import { Span, Summary, Whole } from "../api.d.ts" */
/** @import { Branch, Shown } from "/static/tree.js" */

const STEPS = 1000;

/** @param {HTMLElement} page
 * @param {URLSearchParams} query */
export function explorer(page, query) {
  const detail = h("section", { class: "detail", "aria-label": "Message" }, h("p", { class: "empty" }, "Choose a topic."));
  const tree = new Tree({ onSelect: (node) => open(node), onShown: debounce(150, watch) });
  /** @type {Branch | null} */
  let chosen = null; // the node
  /** @type {Whole | null} */
  let message = null; // what is shown of it
  let atMs = 0;
  /** @type {Span | null} */
  let reach = null;
  let shownForm = "";

  const search = h("input", { type: "search", class: "search", placeholder: "Search: a filter such as home/+/temp, or part of a topic",
    "aria-label": "Search", value: query.get("q") || "" });
  const found = h("span", { class: "soft found" });
  const slider = h("input", { type: "range", min: "0", max: String(STEPS), value: String(STEPS), class: "slider", "aria-label": "Moment" });
  const moment = h("output", { class: "moment" }, "now, live");
  const back = h("button", { type: "button", class: "plain", hidden: true, onclick: () => { slider.value = String(STEPS); moved(); } }, "Back to now");
  const time = h("div", { class: "time", hidden: true }, h("span", { class: "soft" }, "Time"), slider, moment, back);
  const columns = h("div", { class: "columns" }, h("div", { class: "side" }, tree.element), detail);
  fill(page,
    h("div", { class: "bar" }, search, found,
      h("button", { type: "button", onclick: () => publish().then(() => {}) }, "Publish…")),
    time, columns);

  search.addEventListener("input", debounce(250, look));
  slider.addEventListener("input", () => { moment.textContent = momentText(); });
  slider.addEventListener("change", () => moved());
  const reaching = get("/api/v1/overview").then(async (overview) => {
    if (!overview.has_history) return;
    reach = await get("/api/v1/history/span");
    time.hidden = reach.from_ms === null;
  }).catch((error) => toast(error.message));
  look();
  const wanted = query.get("topic");
  if (wanted) openTopic(wanted);

  function momentMs() {
    const part = Number(slider.value) / STEPS;
    if (part >= 1 || !reach) return 0;
    const fromMs = reach.from_ms ?? 0;
    return Math.round(fromMs + (Date.now() - fromMs) * part);
  }

  function momentText() {
    const ms = momentMs();
    return ms ? `${when(ms)} (${span(Date.now() - ms)} ago)` : "now, live";
  }

  async function moved() {
    atMs = momentMs();
    tree.atMs = atMs;
    moment.textContent = momentText();
    back.hidden = !atMs;
    page.classList.toggle("then", Boolean(atMs));
    try { await look(); } catch (error) { toast(error.message); }
    if (chosen) open(chosen);
  }

  /** @param {string} text */
  function filterOf(text) {
    return /[+#]/.test(text) ? { filter: text } : { contains: text };
  }

  async function look() {
    const text = search.value.trim();
    if (!text) {
      found.textContent = "";
      try { await tree.load(); } catch (error) { toast(error.message); }
      return;
    }
    /** @type {Summary[]} */
    const results = [];
    /** @type {string | null} */
    let cursor = "";
    const asked = text;
    const more = async () => {
      try {
        let answer;
        do {
          if (atMs) {
            answer = await get("/api/v1/retained/at", { at_ms: atMs, filter: /[+#]/.test(text) ? text : "#", after: cursor, limit: 200 });
            if (!/[+#]/.test(text)) answer.messages = answer.messages.filter((one) => one.topic.includes(text));
          } else {
            answer = await get("/api/v1/retained", { ...filterOf(text), limit: 200, cursor });
          }
          if (search.value.trim() !== asked) return;
          results.push(...answer.messages);
          cursor = answer.next;
          found.textContent = `${count(results.length)}${cursor ? "+" : ""} found`;
        } while (cursor && !answer.messages.length);
        tree.list(results, cursor ? more : null);
      } catch (error) {
        found.textContent = error.message;
      }
    };
    await more();
  }

  /** @param {Shown} shown */
  function watch(shown) {
    if (atMs) { live.watch([], []); return; }
    const topics = chosen && chosen.path !== null ? [...new Set([...shown.topics, chosen.path])] : shown.topics;
    live.watch(topics, shown.places);
  }

  const stop = live.listen((told) => {
    if (atMs) return;
    for (const one of told.messages || []) {
      tree.update(one);
      if (chosen && one.topic === chosen.path && (!message || message.version !== one.version)) open(chosen, true);
    }
    for (const topic of told.gone || []) if (chosen && topic === chosen.path) open(chosen, true);
    for (const one of told.places || []) tree.refresh(one.place);
  });

  /** @param {string} topic */
  function openTopic(topic) {
    open({ ...branch(topic, topic, 0), leaf: true });
  }

  /** @param {Branch} node
   * @param {boolean} quiet */
  async function open(node, quiet = false) {
    chosen = node;
    columns.classList.add("opened");
    const topic = node.path;
    if (!quiet) fill(detail, h("p", { class: "soft" }, "reading…"));
    let found;
    try {
      // Lists, not the message itself: that there is none is no error here.
      const answer = atMs ? await get("/api/v1/retained/at", { filter: topic, at_ms: atMs, limit: 1 })
        : await get("/api/v1/retained", { filter: topic, payload: "true", limit: 1 });
      found = /** @type {Whole | undefined} */ (answer.messages[0]);
      await reaching;
    } catch (error) {
      if (chosen === node) fill(detail, h("p", { class: "problem" }, error.message));
      return;
    }
    if (chosen !== node) return; // another topic was chosen meanwhile: what is shown is not this message
    message = found || null;
    draw(node, message, quiet);
  }

  /** @param {Branch} node
   * @param {Whole | null} message
   * @param {boolean} quiet */
  function draw(node, message, quiet) {
    const topic = node.path;
    const close = h("button", { type: "button", class: "plain close", onclick: () => { columns.classList.remove("opened"); } }, "‹ Topics");
    const below = node.leaf ? null : subtree(topic);
    const buttons = h("div", { class: "buttons" },
      message ? h("button", { type: "button", onclick: () => copy(message) }, "Copy") : null,
      !atMs ? h("button", { type: "button", class: "edit", onclick: () => publish({ topic, message })
        .then((done) => { if (done) open(node, true); }) }, message ? "Edit…" : "Publish…") : null,
      message && !atMs ? h("button", { type: "button", class: "danger", onclick: () => remove({ filter: topic }, changed) }, "Delete…") : null,
      message && !atMs ? h("a", { class: "button", href: `/api/v1/retained/message/payload?${new URLSearchParams({ topic })}`, download: "payload" }, "Download") : null);
    const history = quiet ? detail.querySelector(".past") : null;
    fill(detail, close, h("h2", { class: "topic" }, topic),
      atMs ? h("p", { class: "soft" }, `As it was ${momentText()}`) : null,
      message ? null : h("p", { class: "soft" }, atMs ? "Nothing was retained on this topic." : "Nothing is retained on this topic itself."),
      buttons, message ? shape(message) : null, message ? facts(message) : null, below, reach ? history || past(topic) : null);
    if (history && message) detail.replaceChild(past(topic), history);
  }

  /** @param {Whole} message */
  function shape(message) {
    const forms = formsOf(message);
    const area = h("div", { class: "shape" });
    const tabs = h("div", { class: "tabs", role: "tablist" });
    /** @param {string} name */
    const showForm = (name) => {
      const [title, make] = forms.find(([one]) => one === name) || forms[0];
      fill(area, make());
      fill(tabs, forms.map(([one]) => h("button", { type: "button", role: "tab", "aria-selected": String(one === title),
        onclick: () => { shownForm = one; showForm(one); } }, one)));
    };
    showForm(shownForm);
    return h("div", {}, tabs, area);
  }

  /** @param {Whole} message */
  function facts(message) {
    /** @param {string} name
     * @param {string | HTMLElement | null} value */
    const row = (name, value) => (value === null || value === "" ? null : h("tr", {}, h("th", {}, name), h("td", {}, value)));
    const who = message.publisher;
    return h("table", { class: "facts" }, h("tbody", {},
      row("Size", size(message.size)), row("QoS", String(message.qos)),
      row("Set", `${when(message.stored_at_ms)}, ${span(Date.now() - message.stored_at_ms)} ago`),
      row("Publisher", `${who.client_id ? `${who.client_id}${who.username ? ` (user ${who.username})` : ""}, ` : ""}MQTT ${who.protocol}`.replace("MQTT api", "through the API")),
      row("Expires", message.expires_at_ms ? countdown(message.expires_at_ms) : "never"),
      row("Version", String(message.version)),
      row("Content type", message.content_type), row("Response topic", message.response_topic), row("Correlation data", message.correlation_data),
      message.user_properties.map(([name, value]) => row(`Property ${name}`, value))));
  }

  /** @param {number} ms */
  function countdown(ms) {
    const place = h("span", { class: "countdown" });
    let seen = false;
    const tick = () => {
      if (place.isConnected || !seen) {
        const left = ms - Date.now();
        place.textContent = left > 0 ? `in ${span(left)}` : "now";
        seen = seen || place.isConnected;
        setTimeout(tick, 1000);
      }
    };
    tick();
    return place;
  }

  /** @param {string} topic */
  function subtree(topic) {
    const total = h("span", {}, "counting…");
    if (!atMs) {
      get("/api/v1/retained/usage", { prefix: topic }).then(
        (answer) => { total.textContent = `${count(answer.count)} messages, ${size(answer.bytes)}`; },
        (error) => { total.textContent = error.message; });
    } else {
      total.textContent = "";
    }
    return h("div", { class: "below" }, h("h3", {}, "This topic and everything below"), h("p", {}, total),
      atMs ? null : h("button", { type: "button", class: "danger subtree", onclick: () => remove({ filter: `${topic}/#` }, changed) }, "Delete all of it…"));
  }

  function changed() {
    if (search.value.trim()) look();
    if (chosen) open(chosen, true);
  }

  /** @param {Whole} one */
  async function copy(one) {
    try {
      await navigator.clipboard.writeText(one.text ?? one.payload);
      toast(one.text === null ? "Copied as base64" : "Copied");
    } catch {
      toast("The browser does not let this page copy; mark the text instead.");
    }
  }

  return () => { stop(); tree.close(); };
}
