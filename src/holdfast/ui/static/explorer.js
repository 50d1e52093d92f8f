// The retained explorer: tree or search on one side, the message on the other, and one moment for all of it. What is shown
// stands in the address: it can be sent to somebody, and Back goes back.

import { ApiError, get, live } from "/static/api.js";
import { beginning } from "/static/beginning.js";
import { count, debounce, fill, h, toast } from "/static/dom.js";
import { messageView } from "/static/message.js";
import { showOperations } from "/static/operations.js";
import { publish } from "/static/publish.js";
import { Time } from "/static/time.js";
import { Tree } from "/static/tree.js";

/** @import { Summary, Who } from "../api.d.ts" */
/** @import { Shown } from "/static/tree.js" */

/** What is shown: a topic, a moment (0 is now) and a search.
 * @typedef {{ topic: string | null, at: number, q: string }} State */

const PAGE = 200;
const BEGUN_MS = 5000; // how often an empty history is asked whether it has begun

/** @param {HTMLElement} page
 * @param {URLSearchParams} query */
export function explorer(page, query) {
  /** @type {State} */
  const state = { topic: null, at: 0, q: "" };
  /** @type {Who} */
  let who = { known: true, name: null, admin: true, sees_all: true, login: false };
  let hasHistory = false;
  /** @type {ReturnType<typeof messageView> | null} */
  let view = null;
  let paused = false;
  let missed = 0;
  let looking = 0; // the number of the search that is under way
  let begun = false;

  const detail = h("section", { class: "detail", "aria-label": "Message" });
  const tree = new Tree({ onSelect: (node, how) => (how === "chosen" ? navigate({ topic: node.path }) : pass(node.path)),
    onShown: debounce(150, watch), onLoaded: () => { if (state.topic === null) drawBeginning(); } });
  const pass = debounce(150, (/** @type {string} */ path) => navigate({ topic: path }, true));
  const search = h("input", { type: "search", class: "search", placeholder: "Search topics, payloads, clients, users",
    "aria-label": "Search", title: "A text, or a topic filter such as home/+/temp. Press / to come here." });
  const found = h("span", { class: "soft found", role: "status" });
  const pause = h("button", { type: "button", class: "pause", "aria-pressed": "false", onclick: () => hold(!paused) }, "Pause");
  const done = h("button", { type: "button", class: "operations-of", hidden: true, onclick: () => showOperations(changed) }, "Operations…");
  const time = new Time({ onMove: (atMs) => navigate({ at: atMs }), buttons: [] });
  const columns = h("div", { class: "columns" }, h("div", { class: "side" }, tree.element), detail);
  fill(page, h("h1", { class: "unseen" }, "Explorer"),
    h("div", { class: "bar" }, search, found,
      h("button", { type: "button", onclick: async () => { if (await publish()) changed(); } }, "Publish…"), pause, done),
    time.element, columns);
  search.addEventListener("input", debounce(250, () => navigate({ q: search.value.trim() }, true)));
  search.addEventListener("keydown", (event) => { if (event.key === "ArrowDown") { event.preventDefault(); tree.element.focus(); } });
  document.addEventListener("keydown", shortcut);
  start();

  async function start() {
    try {
      const [known, overview] = await Promise.all([get("/api/v1/whoami"), get("/api/v1/overview")]);
      who = known;
      hasHistory = overview.has_history;
      time.seesAll = known.admin;
      if (!known.admin) tree.emptyText = "There is no topic that you may read.";
      go(query);
      if (!hasHistory) return;
      done.hidden = false;
      await reachBack();
    } catch (error) {
      toast(error.message);
    }
  }

  /** Learns how far the history goes back, which it begins to do with the first message. */
  async function reachBack() {
    const reach = await get("/api/v1/history/span");
    if (reach.from_ms !== null) time.reach(reach.from_ms);
    else if (page.contains(tree.element)) setTimeout(() => reachBack().catch(() => {}), BEGUN_MS);
  }

  /** Another address of this page.
   * @param {Partial<State>} changes
   * @param {boolean} replace whether Back shall not come here */
  function navigate(changes, replace = false) {
    const now = location.hash.slice(1).split("?")[0];
    if (now && now !== "explorer") return; // somebody has gone on to another page
    const next = { ...(begun ? state : stateOf(query)), ...changes };
    if (next.topic === state.topic && next.at === state.at && next.q === state.q) return;
    const asked = new URLSearchParams();
    if (next.topic !== null) asked.set("topic", next.topic);
    if (next.at) asked.set("at", String(next.at));
    if (next.q) asked.set("q", next.q);
    const address = `#explorer${asked.size ? `?${asked}` : ""}`;
    if (!begun) { // somebody has typed before the page was ready
      query = asked;
      history.replaceState(null, "", address);
      return;
    }
    if (!replace) { location.hash = address; return; } // which comes back as `go`
    history.replaceState(null, "", address);
    go(asked);
  }

  /** Shows what an address says.
   * @param {URLSearchParams} asked */
  async function go(asked) {
    const before = { ...state };
    Object.assign(state, stateOf(asked));
    const moved = !begun || state.at !== before.at;
    const turned = moved || state.topic !== before.topic;
    const isElsewhere = state.topic !== null && state.topic !== tree.active;
    begun = true;
    if (state.q !== before.q && search.value.trim() !== state.q) search.value = state.q; // what is being typed stays
    if (moved) {
      tree.atMs = state.at;
      time.show(state.at);
      page.classList.toggle("then", Boolean(state.at));
      pause.disabled = Boolean(state.at);
    }
    if (turned) open();
    const loading = moved ? tree.load() : null;
    if (moved || state.q !== before.q) look();
    await loading;
    if (isElsewhere && state.topic !== null) {
      tree.active = state.topic;
      try { await tree.reveal(state.topic); } catch (error) { toast(error.message); }
    }
  }

  function open() {
    view?.close();
    view = null;
    const { topic, at } = state;
    tree.selected = topic;
    tree.draw();
    columns.classList.toggle("opened", topic !== null);
    time.of(topic);
    delete detail.dataset.beginning;
    if (topic === null) { drawBeginning(); return; }
    view = messageView(topic, { atMs: at, hasHistory, onClose: () => navigate({ topic: null }), onChanged: changed });
    fill(detail, view.element);
    detail.scrollTop = 0;
  }

  function drawBeginning() {
    const isEmpty = tree.root.children !== null && !tree.root.children.some((one) => !one.name.startsWith("$"));
    const drawn = `${isEmpty} ${state.at}`;
    if (detail.dataset.beginning === drawn) return; // what somebody reads there stays
    detail.dataset.beginning = drawn;
    fill(detail, beginning({ who, isEmpty, atMs: state.at, onChanged: changed }));
  }

  async function look() {
    looking += 1;
    const mine = looking;
    const { q, at } = state;
    found.textContent = q ? "searching…" : "";
    if (!q) { if (tree.found) tree.unlist(); return; }
    const conditions = isFilter(q) ? { filter: q } : { search: q, hidden: /** @type {const} */ ("true") };
    /** @type {Summary[]} */
    const results = [];
    /** @type {string | null} */
    let cursor = "";
    /** @type {number | null} */
    let total = null;
    const say = () => {
      const all = total ?? results.length;
      found.textContent = results.length < all ? `${count(results.length)} of ${count(all)} found` : `${count(all)}${cursor && total === null ? "+" : ""} found`;
    };
    const more = async () => {
      try {
        let answer;
        do {
          if (at) {
            const then = await get("/api/v1/retained/at", { ...conditions, at_ms: at, after: cursor, limit: PAGE });
            total = then.total;
            answer = then;
          } else {
            answer = await get("/api/v1/retained", cursor ? { cursor, limit: PAGE } : { ...conditions, limit: PAGE });
          }
          if (mine !== looking) return; // something else is looked for, or at another moment
          results.push(...answer.messages);
          cursor = answer.next;
        } while (cursor && !answer.messages.length);
        if (!cursor) total = results.length;
        say();
        tree.list(results, cursor ? more : null, total === null ? 0 : total - results.length);
      } catch (error) {
        if (mine !== looking) return;
        if (error instanceof ApiError && error.status === 410) { look(); return; } // the list was kept for a while only
        found.textContent = error.message;
      }
    };
    await more();
    if (!cursor || total !== null || mine !== looking) return;
    try {
      total = (await get("/api/v1/retained/count", conditions)).count;
      if (mine === looking) say();
    } catch { /* without a total, then */ }
  }

  /** @param {Shown} shown */
  function watch(shown) {
    if (state.at || !page.contains(tree.element)) return;
    const topics = state.topic !== null ? [...new Set([...shown.topics, state.topic])] : shown.topics;
    live.watch(topics, shown.places);
  }

  const stop = live.listen((told) => {
    if (state.at) return;
    const messages = told.messages || [];
    const gone = told.gone || [];
    const places = told.places || [];
    if (paused) {
      missed += messages.length + gone.length + places.length;
      if (missed) pause.textContent = `Resume, ${count(missed)} new`;
      return;
    }
    for (const one of messages) {
      tree.update(one.topic, one);
      if (one.topic === state.topic && view?.isOther(one.version)) view.refresh();
    }
    for (const topic of gone) {
      tree.update(topic, null);
      if (topic === state.topic) view?.refresh();
    }
    for (const one of places) tree.refresh(one.place).catch((error) => toast(error.message));
  });

  /** Nothing moves until it is let go.
   * @param {boolean} on */
  function hold(on) {
    paused = on;
    missed = 0;
    pause.textContent = on ? "Resume" : "Pause";
    pause.setAttribute("aria-pressed", String(on));
    page.classList.toggle("paused", on);
    if (!on) changed();
  }

  /** Something was done here: what is shown is asked for again. */
  function changed() {
    tree.refreshAll().catch((error) => toast(error.message));
    if (state.q) look();
    view?.refresh();
    view?.recount();
  }

  /** @param {KeyboardEvent} event */
  function shortcut(event) {
    const typing = event.target instanceof Element && event.target.closest("input, textarea, select, dialog");
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || typing) return;
    event.preventDefault();
    search.focus();
    search.select();
  }

  return Object.assign(() => {
    stop();
    tree.close();
    time.close();
    view?.close();
    looking += 1;
    page.classList.remove("then", "paused");
    document.removeEventListener("keydown", shortcut);
  }, { go });
}

/** @param {URLSearchParams} asked
 * @returns {State} */
function stateOf(asked) {
  return { topic: asked.get("topic"), at: Number(asked.get("at")) || 0, q: asked.get("q") ?? "" };
}

/** Whether a text is a topic filter rather than something to look for.
 * @param {string} text */
function isFilter(text) {
  const levels = text.split("/");
  return /[+#]/.test(text) && levels.every((level, i) => level === "+" || (level === "#" && i === levels.length - 1) || !/[+#]/.test(level));
}
