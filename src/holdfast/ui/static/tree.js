// The topic tree: loaded as it is opened, and drawn only where it is looked at, so that its length does not matter. A
// search shows the same tree with what was found in it. Rows that have not changed are left alone: what somebody points at
// or marks stays.

import { ApiError, get } from "/static/api.js";
import { count, fill, h, size } from "/static/dom.js";

/** @import { Child, Leaf, Summary } from "../api.d.ts" */

/** A place in the tree; the root's path is null.
 * @typedef {{ path: string | null, name: string, depth: number, leaf: boolean, open: boolean, loading: boolean,
 *   flash: boolean, children: Branch[] | null, next: string | null, total: number, count: number | null,
 *   bytes: number | null, message: Leaf | Summary | null, parent: Place | null }} Place */
/** @typedef {Place & { path: string }} Branch */
/** The rest of a list that is loaded when it is seen.
 * @typedef {{ run: () => unknown, asked?: boolean }} More */
/** `at` and `of`: which of how many siblings.
 * @typedef {{ node: Branch, at: number, of: number, more?: undefined } | { node?: undefined, more: More, depth: number, left: number }} Row */
/** What can be seen of it.
 * @typedef {{ topics: string[], places: (string | null)[] }} Shown */
/** How somebody chose a place: with the pointer or Enter, or on the way with the arrow keys. */
/** @typedef {"chosen" | "passed"} How */

const PAGE = 200;
const PAGE_MOST = 1000;
const PAGES_MOST = 25; // how far is searched for a place that a link names
const AROUND = 8;
const TYPED_MS = 800;
const COARSE = "(max-width: 760px), (pointer: coarse)";

export class Tree {
  /** @param {{ onSelect: (node: Branch, how: How) => void, onShown: (shown: Shown) => void, onLoaded: () => void }} told */
  constructor({ onSelect, onShown, onLoaded }) {
    this.onSelect = onSelect;
    this.onShown = onShown;
    this.onLoaded = onLoaded;
    this.atMs = 0;
    /** @type {string | null} the topic that is shown */
    this.selected = null;
    /** @type {string | null} where the keyboard is */
    this.active = null;
    this.root = place(null, "", -1, null);
    /** @type {Place | null} what a search found, in place of everything */
    this.found = null;
    /** @type {Row | null} */
    this.foundMore = null;
    this.problem = "";
    this.emptyText = "Nothing is retained.";
    /** @type {Row[]} */
    this.rows = [];
    /** @type {Map<string, { element: HTMLElement, drawn: string }>} */
    this.lines = new Map();
    this.typed = "";
    this.typedAt = 0;
    this.inner = h("div", { class: "rows" });
    this.element = h("div", { class: "tree", role: "tree", tabindex: "0", "aria-label": "Topics" }, this.inner);
    this.element.addEventListener("scroll", () => this.draw(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.onKey(event));
    this.inner.addEventListener("click", (event) => this.onClick(event));
    this.resized = new ResizeObserver(() => this.draw());
    this.resized.observe(this.element);
    this.coarse = matchMedia(COARSE);
    this.turned = () => { this.lines.clear(); this.draw(); };
    this.coarse.addEventListener("change", this.turned);
  }

  close() {
    this.resized.disconnect();
    this.coarse.removeEventListener("change", this.turned);
  }

  /** The height of a row; a finger needs more than a pointer. */
  get rowHeight() { return this.coarse.matches ? 44 : 30; }

  /** Everything anew, at the moment that is set; what was open is opened again. */
  async load() {
    const open = this.root.children ? openPaths(this.root) : [];
    const root = place(null, "", -1, null);
    root.open = true;
    this.root = root;
    this.problem = "";
    try {
      await this.more(root, false);
      for (const path of open) {
        if (this.root !== root) return;
        const node = this.find(path);
        if (node && !node.leaf) { node.open = true; await this.more(node, false); }
      }
    } catch (error) {
      if (this.root === root) this.problem = error.message;
    }
    if (this.root !== root) return; // another load has begun meanwhile
    this.flatten();
    this.onLoaded();
  }

  /** The next page of a place's children.
   * @param {Place} node
   * @param {boolean} draws
   * @param {number} limit */
  async more(node, draws = true, limit = PAGE) {
    if (node.loading) return;
    node.loading = true;
    try {
      const answer = await get("/api/v1/tree",
        { prefix: node.path, after: node.next || "", limit, at_ms: this.atMs || undefined });
      node.children = (node.children || []).concat(answer.children.map((one) => child(one, node)));
      node.next = answer.next;
      node.total = answer.total;
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 410) throw error;
      node.loading = false;
      await this.refresh(node.path); // the broker has restarted: its old cursors say nothing to it
    } finally {
      node.loading = false;
    }
    if (draws) this.flatten();
  }

