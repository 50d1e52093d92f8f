// The frame: which page is shown, who is logged in, whether the broker answers, light or dark.

import { Away, call, get, live, server, whenLoginNeeded } from "/static/api.js";
import { fill, h, part, span, toast } from "/static/dom.js";
import { overview } from "/static/overview.js";
import { explorer } from "/static/explorer.js";
import { hygiene } from "/static/hygiene.js";
import { clients } from "/static/clients.js";
import { denials } from "/static/denials.js";
import { bans } from "/static/bans.js";
import { users } from "/static/users.js";
import { settings } from "/static/settings.js";
import { cluster } from "/static/cluster.js";
import { bridges } from "/static/bridges.js";

/** @import { Who } from "../api.d.ts" */
/** @import { State } from "/static/api.js" */
/** What is to be done on leaving; `go`: at another address of the same page, which is opened anew where there is none.
 * @typedef {(() => void) & { go?: (query: URLSearchParams) => unknown }} Leave */
/** @typedef {(page: HTMLElement, query: URLSearchParams) => Leave | void} Open opens a page */
/** @typedef {{ id: string, title: string, open: Open, shown?: (who: Who) => boolean }} Page */

/** @param {Who} who */
const forAdmins = (who) => who.admin;

/** @type {Page[]} */
const PAGES = [
  { id: "overview", title: "Overview", open: overview },
  { id: "explorer", title: "Explorer", open: explorer },
  { id: "hygiene", title: "Hygiene", open: hygiene, shown: (who) => who.sees_all },
  { id: "clients", title: "Clients", open: clients, shown: forAdmins },
  { id: "bridges", title: "Bridges", open: bridges, shown: forAdmins },
  { id: "denials", title: "Denials", open: denials, shown: forAdmins },
  { id: "bans", title: "Bans", open: bans, shown: forAdmins },
  { id: "users", title: "Users", open: users, shown: forAdmins },
  { id: "settings", title: "Settings", open: settings, shown: forAdmins },
  { id: "cluster", title: "Cluster", open: cluster, shown: () => server.clustered },
];
/** @type {Page[]} */
let pages = [];

const page = part("page");
/** @type {Leave} */
let leave = () => {};

function show() {
  const [name, rest] = location.hash.slice(1).split("?");
  const chosen = pages.find((one) => one.id === name) || pages[0];
  const query = new URLSearchParams(rest || "");
  if (leave.go && page.classList.contains(chosen.id)) { leave.go(query); return; }
  leave();
  leave = () => {};
  live.watch([], []);
  for (const link of part("nav").querySelectorAll("a")) {
    if (link.dataset.page === chosen.id) {
      link.setAttribute("aria-current", "page");
      link.scrollIntoView({ block: "nearest", inline: "nearest" });
    } else link.removeAttribute("aria-current");
  }
  document.title = `${chosen.title} · Holdfast`;
  page.className = chosen.id;
  page.replaceChildren();
  page.scrollTop = 0;
  leave = chosen.open(page, query) || (() => {});
}

/** @param {boolean} known whether somebody may see the pages */
function frame(known) {
  fill(part("nav"), pages.map((one) => h("a", { href: `#${one.id}`, data: { page: one.id } }, one.title)));
  for (const id of ["nav", "status", "docs"]) part(id).hidden = !known;
}

async function start() {
  live.onState = told;
  whenLoginNeeded(logIn);
  let who;
  try {
    who = await get("/api/v1/whoami");
  } catch (error) {
    if (!(error instanceof Away)) throw error;
    told("away");
    setTimeout(start, 2000);
    return;
  }
  part("banner").hidden = true;
  if (!who.known) { logIn(); return; }
  await enter(who);
}

/** @param {Who} who */
async function enter(who) {
  const logout = part("logout");
  logout.hidden = !who.login;
  logout.title = who.name ? `Logged in as ${who.name}` : "";
  logout.onclick = async () => { live.stop(); await call("POST", "/api/v1/logout"); location.reload(); };
  server.admin = who.admin;
  server.clustered = !(await get("/api/v1/cluster")).alone;
  pages = PAGES.filter((one) => !one.shown || one.shown(who));
  frame(true);
  live.start();
  window.onhashchange = show;
  show();
}

function logIn() {
  if (document.querySelector(".login")) return;
  leave();
  leave = () => {};
  live.stop();
  window.onhashchange = null;
  pages = [];
  frame(false);
  part("banner").hidden = true;
  part("logout").hidden = true;
  document.body.classList.remove("away");
  document.title = "Log in · Holdfast";
  const name = h("input", { name: "username", autocomplete: "username", required: true });
  const password = h("input", { name: "password", type: "password", autocomplete: "current-password" });
  const problem = h("p", { class: "problem", role: "alert" });
  const form = h("form", { class: "login card", onsubmit: async (event) => {
    event.preventDefault();
    try {
      await enter(await call("POST", "/api/v1/login", {}, { username: name.value, password: password.value }));
    } catch (error) {
      fill(problem, error.message);
    }
  } },
  h("h1", {}, "Log in"),
  h("label", {}, "User or API key", name), h("label", {}, "Password or secret", password), problem,
  h("button", { class: "main" }, "Log in"));
  page.className = "";
  page.replaceChildren(form);
  name.focus();
}

/** @type {Record<State, string>} */
const WORDS = { starting: "Connecting", on: "Live", away: "No answer", off: "Not live" };
let counting = 0;

/** @param {State} state */
function told(state) {
  const status = part("status");
  status.dataset.state = state;
  fill(status, h("span", {}, WORDS[state]));
  const banner = part("banner");
  const away = state === "away" || state === "off";
  banner.hidden = !away;
  document.body.classList.toggle("away", state === "away");
  clearInterval(counting);
  if (!away) return;
  const since = live.heardMs;
  const long = h("span", {}, "");
  fill(banner, state === "away"
    ? [h("b", {}, `The broker has not answered since ${new Date(since).toLocaleTimeString(undefined, { timeStyle: "medium", hourCycle: "h23" })}`), " (", long, "). What is shown is from then. Trying to reach it…"]
    : [h("b", {}, "This page is not told of changes"), " (", long, "): the broker answers, but its live channel is closed. Trying again…"]);
  const tick = () => { long.textContent = span(Date.now() - since); };
  tick();
  counting = setInterval(tick, 1000);
}

window.addEventListener("unhandledrejection", (event) => {
  event.preventDefault();
  if (!(event.reason instanceof Away)) toast(event.reason instanceof Error ? event.reason.message : String(event.reason));
});

// A page that stays open while the broker is exchanged for another version goes on with the old scripts until it is loaded anew.
let version = "";
live.listen((heard) => {
  if (version && heard.overview.version !== version) toast(`The broker is version ${heard.overview.version} now.`, { label: "Reload", run: () => location.reload() });
  version = heard.overview.version;
});

const THEMES = ["auto", "light", "dark"];
/** @param {string} theme */
function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  localStorage.setItem("theme", theme);
  const button = part("theme");
  button.title = "Light, dark, or as the system has it";
  fill(button, h("span", { "aria-hidden": "true" }, "◐ "), h("span", { class: "long" }, "Theme: "), theme);
}
setTheme(THEMES.find((one) => one === localStorage.getItem("theme")) ?? "auto");
part("theme").onclick = () => setTheme(THEMES[(THEMES.findIndex((one) => one === localStorage.getItem("theme")) + 1) % THEMES.length]);

start().catch((error) => fill(page, h("p", { class: "problem" }, error.message)));
