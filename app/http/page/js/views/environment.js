// The collective environment: every variable with the reason for it.

import { copyButton, element, place, table, title } from "../dom.js";

export function showEnvironment(answer) {
  const settings = answer.environment;
  const rows = settings.map((one) => [
    element("code", {}, one.name), element("code", {}, one.value), one.reason,
  ]);
  const exports = () => settings.map((one) => `export ${one.name}=${quoted(one.value)}`).join("\n");
  const list = (heading, lines) => lines.length
    ? [element("h3", {}, heading), element("ul", {}, lines.map((line) => element("li", {}, line)))] : [];
  place("environment").replaceChildren(
    title("environment", "Environment of the job"),
    settings.length
      ? element("div", { class: "scroll" }, table("Variables", ["variable", "value", "why"], rows))
      : element("p", {}, "Nothing needs to be set: what the library finds by itself is right here."),
    ...list("Watch out", answer.warnings), ...list("Advice", answer.advice ?? []),
    ...(settings.length ? [element("div", { class: "row" }, copyButton("Copy as export lines", exports))] : []));
}

const quoted = (value) => /^[\w.,:/+-]*$/.test(value) ? value : `'${value.replaceAll("'", "'\\''")}'`;
