// Rates, connections, the retained set over time, the history's lag, and what was refused.

import { get, live } from "/static/api.js";
import { chart } from "/static/chart.js";
import { compact, count, fill, h, size, span } from "/static/dom.js";

const KEPT = 900;

/** @import { Overview } from "../api.d.ts" */

/** @param {HTMLElement} page */
export function overview(page) {
  const cards = h("section", { class: "cards", "aria-label": "Now" });
  const rates = chart("Messages a second");
  const bytes = chart("Bytes a second");
  const retained = chart("Retained messages", { fromZero: false });
  const stored = chart("Retained bytes", { fromZero: false });
  const connections = chart("Connections");
  const lag = chart("History behind, in offsets");
  const refused = h("section", { class: "card" });
  const problems = h("section");
  fill(page, h("h1", {}, "Overview"), problems, cards);
  const charts = h("section", { class: "charts" }, [rates, bytes, retained, stored, connections, lag].map((one) => one.element));
  page.append(charts, refused);
  /** @type {Record<string, number[]> | null} */
  let series = null;
  /** @type {Overview | null} */
  let latest = null;

  /** @param {number[]} values
   * @param {number[]} times */
  function rate(values, times) {
    return values.map((value, i) => (i === 0 ? NaN
      : Math.max(0, (value - values[i - 1]) / Math.max(0.001, (times[i] - times[i - 1]) / 1000))));
  }

  function draw() {
    if (!latest) return;
    const now = latest;
    /** @param {string} title
     * @param {string} value
     * @param {string} more */
    const card = (title, value, more) => h("div", { class: "card number" },
      h("span", {}, title), h("b", {}, value), h("small", {}, more));
    fill(cards,
      card("Connections", count(now.connections), `${count(now.sessions)} sessions`),
      card("Retained", count(now.retained.count), size(now.retained.bytes)),
      card("Subscriptions", count(now.subscriptions), `offset ${count(now.offset)}`),
      card("History", now.has_history ? (now.history_lag ? `${count(now.history_lag)} behind` : "up to date") : "off",
        now.has_history ? `${now.history_lag_s.toFixed(1)} s` : "nothing is kept"),
      card("Up for", span(now.now_ms - now.started_at_ms), `version ${now.version}`));
    fill(problems, Object.entries(now.problems).map(([part, text]) => h("p", { class: "problem" }, `${part}: ${text}`)));
    /** @type {[string, number][]} */
    const rows = [
      ...Object.entries(now.refused).map(([why, number]) => /** @type {[string, number]} */ ([`retained publish: ${why.replace("refused_", "").replace("_", " ")}`, number])),
      ["publish: not authorized, or the disk refused", now.publishes_refused],
      ["connection", now.connects_refused],
      ["protocol error", now.protocol_errors],
      ...Object.entries(now.dropped).map(([why, number]) => /** @type {[string, number]} */ ([`delivery dropped: ${why.replace("_", " ")}`, number])),
    ];
    fill(refused, h("h2", {}, "Refused and dropped since the start"),
      h("table", {}, h("tbody", {}, rows.map(([why, number]) =>
        h("tr", { class: number ? "some" : "none" }, h("td", {}, why), h("td", { class: "right" }, count(number)))))));
    if (!series || series.at_ms.length < 2) return;
    const times = series.at_ms;
    const received = rate(series.messages_in, times);
    const sent = rate(series.messages_out, times);
    /** @param {number[]} values */
    const end = (values) => compact(values[values.length - 1] || 0);
    rates.draw(times, [{ name: "in", values: received }, { name: "out", values: sent }], `${end(received)} in, ${end(sent)} out`);
    const bytesIn = rate(series.bytes_in, times);
    const bytesOut = rate(series.bytes_out, times);
    bytes.draw(times, [{ name: "in", values: bytesIn }, { name: "out", values: bytesOut }],
      `${size(bytesIn[bytesIn.length - 1] || 0)} in, ${size(bytesOut[bytesOut.length - 1] || 0)} out`);
    retained.draw(times, [{ name: "messages", values: series.retained }], count(series.retained[series.retained.length - 1]));
    stored.draw(times, [{ name: "bytes", values: series.retained_bytes }], size(series.retained_bytes[series.retained_bytes.length - 1]));
    connections.draw(times, [{ name: "connections", values: series.connections }], count(series.connections[series.connections.length - 1]));
    lag.draw(times, [{ name: "offsets", values: series.history_lag }], count(series.history_lag[series.history_lag.length - 1]));
  }

  /** @param {number[]} values */
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const stop = live.listen((told) => {
    latest = told.overview;
    if (series) {
      const times = series.at_ms;
      if (!times.length || latest.now_ms - times[times.length - 1] >= 950) {
        /** @type {Record<string, number>} */
        const now = { at_ms: latest.now_ms, messages_in: sum(latest.messages_in), messages_out: sum(latest.messages_out),
          bytes_in: latest.bytes_in, bytes_out: latest.bytes_out, connections: latest.connections,
          retained: latest.retained.count, retained_bytes: latest.retained.bytes, history_lag: latest.history_lag,
          dropped: sum(Object.values(latest.dropped)) };
        for (const [name, values] of Object.entries(series)) {
          values.push(now[name]);
          if (values.length > KEPT) values.shift();
        }
      }
    }
    draw();
  });
  get("/api/v1/overview", { points: KEPT }).then((answer) => { series = answer.series; latest = answer; draw(); }, () => {});
  return stop;
}
