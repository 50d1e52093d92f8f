// The settings in force, and where each came from.

import { get, live } from "/static/api.js";
import { count, debounce, fill, h } from "/static/dom.js";
import { address, plainTable, tellProblem } from "/static/table.js";

/** @import { Setting } from "../api.d.ts" */

/** @param {HTMLElement} page
 * @param {URLSearchParams} query */
export function settings(page, query) {
  const search = h("input", { type: "search", class: "search", placeholder: "Part of a name, value or description", "aria-label": "Search", value: query.get("search") || "" });
  const changed = h("input", { type: "checkbox", checked: query.get("changed") === "yes" });
  const problem = h("div");
  const total = h("p", { class: "soft", role: "status" }, "reading…");
  const list = h("div", { class: "sections" });
  fill(page, h("h1", {}, "Settings"),
    h("p", { class: "soft" }, "What is in force now. Change it in the file, the environment or a flag; some take a reload (SIGHUP), the rest a restart. Secrets are in files of their own and not shown."),
    h("div", { class: "bar" }, search, h("label", { class: "check" }, changed, "Only what is not the default")), problem, total, list);
  /** @type {Setting[]} */
  let found = [];
  const again = () => { address("settings", { search: search.value.trim(), changed: changed.checked && "yes" }); draw(); };
  search.addEventListener("input", debounce(150, again));
  changed.addEventListener("change", again);
  look();
  const stop = live.whenBack(look);

  async function look() {
    try {
      found = (await get("/api/v1/settings")).settings;
      fill(problem);
      draw();
    } catch (error) {
      tellProblem(problem, error);
    }
  }

  function draw() {
    const text = search.value.trim().toLowerCase();
    const shown = found.filter((one) => (!changed.checked || one.changed) && [one.key, one.text, one.description, one.origin].some((part) => part.toLowerCase().includes(text)));
    total.textContent = `${count(shown.length)} of ${count(found.length)} settings, ${count(found.filter((one) => one.changed).length)} not the default`;
    /** @type {Map<string, Setting[]>} */
    const sections = new Map();
    for (const one of shown) {
      const name = one.key.includes(".") ? one.key.split(".")[0] : "";
      sections.set(name, [...(sections.get(name) || []), one]);
    }
    fill(list, [...sections].map(([name, group]) => h("section", { class: "card" }, h("h2", {}, name || "Top level"),
      plainTable(name || "Top level", [["Setting", "setting"], ["Value", "words"], ["From", "from"]], group.map((one) => [
        h("span", {}, h("code", {}, one.key), h("small", {}, prose(one.description))), value(one),
        h("span", {}, one.origin, one.changed && one.default ? h("small", {}, `default ${one.default}`) : null)])))));
    for (const row of list.querySelectorAll("tr")) row.classList.toggle("changed", !(row.querySelector(".from .value")?.textContent || "default").startsWith("default"));
  }

  /** What stands between backticks is code.
   * @param {string} text */
  function prose(text) {
    return text.split("`").map((part, i) => (i % 2 ? h("code", {}, part) : part));
  }

  /** @param {Setting} one */
  function value(one) {
    if (Array.isArray(one.value) && one.value.some((entry) => typeof entry === "object")) {
      return h("span", {}, one.value.map((entry) => h("code", { class: "entry" }, Object.entries(entry).filter(([, part]) => part !== null && part !== false && String(part) !== "").map(([name, part]) => `${name} = ${JSON.stringify(part)}`).join(", "))));
    }
    return one.text === "" ? h("span", { class: "soft" }, "none") : h("code", {}, one.text);
  }

  return stop;
}
