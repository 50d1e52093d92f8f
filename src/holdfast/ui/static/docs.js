// The operations of the API, from its OpenAPI document, each with a form that sends it from here.

import { request } from "/static/api.js";
import { fill, h, part } from "/static/dom.js";

/** What is read of an OpenAPI document.
 * @typedef {{ $ref?: string, type?: string, anyOf?: Schema[], items?: Schema, description?: string, required?: string[],
 *   properties?: Record<string, Schema> }} Schema
 * @typedef {Record<string, Schema>} Schemas
 * @typedef {{ schema: Schema, example?: unknown }} Content
 * @typedef {{ name: string, in: string, required?: boolean, description?: string, schema?: Schema, example?: string }} Parameter
 * @typedef {{ tags?: string[], summary?: string, description?: string, parameters?: Parameter[],
 *   requestBody?: { content: Record<string, Content> },
 *   responses: Record<string, { description: string, content?: Record<string, Content> }> }} Operation
 * @typedef {{ info: { summary: string }, components: { schemas: Schemas },
 *   paths: Record<string, Record<string, Operation>> }} OpenApi */

const page = part("page");
const theme = localStorage.getItem("theme");
if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;

/** @param {string} reference
 * @returns {string} */
const lastOf = (reference) => reference.slice(reference.lastIndexOf("/") + 1);

/** @param {Schema | undefined} schema
 * @param {Schemas} all
 * @returns {string} */
function name(schema, all) {
  if (!schema) return "";
  if (schema.$ref) return lastOf(schema.$ref);
  if (schema.anyOf) return schema.anyOf.map((one) => name(one, all)).join(" or ");
  if (schema.type === "array") return `list of ${name(schema.items, all)}`;
  return schema.type || "";
}

/** @param {Schema} schema
 * @param {Schemas} all */
function fieldsOf(schema, all) {
  const target = schema.$ref ? all[lastOf(schema.$ref)] : schema.items && schema.items.$ref ? all[lastOf(schema.items.$ref)] : schema;
  const needed = new Set((target && target.required) || []);
  return Object.entries((target && target.properties) || {}).map(([field, one]) =>
    h("tr", {}, h("td", {}, h("code", {}, field), needed.has(field) ? " *" : ""), h("td", {}, name(one, all)), h("td", {}, prose(one.description || ""))));
}

/** Text in which backticks mark code.
 * @param {string} text */
const prose = (text) => text.split("`").map((piece, place) => (place % 2 ? h("code", {}, piece) : piece));

/** A form that sends the operation, with what it would be on the command line.
 * @param {string} method
 * @param {string} path
 * @param {Operation} one */
function trial(method, path, one) {
  const inputs = (one.parameters || []).map((given) => ({ given, field: h("input", { name: given.name, placeholder: given.example || "" }) }));
  const body = one.requestBody && one.requestBody.content["application/json"];
  const area = body ? h("textarea", { name: "body", rows: 6, spellcheck: false, value: body.example ? JSON.stringify(body.example, null, 2) : "" }) : null;
  const line = h("pre", { class: "curl", tabindex: "0" });
  const answer = h("div", { class: "answer", role: "status" });

  const target = () => {
    let place = path;
    const query = new URLSearchParams();
    for (const { given, field } of inputs) {
      if (given.in === "path") place = place.replace(`{${given.name}}`, encodeURIComponent(field.value));
      else if (field.value) query.set(given.name, field.value);
    }
    return query.size ? `${place}?${query}` : place;
  };
  const write = () => {
    const data = area ? ` \\\n  -H 'Content-Type: application/json' -d ${quoted(area.value)}` : "";
    line.textContent = `curl -u NAME:SECRET -X ${method.toUpperCase()} ${quoted(location.origin + target())}${data}`;
  };
  const send = async () => {
    fill(answer, h("p", { class: "soft" }, "Waiting…"));
    try {
      const headers = { "X-Requested-With": "holdfast", ...(area ? { "Content-Type": "application/json" } : {}) };
      const got = await fetch(target(), { method: method.toUpperCase(), headers, body: area ? area.value : undefined });
      const text = await got.text();
      fill(answer, h("p", { class: got.ok ? "" : "problem" }, `${got.status} ${got.statusText}`), text ? h("pre", { tabindex: "0" }, pretty(text)) : null);
    } catch (error) {
      fill(answer, h("p", { class: "problem" }, error.message));
    }
  };
  const form = h("form", { class: "form try", onsubmit: (event) => { event.preventDefault(); send(); }, oninput: write },
    inputs.map(({ given, field }) => h("label", {}, given.name + (given.required ? " *" : ""), field)),
    area ? h("label", {}, "Body", area) : null, line,
    h("div", { class: "buttons" }, h("button", { type: "submit", class: "main" }, "Send")), answer);
  write();
  return h("details", { class: "trial" }, h("summary", {}, "Try it"), form);
}

