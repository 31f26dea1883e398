// The pipeline over time: one row per stage, light for forward, dark for backward passes.

import { element, place, shape, title } from "../dom.js";
import { count, percent, seconds } from "../format.js";
import { schedule } from "../schedule.js";

const SHOWN_STAGES = 16;
const SHOWN_PASSES = 700;
const ROW = 22;
const WIDTH = 1100;
const LEFT = 62;
const FORWARD = "#56b4e9";
const BACKWARD = "#e69f00";

export function showTimeline(plan) {
  const { layout, estimate } = plan;
  place("timeline").hidden = layout.pp === 1;
  if (layout.pp === 1) return;
  const shown = shownMicrobatches(layout, estimate.num_microbatches);
  const passes = schedule(layout.pp, layout.vpp, shown);
  const end = Math.max(...passes.map((pass) => pass.end));
  const bubble = (estimate.time_seconds.pp_bubble ?? 0) / estimate.step_time_seconds;
  const cut = shown < estimate.num_microbatches
    ? `The first ${count(shown)} of ${count(estimate.num_microbatches)} microbatches, as if there were no more. `
    : "";
  place("timeline").replaceChildren(
    title("timeline", "The pipeline over time"),
    element("p", { class: "soft" },
      `${cut}Blank is the bubble: ${percent(bubble)} of the whole step, ${seconds(estimate.time_seconds.pp_bubble ?? 0)}. ` +
      "A picture of the order: a backward pass is drawn twice as long as a forward pass."),
    element("div", { class: "row soft" }, swatch(FORWARD, "forward"), swatch(BACKWARD, "backward"),
      layout.vpp > 1 ? `${layout.vpp} chunks of layers per stage take turns` : ""),
    element("div", { class: "scroll" }, picture(passes, layout, end, shown)));
}

function swatch(colour, name) {
  return element("span", {}, element("span", { class: "swatch", colour, "aria-hidden": "true" }), name);
}

function shownMicrobatches(layout, all) {
  const most = Math.max(layout.pp, Math.floor(SHOWN_PASSES / (Math.min(layout.pp, SHOWN_STAGES) * layout.vpp * 2)));
  const wanted = Math.min(all, most, 2 * layout.pp + 4);
  // The interleaved schedule takes microbatches in rounds of pp.
  return layout.vpp > 1 ? Math.max(layout.pp, wanted - (wanted % layout.pp)) : wanted;
}

function picture(passes, layout, end, shown) {
  const stages = Math.min(layout.pp, SHOWN_STAGES);
  const height = stages * ROW + 4;
  const unit = (WIDTH - LEFT - 4) / end;
  const drawing = shape("svg", {
    viewBox: `0 0 ${WIDTH} ${height}`, width: WIDTH, height, class: "long", role: "img",
    "aria-label": `Schedule of ${layout.pp} stages and ${shown} microbatches`,
  });
  for (let stage = 0; stage < stages; stage += 1) {
    drawing.append(shape("text", { class: "soft-text", x: 0, y: stage * ROW + 15 }, `stage ${stage}`));
  }
  for (const { stage, microbatch, chunk, isForward, start, end: until } of passes) {
    if (stage >= stages) continue;
    const x = LEFT + start * unit;
    const width = Math.max(0.5, (until - start) * unit - 1);
    drawing.append(shape("rect", {
      x, y: stage * ROW + 2, width, height: ROW - 4, rx: 2,
      fill: isForward ? FORWARD : BACKWARD, "fill-opacity": 1 - 0.45 * chunk / layout.vpp,
    }));
    if (width > 15) {
      drawing.append(shape("text", { class: "label", x: x + width / 2, y: stage * ROW + ROW / 2 }, String(microbatch + 1)));
    }
  }
  return drawing;
}
