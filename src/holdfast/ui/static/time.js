// The moment that everything on the page shows: a slider over a stretch of the past, a field for date and time, steps from
// change to change, and marks where something changed. The moment is chosen once, and is the same wherever it is named.

import { get } from "/static/api.js";
import { count, debounce, fill, h, span, svg, toast, when } from "/static/dom.js";
import { exactly, fieldOf, msOf, zone } from "/static/moment.js";

const STEPS = 1000;
const PARTS = 160;
const ZOOM = 4;
const LEAST_MS = 1000;
const MARKS_LEAST_MS = 15000;

export class Time {
  /** @param {{ onMove: (atMs: number) => void, buttons: HTMLElement[] }} told */
  constructor({ onMove, buttons }) {
    this.onMove = onMove;
    this.atMs = 0; // 0 is now
    this.fromMs = 0; // how far the history reaches back
    this.lowMs = 0; // the stretch that the slider is over; it ends now where highMs is 0
    this.highMs = 0;
    this.openedMs = Date.now(); // the end of a stretch that ends now, until the marks are read again
    /** @type {string | null} */
    this.topic = null;
    this.seesAll = true;
    this.asked = 0;
    this.stepping = Promise.resolve();
    /** @type {{ from_ms: number, to_ms: number, parts: number }} the time that the marks are of */
    this.marked = { from_ms: 0, to_ms: 1, parts: PARTS };
    /** @type {number[] | null} */
    this.all = null;

    this.slider = h("input", { type: "range", min: "0", max: String(STEPS), step: "1", value: String(STEPS), class: "slider", "aria-label": "Moment" });
    this.field = h("input", { type: "datetime-local", step: "0.001", class: "date", "aria-label": `Date and time, ${zone()}` });
    this.moment = h("output", { class: "moment" }, "now, live");
    this.marks = svg("svg", { class: "marks", viewBox: `0 0 ${PARTS} 20`, preserveAspectRatio: "none", "aria-hidden": "true" });
    this.low = h("span", {});
    this.high = h("span", {});
    /** @param {string} name
     * @param {string} label
     * @param {string} text
     * @param {() => unknown} run */
    const button = (name, label, text, run) => h("button", { type: "button", class: `step ${name}`, title: label, "aria-label": label, onclick: run }, text);
    this.earlier = button("earlier", "Previous change", "◂", () => this.step(false));
    this.later = button("later", "Next change", "▸", () => this.step(true));
    this.closer = button("closer", "Zoom in", "+", () => this.zoom(1 / ZOOM));
    this.wider = button("wider", "Zoom out", "−", () => this.zoom(ZOOM));
    this.whole = button("whole", "The whole history", "All", () => this.zoom(Infinity));
    this.back = h("button", { type: "button", class: "now", hidden: true, onclick: () => this.onMove(0) }, "Back to now");
    this.element = h("div", { class: "time", role: "group", "aria-label": "Time", hidden: true },
      h("div", { class: "chosen" },
        h("div", { class: "steps" }, this.earlier, this.field, this.later),
        this.moment, this.back, h("div", { class: "more" }, buttons)),
      h("div", { class: "stretch" },
        h("div", { class: "track" }, this.marks, this.slider, h("div", { class: "ends" }, this.low, this.high)),
        h("div", { class: "zoom" }, this.wider, this.closer, this.whole)));

    this.slider.addEventListener("input", () => this.say(this.pointed()));
    this.slider.addEventListener("change", () => this.onMove(this.pointed()));
    this.field.addEventListener("input", debounce(700, () => this.typed()));
    this.field.addEventListener("keydown", (event) => { if (event.key === "Enter") this.typed(); });
    this.timer = setInterval(() => {
      const due = Date.now() - this.marked.to_ms > Math.max(MARKS_LEAST_MS, (this.endMs - this.lowMs) / PARTS); // a new mark may fit
      if (due && !this.element.hidden && !document.hidden && !this.highMs) this.drawMarks();
    }, MARKS_LEAST_MS);
  }

  close() { clearInterval(this.timer); }

  /** @param {number} fromMs */
  reach(fromMs) {
    this.fromMs = fromMs;
    this.lowMs = fromMs;
    this.element.hidden = false;
    this.show(this.atMs);
    this.drawMarks();
  }

  get endMs() { return this.highMs || this.openedMs; }

  /** The moment under the slider's thumb. */
  pointed() {
    const part = Number(this.slider.value) / STEPS;
    if (part >= 1 && !this.highMs) return 0;
    return Math.round(this.lowMs + (this.endMs - this.lowMs) * part);
  }

  typed() {
    const ms = msOf(this.field.value);
    if (!ms || ms === this.atMs) return;
    if (ms < this.fromMs) toast(`The history begins ${exactly(this.fromMs)}.`);
    if (ms >= Date.now()) this.onMove(0);
    else this.onMove(Math.max(ms, this.fromMs));
  }