/** As one word of a shell.
 * @param {string} text */
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** @param {string} text */
function pretty(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text.slice(0, 100000); }
}

/** @param {string} method
 * @param {string} path
 * @param {Operation} one
 * @param {Schemas} all */
function operation(method, path, one, all) {
  const body = one.requestBody && one.requestBody.content["application/json"];
  const good = Object.entries(one.responses).filter(([status]) => status.startsWith("2"));
  return h("details", { class: "card operation" },
    h("summary", {}, h("b", { class: `method ${method}` }, method.toUpperCase()), h("code", {}, path), h("span", { class: "soft" }, one.summary || "")),
    one.description ? h("p", {}, prose(one.description)) : null,
    one.parameters && one.parameters.length ? h("table", {}, h("thead", {}, h("tr", {}, ["Parameter", "Type", "Meaning"].map((title) => h("th", {}, title)))),
      h("tbody", {}, one.parameters.map((given) => h("tr", {}, h("td", {}, h("code", {}, given.name), given.required ? " *" : ""),
        h("td", {}, name(given.schema, all)), h("td", {}, prose(given.description || (given.schema && given.schema.description) || "")))))) : null,
    body ? h("div", {}, h("h4", {}, `Body: ${name(body.schema, all)}`), h("table", {}, h("tbody", {}, fieldsOf(body.schema, all)))) : null,
    good.map(([status, answer]) => {
      const content = Object.values(answer.content || {})[0];
      return h("div", {}, h("h4", {}, `${status}: ${content ? name(content.schema, all) : answer.description}`),
        content && content.schema ? h("table", {}, h("tbody", {}, fieldsOf(content.schema, all))) : null);
    }),
    h("p", { class: "soft" }, "Errors: ", Object.entries(one.responses).filter(([status]) => !status.startsWith("2"))
      .map(([status, answer]) => `${status} ${answer.description}`).join("; ")),
    trial(method, path, one));
}

async function start() {
  /** @type {OpenApi} */
  const document_ = await request("GET", "/openapi.json");
  const all = document_.components.schemas;
  /** @type {Map<string, HTMLElement[]>} */
  const groups = new Map();
  for (const [path, methods] of Object.entries(document_.paths)) {
    for (const [method, one] of Object.entries(methods)) {
      const tag = (one.tags || ["other"])[0];
      const group = groups.get(tag) ?? [];
      groups.set(tag, group);
      group.push(operation(method, path, one, all));
    }
  }
  fill(page, h("h1", {}, "HTTP API"), h("p", {}, document_.info.summary),
    h("p", { class: "soft" }, "Errors are RFC 9457 problem details. * marks what is required. Requests sent from this page are real, and are made as the user who is logged in to the dashboard."),
    [...groups].map(([tag, list]) => [h("h2", {}, tag), list]));
}

start().catch((error) => fill(page, h("p", { class: "problem" }, error.message)));
