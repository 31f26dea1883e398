// The question's form: fields from a table, values from the state, complaints beside their field.

import { element, place } from "./dom.js";
import { params } from "./format.js";
import { parsed } from "./state.js";

const MAX_CONFIG_BYTES = 256 * 1024;

/** Which field shows the complaint about a path of the request. */
const FIELD_OF = { "model.hf_config": "model", "model.name": "model", workload: "sequence_length" };

/** Build the form once. `onChange(changes)` hears every edit as keys and texts. */
export function buildForm(choices, onChange) {
  const names = (entries) => entries.map((entry) => entry.name ?? entry);
  const number = (key, label, hint) => field(key, label, input(key, { inputmode: "numeric", placeholder: hint }));
  const choose = (key, label, values, empty) => field(key, label, select(key, values, empty));
  const pin = (name, label) => number(`pin.${name}`, label, "free");

  place("question").append(
    group("Model",
      field("model", "Model", input("model", { list: "models" })),
      completions("models", choices.models, (model) => `${params(model.params)} parameters`),
      dropZone(onChange)),
    group("Hardware",
      choose("gpu", "GPU", names(choices.gpus), "from the instance type"),
      choose("instance_type", "Instance type", choices.instance_types.map((one) =>
        [one.name, `${one.name} (${one.gpus_per_node}× ${one.gpu})`]), "none"),
      element("div", { class: "pair" }, number("nodes", "Nodes", "1"), number("gpus_per_node", "GPUs per node", "8")),
      choose("fabric", "Network", choices.fabrics, "usual for this hardware")),
    group("Training",
      choose("framework", "Framework", choices.frameworks, "fsdp (default)"),
      element("div", { class: "pair" },
        number("sequence_length", "Sequence length", "of the model"),
        number("global_batch_size", "Global batch", "assumed"))),
    more("Task and optimizer", ["task", "lora_rank", "optimizer", "offload"],
      choose("task", "Task", choices.tasks, "pretrain (default)"),
      number("lora_rank", "LoRA rank", "16"),
      choose("optimizer", "Optimizer", choices.optimizers, "adamw (default)"),
      choose("offload", "Offload to host memory", choices.offloads, "none (default)")),
    more("Pins: what must stay as you say", ["pin."],
      element("div", { class: "pair" }, pin("tp", "TP"), pin("pp", "PP")),
      element("div", { class: "pair" }, pin("cp", "CP"), pin("ep", "EP")),
      element("div", { class: "pair" }, pin("dp", "DP"), pin("vpp", "Chunks (VPP)")),
      element("div", { class: "pair" }, pin("microbatch_size", "Micro-batch"),
        choose("pin.precision", "Precision", choices.precisions, "free")),
      element("div", { class: "pair" }, choose("pin.sharding", "Sharding", choices.shardings, "free"),
        choose("pin.recompute", "Recompute", choices.recomputes, "free"))),
    element("div", { class: "row" },
      element("button", { type: "button", id: "reset" }, "Start over")));

  place("question").addEventListener("submit", (event) => event.preventDefault());
  place("question").addEventListener("input", (event) => {
    const key = event.target.name;
    if (key) onChange({ [key]: event.target.value.trim(), ...consequences(key, event.target.value) });
  });
}

// A GPU and an instance type may contradict each other; the one chosen last counts.
function consequences(key, value) {
  if (key === "instance_type" && value) return { gpu: "", gpus_per_node: "", fabric: "" };
  if (key === "gpu" && value) return { instance_type: "" };
  if (key === "model") return { config: "" };
  return {};
}

