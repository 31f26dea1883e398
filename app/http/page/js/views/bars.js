// Memory by term against the card, and step time by term: each a stacked bar and its table.

import { draw, stackedBars } from "../chart.js";
import { element, place, table, title } from "../dom.js";
import { count, figures, gib, inGib, percent, seconds } from "../format.js";
import { HUES } from "../theme.js";

const MEMORY = {
  parameters: "parameters", gradients: "gradients", optimizer: "optimizer states",
  activations: "activations", logits: "logits", buffers: "gathered layers and buckets",
  communicators: "NCCL", reserve: "CUDA context and fragmentation",
};
const TIME = {
  compute: "compute", tp: "tensor-parallel traffic", cp: "context-parallel traffic", ep: "expert all-to-all",
  pp_bubble: "pipeline bubble", pp_p2p: "pipeline sends", dp: "data-parallel traffic", optimizer: "optimizer step",
};

/** `shown` is a list of `{ name, estimate }`: the plan, and the layout compared with it. */
export function showMemory(shown) {
  const [{ estimate }] = shown;
  const limits = [
    { at: inGib(estimate.limit_bytes), name: "plan limit", dashed: true },
    { at: inGib(estimate.gpu_memory_bytes), name: "card", align: "left" },
  ];
  const stage = shown.length === 1 && estimate.fullest_stage !== undefined
    ? `One GPU of pipeline stage ${count(estimate.fullest_stage)}, the fullest. ` : "One GPU of the fullest stage. ";
  const host = estimate.host_memory_bytes_per_node
    ? `${gib(estimate.host_memory_bytes_per_node)} of each node's host memory hold what was offloaded.` : "";
  bar("memory", "Memory of the fullest stage", stage + host, shown, {
    names: MEMORY, terms: "memory_bytes", unit: "GiB", scale: inGib, write: gib, limits,
    total: (one) => one.memory_bytes.total,
  });
}

export function showTime(shown) {
  const unit = shown.some((one) => one.estimate.step_time_seconds >= 1) ? "s" : "ms";
  const scale = (value) => unit === "s" ? value : value * 1e3;
  bar("time", "Time of one step", "Communication counts where compute does not hide it.", shown, {
    names: TIME, terms: "time_seconds", unit, scale, write: seconds,
    total: (one) => one.step_time_seconds,
  });
}

function bar(id, heading, note, shown, { names, terms, unit, scale, write, limits, total }) {
  const value = (one, key) => one.estimate[terms][key] ?? 0;
  const present = Object.keys(names).filter((key) => shown.some((one) => value(one, key) > 0));
  const series = present.map((key) => ({
    name: names[key], colour: HUES[Object.keys(names).indexOf(key)],
    data: shown.map((one) => scale(value(one, key))),
  }));
  const totals = shown.map((one) => total(one.estimate) ?? 0);
  const holder = element("div", { class: `chart bar ${shown.length > 1 ? "two" : ""}` });
  const rows = present.map((key, index) => [
    element("span", {}, element("span", { class: "swatch", colour: series[index].colour, "aria-hidden": "true" }), names[key]),
    ...shown.flatMap((one, row) => cells(value(one, key), totals[row], shown.length, write)),
  ]);
  rows.push([element("b", {}, "together"), ...totals.flatMap((sum) => cells(sum, sum, shown.length, write))]);
  const heads = shown.length > 1 ? shown.map((one) => ({ number: one.name })) : [{ number: unit === "GiB" ? "memory" : "time" }, { number: "share" }];
  place(id).replaceChildren(title(id, heading), holder, element("p", { class: "soft" }, note),
    table(heading, ["term", ...heads], rows));
  const label = `${heading}: ${shown.map((one, row) => `${one.name} ${write(totals[row])}`).join(", ")}`;
  draw(holder, id, label, stackedBars({ rows: shown.map((one) => one.name), series, unit, limits }));
}

function cells(value, sum, columns, write) {
  const text = { number: value > 0 ? write(value) : figures(0) };
  return columns > 1 ? [text] : [text, { number: sum > 0 ? percent(value / sum) : "" }];
}
