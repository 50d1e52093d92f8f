// The HTTP API, and the live channel.

/** @import { Call, Get, Overview, Summary } from "../api.d.ts" */
/** @typedef {{ detail?: string }} Problem what is read of RFC 9457 problem details */
/** @typedef {{ overview: Overview, messages?: Summary[], gone?: string[], places?: { place: string | null, children: number }[] }} Told */

export class ApiError extends Error {
  /** @param {number} status
   * @param {Problem} problem */
  constructor(status, problem) {
    super(problem.detail || `status ${status}`);
    this.status = status;
    this.problem = problem;
  }
}

/** The broker did not answer at all: the banner says so, and pages leave what they show as it is. */
export class Away extends ApiError {
  constructor() { super(0, { detail: "The broker does not answer." }); }
}

/** @type {() => void} */
let onUnknown = () => {};

/** @param {() => void} run */
export function whenLoginNeeded(run) { onUnknown = run; }

/** Any request. `call` and `get` are the same, with the types of the API's own operations.
 * @param {string} method
 * @param {string} path
 * @param {Record<string, string | number | boolean | null | undefined>} query
 * @param {unknown} body
 * @returns {Promise<any>} */
export async function request(method, path, query = {}, body = undefined) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "")
    .map(([name, value]) => [name, String(value)]);
  const search = new URLSearchParams(given).toString();
  /** @type {Record<string, string>} */
  const headers = { "X-Requested-With": "holdfast" };
  /** @type {RequestInit} */
  const options = { method, headers, credentials: "same-origin" };
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  /** @type {Response} */
  let response;
  let text;
  try {
    response = await fetch(path + (search ? `?${search}` : ""), options);
    text = await response.text();
  } catch {
    live.doubt();
    throw new Away();
  }
  if (response.status === 204) return null;
  let answer = {};
  try { answer = text ? JSON.parse(text) : {}; } catch { answer = { detail: text.slice(0, 200) }; }
  if (!response.ok) {
    if (response.status === 401 && !path.endsWith("/login")) onUnknown();
    throw new ApiError(response.status, answer);
  }
  return answer;
}

/** @type {Call} */
export const call = request;

/** @type {Get} */
export const get = (/** @type {string} */ path, /** @type {any} */ query) => request("GET", path, query);

/** What is known of the broker that served the page, and of who looks at it. */
export const server = { clustered: false, admin: false };

/** @param {string} base64 */
export function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

/** @param {Uint8Array} bytes */
export function base64Of(bytes) {
  let characters = "";
  for (const byte of bytes) characters += String.fromCharCode(byte);
  return btoa(characters);
}

const SILENT_MS = 5000; // the broker sends twice a second
const RETRY_MS = [500, 1000, 2000, 4000];

/** `on`: it answers; `away`: it does not; `off`: it answers, but the page hears nothing live.
 * @typedef {"starting" | "on" | "away" | "off"} State */

// One WebSocket for the page. It says what is shown with `watch`, and tells listeners what changed. It also knows since when the
// broker has not been heard.
class Live {
  constructor() {
    /** @type {Set<(told: Told) => void>} */
    this.listeners = new Set();
    /** @type {Set<() => void>} */
    this.returns = new Set();
    /** @type {{ topics: string[], places: (string | null)[] }} */
    this.asked = { topics: [], places: [] };
    /** @type {WebSocket | null} */
    this.socket = null;
    this.wanted = false;
    this.tries = 0;
    this.watchdog = 0;
    /** @type {State} */
    this.state = "starting";
    this.heardMs = Date.now(); // when the broker was last heard
    /** @type {(state: State) => void} */
    this.onState = () => {};
  }

  start() {
    this.wanted = true;
    if (this.socket) return;
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(`${scheme}//${location.host}/api/v1/live`);
    this.socket = socket;
    socket.addEventListener("open", () => { this.heard(); this.send(); });
    socket.addEventListener("message", (event) => {
      if (this.socket !== socket) return;
      this.heard();
      const told = JSON.parse(event.data);
      for (const listener of this.listeners) listener(told);
    });
    socket.addEventListener("close", () => { if (this.socket === socket) this.lost(); });
    clearInterval(this.watchdog);
    this.watchdog = setInterval(() => { if (this.state === "on" && Date.now() - this.heardMs > SILENT_MS) this.doubt(); }, 1000);
  }

  heard() {
    this.heardMs = Date.now();
    this.tries = 0;
    const was = this.state;
    this.become("on");
    if (was === "away" || was === "off") for (const run of this.returns) run();
  }

  /** @param {State} state */
  become(state) {
    if (state === this.state) return;
    this.state = state;
    this.onState(state);
  }

  /** Something went unanswered: hang up and see. */
  doubt() {
    if (!this.wanted || this.state !== "on") return;
    const socket = this.socket;
    this.lost();
    if (socket) socket.close();
  }

  lost() {
    this.socket = null;
    if (!this.wanted) return;
    if (this.state === "on") this.become("away");
    this.ask();
    const wait = RETRY_MS[Math.min(this.tries, RETRY_MS.length - 1)];
    this.tries += 1;
    setTimeout(() => { if (this.wanted) this.start(); }, wait);
  }

  /** Whether the broker answers though the channel is closed: then a login may be missing, which `request` asks for. */
  async ask() {
    try {
      await fetch("/healthz", { cache: "no-store" });
    } catch {
      this.become("away");
      return;
    }
    if (this.state !== "on") this.become("off");
    request("GET", "/api/v1/overview").catch(() => {});
  }

  stop() {
    this.wanted = false;
    clearInterval(this.watchdog);
    if (this.socket) this.socket.close();
    this.socket = null;
    this.state = "starting";
  }

  /** @param {string[]} topics
   * @param {(string | null)[]} places */
  watch(topics, places) {
    const asked = { topics, places };
    if (JSON.stringify(asked) === JSON.stringify(this.asked)) return;
    this.asked = asked;
    this.send();
  }

  send() {
    if (this.socket && this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(this.asked));
  }

  /** @param {(told: Told) => void} run */
  listen(run) {
    this.listeners.add(run);
    return () => this.listeners.delete(run);
  }

  /** Is called whenever the broker is there again.
   * @param {() => void} run */
  whenBack(run) {
    this.returns.add(run);
    return () => this.returns.delete(run);
  }
}

export const live = new Live();
