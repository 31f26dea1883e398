// What to copy: a TrainJob with the plan written out, one that is planned at admission, the files
// and the command of each launcher that starts this framework, and the request itself.

import { copyButton, element, place, title } from "../dom.js";
import { toYaml } from "../yaml.js";

let chosen = "TrainJob, plan fixed";

/**
 * `label` is the key and value of the node label that names the GPU, if one is known; `launchers`
 * those the service writes for, and `write(name)` asks it for the files of one.
 */
export function showLaunch({ question, plan, environment, label, launchers, write }) {
  const forms = [
    form("TrainJob, plan fixed", "training.vsr.dev/v1alpha1 with this plan written into it.", "trainjob.yaml",
      () => toYaml(fixedJob(question, plan, environment, label))),
    form("TrainJob, planned at admission", "The webhook fills in the plan when the job is created.", "trainjob.yaml",
      () => toYaml(plannedJob(question, plan, label))),
    ...launchers.filter((one) => one.frameworks.includes(plan.framework) && one.name !== "trainjob")
      .map((one) => ({ name: one.name, note: `For ${one.release}.`, parts: async () => written(await write(one.name)) })),
    form("API request", "The body of POST /v1/plan.", "request.json", () => JSON.stringify(question, null, 2)),
  ];
  const content = element("div", { id: "launch-parts", "aria-live": "polite" });
  const tabs = forms.map((one) => element("button", {
    type: "button", "aria-pressed": "false", on: { click: () => show(one) },
  }, one.name));
  async function show(one) {
    chosen = one.name;
    for (const tab of tabs) tab.setAttribute("aria-pressed", String(tab.textContent === chosen));
    let parts;
    try {
      parts = await one.parts();
    } catch (problem) {
      parts = [element("p", { class: "problem" }, problem.message)];
    }
    if (chosen === one.name) content.replaceChildren(element("p", { class: "soft" }, one.note), ...parts);
  }
  show(forms.find((one) => one.name === chosen) ?? forms[0]);
  place("launch").replaceChildren(title("launch", "Start it"),
    element("div", { class: "row", role: "group", "aria-label": "Form" }, tabs), content);
}

const form = (name, note, file, text) => ({ name, note, parts: () => [block(file, text())] });

function block(name, content) {
  return element("div", {},
    element("div", { class: "row" }, element("code", {}, name), copyButton("Copy", () => content)),
    element("pre", { tabindex: "0", "aria-label": name }, content));
}

// An answer of `/v1/launch`: its command, its files, and what to know about them.
function written(answer) {
  const list = (heading, lines) => lines.length
    ? [element("h3", {}, heading), element("ul", {}, lines.map((line) => element("li", {}, line)))] : [];
  return [
    block("command", answer.command.join(" ")),
    ...answer.files.map((file) => block(file.name, file.content)),
    ...list("Watch out", answer.warnings), ...list("Before you start", answer.notes),
    ...list("Faster still", answer.tips.map((tip) => `${tip.binds}: ${tip.advice}`)),
  ];
}

const NAME = /[^a-z0-9]+/g;

function plannedJob(question, plan, label) {
  const named = typeof question.model === "string" ? question.model : plan.architecture.name || "custom";
  const work = plan.workload;
  const annotations = {
    "training.vsr.dev/global-batch-size": String(plan.estimate.global_batch_size),
    "training.vsr.dev/task": work.task,
    "training.vsr.dev/lora-rank": work.lora_rank === undefined ? undefined : String(work.lora_rank),
    "training.vsr.dev/optimizer": work.optimizer,
    "training.vsr.dev/offload": work.offload,
    "training.vsr.dev/framework": plan.framework,
    "training.vsr.dev/fabric": plan.cluster.fabric,
    "training.vsr.dev/pins": question.pins ? JSON.stringify(question.pins) : undefined,
  };
  return {
    apiVersion: "training.vsr.dev/v1alpha1",
    kind: "TrainJob",
    metadata: { name: `train-${named.toLowerCase().replace(NAME, "-").slice(0, 40)}`.replace(/-+$/, ""), annotations },
    spec: {
      model: named,
      image: "registry.example/train:latest",
      numNodes: plan.cluster.nodes,
      gpusPerNode: plan.cluster.gpus_per_node,
      autoParallelism: true,
      nodeSelector: selector(plan.cluster, label),
      modelSpec: { ...shape(question, plan.architecture), seqLen: plan.workload.sequence_length },
      checkpoint: { enabled: true, storagePath: "/checkpoints" },
    },
  };
}

// The plan's own choices as plain fields: the webhook leaves them alone.
function fixedJob(question, plan, environment, label) {
  const job = plannedJob(question, plan, label);
  const { layout } = plan;
  delete job.metadata.annotations["training.vsr.dev/pins"];
  job.spec = {
    ...job.spec,
    autoParallelism: false,
    tpDegree: layout.tp, ppDegree: layout.pp, cpDegree: layout.cp, precision: layout.precision,
    modelSpec: {
      ...job.spec.modelSpec,
      microBatchSize: layout.microbatch_size, activationCheckpointing: layout.recompute !== "none",
    },
    env: variables(environment),
  };
  return job;
}

// A catalog name says the shape; anything else has to be described.
function shape(question, architecture) {
  if (typeof question.model === "string") return {};
  return {
    paramsBillions: architecture.params / 1e9, hiddenDim: architecture.hidden_size,
    numLayers: architecture.num_layers, numHeads: architecture.num_heads, numKVHeads: architecture.num_kv_heads,
  };
}

function selector(cluster, label) {
  if (cluster.instance_type) return { "node.kubernetes.io/instance-type": cluster.instance_type };
  const [key, value] = label ?? ["nvidia.com/gpu.product", cluster.gpu];
  return { [key]: value };
}

const variables = (environment) => environment.map(({ name, value }) => ({ name, value }));
