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
  const response = await fetch(path + (search ? `?${search}` : ""), options);
  if (response.status === 204) return null;
  const text = await response.text();
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

/** What is known of the broker that served the page. */
export const server = { clustered: false };

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

// One WebSocket for the page. It says what is shown with `watch`, and tells listeners what changed.
class Live {
  constructor() {
    /** @type {Set<(told: Told) => void>} */
    this.listeners = new Set();
    /** @type {{ topics: string[], places: (string | null)[] }} */
    this.asked = { topics: [], places: [] };
    /** @type {WebSocket | null} */
    this.socket = null;
    this.wanted = false;
    /** @type {(state: "on" | "off") => void} */
    this.onState = () => {};
  }

  start() {
    this.wanted = true;
    if (this.socket) return;
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(`${scheme}//${location.host}/api/v1/live`);
    this.socket = socket;
    socket.addEventListener("open", () => { this.onState("on"); this.send(); });
    socket.addEventListener("message", (event) => {
      const told = JSON.parse(event.data);
      for (const listener of this.listeners) listener(told);
    });
    socket.addEventListener("close", (event) => {
      this.socket = null;
      this.onState("off");
      if (event.code === 4401) request("GET", "/api/v1/overview").catch(() => {});  // where a login is needed, this asks for it
      if (this.wanted) setTimeout(() => { if (this.wanted) this.start(); }, 2000);
    });
  }

  stop() {
    this.wanted = false;
    if (this.socket) this.socket.close();
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
}

export const live = new Live();
