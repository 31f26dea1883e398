// The device mesh: GPUs in their nodes, and with whom each one shares what.
//
// Ranks count as the frameworks lay them out: tp fastest, so that its groups stay inside the fast
// domain, then cp, dp and, slowest, pp. Expert groups are runs of ranks of one pipeline stage.

import { element, place, shape, title } from "../dom.js";
import { count, plural } from "../format.js";
import { HUES } from "../theme.js";

const SHOWN_NODES = 16;
const CELL = 24;
const GAP = 3;
const AXES = {
  tp: "Tensor parallel: they exchange activations in every layer",
  cp: "Context parallel: they exchange keys and values of one sequence",
  ep: "Expert parallel: they send tokens to each other's experts",
  dp: "Data parallel: they average gradients and share sharded states",
  pp: "Pipeline: they hand activations to the next stage",
};

let selected = { axis: "tp", rank: 0 };

/** Draw the mesh of a plan; `domain` is how many GPUs the fast links join, if known. */
export function showMesh(plan, domain) {
  const { layout, cluster } = plan;
  const world = cluster.nodes * cluster.gpus_per_node;
  const axes = Object.keys(AXES).filter((axis) => layout[axis] > 1);
  if (!axes.includes(selected.axis)) selected = { axis: axes[0] ?? "dp", rank: 0 };
  if (selected.rank >= world) selected.rank = 0;

  const nodes = shownNodes(cluster, layout);
  const gpus = new Map();
  const note = element("p", { "aria-live": "polite", id: "mesh-note" });
  const buttons = axes.map((axis) => element("button", {
    type: "button", "aria-pressed": "false", "data-axis": axis,
    on: { click: () => { selected.axis = axis; mark(); } },
  }, `${axis.toUpperCase()} ${layout[axis]}`));

  function mark() {
    const members = new Set(group(selected.axis, selected.rank, layout));
    for (const [rank, gpu] of gpus) {
      gpu.classList.toggle("member", members.has(rank));
      gpu.classList.toggle("apart", !members.has(rank));
      gpu.nextElementSibling.classList.toggle("apart", !members.has(rank));
      gpu.setAttribute("tabindex", rank === selected.rank ? "0" : "-1");
    }
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.axis === selected.axis));
    note.textContent = sentence(selected, members, cluster, layout);
  }

  const select = (rank) => { selected.rank = rank; mark(); };
  const picture = drawn(nodes, cluster, layout, gpus, select);
  picture.addEventListener("keydown", (event) => walk(event, gpus, select));
  mark();
  place("mesh").replaceChildren(
    title("mesh", "Who shares what"),
    element("p", { class: "soft" }, `${hidden(nodes, cluster.nodes)}Colour is the pipeline stage, the number in a GPU its rank. ` +
      `Choose a GPU (click, or arrow keys) and a group. ${fastLinks(domain, layout, cluster)}`),
    ...(buttons.length ? [element("div", { class: "row", role: "group", "aria-label": "Group to show" }, buttons)] : []),
    element("div", { class: "scroll" }, picture), note);
}

/** The ranks that share `axis` with `rank`. */
export function group(axis, rank, layout) {
  const { tp, cp, dp, pp } = layout;
  const stage = tp * cp * dp;
  if (axis === "ep") {
    const first = rank - (rank % layout.ep);
    return Array.from({ length: layout.ep }, (_, place) => first + place);
  }
  const [size, stride] = { tp: [tp, 1], cp: [cp, tp], dp: [dp, tp * cp], pp: [pp, stage] }[axis];
  const first = rank - (Math.floor(rank / stride) % size) * stride;
  return Array.from({ length: size }, (_, place) => first + place * stride);
}

function sentence({ axis, rank }, members, cluster, layout) {
  const nodes = new Set([...members].map((member) => Math.floor(member / cluster.gpus_per_node)));
  const where = nodes.size === 1 ? `all in node ${[...nodes][0]}` : `on ${count(nodes.size)} nodes`;
  const stage = Math.floor(rank / (layout.tp * layout.cp * layout.dp));
  return `GPU ${count(rank)} (node ${Math.floor(rank / cluster.gpus_per_node)}, stage ${stage}) shares ` +
    `${axis.toUpperCase()} with ${others(members.size - 1)}, ${where}. ${AXES[axis]}.`;
}

const others = (number) => number === 1 ? "1 other" : `${count(number)} others`;