/** Show `state` in the fields. The one being typed in is left alone. */
export function fillForm(state) {
  for (const control of place("question").elements) {
    if (!control.name || control === document.activeElement && control.tagName === "INPUT") continue;
    const value = state[control.name] ?? "";
    if (control.tagName === "SELECT" && value && ![...control.options].some((one) => one.value === value)) {
      control.append(element("option", { value }, value));
    }
    control.value = value;
  }
  const isConfig = Boolean(state.config);
  place("config-note").textContent = isConfig
    ? `Planning for a dropped config.json (${parsed(state.config).model_type ?? "unnamed type"}). `
    : "";
  for (const details of place("question").querySelectorAll("details")) {
    const keys = details.dataset.keys.split(" ");
    if (Object.keys(state).some((key) => keys.some((start) => key.startsWith(start)))) details.open = true;
  }
}

/** Put each error at its field; those without one are returned. */
export function showErrors(errors) {
  clearErrors();
  return errors.filter(({ path, message }) => {
    const key = fieldOf(path ?? "");
    const control = place("question").elements[key];
    const note = place(`${key}-problem`);
    if (!control || !note) return true;
    note.closest("details")?.setAttribute("open", "");
    control.setAttribute("aria-invalid", "true");
    control.setAttribute("aria-describedby", note.id);
    note.textContent = message;
    return false;
  });
}

export function clearErrors() {
  for (const note of place("question").querySelectorAll(".problem")) note.textContent = "";
  for (const control of place("question").elements) {
    control.removeAttribute("aria-invalid");
    control.removeAttribute("aria-describedby");
  }
}

function fieldOf(path) {
  const known = Object.keys(FIELD_OF).find((start) => path === start || path.startsWith(`${start}.`) && start !== "workload");
  if (known) return FIELD_OF[known];
  return path.startsWith("pins.") ? path.replace("pins.", "pin.") : path.replace("workload.", "");
}

function group(name, ...content) {
  return element("fieldset", {}, element("legend", {}, name), ...content);
}

function more(name, keys, ...content) {
  return element("details", { "data-keys": keys.join(" ") },
    element("summary", {}, name), element("fieldset", { "aria-label": name }, ...content));
}

function field(key, label, control) {
  return element("div", { class: "label" },
    element("label", { for: control.id }, label), control,
    element("span", { class: "problem", id: `${key}-problem` }));
}

function input(key, attributes) {
  return element("input", { id: `field-${key}`, name: key, type: "text", spellcheck: "false", ...attributes });
}

function select(key, values, empty) {
  const options = values.map((value) => Array.isArray(value) ? value : [value, value]);
  return element("select", { id: `field-${key}`, name: key },
    [["", empty], ...options].map(([value, text]) => element("option", { value }, text)));
}

function completions(id, entries, label) {
  return element("datalist", { id },
    entries.map((entry) => element("option", { value: entry.name }, label(entry))));
}

function dropZone(onChange) {
  const chosen = element("input", { type: "file", id: "config-file", accept: ".json,application/json" });
  const zone = element("div", { class: "drop", id: "drop" },
    element("span", { id: "config-note", "aria-live": "polite" }), "Drop a Hugging Face config.json here, or ",
    element("label", { for: "config-file" }, "choose one", chosen), ".",
    element("span", { class: "problem", id: "config-problem" }));
  const take = async (file) => {
    const problem = place("config-problem");
    problem.textContent = "";
    if (!file) return;
    if (file.size > MAX_CONFIG_BYTES) {
      problem.textContent = " This file is too large for a config.json.";
      return;
    }
    try {
      const config = JSON.parse(await file.text());
      const name = String(config._name_or_path ?? "").split("/").pop();
      onChange({ config: JSON.stringify(config), model: name });
    } catch {
      problem.textContent = " This file is not JSON.";
    }
  };
  chosen.addEventListener("change", () => { take(chosen.files[0]); chosen.value = ""; });
  for (const [name, over] of [["dragenter", true], ["dragover", true], ["dragleave", false], ["drop", false]]) {
    zone.addEventListener(name, (event) => {
      event.preventDefault();
      zone.classList.toggle("over", over);
      if (name === "drop") take(event.dataTransfer.files[0]);
    });
  }
  return zone;
}
