// The plan beside one other layout: every field and every number, differences marked.

import { element, place, table, title } from "../dom.js";
import { count, gib, percent, seconds } from "../format.js";

const FIELDS = ["tp", "pp", "vpp", "cp", "ep", "dp", "dp_shard", "sharding", "sequence_parallel",
  "microbatch_size", "recompute", "precision"];
const NUMBERS = [
  ["one step", (one) => one.step_time_seconds, seconds, -1],
  ["tokens/s per GPU", (one) => one.tokens_per_second_per_gpu, (value) => count(Math.round(value)), 1],
  ["model FLOP use", (one) => one.mfu, percent, 1],
  ["memory of the worst stage", (one) => one.memory_bytes.total, gib, -1],
  ["room below the plan limit", (one) => one.limit_bytes - one.memory_bytes.total, gib, 1],
];

/** `other` is an answer of `/v1/estimate`; `onClose` ends the comparison. */
export function showCompare(plan, other, onClose) {
  place("compare").hidden = other === null;
  if (other === null) {
    place("compare").replaceChildren();
    return;
  }
  const rows = [
    ...NUMBERS.map(([name, of, write, better]) => numberRow(name, of(plan.estimate), of(other), write, better)),
    ...FIELDS.map((name) => fieldRow(name, plan.layout[name], other.layout[name])),
  ];
  const close = element("button", { type: "button", on: { click: onClose } }, "End the comparison");
  place("compare").replaceChildren(
    title("compare", "Side by side"),
    element("p", {}, verdict(plan.estimate, other)),
    ...other.violations.map((broken) => element("p", { class: "problem" }, broken.message)),
    element("div", { class: "scroll" }, table("The plan beside the chosen layout", ["", "the plan", "chosen", "difference"], rows)),
    element("div", { class: "row" }, close));
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

const signed = (ratio) => `${ratio >= 0 ? "+" : "−"}${percent(Math.abs(ratio))}`;

const fieldRow = (name, ours, theirs) => [
  element("code", {}, name), String(ours),
  element("span", { class: ours === theirs ? null : "better" }, String(theirs)),
  ours === theirs ? "" : "differs",
];

function verdict(ours, other) {
  if (!other.legal) return "The chosen layout breaks a rule.";
  const over = other.memory_bytes.total - other.limit_bytes;
  const size = over > 0 ? `needs ${gib(over)} more than a plan may use` : "fits";
  const ratio = other.step_time_seconds / ours.step_time_seconds;
  if (Math.abs(ratio - 1) < 1e-9) return `The chosen layout ${size} and is as fast as the plan.`;
  return `The chosen layout ${size} and is ${percent(Math.abs(ratio - 1))} ${ratio > 1 ? "slower" : "faster"} per step.`;
}