function fastLinks(domain, layout, cluster) {
  if (!domain || domain <= 1) return "These GPUs have no fast links between them.";
  const size = Math.min(domain, cluster.nodes * cluster.gpus_per_node);
  if (size === 1) return "It shares nothing with another.";
  return layout.tp > 1 ? `TP stays among the ${plural(size, "GPU")} that NVLink or its like joins.`
    : `NVLink or its like joins ${plural(size, "GPU")}.`;
}

// All nodes, or of many those of the first GPU's groups, and others evenly as far as there is room.
function shownNodes({ nodes, gpus_per_node }, layout) {
  if (nodes <= SHOWN_NODES) return Array.from({ length: nodes }, (_, node) => node);
  const ranks = ["tp", "pp", "cp", "ep", "dp"].flatMap((axis) => group(axis, 0, layout));
  const wanted = ranks.map((rank) => Math.floor(rank / gpus_per_node));
  const evenly = Array.from({ length: 2 * SHOWN_NODES }, (_, at) => Math.round(at * (nodes - 1) / (2 * SHOWN_NODES - 1)));
  return [...new Set([...wanted, ...evenly])].slice(0, SHOWN_NODES).sort((one, other) => one - other);
}

const hidden = (shown, nodes) => shown.length < nodes ? `${shown.length} of ${count(nodes)} nodes, those of GPU 0 first. ` : "";

function drawn(nodes, cluster, layout, gpus, select) {
  const perNode = cluster.gpus_per_node;
  const across = Math.min(perNode, perNode <= 8 ? 4 : 12);
  const width = across * (CELL + GAP) + 2 * GAP + 4;
  const height = Math.ceil(perNode / across) * (CELL + GAP) + 22;
  const most = Math.min(nodes.length, 8, Math.max(1, Math.floor(room() / (width + 8))));
  const rows = Math.ceil(nodes.length / most);
  const columns = Math.ceil(nodes.length / rows);
  const total = { width: columns * (width + 8), height: rows * (height + 8) };
  const picture = shape("svg", {
    viewBox: `0 0 ${total.width} ${total.height}`, width: total.width, height: total.height,
    role: "group", "aria-label": "GPUs by node",
  });
  nodes.forEach((node, at) => {
    const x = (at % columns) * (width + 8) + 2;
    const y = Math.floor(at / columns) * (height + 8) + 2;
    picture.append(
      shape("rect", { class: "node", x, y, width, height: height, rx: 6 }),
      shape("text", { class: "soft-text", x: x + 6, y: y + 13 }, `node ${node}`));
    for (let local = 0; local < perNode; local += 1) {
      const rank = node * perNode + local;
      const left = x + GAP + 2 + (local % across) * (CELL + GAP);
      const top = y + 18 + Math.floor(local / across) * (CELL + GAP);
      gpus.set(rank, gpuAt(rank, left, top, layout, select));
      picture.append(gpus.get(rank), shape("text", {
        class: "label", x: left + CELL / 2, y: top + CELL / 2 + 1, "aria-hidden": "true",
      }, rank < 10000 ? String(rank) : ""));
    }
  });
  return picture;
}

// Pixels a row of nodes may take.
// The card itself has no size while it is empty.
const room = () => Math.max(160, place("results").clientWidth - 36);

function gpuAt(rank, x, y, layout, select) {
  const stage = Math.floor(rank / (layout.tp * layout.cp * layout.dp));
  return shape("rect", {
    class: "gpu", x, y, width: CELL, height: CELL, rx: 4, role: "button", "data-rank": rank,
    fill: stageColour(stage), "aria-label": `GPU ${rank}, pipeline stage ${stage}`,
    on: { click: () => select(rank) },
  });
}

// Light enough for a black number: the dark blue of the palette comes last.
const STAGE_HUES = [HUES[4], HUES[1], HUES[2], HUES[3], HUES[6], HUES[5], HUES[7]];

/** One of seven colours; a longer pipeline begins again. */
export const stageColour = (stage) => STAGE_HUES[stage % STAGE_HUES.length];

function walk(event, gpus, select) {
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 4, ArrowUp: -4 }[event.key];
  if (!step) return;
  const ranks = [...gpus.keys()];
  const next = ranks[ranks.indexOf(selected.rank) + step];
  if (next === undefined) return;
  event.preventDefault();
  select(next);
  gpus.get(next).focus();
}
