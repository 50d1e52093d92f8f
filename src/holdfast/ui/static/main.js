// The frame: which page is shown, who is logged in, light or dark.

import { call, get, live, server, whenLoginNeeded } from "/static/api.js";
import { fill, h, part, toast } from "/static/dom.js";
import { overview } from "/static/overview.js";
import { explorer } from "/static/explorer.js";
import { hygiene } from "/static/hygiene.js";
import { clients } from "/static/clients.js";
import { cluster } from "/static/cluster.js";
import { bridges } from "/static/bridges.js";

/** @import { Who } from "../api.d.ts" */
/** @typedef {(page: HTMLElement, query: URLSearchParams) => (() => void) | void} Page opens it; gives what is to be done on leaving */

/** @type {[string, string, Page][]} */
const ALWAYS = [
  ["overview", "Overview", overview],
  ["explorer", "Explorer", explorer],
  ["hygiene", "Hygiene", hygiene],
  ["clients", "Clients", clients],
  ["bridges", "Bridges", bridges],
];
/** @type {[string, string, Page][]} */
const IN_A_CLUSTER = [["cluster", "Cluster", cluster]];
let pages = ALWAYS;

const page = part("page");
/** @type {() => void} */
let leave = () => {};

function show() {
  const [name, rest] = location.hash.slice(1).split("?");
  const [id, , open] = pages.find(([one]) => one === name) || pages[0];
  leave();
  live.watch([], []);
  for (const link of part("nav").querySelectorAll("a")) {
    if (link.dataset.page === id) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  page.className = id;
  page.replaceChildren();
  leave = open(page, new URLSearchParams(rest || "")) || (() => {});
}

function listPages() {
  fill(part("nav"), pages.map(([id, title]) => h("a", { href: `#${id}`, data: { page: id } }, title)));
}

async function start() {
  listPages();
  const status = part("status");
  live.onState = (state) => { status.dataset.state = state; status.title = `live channel: ${state}`; };
  whenLoginNeeded(logIn);
  const who = await get("/api/v1/whoami");
  if (!who.known) { logIn(); return; }
  await enter(who);
}

/** @param {Who} who */
async function enter(who) {
  const logout = part("logout");
  logout.hidden = !who.login;
  logout.title = who.name || "";
  logout.onclick = async () => { live.stop(); await call("POST", "/api/v1/logout"); location.reload(); };
  live.start();
  server.clustered = !(await get("/api/v1/cluster")).alone;
  pages = server.clustered ? [...ALWAYS, ...IN_A_CLUSTER] : ALWAYS;
  listPages();
  window.onhashchange = show;
  show();
}

function logIn() {
  if (document.querySelector(".login")) return;
  leave();
  leave = () => {};
  live.stop();
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

const themes = ["auto", "light", "dark"];
/** @param {string} theme */
function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  localStorage.setItem("theme", theme);
  part("theme").title = `Theme: ${theme}`;
}
setTheme(themes.find((one) => one === localStorage.getItem("theme")) ?? "auto");
part("theme").onclick = () => {
  const next = themes[(themes.findIndex((one) => one === localStorage.getItem("theme")) + 1) % themes.length];
  setTheme(next);
  toast(`Theme: ${next}`);
};

start().catch((error) => fill(page, h("p", { class: "problem" }, error.message)));
