// The topic tree: loaded as it is opened, and drawn only where it is looked at, so that its length does not matter.

import { ApiError, get } from "/static/api.js";
import { count, fill, h, size } from "/static/dom.js";

/** @import { Child, Leaf, Summary } from "../api.d.ts" */

/** A place in the tree; the root's path is null.
 * @typedef {{ path: string | null, name: string, depth: number, leaf: boolean, open: boolean, loading: boolean,
 *   flash: boolean, children: Branch[] | null, next: string | null, total: number, count: number | null,
 *   bytes: number | null, message: Leaf | Summary | null }} Place */
/** @typedef {Place & { path: string }} Branch */
/** The rest of a list that is loaded when it is seen.
 * @typedef {{ run: () => unknown, asked?: boolean }} More */
/** @typedef {{ node: Branch, more?: undefined } | { node?: undefined, more: More, depth?: number, left?: number }} Row */
/** What can be seen of it.
 * @typedef {{ topics: string[], places: (string | null)[] }} Shown */

const ROW = 30;
const PAGE = 200;
const AROUND = 8;

export class Tree {
  /** @param {{ onSelect: (node: Branch) => void, onShown: (shown: Shown) => void }} told */
  constructor({ onSelect, onShown }) {
    this.onSelect = onSelect;
    this.onShown = onShown;
    this.atMs = 0;
    this.searching = false; // a flat list of search results stands in for the tree
    this.selected = "";
    this.root = place(null, "", -1);
    /** @type {Row[]} */
    this.rows = [];
    this.inner = h("div", { class: "rows" });
    this.element = h("div", { class: "tree", role: "tree", tabindex: "0", "aria-label": "Topics" }, this.inner);
    this.element.addEventListener("scroll", () => this.draw(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.onKey(event));
    this.resized = new ResizeObserver(() => this.draw());
    this.resized.observe(this.element);
  }

  close() { this.resized.disconnect(); }

  async load() {
    this.searching = false;
    this.root = place(null, "", -1);
    this.root.open = true;
    await this.more(this.root);
  }

  /** The next page of a place's children.
   * @param {Place} node */
  async more(node) {
    if (node.loading) return;
    node.loading = true;
    try {
      const answer = await get("/api/v1/tree",
        { prefix: node.path, after: node.next || "", limit: PAGE, at_ms: this.atMs || undefined });
      node.children = (node.children || []).concat(answer.children.map((one) => child(one, node.depth + 1)));
      node.next = answer.next;
      node.total = answer.total;
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 410) throw error;
      node.loading = false;
      await this.refresh(node.path);  // the broker has restarted: its old cursors say nothing to it
    } finally {
      node.loading = false;
    }
    this.flatten();
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
        answer = await get("/api/v1/tree", { prefix: node.path, after, limit: Math.min(1000, wanted), at_ms: this.atMs || undefined });
        for (const one of answer.children) {
          const made = child(one, node.depth + 1);
          const old = known.get(one.name);
          if (old) Object.assign(made, { open: old.open && !made.leaf, children: old.children, next: old.next, total: old.total });
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
    return walk(this.root);
  }

  /** @param {Branch} node */
  async toggle(node) {
    if (node.leaf) return;
    node.open = !node.open;
    if (node.open && !node.children) await this.more(node);
    else this.flatten();
  }

  /** Rows for search results.
   * @param {Summary[]} messages
   * @param {(() => unknown) | null} more */
  list(messages, more) {
    this.searching = true;
    this.rows = messages.map((message) => ({ node: { ...branch(message.topic, message.topic, 0), leaf: true, message, count: 1 } }));
    if (more) this.rows.push({ more: { run: more } });
    this.draw();
  }

  flatten() {
    if (this.searching) return;
    /** @type {Row[]} */
    const rows = [];
    /** @param {Place} node */
    const walk = (node) => {
      for (const one of node.children || []) {
        rows.push({ node: one });
        if (one.open) walk(one);
      }
      if (node.next) rows.push({ more: { run: () => this.more(node) }, depth: node.depth + 1, left: node.total - (node.children || []).length });
    };
    walk(this.root);
    this.rows = rows;
    this.draw();
  }

  draw() {
    const height = this.element.clientHeight || 400;
    const first = Math.max(0, Math.floor(this.element.scrollTop / ROW) - AROUND);
    const last = Math.min(this.rows.length, Math.ceil((this.element.scrollTop + height) / ROW) + AROUND);
    this.inner.style.height = `${this.rows.length * ROW}px`;
    const drawn = [];
    for (let i = first; i < last; i += 1) drawn.push(this.row(this.rows[i], i));
    fill(this.inner, drawn);
    if (!this.rows.length) fill(this.inner, h("p", { class: "empty" }, this.searching ? "Nothing found." : "Nothing is retained."));
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
      if (!this.searching && cut >= 0) places.add(node.path.slice(0, cut));
    }
    return { topics, places: this.searching ? [] : [...places] };
  }

