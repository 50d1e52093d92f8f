// Line charts in SVG with axes of time and value, a range to choose and a crosshair that all charts of a page share.

import { compact, h, svg } from "/static/dom.js";

const HEIGHT = 150;
const LEFT = 62;
const RIGHT = 10;
const TOP = 8;
const BOTTOM = 20;
const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const TIME_STEPS = [SECOND, 5 * SECOND, 15 * SECOND, 30 * SECOND, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE,
  HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 30 * DAY, 90 * DAY, 365 * DAY];

/** @typedef {{ name: string, values: number[] }} Line */
/** @typedef {{ follow: (at: number | null) => void }} Follower */
/** `steps`: a value holds until the next one. `points`: few values that each came at a moment, which hold too. `whole`: there are
 * no parts of one. `format` writes a value, on the axis and at the crosshair; `bytes` goes with its units.
 * @typedef {{ fromZero?: boolean, points?: boolean, steps?: boolean, whole?: boolean, bytes?: boolean, format?: (value: number) => string, together?: Set<Follower> }} Options */

/** @param {string} title
 * @param {Options} options */
export function chart(title, options = {}) {
  const format = options.format || compact;
  const holds = Boolean(options.steps || options.points);
  const value = h("b", {}, "");
  const caption = h("figcaption", {}, h("span", {}, title), value);
  const picture = svg("svg", { role: "img", "aria-label": title });
  const mark = svg("g", { class: "mark" });
  const tip = h("div", { class: "tip", hidden: true });
  const plot = h("div", { class: "plot", tabindex: "0", role: "group", "aria-label": `${title}: arrow keys read the values` }, picture, tip);
  const legend = h("div", { class: "legend", hidden: true });
  const figure = h("figure", { class: "chart" }, caption, plot, legend);
  /** @type {{ times: number[], lines: Line[], first: number, last: number, x: (at: number) => number, y: (value: number) => number, width: number } | null} */
  let drawn = null;
  /** @type {[number[], Line[], { from?: number, to?: number }] | null} */
  let given = null;
  let marked = -1;

  /** All lines are as long as `times`, which are milliseconds. `now` is said above; `range` is what the axis shows, else all of it.
   * @param {number[]} times
   * @param {Line[]} lines
   * @param {string} [now]
   * @param {{ from?: number, to?: number }} [range] */
  function draw(times, lines, now, range = {}) {
    value.textContent = now ?? "";
    given = [times, lines, range];
    paint();
  }

  function paint() {
    if (!given) return;
    const [times, lines, range] = given;
    const width = Math.max(160, plot.clientWidth || 600);
    const first = range.from ?? times[0] ?? 0;
    const last = Math.max(first + 1, range.to ?? times[times.length - 1] ?? 1);
    const seen = times.map((at) => at >= first && at <= last);
    const values = lines.flatMap((line) => line.values.filter((one, i) => seen[i] && Number.isFinite(one)));
    const ticks = axis(values, options);
    const low = ticks[0];
    const high = ticks[ticks.length - 1];
    /** @param {number} at */
    const x = (at) => LEFT + ((at - first) / (last - first)) * (width - LEFT - RIGHT);
    /** @param {number} one */
    const y = (one) => HEIGHT - BOTTOM - ((one - low) / (high - low)) * (HEIGHT - BOTTOM - TOP);
    picture.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    picture.setAttribute("width", String(width));
    picture.setAttribute("height", String(HEIGHT));
    picture.setAttribute("aria-label", `${title}, ${moment(first, last - first)} to ${moment(last, last - first)}${value.textContent ? `: ${value.textContent}` : ""}`);
    picture.replaceChildren();
    for (const tick of ticks) {
      picture.append(svg("line", { x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick), class: "grid" }),
        svg("text", { x: LEFT - 6, y: y(tick) + 4, class: "tick value" }, format(tick)));
    }
    for (const at of timeTicks(first, last, width - LEFT - RIGHT)) {
      picture.append(svg("line", { x1: x(at), x2: x(at), y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM + 4, class: "grid" }),
        svg("text", { x: x(at), y: HEIGHT - 4, class: "tick time" }, moment(at, last - first)));
    }
    lines.forEach((line, place) => drawLine(line, place, lines.length === 1));
    picture.append(mark);
    legend.hidden = lines.length < 2;
    legend.replaceChildren(...(lines.length > 1 ? lines.map((line, i) => h("span", { class: `line${i}` }, line.name)) : []));
    drawn = { times, lines, first, last, x, y, width };
    if (marked >= 0) point(nearest(marked));

    /** @param {Line} line
     * @param {number} place
     * @param {boolean} alone */
    function drawLine(line, place, alone) {
      /** @type {[number, number][][]} */
      const runs = [[]];
      /** @type {number[][]} */
      const dots = [];
      let before = -1;
      line.values.forEach((one, i) => {
        if (times[i] > last || times[i] < first) { before = i; return; }
        if (!Number.isFinite(one)) { if (runs[runs.length - 1].length) runs.push([]); before = i; return; }
        const run = runs[runs.length - 1];
        if (holds && !run.length && before >= 0 && Number.isFinite(line.values[before]) && times[before] < first) run.push([x(first), y(line.values[before])]);
        if (holds && run.length) run.push([x(times[i]), run[run.length - 1][1]]);
        run.push([x(times[i]), y(one)]);
        dots.push([x(times[i]), y(one)]);
        before = i;
      });
      const end = runs[runs.length - 1];
      if (options.points && end.length && range.to !== undefined) end.push([x(last), end[end.length - 1][1]]);
      for (const run of runs) {
        if (!run.length) continue;
        const path = run.map((one) => `${one[0].toFixed(1)},${one[1].toFixed(1)}`).join(" L");
        if (alone && run.length > 1) {
          picture.append(svg("path", { class: "area", d: `M${run[0][0].toFixed(1)},${y(low)} L${path} L${run[run.length - 1][0].toFixed(1)},${y(low)} Z` }));
        }
        picture.append(svg("path", { class: `line line${place}`, d: `M${path}` }));
      }
      if (options.points && dots.length < 200) {
        for (const [cx, cy] of dots) picture.append(svg("circle", { cx, cy, r: 2.5, class: `dot line${place}` }));
      }
    }
  }

  /** The place of the time nearest to one; where values hold, of the last before it.
   * @param {number} at */
  function nearest(at) {
    const times = drawn ? drawn.times : [];
    let low = 0;
    let high = times.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (times[middle] <= at) low = middle; else high = middle - 1;
    }
    if (!holds && low + 1 < times.length && times[low + 1] - at < at - times[low]) low += 1;
    return low;
  }

  /** @param {number} place */
  function point(place) {
    if (!drawn || !drawn.times.length || place < 0) return;
    const { times, lines, first, last, x, y, width } = drawn;
    const at = Math.min(last, Math.max(first, times[0], holds && marked >= 0 ? marked : times[place]));
    mark.replaceChildren(svg("line", { x1: x(at), x2: x(at), y1: TOP, y2: HEIGHT - BOTTOM, class: "crosshair" }));
    lines.forEach((line, i) => {
      if (Number.isFinite(line.values[place])) mark.append(svg("circle", { cx: x(at), cy: y(line.values[place]), r: 3.5, class: `dot line${i}` }));
    });
    tip.replaceChildren(h("small", {}, new Date(times[place]).toLocaleString(undefined, { dateStyle: last - first > DAY ? "medium" : undefined, timeStyle: "medium", hourCycle: "h23" })),
      ...lines.map((line, i) => h("span", { class: `line${i}` }, lines.length > 1 ? `${line.name} ` : "", h("b", {}, Number.isFinite(line.values[place]) ? format(line.values[place]) : "none"))));
    tip.hidden = false;
    const left = x(at) > width / 2;
    tip.classList.toggle("left", left);
    tip.style.setProperty("inset-inline-start", `${left ? x(at) - 8 : x(at) + 8}px`);
  }

  /** @type {Follower} */
  const follower = {
    follow(at) {
      if (at === null) { marked = -1; mark.replaceChildren(); tip.hidden = true; return; }
      marked = at;
      point(nearest(at));
    },
  };
  const together = options.together || new Set();
  together.add(follower);
  /** @param {number | null} at */
  const tell = (at) => { for (const one of together) one.follow(at); };

  /** @param {PointerEvent} event */
  function pointed(event) {
    if (!drawn) return;
    const box = plot.getBoundingClientRect();
    const part = Math.min(1, Math.max(0, (event.clientX - box.left - LEFT) / (drawn.width - LEFT - RIGHT)));
    tell(drawn.first + part * (drawn.last - drawn.first));
  }
  plot.addEventListener("pointermove", pointed);
  plot.addEventListener("pointerdown", pointed);
  plot.addEventListener("pointerleave", () => tell(null));
  plot.addEventListener("blur", () => tell(null));
  plot.addEventListener("keydown", (event) => {
    if (!drawn || !drawn.times.length) return;
    const end = drawn.times.length - 1;
    const here = marked < 0 ? end : nearest(marked);
    const wide = Math.max(1, Math.round(end / 20));
    const to = { ArrowLeft: here - 1, ArrowRight: here + 1, PageUp: here - wide, PageDown: here + wide, Home: 0, End: end }[event.key];
    if (event.key === "Escape") tell(null);
    if (to === undefined) return;
    event.preventDefault();
    tell(drawn.times[Math.min(end, Math.max(0, to))]);
  });
  new ResizeObserver(() => paint()).observe(plot);
  return { element: figure, draw };
}