  /** What is below has changed: ask again for as much as was loaded, and keep what is open.
   * @param {string | null} path */
  async refresh(path) {
    const node = path === null ? this.root : this.find(path);
    if (!node || !node.children || node.loading) return;
    node.loading = true;
    const known = new Map(node.children.map((one) => [one.name, one]));
    const wanted = Math.max(PAGE, node.children.length);
    /** @type {Branch[]} */
    const children = [];
    /** @type {string | null} */
    let after = "";
    try {
      let answer;
      do {
        answer = await get("/api/v1/tree", { prefix: node.path, after, limit: Math.min(PAGE_MOST, wanted), at_ms: this.atMs || undefined });
        for (const one of answer.children) {
          const made = child(one, node);
          const old = known.get(one.name);
          if (old) {
            Object.assign(made, { open: old.open && !made.leaf, children: old.children, next: old.next, total: old.total });
            for (const below of made.children || []) below.parent = made;
          }
          children.push(made);
        }
        after = answer.next;
      } while (after && children.length < wanted);
      node.children = children;
      node.next = answer.next;
      node.total = answer.total;
    } finally {
      node.loading = false;
    }
    this.flatten();
    if (path === null) this.onLoaded();
  }

  /** Everything that is open, asked again. */
  async refreshAll() {
    await this.refresh(null);
    for (const path of openPaths(this.root)) await this.refresh(path);
  }

  /** @param {string} path */
  find(path) {
    /** @param {Place} node
     * @returns {Branch | null} */
    const walk = (node) => {
      for (const one of node.children || []) {
        if (one.path === path) return one;
        if (path.startsWith(`${one.path}/`)) {
          const found = walk(one);
          if (found) return found;
        }
      }
      return null;
    };
    return walk(this.found || this.root);
  }

  /** Open the places above a topic, so that its row can be seen.
   * @param {string} path
   * @returns {Promise<Branch | null>} its place, null where it has none */
  async reveal(path) {
    const levels = path.split("/");
    /** @type {Place} */
    let node = this.root;
    for (let depth = 0; depth < levels.length; depth += 1) {
      const wanted = levels.slice(0, depth + 1).join("/");
      /** @param {Place} place */
      const below = (place) => (place.children || []).find((one) => one.path === wanted);
      if (!node.children) await this.more(node, false);
      for (let page = 0; !below(node) && node.next && page < PAGES_MOST; page += 1) await this.more(node, false, PAGE_MOST);
      const next = below(node);
      if (!next) { this.flatten(); return null; }
      if (depth < levels.length - 1) next.open = true;
      node = next;
    }
    this.flatten();
    const at = this.rows.findIndex((row) => row.node && row.node.path === path);
    if (at >= 0 && !this.found) this.scrollTo(at, true);
    this.draw();
    return /** @type {Branch} */ (node);
  }

  /** @param {Branch} node */
  async toggle(node) {
    if (node.leaf) return;
    node.open = !node.open;
    if (node.open && !node.children) {
      try { await this.more(node); } catch (error) { node.open = false; this.problem = error.message; this.flatten(); }
    } else this.flatten();
  }

