// The OpenAPI document as a page; nothing is fetched from elsewhere.
import { $, el } from "./dom.js";

const last = (ref) => ref.split("/").pop();

/** A schema in a few words. */
function kind(schema) {
  if (!schema) return "";
  if (schema.$ref) return el("a", { href: `#${last(schema.$ref)}` }, last(schema.$ref));
  const several = schema.anyOf ?? schema.oneOf;
  const line = el("span");
  if (several) several.forEach((one, i) => line.append(i ? " or " : "", kind(one)));
  else if (schema.type === "array") line.append("list of ", kind(schema.items));
  else line.append([schema.format === "binary" ? "file" : schema.type, schema.format === "base64-photo" ? "in base64" : ""].filter(Boolean).join(" "));
  const bounds = [["minimum", "from "], ["maximum", "to "]].filter(([key]) => key in schema).map(([key, word]) => word + schema[key]);
  const more = [...bounds, schema.default == null ? "" : `by default ${schema.default}`].filter(Boolean).join(", ");
  if (more) line.append(` (${more})`);
  return line;
}

function table(schema) {
  const needed = new Set(schema.required ?? []);
  return el("table", {}, ...Object.entries(schema.properties ?? {}).map(([name, field]) => el("tr", {},
    el("th", { scope: "row" }, el("code", {}, name), needed.has(name) ? "" : " ?"),
    el("td", {}, kind(field), field.description ? `. ${field.description}` : ""))));
}

const EXAMPLES = {
  "/v1/health": "curl HERE/v1/health",
  "/v1/caption": "curl HERE/v1/caption -F photos=@photo.jpg -F beam=3",
  "/v1/ground": "curl HERE/v1/ground -F photo=@photo.jpg -F sentence='a dog with a ball'",
  "/v1/search": "curl HERE/v1/search -H 'content-type: application/json' -d '{\"text\": \"a dog\", \"k\": 5}'",
  "/v1/audit": "curl HERE/v1/audit -F captions=@captions.csv -F photos=@photo.jpg",
};

function operation(path, method, told, schemas) {
  const content = told.requestBody?.content ?? {};
  const schema = content["multipart/form-data"]?.schema;
  const json = content["application/json"]?.schema;
  return el("section", { className: "operation" },
    el("h2", {}, el("span", { className: "method" }, method.toUpperCase()), el("code", {}, path)),
    el("p", {}, told.description ?? ""),
    EXAMPLES[path] ? el("pre", { tabIndex: 0 }, EXAMPLES[path].replace("HERE", location.origin)) : null,
    schema ? el("p", {}, "A form with:") : null,
    schema ? table(schema) : null,
    json ? el("p", {}, "Or JSON: ", kind(json)) : null,
    el("table", {}, ...Object.entries(told.responses).map(([status, one]) => el("tr", {},
      el("th", { scope: "row" }, status), el("td", {}, one.description, " ", kind(one.content?.["application/json"]?.schema))))));
}

const told = await (await fetch("/openapi.json")).json();
$("operations").append(...Object.entries(told.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, one]) => operation(path, method, one, told.components.schemas))));
$("shapes").append(...Object.entries(told.components.schemas).map(([name, schema]) =>
  el("section", { className: "operation", id: name }, el("h3", {}, name), el("p", {}, schema.description ?? ""), table(schema))));
document.documentElement.dataset.ready = "true";
