// The plan in words: its degrees, what it does, why it was chosen, and what was assumed.

import { element, place, title } from "../dom.js";
import { count, figures, inGib, params, percent, seconds } from "../format.js";

const DEGREES = [
  ["tp", "tensor parallel: one layer cut over GPUs of the fast domain"],
  ["pp", "pipeline parallel: layers in stages"],
  ["vpp", "chunks of layers per stage (interleaved schedule)"],
  ["cp", "context parallel: one sequence cut over GPUs"],
  ["ep", "expert parallel: experts spread over GPUs"],
  ["dp", "data parallel: replicas of the above"],
];

export function showWords(plan) {
  const { layout, estimate, search, cluster, architecture } = plan;
  const gpus = cluster.nodes * cluster.gpus_per_node;
  const assumptions = estimate.assumptions.length
    ? element("details", {}, element("summary", {}, `Assumed (${estimate.assumptions.length})`),
      element("ul", {}, estimate.assumptions.map((line) => element("li", {}, line))))
    : null;
  place("words").replaceChildren(
    title("words", `${architecture.name || "This model"} on ${count(gpus)} × ${cluster.gpu}`),
    degreeList(layout),
    element("dl", { class: "numbers" },
      number("one step", seconds(estimate.step_time_seconds)),
      number("tokens/s per GPU", count(Math.round(estimate.tokens_per_second_per_gpu))),
      number("tokens/s together", count(Math.round(estimate.tokens_per_second_per_gpu * gpus))),
      number("TFLOP/s per GPU", figures(estimate.model_flop_per_second_per_gpu / 1e12)),
      number("of the 16-bit peak (MFU)", percent(estimate.mfu)),
      number("GiB of a GPU", `${figures(inGib(estimate.memory_bytes.total))} of ${figures(inGib(estimate.gpu_memory_bytes))}`)),
    element("p", {}, plan.explanation),
    element("p", { class: "soft" },
      `${params(architecture.params)} parameters` +
      (architecture.active_params === architecture.params ? "" : `, ${params(architecture.active_params)} active`) +
      `. ${plan.framework}, sequences of ${count(plan.workload.sequence_length)} tokens, global batch ` +
      `${count(estimate.global_batch_size)}; network ${cluster.fabric}. ` +
      `${count(search.configurations)} layouts, searched in ${seconds(search.duration_seconds)}.`),
    ...[assumptions].filter(Boolean));
}

/** The degrees of a layout as a list. */
export function degreeList(layout) {
  const items = DEGREES.filter(([name]) => layout[name] > 1 || ["tp", "pp", "dp"].includes(name))
    .map(([name, meaning]) => degree(name.toUpperCase(), layout[name], meaning));
  const sharding = layout.sharding === "hsdp" ? `hsdp, groups of ${layout.dp_shard}` : layout.sharding;
  return element("ul", { class: "degrees", "aria-label": "The layout" }, items,
    degree("sharding", sharding, "which states data-parallel ranks share"),
    degree("micro-batch", layout.microbatch_size, "sequences of one pass"),
    degree("recompute", layout.recompute, "activations computed again in the backward pass"),
    degree("precision", layout.precision, "numbers the matrix products use"));
}

function degree(name, value, meaning) {
  return element("li", { title: meaning }, element("span", {}, name), element("b", {}, String(value)));
}

function number(name, value) {
  return element("div", {}, element("dt", {}, name), element("dd", {}, value));
}