  /** The tree of what a search has found, all of it open.
   * @param {Summary[]} messages
   * @param {(() => unknown) | null} more
   * @param {number} left how many are not here yet */
  list(messages, more, left) {
    const closed = new Set(this.found ? closedPaths(this.found) : []);
    const root = place(null, "", -1, null);
    /** @type {Map<string, Branch>} */
    const known = new Map();
    for (const message of messages) {
      const levels = message.topic.split("/");
      /** @type {Place} */
      let above = root;
      levels.forEach((name, depth) => {
        const path = levels.slice(0, depth + 1).join("/");
        let node = known.get(path);
        if (!node) {
          node = { ...branch(path, name, depth), parent: above, leaf: true, open: !closed.has(path), children: [], count: 0 };
          known.set(path, node);
          above.leaf = false;
          (above.children ??= []).push(node);
        }
        node.count = (node.count ?? 0) + 1;
        above = node;
      });
      above.message = message;
    }
    /** @param {Place} node */
    const order = (node) => {
      node.children?.sort((a, b) => (a.name < b.name ? -1 : 1));
      node.total = node.children?.length ?? 0;
      node.children?.forEach(order);
    };
    order(root);
    this.found = root;
    this.foundMore = more ? { more: { run: more }, depth: 0, left } : null;
    this.flatten();
  }

  /** Back from a search to the tree. */
  unlist() {
    this.found = null;
    this.foundMore = null;
    this.flatten();
  }

  flatten() {
    /** @type {Row[]} */
    const rows = [];
    /** @param {Place} node */
    const walk = (node) => {
      const children = node.children || [];
      children.forEach((one, i) => {
        rows.push({ node: one, at: i + 1, of: node.total });
        if (one.open) walk(one);
      });
      if (node.next) rows.push({ more: { run: () => this.more(node) }, depth: node.depth + 1, left: node.total - children.length });
    };
    walk(this.found || this.root);
    if (this.found && this.foundMore) rows.push(this.foundMore);
    this.rows = rows;
    this.draw();
  }

  draw() {
    const tall = this.rowHeight;
    const height = this.element.clientHeight || 400;
    const first = Math.max(0, Math.floor(this.element.scrollTop / tall) - AROUND);
    const last = Math.min(this.rows.length, Math.ceil((this.element.scrollTop + height) / tall) + AROUND);
    this.inner.style.height = `${this.rows.length * tall}px`;
    /** @type {Map<string, { element: HTMLElement, drawn: string }>} */
    const lines = new Map();
    let active = "";
    let before = null;
    for (let i = first; i < last; i += 1) {
      const row = this.rows[i];
      const key = row.node ? `node ${row.node.path}` : `more ${i}`;
      const line = this.lines.get(key) || { element: h("div", {}), drawn: "" };
      const drawn = `${i} ${this.look(row)}`;
      if (line.drawn !== drawn) {
        this.drawRow(line.element, row, i);
        line.drawn = drawn;
      }
      if (row.node && row.node.path === this.active) active = line.element.id;
      if (this.inner.childNodes[lines.size] !== line.element) this.inner.insertBefore(line.element, before ? before.nextSibling : this.inner.firstChild);
      before = line.element;
      lines.set(key, line);
    }
    while (this.inner.childNodes.length > lines.size) this.inner.lastChild?.remove();
    this.lines = lines;
    if (!this.rows.length) {
      fill(this.inner, h("p", { class: this.problem ? "problem empty" : "empty" },
        this.problem || (this.found ? "Nothing found." : this.root.children === null ? "reading…" : this.atMs ? "Nothing was retained." : this.emptyText)));
    }
    if (active) this.element.setAttribute("aria-activedescendant", active);
    else this.element.removeAttribute("aria-activedescendant");
    for (let i = first; i < last; i += 1) {
      const more = this.rows[i].more;
      if (more && !more.asked) { more.asked = true; more.run(); } // seen: load on
    }
    this.onShown(this.shown(first, last));
  }

  /** @param {number} first
   * @param {number} last
   * @returns {Shown} */
  shown(first, last) {
    /** @type {string[]} */
    const topics = [];
    /** @type {Set<string | null>} */
    const places = new Set([null]);
    for (const { node } of this.rows.slice(first, last)) {
      if (!node) continue;
      if (node.message) topics.push(node.path);
      if (node.open) places.add(node.path);
      const cut = node.path.lastIndexOf("/");
      if (cut >= 0) places.add(node.path.slice(0, cut));
    }
    return { topics, places: this.found ? [] : [...places] };
  }