/** Round values from below the least to above the greatest, three to five of them.
 * @param {number[]} values
 * @param {Options} options */
function axis(values, options) {
  let low = values.length ? values.reduce((one, other) => Math.min(one, other)) : 0;
  let high = values.length ? values.reduce((one, other) => Math.max(one, other)) : 0;
  if (options.fromZero !== false) { low = Math.min(0, low); high = Math.max(0, high); }
  if (high === low) {
    if (options.fromZero === false && low !== 0) { const margin = Math.max(options.whole ? 1 : 0, Math.abs(low) / 10); low -= margin; high += margin; if (values[0] > 0) low = Math.max(0, low); } else high = low + 1;
  }
  const rough = (high - low) / 3;
  let step;
  if (options.bytes) {
    const unit = 1024 ** Math.max(0, Math.floor(Math.log(Math.max(1, rough)) / Math.log(1024)));
    step = unit * 2 ** Math.ceil(Math.log2(Math.max(1, rough / unit)));
  } else step = round(rough);
  if (options.whole || (options.bytes && step < 1)) step = Math.max(1, Math.ceil(step));
  const from = Math.floor(low / step) * step;
  const count = Math.max(1, Math.ceil((high - from) / step - 1e-9));
  return Array.from({ length: count + 1 }, (_, i) => Number((from + i * step).toPrecision(12)));
}

