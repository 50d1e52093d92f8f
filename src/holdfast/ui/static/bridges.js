// The links to other brokers: how they are doing, making one, ending one.

import { call, get } from "/static/api.js";
import { ask, count, fill, h, size, span, toast } from "/static/dom.js";
import { plainTable } from "/static/table.js";

/** @import { Bridge } from "../api.d.ts" */

/** @type {(string | [string, string])[]} */
const COLUMNS = ["Bridge", "State", "In sync", ["Waiting", "right"], ["Sent", "right"], ["Received", "right"], ["Address", "words"], ["Topics", "words"], ["", "act"]];

/** @param {HTMLElement} page */
export function bridges(page) {
  const problems = h("section");
  const list = h("section", { class: "card", "aria-label": "Bridges" });
  const make = h("button", { type: "button", class: "main", onclick: add }, "Add a bridge…");
  fill(page, h("h1", {}, "Bridges"), problems, list, h("div", { class: "buttons" }, make));
  look();
  const timer = setInterval(look, 2000);

  async function look() {
    try {
      draw((await get("/api/v1/bridges")).bridges);
    } catch (error) {
      fill(problems, h("p", { class: "problem" }, error.message));
    }
  }

  /** @param {Bridge[]} all */
  function draw(all) {
    fill(problems, all.filter((one) => one.error).map((one) => h("p", { class: "problem" }, `${one.name}: ${one.error}`)));
    const focused = list.contains(document.activeElement) ? document.activeElement?.getAttribute("aria-label") : null;
    fill(list, h("h2", {}, "Links to other brokers"),
      all.length === 0 ? h("p", { class: "soft" }, "There are none. A bridge takes topics to another broker, brings them from there, or both.")
        : h("div", { class: "wide" }, table(all)));
    for (const button of list.querySelectorAll("button")) if (button.getAttribute("aria-label") === focused) button.focus();
  }

  /** @param {Bridge[]} all */
  function table(all) {
    const made = plainTable("Bridges", COLUMNS, all.map((one) => {
      const well = one.state === "connected" || one.state === "resting";
      return [h("b", {}, one.name),
        h("span", {}, h("span", { class: `state ${well ? "on" : "off"}` }, one.state), h("small", {}, ` for ${span(Date.now() - one.since_ms)}`)),
        one.in_sync ? "yes" : "no", `${count(one.waiting)}${one.waiting_bytes ? `, ${size(one.waiting_bytes)}` : ""}`,
        count(one.sent), count(one.received), one.address, h("span", {}, one.topics.map((line) => h("div", {}, line))),
        one.origin === "api" ? h("button", { type: "button", class: "danger", "aria-label": `End bridge ${one.name}`, onclick: () => remove(one.name) }, "End…") : h("small", {}, "in the configuration")];
    }));
    all.forEach((one, place) => { made.tBodies[0].rows[place].dataset.bridge = one.name; });
    return made;
  }

  async function add() {
    const name = h("input", { name: "name", required: true });
    const address = h("input", { name: "address", placeholder: "mqtts://broker.example:8883", required: true });
    const topics = h("textarea", { name: "topic", rows: 3, placeholder: "sensors/# out 1" });
    const username = h("input", { name: "username", autocomplete: "off" });
    const password = h("input", { name: "password", type: "password", autocomplete: "new-password" });
    const told = () => ({
      name: name.value.trim(), address: address.value.split(/[\s,]+/).filter(Boolean), topic: topics.value.split("\n").map((line) => line.trim()).filter(Boolean),
      ...(username.value ? { username: username.value } : {}), ...(password.value ? { password: password.value } : {}),
    });
    const tested = h("p", { class: "soft", role: "status" });
    const answer = await ask("Add a bridge", h("div", { class: "form" },
      h("label", {}, "Name", name), h("label", {}, "Address of the other broker", address),
      h("label", {}, "Topics, one per line: PATTERN out|in|both QOS LOCAL-PREFIX REMOTE-PREFIX", topics),
      h("label", {}, "User name there", username), h("label", {}, "Password or token", password),
      h("div", { class: "buttons" }, h("button", { type: "button", onclick: async () => {
        fill(tested, "trying…");
        try {
          const { addresses } = await call("POST", "/api/v1/bridges/test", {}, told());
          fill(tested, addresses.map((one) => `${one.address}: ${one.error || (one.refused.length ? `refuses ${one.refused.join(", ")}` : "works")}`).join("; "));
        } catch (error) {
          fill(tested, error.message);
        }
      } }, "Try it out")), tested),
    [{ name: "yes", label: "Add", class: "main" }, { name: null, label: "Cancel" }],
    async () => {
      try {
        await call("POST", "/api/v1/bridges", {}, told());
        return "";
      } catch (error) {
        return error.message;
      }
    });
    if (answer === "yes") toast(`Bridge ${name.value.trim()} is made`);
    look();
  }

  /** @param {string} name */
  async function remove(name) {
    const answer = await ask(`End bridge ${name}?`, h("p", {}, "What waits for the other broker is forgotten. What is retained stays, on both sides."),
      [{ name: "yes", label: "End", class: "danger" }, { name: null, label: "Cancel" }]);
    if (answer !== "yes") return;
    try {
      await call("DELETE", "/api/v1/bridges", { name });
      toast(`Ended: ${name}`);
    } catch (error) {
      toast(error.message);
    }
    look();
  }

  return () => clearInterval(timer);
}