  /** @param {number} atMs the moment that is shown from now on */
  show(atMs) {
    this.atMs = atMs;
    if (!this.fromMs) return;
    if (atMs && (atMs < this.lowMs || atMs > this.endMs)) { // it lies beside the stretch
      const width = this.endMs - this.lowMs;
      this.stretch(atMs - width / 2, atMs + width / 2);
      this.drawMarks();
    }
    const part = atMs ? (atMs - this.lowMs) / (this.endMs - this.lowMs || 1) : 1;
    this.slider.value = String(atMs ? Math.min(STEPS - (this.highMs ? 0 : 1), Math.round(part * STEPS)) : STEPS);
    this.field.value = atMs ? fieldOf(atMs) : "";
    this.back.hidden = !atMs;
    this.say(atMs);
    this.drawEnds();
  }

  /** @param {number} ms */
  say(ms) {
    this.moment.textContent = ms ? `${exactly(ms)} (${span(Date.now() - ms)} ago)` : "now, live";
    this.slider.setAttribute("aria-valuetext", ms ? exactly(ms) : "now");
  }

  /** Which topic's changes are marked and stepped over; null is all.
   * @param {string | null} topic */
  of(topic) {
    this.topic = topic;
    const whose = topic === null ? "" : " of this topic";
    this.earlier.title = `Previous change${whose}`;
    this.later.title = `Next change${whose}`;
    for (const one of [this.earlier, this.later]) one.setAttribute("aria-label", one.title);
    const knows = this.seesAll || topic !== null;
    this.earlier.disabled = !knows;
    this.later.disabled = !knows;
    if (!this.element.hidden) this.drawMarks(false);
  }

  /** From change to change; one press after the other, however fast they come.
   * @param {boolean} forward */
  step(forward) {
    this.stepping = this.stepping.then(() => this.stepOnce(forward));
  }

  /** @param {boolean} forward */
  async stepOnce(forward) {
    if (forward && !this.atMs) return;
    try {
      const found = await get("/api/v1/history/beside", { at_ms: this.atMs || Date.now(), topic: this.topic ?? "" });
      const ms = forward ? found.after_ms : found.before_ms;
      if (!ms && !forward) { toast("There is no earlier change in the history."); return; }
      this.atMs = ms ?? 0; // which the next press goes on from
      this.onMove(this.atMs);
    } catch (error) {
      toast(error.message);
    }
  }

  /** @param {number} factor of the stretch's width */
  zoom(factor) {
    const width = (this.endMs - this.lowMs) * factor;
    const middle = this.atMs || Date.now();
    if (width >= Date.now() - this.fromMs) this.stretch(this.fromMs, Date.now());
    else if (!this.atMs) this.stretch(Date.now() - Math.max(width, LEAST_MS), Date.now());
    else this.stretch(middle - Math.max(width, LEAST_MS) / 2, middle + Math.max(width, LEAST_MS) / 2);
    this.show(this.atMs);
    this.drawMarks();
  }

  /** @param {number} lowMs
   * @param {number} highMs */
  stretch(lowMs, highMs) {
    this.openedMs = Date.now();
    this.lowMs = Math.max(this.fromMs, Math.round(lowMs));
    this.highMs = highMs >= this.openedMs ? 0 : Math.round(highMs);
  }

  drawEnds() {
    this.low.textContent = when(this.lowMs);
    this.high.textContent = this.highMs ? when(this.highMs) : "now";
    const all = this.lowMs <= this.fromMs && !this.highMs;
    this.wider.disabled = all;
    this.whole.disabled = all;
    this.closer.disabled = this.endMs - this.lowMs <= LEAST_MS;
  }

  /** @param {boolean} anew for another time; else another topic's are marked beside those of all */
  async drawMarks(anew = true) {
    this.asked += 1;
    const asked = this.asked;
    if (anew) {
      if (!this.highMs) this.openedMs = Date.now();
      this.marked = { from_ms: this.lowMs, to_ms: Math.max(this.endMs, this.lowMs + 1), parts: PARTS };
      this.all = null;
    }
    try {
      const all = this.seesAll ? this.all ?? (await get("/api/v1/history/changes", this.marked)).counts : null;
      const own = this.topic !== null ? (await get("/api/v1/history/changes", { ...this.marked, topic: this.topic })).counts : null;
      if (asked !== this.asked) return;
      this.all = all;
      fill(this.marks, all ? bars(all, "all") : null, own ? bars(own, "own") : null);
      const total = (own ?? all)?.reduce((sum, one) => sum + one, 0) ?? 0;
      this.slider.title = `${count(total)} changes${own ? " of this topic" : ""} from ${when(this.marked.from_ms)} to ${when(this.marked.to_ms)}`;
    } catch {
      fill(this.marks); // the slider does without
    }
  }
}

/** @param {number[]} counts
 * @param {string} name */
function bars(counts, name) {
  const most = Math.log1p(Math.max(1, ...counts));
  return counts.flatMap((one, i) => {
    if (!one) return [];
    const tall = 5 + 15 * (Math.log1p(one) / most);
    return [svg("rect", { x: i, width: 0.8, y: 20 - tall, height: tall, class: name })];
  });
}
