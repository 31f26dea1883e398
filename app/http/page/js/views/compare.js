// The plan beside one other layout, as `/v1/explain` answers: what is wrong with it and what would mend
// it, then every field and every term, the largest difference first.

import { element, place, table, title } from "../dom.js";
import { brief, count, gib, percent, seconds } from "../format.js";

const NUMBERS = [
  ["one step", (one) => one.step_time_seconds, seconds, -1],
  ["tokens/s per GPU", (one) => one.tokens_per_second_per_gpu, (value) => count(Math.round(value)), 1],
  ["model FLOP use", (one) => one.mfu, percent, 1],
  ["memory of the fullest stage", (one) => one.memory_bytes.total, gib, -1],
  ["room below the plan limit", (one) => one.limit_bytes - one.memory_bytes.total, room, 1],
];

/** Less than this share of the whole is no difference. */
const SAME = 1e-4;

/** `why` is an answer of `/v1/explain`; `onChoose(layout)` compares another, or none, with the plan. */
export function showCompare(why, onChoose) {
  place("compare").hidden = why === null;
  if (why === null) {
    place("compare").replaceChildren();
    return;
  }
  const ours = why.plan?.estimate ?? null;
  place("compare").replaceChildren(
    title("compare", "Side by side"),
    element("p", { class: why.works ? null : "problem" }, why.verdict),
    ...broken(why.estimate.violations),
    ...remedies(why.remedies, onChoose),
    ...(ours ? [numbers(ours, why.estimate), fields(why.changed_fields), ...terms(why)] : []),
    element("div", { class: "row" },
      element("button", { type: "button", on: { click: () => onChoose(null) } }, "End the comparison")));
}

const broken = (violations) => violations.length > 1
  ? [element("ul", { class: "problem" }, violations.map((one) => element("li", {}, one.message)))] : [];

function remedies(found, onChoose) {
  if (!found.length) return [];
  return [element("h3", {}, "One change that would make it work"),
    element("ul", { class: "remedies" }, found.map((one) => element("li", {},
      element("button", {
        type: "button", "aria-label": `Compare ${brief(one.layout)}`, on: { click: () => onChoose(one.layout) },
      }, "Compare"), ` ${one.says}`)))];
}

function numbers(ours, theirs) {
  return scrolled(table("The plan beside the chosen layout", ["", "the plan", "chosen", "difference"],
    NUMBERS.map(([name, of, write, better]) => numberRow(name, of(ours), of(theirs), write, better))));
}

function numberRow(name, ours, theirs, write, better) {
  const isKnown = ours !== null && theirs !== null;
  const theyWin = isKnown && (theirs - ours) * better > 0;
  const weWin = isKnown && (theirs - ours) * better < 0;
  return [name, cell(ours, write, weWin), cell(theirs, write, theyWin),
    isKnown && ours > 0 && theirs > 0 ? signed(theirs / ours - 1) : ""];
}

const cell = (value, write, wins) =>
  element("span", { class: wins ? "better" : null }, value === null ? "not known" : write(value));

const signed = (ratio) => `${ratio >= 0 ? "+" : "\u2212"}${percent(Math.abs(ratio))}`;

function room(bytes) {
  return bytes < 0 ? `${gib(-bytes)} too much` : gib(bytes);
}

function fields(changed) {
  if (!changed.length) return element("p", { class: "soft" }, "No field differs.");
  return scrolled(table("Fields that differ", ["field", "the plan", "chosen"],
    changed.map((one) => [element("code", {}, one.field), written(one.plan), written(one.asked)])));
}

const written = (value) => Array.isArray(value) ? value.join(", ") || "even" : String(value);

function terms({ time, memory }) {
  return [termTable("Time by term", time, "seconds", seconds), termTable("Memory by term", memory, "bytes", gib)]
    .filter(Boolean);
}

function termTable(heading, rows, unit, write) {
  const total = rows.reduce((sum, row) => sum + row[`plan_${unit}`], 0);
  const differing = rows.filter((row) => Math.abs(row[`difference_${unit}`]) > total * SAME);
  if (!differing.length) return null;
  return element("div", {}, element("h3", {}, heading), scrolled(table(heading,
    ["term", { number: "the plan" }, { number: "chosen" }, { number: "difference" }],
    differing.map((row) => [row.words, { number: write(row[`plan_${unit}`]) }, { number: write(row[`asked_${unit}`]) },
      { number: difference(row[`difference_${unit}`], write) }]))));
}

const difference = (value, write) => `${value > 0 ? "+" : "\u2212"}${write(Math.abs(value))}`;

const scrolled = (content) => element("div", { class: "scroll" }, content);
