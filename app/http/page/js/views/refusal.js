// Why there is no plan: what is wrong with the question, or what does not fit and what would help.

import { element, place } from "../dom.js";
import { brief, gib } from "../format.js";

export function showRefusal(heading, ...content) {
  place("refusal").hidden = false;
  place("refusal").replaceChildren(element("h2", {}, heading), ...content);
}

export function hideRefusal() {
  place("refusal").hidden = true;
  place("refusal").replaceChildren();
}

export function showInfeasible({ reasons, nearest, remedies }) {
  showRefusal("Nothing fits", list(reasons),
    ...(nearest ? [element("p", {}, element("b", {}, "The nearest miss: "), brief(nearest.layout), ". ",
      nearest.short_by_bytes > 0 ? `Short by ${gib(nearest.short_by_bytes)} per GPU.` : "")] : []),
    ...(remedies.length ? [element("h3", {}, "What would help"), list(remedies)] : []));
}

export const list = (lines) => element("ul", {}, lines.map((line) => element("li", {}, line)));
