// Line charts in SVG, drawn anew when they change. Small on purpose.

import { compact, h, svg, when } from "/static/dom.js";

const WIDTH = 600;
const HEIGHT = 150;
const BOTTOM = 16;

/** @typedef {{ name: string, values: number[] }} Line */

/** @param {string} title
 * @param {{ fromZero?: boolean, points?: boolean }} options */
export function chart(title, options = {}) {
  const figure = h("figure", { class: "chart" });
  const value = h("b", {}, "");
  const caption = h("figcaption", {}, h("span", {}, title), value);
  const tip = h("div", { class: "tip", hidden: true });
  figure.append(caption, tip);
  /** @type {{ times: number[], lines: Line[], first: number, last: number } | null} */
  let drawn = null;

  /** All of the same length.
   * @param {number[]} times milliseconds
   * @param {Line[]} lines
   * @param {string} [now] */
  function draw(times, lines, now) {
    value.textContent = now ?? "";
    const values = lines.flatMap((line) => line.values).filter(Number.isFinite);
    let low = options.fromZero === false && values.length ? Math.min(...values) : Math.min(0, ...values);
    let high = values.length ? Math.max(...values) : 1;
    if (high === low) { high += 1; if (options.fromZero === false) low -= 1; }
    const first = times[0] ?? 0;
    const last = times[times.length - 1] ?? 1;
    /** @param {number} at */
    const x = (at) => (last === first ? WIDTH : ((at - first) / (last - first)) * WIDTH);
    /** @param {number} value */
    const y = (value) => HEIGHT - ((value - low) / (high - low)) * (HEIGHT - 12);
    const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT + BOTTOM}`, preserveAspectRatio: "none", role: "img",
      "aria-label": title });
    for (const part of [0, 0.5, 1]) {
      const at = HEIGHT - part * (HEIGHT - 12);
      picture.append(svg("line", { x1: 0, x2: WIDTH, y1: at, y2: at, class: "grid" }));
    }
    lines.forEach((line, place) => {
      const points = line.values.map((value, i) => [x(times[i]), y(value)]).filter((point) => Number.isFinite(point[1]));
      if (!points.length) return;
      const path = points.map((point) => `${point[0].toFixed(1)},${point[1].toFixed(1)}`).join(" L");
      if (place === 0 && lines.length === 1) {
        picture.append(svg("path", { class: "area",
          d: `M${points[0][0].toFixed(1)},${HEIGHT} L${path} L${points[points.length - 1][0].toFixed(1)},${HEIGHT} Z` }));
      }
      picture.append(svg("path", { class: `line line${place}`, d: `M${path}`, "vector-effect": "non-scaling-stroke" }));
      if (options.points && points.length < 200) {
        for (const point of points) picture.append(svg("circle", { cx: point[0], cy: point[1], r: 2.5, class: `dot line${place}` }));
      }
    });
    const scale = h("div", { class: "scale" }, h("span", {}, compact(high)), h("span", {}, compact(low)));
    const legend = lines.length > 1
      ? h("div", { class: "legend" }, lines.map((line, i) => h("span", { class: `line${i}` }, line.name))) : null;
    figure.replaceChildren(caption, h("div", { class: "plot" }, picture, scale, tip), ...(legend ? [legend] : []));
    drawn = { times, lines, first, last };
  }

  figure.addEventListener("pointermove", (event) => {
    const plot = figure.querySelector(".plot");
    const shown = drawn;
    if (!shown || !shown.times.length || !plot) return;
    const box = plot.getBoundingClientRect();
    const part = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    const at = shown.first + part * (shown.last - shown.first);
    let near = 0;
    shown.times.forEach((time, i) => { if (Math.abs(time - at) < Math.abs(shown.times[near] - at)) near = i; });
    tip.textContent = `${when(shown.times[near])}: ` + shown.lines.map((line) =>
      `${shown.lines.length > 1 ? `${line.name} ` : ""}${compact(line.values[near])}`).join(", ");
    tip.hidden = false;
  });
  figure.addEventListener("pointerleave", () => { tip.hidden = true; });
  return { element: figure, draw };
}