/** The next number that begins with 1, 2 or 5.
 * @param {number} number */
function round(number) {
  const power = 10 ** Math.floor(Math.log10(number));
  const first = number / power;
  return (first <= 1 ? 1 : first <= 2 ? 2 : first <= 5 ? 5 : 10) * power;
}

/** @param {number} first
 * @param {number} last
 * @param {number} width */
function timeTicks(first, last, width) {
  const most = Math.max(2, Math.floor(width / 90));
  const step = TIME_STEPS.find((one) => (last - first) / one <= most) || TIME_STEPS[TIME_STEPS.length - 1];
  const zone = new Date(first).getTimezoneOffset() * MINUTE; // days begin where the reader is
  const ticks = [];
  for (let at = Math.ceil((first - zone) / step) * step + zone; at <= last; at += step) ticks.push(at);
  return ticks.filter((at) => width * (at - first) / (last - first) > 14 && width * (last - at) / (last - first) > 20);
}

/** @param {number} at
 * @param {number} span */
function moment(at, span) {
  const time = new Date(at);
  if (span > 2 * DAY) return time.toLocaleDateString(undefined, { day: "numeric", month: "short", year: span > 365 * DAY ? "numeric" : undefined });
  return time.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", second: span < 5 * MINUTE ? "2-digit" : undefined, hourCycle: "h23" });
}
