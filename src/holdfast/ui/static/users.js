// Users and what the rules allow them, as it is in force now. Both are changed in their files.

import { get, live } from "/static/api.js";
import { count, fill, h } from "/static/dom.js";
import { plainTable, tellProblem } from "/static/table.js";

/** @import { AccessRule, Permissions } from "../api.d.ts" */

/** @type {Record<string, string>} */
const KINDS = { user: "password file", key: "API key", connected: "connected now" };

/** @param {HTMLElement} page */
export function users(page) {
  const problem = h("div");
  const people = h("section", { class: "card" }, h("p", { class: "soft" }, "reading…"));
  const rules = h("section", { class: "card" });
  fill(page, h("h1", {}, "Users and permissions"), problem, people, rules, question());
  look();
  const stop = live.whenBack(look);

  async function look() {
    try {
      draw(await get("/api/v1/permissions"));
      fill(problem);
    } catch (error) {
      tellProblem(problem, error);
    }
  }

  /** @param {Permissions} found */
  function draw(found) {
    fill(people, h("h2", {}, `Users: ${count(found.users.length)}`),
      h("p", { class: "soft" }, found.logins.length ? [`Clients log in by ${found.logins.join(", ")}. To change users, run `, h("code", {}, "holdfast passwd"), " and reload the configuration (SIGHUP)."]
        : ["No users are set up: clients connect without a name, and unless the configuration says otherwise, only from this machine. To add some, create a file with ", h("code", {}, "holdfast passwd -c users NAME"), " and name it in ", h("code", {}, "auth.password_file"), "."]),
      found.users.length ? plainTable("Users", ["Name", "From", "May", "Groups", ["Clients", "right"], "State"], found.users.map((one) => [
        one.kind === "key" || !one.clients ? one.name : h("a", { href: `#clients?${new URLSearchParams({ search: one.name })}` }, one.name),
        KINDS[one.kind] || one.kind, one.admin ? "everything (administrator)" : "what the rules allow", one.groups.join(", "),
        one.kind === "key" ? "" : count(one.clients), one.banned ? h("a", { href: `#bans?${new URLSearchParams({ search: one.name })}` }, "banned") : ""])) : h("p", {}, "None."));
    fill(rules, h("h2", {}, `Rules: ${count(found.rules.length)}`),
      h("p", { class: "soft" }, found.rules.length ? `The first rule that matches decides. If none does: ${found.no_match}.` : "There are no rules: every client may publish and subscribe to everything."),
      found.rules.length ? plainTable("Rules", [["#", "right"], "Answer", "Action", "Filter", "For", "Written in"], found.rules.map((one, i) => [
        String(i + 1), h("span", { class: one.permission === "allow" ? "state on" : "state bad" }, one.permission), one.actions.length === 4 ? "all" : one.actions.join(", "), h("code", {}, one.filter), whom(one), one.origin])) : null);
  }

  /** @param {AccessRule} rule */
  function whom(rule) {
    return [rule.user !== null ? `user ${rule.user}` : "", rule.users ? `users ${rule.users.join(", ")}` : "", rule.client_id !== null ? `client ${rule.client_id}` : "",
      rule.qos.length ? `QoS ${rule.qos.join(", ")}` : "", rule.certificate ? "with a certificate" : ""].filter(Boolean).join("; ") || "everyone";
  }

  function question() {
    const who = h("input", { name: "user", placeholder: "none" });
    const client = h("input", { name: "client", placeholder: "any" });
    const action = h("select", { name: "action" }, ["publish", "retain", "subscribe", "receive"].map((one) => h("option", {}, one)));
    const topic = h("input", { name: "topic", required: true, placeholder: "home/door" });
    const answer = h("p", { class: "answer", role: "status" });
    return h("section", { class: "card" }, h("h2", {}, "May somebody do something?"),
      h("form", { class: "form", onsubmit: async (event) => {
        event.preventDefault();
        try {
          const found = await get("/api/v1/permissions/check", { user: who.value, client_id: client.value, action: action.value, topic: topic.value });
          fill(answer, h("span", { class: found.allowed ? "state on" : "state bad" }, found.allowed ? "allowed" : "denied"), ` because of ${found.because}`);
        } catch (error) {
          fill(answer, h("span", { class: "problem" }, error.message));
        }
      } }, h("div", { class: "line" }, h("label", {}, "User", who), h("label", {}, "Client id", client), h("label", {}, "Action", action), h("label", { class: "grow" }, "Topic", topic), h("button", { class: "main" }, "Ask"))),
      answer);
  }

  return stop;
}
