// The operations of the API, from its OpenAPI document.

import { call } from "/static/api.js";
import { fill, h } from "/static/dom.js";

const page = document.getElementById("page");
const theme = localStorage.getItem("theme");
if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;

function name(schema, all) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map((one) => name(one, all)).join(" or ");
  if (schema.type === "array") return `list of ${name(schema.items, all)}`;
  return schema.type || "";
}

function fieldsOf(schema, all) {
  const target = schema.$ref ? all[schema.$ref.split("/").pop()] : schema.items && schema.items.$ref ? all[schema.items.$ref.split("/").pop()] : schema;
  const needed = new Set((target && target.required) || []);
  return Object.entries((target && target.properties) || {}).map(([field, one]) =>
    h("tr", {}, h("td", {}, h("code", {}, field), needed.has(field) ? " *" : ""), h("td", {}, name(one, all)), h("td", {}, one.description || "")));
}

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
  const document_ = await call("GET", "/openapi.json");
  const all = document_.components.schemas;
  const groups = new Map();
  for (const [path, methods] of Object.entries(document_.paths)) {
    for (const [method, one] of Object.entries(methods)) {
      const tag = (one.tags || ["other"])[0];
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push(operation(method, path, one, all));
    }
  }
  fill(page, h("h1", {}, "HTTP API"), h("p", {}, document_.info.summary),
    h("p", { class: "soft" }, "Errors are RFC 9457 problem details. * is required."),
    [...groups].map(([tag, list]) => [h("h2", {}, tag), list]));
}

start().catch((error) => fill(page, h("p", { class: "problem" }, error.message)));