  /** @param {Row} row
   * @param {number} at */
  row(row, at) {
    const top = `${at * ROW}px`;
    if (row.more) {
      const line = h("div", { class: "row more" }, `loading${row.left ? ` ${count(row.left)} more` : ""}…`);
      line.style.top = top;
      line.style.paddingLeft = `${(row.depth || 0) * 16 + 26}px`;
      return line;
    }
    const node = row.node;
    const line = h("div", {
      class: `row${node.path === this.selected ? " selected" : ""}${node.flash ? " flash" : ""}`,
      role: "treeitem", "aria-level": node.depth + 1, "aria-expanded": node.leaf ? null : String(Boolean(node.open)),
      "aria-selected": String(node.path === this.selected), data: { path: node.path },
      onclick: () => {
        const opens = !node.leaf && !node.message;
        // On a small screen the message takes the tree's place: there, a tap on a place only opens it.
        if (!opens || !matchMedia("(max-width: 760px)").matches) this.select(node);
        if (opens) this.toggle(node);
      },
    },
    node.leaf ? h("span", { class: "twist" }) : h("button", { class: "twist plain", type: "button", tabindex: "-1",
      "aria-label": node.open ? "Close" : "Open", onclick: (event) => { event.stopPropagation(); this.toggle(node); } }, node.open ? "▾" : "▸"),
    h("span", { class: "name" }, node.name === "" ? "(empty)" : node.name),
    node.message ? h("span", { class: "preview" }, preview(node.message)) : null,
    node.leaf ? null : h("button", { class: "count", type: "button", tabindex: "-1", title: `${size(node.bytes)} below: look`,
      onclick: (event) => { event.stopPropagation(); this.select(node); } }, node.count === null ? "…" : count(node.count)));
    line.style.top = top;
    line.style.paddingLeft = `${node.depth * 16 + 4}px`;
    if (node.flash) setTimeout(() => { node.flash = false; line.classList.remove("flash"); }, 900);
    return line;
  }

  /** @param {Branch} node */
  select(node) {
    this.selected = node.path;
    this.onSelect(node);
    this.draw();
  }

  /** A message shown somewhere has a new value, or is gone.
   * @param {Summary} message */
  update(message) {
    for (const row of this.rows) {
      if (row.node && row.node.path === message.topic) {
        if (row.node.message && row.node.message.version !== message.version) row.node.flash = true;
        row.node.message = message;
      }
    }
    this.draw();
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const place = this.rows.findIndex((row) => row.node && row.node.path === this.selected);
    const node = place >= 0 ? this.rows[place].node : null;
    /** @param {number} to */
    const go = (to) => {
      const row = this.rows[to];
      if (!row || !row.node) return;
      this.select(row.node);
      const top = to * ROW;
      if (top < this.element.scrollTop) this.element.scrollTop = top;
      if (top + ROW > this.element.scrollTop + this.element.clientHeight) this.element.scrollTop = top + ROW - this.element.clientHeight;
    };
    if (event.key === "ArrowDown") go(place + 1);
    else if (event.key === "ArrowUp") go(place < 0 ? 0 : place - 1);
    else if (event.key === "ArrowRight" && node && !node.leaf && !node.open) this.toggle(node);
    else if (event.key === "ArrowLeft" && node && node.open) this.toggle(node);
    else if (event.key === "Enter" && node) this.toggle(node);
    else return;
    event.preventDefault();
  }
}

/** @param {string | null} path
 * @param {string} name
 * @param {number} depth
 * @returns {Place} */
function place(path, name, depth) {
  return { path, name, depth, leaf: false, open: false, loading: false, flash: false, children: null, next: null, total: 0,
    count: null, bytes: null, message: null };
}

/** @param {string} path
 * @param {string} name
 * @param {number} depth
 * @returns {Branch} */
export function branch(path, name, depth) {
  return { ...place(path, name, depth), path };
}

/** @param {Child} one
 * @param {number} depth
 * @returns {Branch} */
function child(one, depth) {
  return { ...branch(one.path, one.name, depth), leaf: one.leaf, count: one.count, bytes: one.bytes, message: one.message };
}

/** @param {Leaf | Summary} message */
function preview(message) {
  if (message.preview === null) return `${size(message.size)}, binary`;
  return message.preview.replace(/\s+/g, " ");
}
