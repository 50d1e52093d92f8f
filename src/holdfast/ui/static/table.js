// Tables that change without losing what the reader holds: rows are kept by their key, and only what is different is written. On a
// narrow screen each row becomes a block with the titles beside the values.

import { fill, h } from "/static/dom.js";

/** `text` is written anew when it changes; `make` builds something once for each row, such as a button.
 * @template Row
 * @typedef {{ title: string, class?: string, sort?: string, text?: (row: Row) => string, make?: (row: Row) => Node, hint?: (row: Row) => string, look?: (row: Row) => string }} Column */

/** @template Row
 * @param {{ columns: Column<Row>[], keyOf: (row: Row) => string, label: string, onPick?: (row: Row) => void, onSort?: (sort: string) => void }} given */
export function liveTable({ columns, keyOf, label, onPick, onSort }) {
  const heads = columns.map((column) => {
    const { sort } = column;
    return h("th", { scope: "col", class: column.class || "" }, sort && onSort
      ? h("button", { type: "button", class: "sort", data: { sort }, onclick: () => onSort(sort) }, column.title)
      : column.title || h("span", { class: "sr" }, "Action"));
  });
  const body = h("tbody");
  const element = h("table", { class: "stack", "aria-label": label }, h("thead", {}, h("tr", {}, heads)), body);
  /** @type {Map<string, { row: Row, line: HTMLTableRowElement, cells: HTMLElement[] }>} */
  const kept = new Map();

  /** @param {Row} row */
  function make(row) {
    const key = keyOf(row);
    const cells = columns.map((column) => h("span", { class: "value" }, column.make ? column.make(row) : null));
    const line = h("tr", { data: { key }, class: onPick ? "pick" : "" }, columns.map((column, i) => h("td", { class: column.class || "", data: { label: column.title } }, cells[i])));
    const one = { row, line, cells };
    if (onPick) {
      line.addEventListener("click", (event) => {
        if (event.target instanceof Element && event.target.closest("input, label, a")) return;
        onPick(one.row);
      });
    }
    kept.set(key, one);
    return one;
  }

  /** @param {Row[]} rows */
  function draw(rows) {
    const focused = document.activeElement;
    const keys = new Set(rows.map(keyOf));
    for (const [key, one] of kept) if (!keys.has(key)) { one.line.remove(); kept.delete(key); }
    rows.forEach((row, place) => {
      const one = kept.get(keyOf(row)) || make(row);
      one.row = row;
      columns.forEach((column, i) => {
        const cell = one.cells[i];
        const text = column.text ? column.text(row) : null;
        if (text !== null && cell.textContent !== text) cell.textContent = text;
        if (column.look) { const look = `value ${column.look(row)}`; if (cell.className !== look) cell.className = look; }
        if (column.hint) { const hint = column.hint(row); if (cell.title !== hint) cell.title = hint; }
        if (text !== null) cell.parentElement?.classList.toggle("void", text === "");
      });
      if (body.children[place] !== one.line) body.insertBefore(one.line, body.children[place] || null);
    });
    if (focused instanceof HTMLElement && focused !== document.activeElement && element.contains(focused)) focused.focus({ preventScroll: true });
  }

  /** @param {string} sort
   * @param {boolean} descending */
  function mark(sort, descending) {
    columns.forEach((column, i) => {
      if (column.sort === sort) heads[i].setAttribute("aria-sort", descending ? "descending" : "ascending");
      else heads[i].removeAttribute("aria-sort");
    });
  }

  /** @param {string} key */
  function choose(key) {
    for (const [one, { line }] of kept) line.classList.toggle("chosen", one === key);
  }

  return { element, draw, mark, choose };
}

/** A table that is drawn once.
 * @param {string} label
 * @param {(string | [string, string])[]} titles each with the class of its cells, where it has one
 * @param {(string | Node | null)[][]} rows */
export function plainTable(label, titles, rows) {
  const columns = titles.map((one) => (typeof one === "string" ? { title: one, of: "" } : { title: one[0], of: one[1] }));
  return h("table", { class: "stack", "aria-label": label },
    h("thead", {}, h("tr", {}, columns.map(({ title, of }) => h("th", { scope: "col", class: of }, title || h("span", { class: "sr" }, "Action"))))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, i) => h("td", { class: `${columns[i].of}${cell === "" || cell === null ? " void" : ""}`, data: { label: columns[i].title } },
      h("span", { class: "value" }, cell)))))));
}

/** Puts what a page shows into its address, so that it can be shared and is there after a reload.
 * @param {string} page
 * @param {Record<string, string | null | undefined | false>} shown */
export function address(page, shown) {
  const now = location.hash.slice(1).split("?")[0];
  if (now && now !== page) return; // somebody has gone on to another page
  const given = Object.entries(shown).filter(([, value]) => value).map(([name, value]) => [name, String(value)]);
  const query = new URLSearchParams(given).toString();
  history.replaceState(null, "", `#${page}${query ? `?${query}` : ""}`);
}

/** @param {HTMLElement} place
 * @param {{ message: string, status?: number }} error what went wrong; an answer that did not come is the banner's to tell */
export function tellProblem(place, error) {
  if (error.status === 0) return;
  fill(place, h("p", { class: "problem", role: "alert" }, error.message));
}
