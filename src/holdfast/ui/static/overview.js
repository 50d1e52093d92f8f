// How the broker is doing: problems and where they come from, rates and totals over time, what it takes of its machine.

import { get, live, server } from "/static/api.js";
import { flagsTo } from "/static/beginning.js";
import { chart } from "/static/chart.js";
import { compact, count, fill, h, size, span } from "/static/dom.js";
import { address, plainTable } from "/static/table.js";

/** @import { Overview, ResourceReport } from "../api.d.ts" */

/** @type {{ id: string, label: string, ms: number, points: number, step: number }[]} */
const RANGES = [
  { id: "5m", label: "5 min", ms: 300_000, points: 300, step: 1 },
  { id: "15m", label: "15 min", ms: 900_000, points: 900, step: 1 },
  { id: "1h", label: "1 h", ms: 3_600_000, points: 360, step: 10 },
  { id: "6h", label: "6 h", ms: 21_600_000, points: 360, step: 60 },
  { id: "24h", label: "24 h", ms: 86_400_000, points: 1440, step: 60 },
];
const LATE_S = 5; // a history that is behind by less is up to date
const LITTLE_DISK = 0.05;
const DEEP_QUEUE = 0.8;
const LAST = "Up for";

/** @param {HTMLElement} page
 * @param {URLSearchParams} query */
