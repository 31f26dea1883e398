// What is asked, as one flat record of texts, and as the part of the link after "#".
// That part never reaches a server: a link with a private config.json stays between its readers.

export const START = { model: "llama-3-70b", gpu: "H100-SXM5-80GB", nodes: "8" };

export const TOP = ["gpu", "instance_type", "fabric", "framework"];
export const COUNTS = ["nodes", "gpus_per_node"];
export const WORKLOAD = ["sequence_length", "global_batch_size", "task", "lora_rank", "optimizer", "offload"];
export const PINS = ["tp", "pp", "vpp", "cp", "ep", "dp", "microbatch_size", "sharding", "recompute",
  "precision", "sequence_parallel"];

const KEYS = ["model", "config", "compare", ...TOP, ...COUNTS, ...WORKLOAD, ...PINS.map((name) => `pin.${name}`)];

/** The record a link holds; only known keys, only texts. */
export function fromLink(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const state = {};
  for (const key of KEYS) {
    const value = given.get(key);
    if (value) state[key] = value;
  }
  return Object.keys(state).length ? state : { ...START };
}

/** The link that holds `state`, keys in one order so that equal states have equal links. */
export function toLink(state) {
  const shown = new URLSearchParams();
  for (const key of KEYS) if (state[key]) shown.set(key, state[key]);
  return `#${shown}`;
}

// A text that is no number travels as it is, so that the service says what it would accept.
function value(text) {
  if (text === "true" || text === "false") return text === "true";
  return /^-?\d+(\.\d+)?$/.test(text) ? Number(text) : text;
}

function part(state, names, prefix = "") {
  const pairs = names.filter((name) => state[prefix + name])
    .map((name) => [name, value(state[prefix + name])]);
  return pairs.length ? Object.fromEntries(pairs) : null;
}

/** The body of `/v1/plan`. */
export function toQuestion(state) {
  const texts = TOP.filter((name) => state[name]).map((name) => [name, state[name]]);
  const question = { model: model(state), ...Object.fromEntries(texts), ...part(state, COUNTS) };
  const workload = part(state, WORKLOAD);
  const pins = part(state, PINS, "pin.");
  if (workload) question.workload = workload;
  if (pins) question.pins = pins;
  return question;
}

function model(state) {
  if (!state.config) return state.model ?? "";
  const hf_config = parsed(state.config);
  return state.model ? { name: state.model, hf_config } : { hf_config };
}

/** A layout kept in the link. */
export function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}

/** "tp=8, pp=4" as `{ tp: 8, pp: 4 }`; a word without a value travels on, to be complained about. */
export function toLayout(text) {
  const pairs = text.split(/[\s,]+/).filter(Boolean).map((pair) => pair.split("="));
  return Object.fromEntries(pairs.map(([key, given = ""]) => [key.toLowerCase(), value(given)]));
}
