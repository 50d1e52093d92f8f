// The operations of the API, from its OpenAPI document.

import { request } from "/static/api.js";
import { fill, h, part } from "/static/dom.js";

/** What is read of an OpenAPI document.
 * @typedef {{ $ref?: string, type?: string, anyOf?: Schema[], items?: Schema, description?: string, required?: string[],
 *   properties?: Record<string, Schema> }} Schema
 * @typedef {Record<string, Schema>} Schemas
 * @typedef {{ schema: Schema }} Content
 * @typedef {{ name: string, required?: boolean, description?: string, schema?: Schema }} Parameter
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
    h("tr", {}, h("td", {}, h("code", {}, field), needed.has(field) ? " *" : ""), h("td", {}, name(one, all)), h("td", {}, one.description || "")));
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
    one.description ? h("p", {}, one.description) : null,
    one.parameters && one.parameters.length ? h("table", {}, h("thead", {}, h("tr", {}, ["Parameter", "Type", "Meaning"].map((title) => h("th", {}, title)))),
      h("tbody", {}, one.parameters.map((given) => h("tr", {}, h("td", {}, h("code", {}, given.name), given.required ? " *" : ""),
        h("td", {}, name(given.schema, all)), h("td", {}, given.description || (given.schema && given.schema.description) || ""))))) : null,
    body ? h("div", {}, h("h4", {}, `Body: ${name(body.schema, all)}`), h("table", {}, h("tbody", {}, fieldsOf(body.schema, all)))) : null,
    good.map(([status, answer]) => {
      const content = Object.values(answer.content || {})[0];
      return h("div", {}, h("h4", {}, `${status}: ${content ? name(content.schema, all) : answer.description}`),
        content && content.schema ? h("table", {}, h("tbody", {}, fieldsOf(content.schema, all))) : null);
    }));
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
    h("p", { class: "soft" }, "Errors are RFC 9457 problem details. * is required."),
    [...groups].map(([tag, list]) => [h("h2", {}, tag), list]));
}

start().catch((error) => fill(page, h("p", { class: "problem" }, error.message)));