  /** What a row looks like, as far as it can change.
   * @param {Row} row */
  look(row) {
    if (row.more) return `${row.depth} ${row.left}`;
    const { node } = row;
    return JSON.stringify([node.leaf, node.open, node.flash, node.count, node.bytes, node.message && [node.message.preview, node.message.size],
      row.at, row.of, node.path === this.selected, node.path === this.active]);
  }

  /** @param {HTMLElement} line
   * @param {Row} row
   * @param {number} at */
  drawRow(line, row, at) {
    line.style.top = `${at * this.rowHeight}px`;
    if (row.more) {
      line.className = "row more";
      line.style.paddingLeft = `${row.depth * 16 + 26}px`;
      fill(line, `loading${row.left > 0 ? ` ${count(row.left)} more` : ""}…`);
      return;
    }
    const { node } = row;
    const chosen = node.path === this.selected;
    line.className = `row${chosen ? " selected" : ""}${node.path === this.active ? " active" : ""}${node.flash ? " flash" : ""}`;
    line.id = `row${at}`;
    line.dataset.path = node.path;
    line.title = node.path;
    line.setAttribute("role", "treeitem");
    line.setAttribute("aria-level", String(node.depth + 1));
    line.setAttribute("aria-posinset", String(row.at));
    line.setAttribute("aria-setsize", String(row.of));
    line.setAttribute("aria-selected", String(chosen));
    line.setAttribute("aria-label", spoken(node));
    if (node.leaf) line.removeAttribute("aria-expanded");
    else line.setAttribute("aria-expanded", String(node.open));
    line.style.paddingLeft = `${node.depth * 16 + 4}px`;
    fill(line,
      node.leaf ? h("span", { class: "twist" }) : h("button", { class: "twist plain", type: "button", tabindex: "-1",
        "aria-label": node.open ? "Close" : "Open" }, node.open ? "▾" : "▸"),
      h("span", { class: "name" }, node.name === "" ? "(empty)" : node.name),
      node.message ? h("span", { class: "preview" }, preview(node.message)) : null,
      node.leaf ? null : h("button", { class: "count", type: "button", tabindex: "-1",
        title: this.found ? "found at and below" : `${size(node.bytes)} below: look` }, node.count === null ? "…" : count(node.count)));
    if (node.flash) setTimeout(() => { node.flash = false; line.classList.remove("flash"); }, 900);
  }

  /** @param {MouseEvent} event */
  onClick(event) {
    const target = /** @type {Element} */ (event.target);
    const line = /** @type {HTMLElement | null} */ (target.closest(".row"));
    const node = this.rows.find((row) => row.node && line && row.node.path === line.dataset.path)?.node;
    if (!node) return;
    this.active = node.path;
    if (target.closest("button.twist")) { this.toggle(node); return; }
    const opens = !node.leaf && !node.message && !target.closest(".count");
    // On a small screen the message takes the tree's place: there, a tap on a place only opens it.
    if (!opens || !matchMedia("(max-width: 760px)").matches) this.select(node, "chosen");
    if (opens) this.toggle(node);
    else this.draw();
  }

  /** @param {Branch} node
   * @param {How} how */
  select(node, how) {
    this.selected = node.path;
    this.active = node.path;
    this.draw();
    this.onSelect(node, how);
  }

  /** A message shown somewhere has a new value, or, null, is gone.
   * @param {string} topic
   * @param {Summary | null} message */
  update(topic, message) {
    for (const { node } of this.rows) {
      if (node && node.path === topic) {
        if (node.message && message && node.message.version !== message.version) node.flash = true;
        node.message = message;
      }
    }
    this.draw();
  }

  /** @param {number} at
   * @param {boolean} middle */
  scrollTo(at, middle = false) {
    const tall = this.rowHeight;
    const { element } = this;
    const top = at * tall;
    if (top >= element.scrollTop && top + tall <= element.scrollTop + element.clientHeight) return;
    if (middle) element.scrollTop = Math.max(0, top - element.clientHeight / 2);
    else element.scrollTop = top < element.scrollTop ? top : top + tall - element.clientHeight;
  }

