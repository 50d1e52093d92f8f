// Building the page. Everything that came from outside becomes a text node: nothing here ever parses HTML.

/** @typedef {Node | string | number | boolean | null | undefined} One */
/** @typedef {One | One[]} OneOrMore */
/** @typedef {One | OneOrMore[] | OneOrMore[][]} Child lists in lists, as deep as they are flattened */
/** @typedef {{ [K in keyof HTMLElementEventMap as `on${K}`]?: (event: HTMLElementEventMap[K]) => unknown }} Handlers */
/** @typedef {{ name: string | null, label: string, class?: string }} Button */

/** The element of the page with this id, which the page must have.
 * @param {string} id
 * @returns {HTMLElement} */
export function part(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`expected an element with the id ${id} in the page`);
  return element;
}

/** @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Handlers & { class?: string, data?: Record<string, string>, [name: string]: any }} properties
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[Tag]} */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name in element && name !== "list" && name !== "form") Object.assign(element, { [name]: value });
    else element.setAttribute(name, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

/** @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, string | number>} attributes
 * @param {...Child} children
 * @returns {SVGElementTagNameMap[Tag]} */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  append(element, children);
  return element;
}

/** @param {Element} element
 * @param {Child[]} children */
function append(element, children) {
  for (const child of /** @type {Child[]} */ (children.flat(3))) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** @template {Element} Any
 * @param {Any} element
 * @param {...Child} children
 * @returns {Any} */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** @param {string} text
 * @param {{ label: string, run: () => unknown }} [action] */
export function toast(text, action) {
  const box = part("toasts");
  const close = () => one.remove();
  const one = h("div", { class: "toast" }, h("span", {}, text));
  if (action) one.append(h("button", { type: "button", onclick: () => { close(); action.run(); } }, action.label));
  one.append(h("button", { class: "plain", type: "button", "aria-label": "Close", onclick: close }, "×"));
  box.append(one);
  setTimeout(close, action ? 60000 : 6000);
}

/** A dialog that answers with the name of the button that was pressed, or null. It stays open, with all that was typed,
 * while `carryOut` answers with what went wrong.
 * @param {string} title
 * @param {Node} body
 * @param {Button[]} buttons
 * @param {(answer: string) => Promise<string>} [carryOut]
 * @returns {Promise<string | null>} */
export function ask(title, body, buttons, carryOut = async () => "") {
  return new Promise((resolve) => {
    const dialog = h("dialog", { "aria-label": title });
    const problem = h("p", { class: "problem", role: "alert", hidden: true });
    let busy = false;
    /** @param {string | null} answer */
    const end = async (answer) => {
      if (busy) return; // a second press of the same button
      if (answer !== null) {
        busy = true;
        const wrong = await carryOut(answer);
        busy = false;
        problem.hidden = !wrong;
        problem.textContent = wrong;
        if (wrong) return;
      }
      dialog.close();
      dialog.remove();
      resolve(answer);
    };
    dialog.append(
      h("h2", {}, title), body, problem,
      h("div", { class: "buttons" }, buttons.map((one) =>
        h("button", { type: "button", class: one.class || "", onclick: () => end(one.name) }, one.label))));
    dialog.addEventListener("cancel", (event) => { event.preventDefault(); end(null); });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** @param {number | null | undefined} bytes */
export function size(bytes) {
  if (bytes === null || bytes === undefined) return "";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) { bytes /= 1024; unit += 1; }
  return `${unit === 0 || bytes >= 100 ? Math.round(bytes) : bytes.toFixed(1)} ${units[unit]}`;
}

/** @param {number | null | undefined} number */
export function count(number) {
  return number === null || number === undefined ? "" : number.toLocaleString("en");
}

/** @param {number} number */
export function compact(number) {
  if (Math.abs(number) < 10000) return Number.isInteger(number) ? String(number) : number.toFixed(1);
  return new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(number);
}

/** @param {number} ms */
export function when(ms) {
  return new Date(ms).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}

/** @param {number} ms */
export function span(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

/** @template {unknown[]} Given
 * @param {number} wait
 * @param {(...given: Given) => unknown} run
 * @returns {(...given: Given) => void} */
export function debounce(wait, run) {
  let timer = 0;
  return (...given) => { clearTimeout(timer); timer = setTimeout(() => run(...given), wait); };
}
