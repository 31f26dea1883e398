// All candidates: speed against memory. A dot, or a row of the front, is compared with the plan.

import { draw } from "../chart.js";
import { element, place, table, title } from "../dom.js";
import { brief, count, gib, inGib, seconds } from "../format.js";
import { toLayout } from "../state.js";
import { HUES, ink } from "../theme.js";

/** `onChoose(layout)` hears which candidate is to be compared. */
export function showCandidates(answer, plan, onChoose) {
  const kinds = [
    { name: "the plan", points: [plan], pick: true },
    { name: "Pareto front: none is both faster and smaller", points: answer.candidates.filter((one) => one.pareto) },
    { name: "fits", points: answer.candidates.filter((one) => one.within_limit && !one.pareto) },
    { name: "does not fit", points: answer.candidates.filter((one) => !one.within_limit && !one.pareto) },
  ];
  const holder = element("div", { class: "chart scatter" });
  place("candidates").replaceChildren(
    title("candidates", "All candidates: speed against memory"),
    element("p", { class: "soft" },
      `The plan, and ${count(answer.candidates.length)} of ${count(answer.configurations)} legal layouts, evenly sampled ` +
      "and denser near the front. Up is faster, left is smaller. Choose one to compare it with the plan."),
    holder, ownLayout(onChoose), frontTable(kinds[1].points, onChoose));
  draw(holder, "candidates", "Candidates: tokens per second per GPU against memory; the table below lists the best",
    scatter(kinds, answer, onChoose));
}

// A layout of the reader's own, in the words of `--layout`; the service says what is wrong with it.
function ownLayout(onChoose) {
  const field = element("input", { id: "own-layout", type: "text", spellcheck: "false", placeholder: "tp=8, pp=4, recompute=full" });
  const form = element("form", { class: "row", "aria-label": "A layout of your own" },
    element("label", { for: "own-layout" }, "Or a layout of your own"), field,
    element("button", { type: "submit" }, "Compare it"),
    element("span", { class: "problem", id: "own-layout-problem", role: "alert" }));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    onChoose(toLayout(field.value));
  });
  return form;
}

function scatter(kinds, answer, onChoose) {
  const { text, soft } = ink();
  const looks = [
    { pointStyle: "star", radius: 10, hoverRadius: 12, backgroundColor: text, borderColor: text, borderWidth: 2.5, order: 0 },
    { pointStyle: "rectRot", radius: 6, backgroundColor: HUES[5], borderColor: HUES[5], showLine: true, borderWidth: 1, order: 1 },
    { pointStyle: "circle", radius: 3.5, backgroundColor: HUES[4], borderColor: HUES[0], order: 2 },
    { pointStyle: "crossRot", radius: 3.5, backgroundColor: soft, borderColor: soft, order: 3 },
  ];
  const layoutOf = (kind, index) => kinds[kind].points[index].layout;
  const limit = inGib(answer.limit_bytes);
  const widest = Math.max(limit * 1.6, inGib(kinds[0].points[0].memory_bytes) * 1.2);
  return {
    type: "scatter",
    data: {
      datasets: kinds.map((kind, index) => ({
        label: kind.name, ...looks[index],
        data: kind.points.map((one) => ({ x: inGib(one.memory_bytes), y: one.tokens_per_second_per_gpu })),
      })),
    },
    options: {
      onClick: (event, items) => { if (items.length) onChoose(layoutOf(items[0].datasetIndex, items[0].index)); },
      onHover: (event, items) => { event.native.target.style.cursor = items.length ? "pointer" : "default"; },
      scales: {
        x: { title: { display: true, text: "GiB of the fullest stage" }, min: 0, max: Math.ceil(widest / 10) * 10 },
        y: { title: { display: true, text: "tokens/s per GPU" }, min: 0 },
      },
      plugins: {
        legend: { position: "bottom", labels: { usePointStyle: true } },
        tooltip: { callbacks: { label: (item) => [brief(layoutOf(item.datasetIndex, item.dataIndex)), `${item.parsed.x.toFixed(1)} GiB, ${count(Math.round(item.parsed.y))} tokens/s per GPU`] } },
      },
    },
    plugins: [cardEdge(limit)],
  };
}

// Everything right of what a plan may use is shaded.
function cardEdge(limit) {
  return {
    id: "card",
    beforeDatasetsDraw({ ctx, chartArea, scales }) {
      const x = scales.x.getPixelForValue(limit);
      ctx.save();
      ctx.globalAlpha = 0.12;
      ctx.fillStyle = ink().text;
      ctx.fillRect(x, chartArea.top, Math.max(0, chartArea.right - x), chartArea.height);
      ctx.globalAlpha = 1;
      ctx.fillStyle = ink().soft;
      ctx.font = "11px system-ui, sans-serif";
      ctx.textBaseline = "bottom";
      ctx.fillText("does not fit", x + 5, chartArea.bottom - 4);
      ctx.restore();
    },
  };
}

// What fits first, the fastest on top; then what would fit a larger card, the smallest on top.
function byUse(one, other) {
  if (one.within_limit !== other.within_limit) return one.within_limit ? -1 : 1;
  return one.within_limit
    ? one.step_time_seconds - other.step_time_seconds
    : one.memory_bytes - other.memory_bytes;
}

function frontTable(front, onChoose) {
  const rows = [...front].sort(byUse)
    .map((one) => [
      element("button", {
        type: "button", "aria-label": `Compare ${brief(one.layout)}`, on: { click: () => onChoose(one.layout) },
      }, "Compare"),
      { number: seconds(one.step_time_seconds) },
      { number: gib(one.memory_bytes) },
      one.within_limit ? "fits" : "too large",
      brief(one.layout),
    ]);
  return element("details", { open: true }, element("summary", {}, `The front as a table (${front.length})`),
    element("div", { class: "front scroll", tabindex: "0", role: "region", "aria-label": "Pareto front" },
      table("Pareto front, what fits first", ["", { number: "step" }, { number: "memory" }, "", "layout"], rows)));
}
