// The HTTP API, and the live channel.

export class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail || `status ${status}`);
    this.status = status;
    this.problem = problem;
  }
}

let onUnknown = () => {};
export function whenLoginNeeded(run) { onUnknown = run; }

export async function call(method, path, query = {}, body = undefined) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const search = new URLSearchParams(given).toString();
  const options = { method, headers: { "X-Requested-With": "holdfast" }, credentials: "same-origin" };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
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

export const get = (path, query) => call("GET", path, query);

export function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

// One WebSocket for the page. It says what is shown with `watch`, and tells listeners what changed.
class Live {
  constructor() {
    this.listeners = new Set();
    this.asked = { topics: [], places: [] };
    this.socket = null;
    this.wanted = false;
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
    socket.addEventListener("close", () => {
      this.socket = null;
      this.onState("off");
      if (this.wanted) setTimeout(() => { if (this.wanted) this.start(); }, 2000);
    });
  }

  stop() {
    this.wanted = false;
    if (this.socket) this.socket.close();
  }

  watch(topics, places) {
    const asked = { topics, places };
    if (JSON.stringify(asked) === JSON.stringify(this.asked)) return;
    this.asked = asked;
    this.send();
  }

  send() {
    if (this.socket && this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(this.asked));
  }

  listen(run) {
    this.listeners.add(run);
    return () => this.listeners.delete(run);
  }
}

export const live = new Live();