export function overview(page, query) {
  let range = RANGES.find((one) => one.id === query.get("range")) || RANGES[1];
  const together = new Set();
  /** @param {number} value */
  const seconds = (value) => (value >= 120 ? span(value * 1000) : `${value < 10 && !Number.isInteger(value) ? value.toFixed(1) : Math.round(value)} s`);
  const rates = chart("Messages a second", { together });
  const bytes = chart("Bytes a second", { together, bytes: true, format: size });
  const connections = chart("Connections", { together, steps: true, whole: true });
  const retained = chart("Retained messages", { together, steps: true, whole: true, fromZero: false });
  const stored = chart("Retained bytes", { together, steps: true, bytes: true, fromZero: false, format: size });
  const memory = chart("Memory of the broker", { together, bytes: true, format: size });
  const lag = chart("History behind", { together, format: seconds });

  const problems = h("section", { class: "problems", "aria-label": "Problems" });
  const firstCommand = h("pre", { tabindex: "0" });
  const welcome = h("section", { class: "card welcome", hidden: true }, h("h2", {}, "Nothing has been published yet"),
    h("p", {}, "Send the first message, and find it in the ", h("a", { href: "#explorer" }, "Explorer"), ":"),
    firstCommand, h("p", { class: "soft" }, "Any MQTT client will do, such as mosquitto_pub with the same flags."));
  const cards = h("section", { class: "cards", "aria-label": "Now" });
  const ranges = h("div", { class: "ranges", role: "group", "aria-label": "Range of the charts" }, RANGES.map((one) =>
    h("button", { type: "button", data: { range: one.id }, "aria-pressed": String(one === range), onclick: () => choose(one) }, one.label)));
  const charts = h("section", { class: "charts", "aria-label": "Charts" });
  const machine = h("div", { class: "machine" });
  fill(page, h("div", { class: "bar" }, h("h1", {}, "Overview"), ranges), problems, welcome, cards, charts, machine);

  /** @type {Record<string, number[]> | null} */
  let series = null;
  /** @type {Overview | null} */
  let latest = null;
  /** @type {ResourceReport | null} */
  let resources = null;

  /** @param {typeof RANGES[number]} one */
  function choose(one) {
    range = one;
    for (const button of ranges.querySelectorAll("button")) button.setAttribute("aria-pressed", String(button.dataset.range === one.id));
    address("overview", { range: one.id !== "15m" && one.id });
    read();
  }

  async function read() {
    const asked = range;
    try {
      const answer = await get("/api/v1/overview", { points: asked.points, step_s: asked.step });
      if (asked !== range) return;
      series = answer.series;
      latest = answer;
      draw();
    } catch { /* the banner says what there is to say, and live brings the rest */ }
  }

  async function readResources() {
    if (!server.admin) return;
    try {
      resources = await get("/api/v1/resources");
      draw();
      drawMachine();
    } catch { /* as above */ }
  }

  /** @param {number[]} values
   * @param {number[]} times */
  function rate(values, times) {
    return values.map((value, i) => (i === 0 || value < values[i - 1] ? NaN
      : (value - values[i - 1]) / Math.max(0.001, (times[i] - times[i - 1]) / 1000)));
  }

  /** @type {Map<string, { box: HTMLElement, value: HTMLElement, more: HTMLElement }>} */
  const boxes = new Map();
  /** @param {string} title
   * @param {string} value
   * @param {string} more
   * @param {string} [href] */
  function card(title, value, more, href) {
    let one = boxes.get(title);
    if (!one) {
      const parts = { value: h("b", {}, ""), more: h("small", {}, "") };
      one = { ...parts, box: h(href ? "a" : "div", { class: "card number", ...(href ? { href } : {}) }, h("span", {}, title), parts.value, parts.more) };
      cards.insertBefore(one.box, boxes.get(LAST)?.box ?? null); // what is read later does not go behind it
      boxes.set(title, one);
    }
    if (one.value.textContent !== value) one.value.textContent = value;
    if (one.more.textContent !== more) one.more.textContent = more;
  }

  function draw() {
    if (!latest) return;
    const now = latest;
    const received = now.messages_in.reduce((total, one) => total + one, 0);
    welcome.hidden = now.retained.count > 0 || received > 0;
    firstCommand.textContent = `holdfast pub${flagsTo(resources?.listeners ?? [])} -t home/kitchen/temperature -m 21.5 -r`;
    card("Connections", count(now.connections), `${count(now.sessions)} session${now.sessions === 1 ? "" : "s"}`, server.admin ? "#clients" : undefined);
    card("Retained", count(now.retained.count), size(now.retained.bytes), "#explorer");
    card("Subscriptions", count(now.subscriptions), `${count(received)} messages received`);
    const late = now.history_lag_s >= LATE_S;
    card("History", now.has_history ? (late ? `${seconds(now.history_lag_s)} behind` : "up to date") : "off", now.has_history ? (late ? `${count(now.history_lag)} entries` : "recorded as it comes") : "nothing is recorded");
    if (resources) {
      card("Queued", count(resources.queues.messages), `${size(resources.queues.bytes)}, ${count(resources.queues.inflight)} in flight`, "#clients?sort=queued&order=descending");
      card("Memory", size(resources.memory.broker), resources.memory.helpers ? `and ${size(resources.memory.helpers)} in its helpers` : "of the broker");
      if (resources.disk) card("Disk free", size(resources.disk.free), `${size(Object.values(resources.disk.parts).reduce((total, one) => total + one, 0))} in use by the broker`);
    }
    card(LAST, span(now.now_ms - now.started_at_ms), `version ${now.version}`);
    drawProblems(now);
    drawCharts(now);
  }

  /** @param {Overview} now */
  function drawProblems(now) {
    /** @type {[string, string, string][]} */
    const found = Object.entries(now.problems).map(([part, text]) => [`${part}: ${text}`, `#settings?${new URLSearchParams({ search: part })}`, `Settings of ${part}`]);
    if (now.history_lag_s >= 60) found.push([`The history is ${span(now.history_lag_s * 1000)} behind.`, "#settings?search=history", "Settings of the history"]);
    if (now.loop_delay_s >= 0.5) found.push([`The broker is late by ${now.loop_delay_s.toFixed(1)} s: it has more to do than one processor can.`, "#clients?sort=received&order=descending", "Who sends most"]);
    if (resources) {
      const { disk, journal, queues, listeners } = resources;
      if (journal && !journal.healthy) found.push(["The disk refuses writes: QoS 1 and 2 publishes are refused.", "#settings?search=data", "Where the data is"]);
      if (disk && disk.free < disk.total * LITTLE_DISK) found.push([`Only ${size(disk.free)} are free where ${disk.folder} is.`, "#settings?search=history.re", "What limits the history"]);
      for (const one of queues.deepest) {
        if (queues.most_messages && one.messages >= queues.most_messages * DEEP_QUEUE) {
          found.push([`${one.client_id} has ${count(one.messages)} messages waiting, of ${count(queues.most_messages)} at most.`, `#clients?${new URLSearchParams({ search: one.client_id, client: one.client_id })}`, "Look at the client"]);
        }
      }
      for (const one of listeners) {
        if (one.max_connections && one.connections >= one.max_connections) found.push([`${one.address} has as many connections as it may: ${count(one.max_connections)}.`, "#clients", "Look at the clients"]);
      }
    }
    const text = JSON.stringify(found);
    if (problems.dataset.shown === text) return;
    problems.dataset.shown = text;
    fill(problems, found.map(([what, href, label]) => h("p", { class: "trouble", role: "alert" }, h("span", {}, what), " ", server.admin ? h("a", { href }, label) : null)));
  }

  /** @param {Overview} now */
  function drawCharts(now) {
    const wanted = [rates, bytes, connections, retained, memory, now.has_history ? lag : stored];
    if (charts.children.length !== wanted.length || wanted.some((one, i) => charts.children[i] !== one.element)) fill(charts, wanted.map((one) => one.element));
    if (!series || !series.at_ms.length) return;
    const times = series.at_ms;
    const shown = { from: now.now_ms - range.ms, to: now.now_ms };
    /** @param {number[]} values */
    const last = (values) => values[values.length - 1] || 0;
    const received = rate(series.messages_in, times);
    const sent = rate(series.messages_out, times);
    rates.draw(times, [{ name: "in", values: received }, { name: "out", values: sent }], `${compact(last(received))} in, ${compact(last(sent))} out`, shown);
    const bytesIn = rate(series.bytes_in, times);
    const bytesOut = rate(series.bytes_out, times);
    bytes.draw(times, [{ name: "in", values: bytesIn }, { name: "out", values: bytesOut }], `${size(last(bytesIn))} in, ${size(last(bytesOut))} out`, shown);
    connections.draw(times, [{ name: "connections", values: series.connections }], count(last(series.connections)), shown);
    retained.draw(times, [{ name: "messages", values: series.retained }], count(last(series.retained)), shown);
    stored.draw(times, [{ name: "bytes", values: series.retained_bytes }], size(last(series.retained_bytes)), shown);
    memory.draw(times, [{ name: "bytes", values: series.memory }], size(last(series.memory)), shown);
    const behind = series.history_lag_ms.map((one) => one / 1000);
    lag.draw(times, [{ name: "seconds", values: behind }], now.history_lag_s >= LATE_S ? seconds(now.history_lag_s) : "up to date", shown);
  }

  function drawMachine() {
    const now = latest;
    if (!resources || !now) return;
    const { disk, journal, listeners, queues } = resources;
    /** @type {[string, number, string][]} */
    const refused = [
      ...Object.entries(now.refused).map(([why, number]) => /** @type {[string, number, string]} */ ([`Retained publish refused: ${why.replace("refused_", "").replaceAll("_", " ")}`, number, "#settings?search=retainer"])),
      ["Publish refused: not authorized, or the disk refused", now.publishes_refused, "#denials?kind=publish+denied"],
      ["Connection refused", now.connects_refused, "#denials"],
      ["Protocol error", now.protocol_errors, "#denials?kind=protocol+error"],
      ...Object.entries(now.dropped).map(([why, number]) => /** @type {[string, number, string]} */ ([`Delivery dropped: ${why.replaceAll("_", " ")}`, number, "#clients?sort=queued&order=descending"])),
    ];
    const some = refused.filter(([, number]) => number > 0);
    const text = JSON.stringify([disk, journal && { ...journal, backlog_bytes: 0 }, listeners, queues.deepest, some]);
    if (machine.dataset.shown === text) return;
    machine.dataset.shown = text;
    fill(machine,
      h("section", { class: "card" }, h("h2", {}, "Listeners"),
        plainTable("Listeners", ["Address", ["Connections", "right"], "Logins"], listeners.map((one) => [h("code", {}, one.address), `${count(one.connections)}${one.max_connections ? ` of ${count(one.max_connections)}` : ""}`, one.anonymous ? "not needed" : "needed"]))),
      h("section", { class: "card" }, h("h2", {}, "Refused and dropped since the start"),
        some.length ? plainTable("Refused and dropped", ["What", ["Times", "right"]], some.map(([why, number, href]) => [h("a", { href }, why), count(number)])) : h("p", { class: "soft" }, "Nothing.")),
      disk ? h("section", { class: "card" }, h("h2", {}, "Data folder"), h("p", { class: "soft" }, h("code", {}, disk.folder), `, ${size(disk.free)} of ${size(disk.total)} free${journal ? `, a sync takes ${(journal.sync_s * 1000).toFixed(1)} ms` : ""}`),
        plainTable("Data folder", ["Part", ["On disk", "right"]], Object.entries(disk.parts).map(([part, number]) => [part, size(number)]))) : null,
      h("section", { class: "card" }, h("h2", {}, "Longest queues"),
        queues.deepest.length ? plainTable("Longest queues", ["Client", ["Messages", "right"], ["Bytes", "right"]], queues.deepest.map((one) => [h("a", { href: `#clients?${new URLSearchParams({ search: one.client_id, client: one.client_id })}` }, one.client_id), count(one.messages), size(one.bytes)])) : h("p", { class: "soft" }, "Nothing waits for anybody.")));
  }

  /** @param {number[]} values */
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const stop = live.listen((told) => {
    latest = told.overview;
    if (series) {
      const times = series.at_ms;
      if (!times.length || latest.now_ms - times[times.length - 1] >= range.step * 1000 - 50) {
        /** @type {Record<string, number>} */
        const now = { at_ms: latest.now_ms, messages_in: sum(latest.messages_in), messages_out: sum(latest.messages_out),
          bytes_in: latest.bytes_in, bytes_out: latest.bytes_out, connections: latest.connections,
          retained: latest.retained.count, retained_bytes: latest.retained.bytes, history_lag: latest.history_lag,
          history_lag_ms: latest.history_lag_s * 1000, dropped: sum(Object.values(latest.dropped)),
          memory: series.memory[series.memory.length - 1] ?? NaN };
        if (resources) now.memory = resources.memory.broker;
        for (const [name, values] of Object.entries(series)) {
          values.push(now[name]);
          if (values.length > range.points) values.shift();
        }
      }
    }
    draw();
  });
  read();
  readResources();
  const timer = setInterval(readResources, 3000);
  const back = live.whenBack(() => { read(); readResources(); });
  return () => { stop(); back(); clearInterval(timer); };
}
