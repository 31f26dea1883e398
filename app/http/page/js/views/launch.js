// What to copy: a TrainJob that is planned at admission, the same with the plan written out, and
// the body of the request itself.

import { copyButton, element, place, title } from "../dom.js";
import { toYaml } from "../yaml.js";

let chosen = 0;

/** `label` is the key and value of the node label that names the GPU, if one is known. */
export function showLaunch(question, plan, environment, label) {
  const texts = [
    ["TrainJob, plan fixed", "training.vsr.dev/v1alpha1 with this plan written into it.", toYaml(fixedJob(question, plan, environment, label))],
    ["TrainJob, planned at admission", "The webhook fills in the plan when the job is created.", toYaml(plannedJob(question, plan, label))],
    ["API request", "POST /v1/plan", JSON.stringify(question, null, 2)],
  ];
  const code = element("pre", { tabindex: "0", id: "launch-text", "aria-label": "Text to copy" });
  const note = element("p", { class: "soft" });
  const tabs = texts.map(([name], index) => element("button", {
    type: "button", "aria-pressed": "false", on: { click: () => show(index) },
  }, name));
  function show(index) {
    chosen = index;
    tabs.forEach((tab, at) => tab.setAttribute("aria-pressed", String(at === index)));
    [, note.textContent, code.textContent] = texts[index];
  }
  show(chosen < texts.length ? chosen : 0);
  place("launch").replaceChildren(title("launch", "Start it"),
    element("div", { class: "row", role: "group", "aria-label": "Form" }, tabs),
    note, code, element("div", { class: "row" }, copyButton("Copy", () => code.textContent)));
}

const NAME = /[^a-z0-9]+/g;

function plannedJob(question, plan, label) {
  const named = typeof question.model === "string" ? question.model : plan.architecture.name || "custom";
  const annotations = {
    "training.vsr.dev/global-batch-size": String(plan.estimate.global_batch_size),
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