  /** As the ARIA practices for a tree have it.
   * @param {KeyboardEvent} event */
  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.rows.findIndex((row) => row.node && row.node.path === (this.active ?? this.selected));
    const node = this.rows[at]?.node;
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.rowHeight) - 1);
    const end = this.rows.findLastIndex((row) => row.node);
    /** @param {number} to */
    const go = (to) => {
      const row = this.rows[Math.max(0, Math.min(end, to))];
      if (!row?.node) return;
      this.scrollTo(Math.max(0, Math.min(end, to)));
      this.select(row.node, "passed");
    };
    if (event.key === "ArrowDown") go(at + 1);
    else if (event.key === "ArrowUp") go(at < 0 ? 0 : at - 1);
    else if (event.key === "Home") go(0);
    else if (event.key === "End") go(end);
    else if (event.key === "PageDown") go(at + page);
    else if (event.key === "PageUp") go(at - page);
    else if (event.key === "ArrowRight" && node) {
      if (!node.leaf && !node.open) this.toggle(node);
      else if (!node.leaf) go(at + 1);
    } else if (event.key === "ArrowLeft" && node) {
      if (node.open && !node.leaf) this.toggle(node);
      else if (node.parent?.path !== null && node.parent) {
        const above = node.parent.path;
        go(this.rows.findIndex((row) => row.node && row.node.path === above));
      }
    } else if ((event.key === "Enter" || event.key === " ") && node) {
      if (!node.leaf && !node.message) this.toggle(node);
      this.select(node, "chosen");
    } else if (event.key.length === 1 && event.key !== "/") this.typeAhead(event.key, at, go);
    else return;
    event.preventDefault();
  }

  /** To the next row whose name begins with what is typed.
   * @param {string} key
   * @param {number} at
   * @param {(to: number) => void} go */
  typeAhead(key, at, go) {
    const now = performance.now();
    this.typed = (now - this.typedAt < TYPED_MS ? this.typed : "") + key.toLowerCase();
    this.typedAt = now;
    const from = this.typed.length === 1 ? at + 1 : Math.max(0, at);
    const order = [...this.rows.slice(from), ...this.rows.slice(0, from)];
    const row = order.find(({ node }) => node && node.name.toLowerCase().startsWith(this.typed));
    if (row) go(this.rows.indexOf(row));
  }
}

/** @param {Place} node
 * @returns {string[]} outer ones first */
function openPaths(node) {
  return (node.children || []).filter((one) => one.open).flatMap((one) => [one.path, ...openPaths(one)]);
}

/** @param {Place} node
 * @returns {string[]} */
function closedPaths(node) {
  return (node.children || []).flatMap((one) => [...(one.open ? [] : [one.path]), ...closedPaths(one)]);
}

/** @param {string | null} path
 * @param {string} name
 * @param {number} depth
 * @param {Place | null} parent
 * @returns {Place} */
function place(path, name, depth, parent) {
  return { path, name, depth, leaf: false, open: false, loading: false, flash: false, children: null, next: null, total: 0,
    count: null, bytes: null, message: null, parent };
}

/** @param {string} path
 * @param {string} name
 * @param {number} depth
 * @returns {Branch} */
export function branch(path, name, depth) {
  return { ...place(path, name, depth, null), path };
}

/** @param {Child} one
 * @param {Place} parent
 * @returns {Branch} */
function child(one, parent) {
  return { ...branch(one.path, one.name, parent.depth + 1), parent, leaf: one.leaf, count: one.count, bytes: one.bytes, message: one.message };
}

/** What a screen reader says of a row.
 * @param {Branch} node */
function spoken(node) {
  const many = node.leaf || node.count === null ? "" : `, ${count(node.count)} message${node.count === 1 ? "" : "s"}`;
  return `${node.name || "(empty)"}${node.message ? `: ${preview(node.message)}` : ""}${many}`;
}

/** @param {Leaf | Summary} message */
function preview(message) {
  if (message.preview === null) return `${size(message.size)}, binary`;
  return message.preview.replace(/\s+/g, " ");
}
