// The page: state in, answers out. Each edit asks again; only the newest answer is shown.

import { choices, post, postLong, Refused } from "./api.js";
import { place } from "./dom.js";
import { buildForm, clearErrors, fillForm, showErrors } from "./form.js";
import { fromLink, parsed, START, toLink, toQuestion } from "./state.js";
import { onTheme } from "./theme.js";
import { showMemory, showTime } from "./views/bars.js";
import { showCandidates } from "./views/candidates.js";
import { redrawCost, showCost } from "./views/cost.js";
import { showCompare } from "./views/compare.js";
import { showEnvironment } from "./views/environment.js";
import { showLaunch } from "./views/launch.js";
import { showMesh } from "./views/mesh.js";
import { hideRefusal, list, showInfeasible, showRefusal } from "./views/refusal.js";
import { showTimeline } from "./views/timeline.js";
import { showWords } from "./views/words.js";

const PAUSE_MILLISECONDS = 250;

let state = fromLink(location.hash);
let known = null;
let shown = null;
let asking = new AbortController();
let timer = 0;

function change(changes) {
  const next = { ...state, ...changes };
  if (!("compare" in changes)) delete next.compare;
  for (const key of Object.keys(next)) if (!next[key]) delete next[key];
  go(next);
}

function go(next) {
  state = next;
  history.replaceState(null, "", toLink(state));
  fillForm(state);
  place("results").classList.add("waiting");
  clearTimeout(timer);
  timer = setTimeout(answer, PAUSE_MILLISECONDS);
}

async function answer() {
  asking.abort();
  asking = new AbortController();
  const { signal } = asking;
  const question = toQuestion(state);
  try {
    const plan = await post("plan", question, signal);
    clearErrors();
    if (plan.infeasible) refuse(plan);
    else await present(question, plan, signal);
    place("results").classList.remove("waiting");
  } catch (problem) {
    if (problem.name === "AbortError") return;
    if (!(problem instanceof Refused)) throw problem;
    complain(problem);
  }
}

// The plan is shown at once; what needs further questions follows.
async function present(question, plan, signal) {
  hideRefusal();
  place("results").hidden = false;
  place("results").classList.remove("miss");
  shown = { plan, question, other: shown?.other ?? null, candidates: null };
  const gpu = known.gpus.find((one) => one.name === plan.cluster.gpu);
  showWords(plan);
  showMesh(plan, gpu?.nvlink_domain_size);
  showTimeline(plan);
  tell(plan.explanation.split(". ")[0], { aloudOnly: true });
  shown.other = state.compare ? await explained(question, parsed(state.compare), signal).catch(unlessRefused) : null;
  redraw();
  const [environment, candidates] = await Promise.all([
    post("environment", { ...question, pins: undefined, layout: plan.layout }, signal),
    post("candidates", question, signal),
  ]);
  showEnvironment(environment);
  showLaunch({
    question, plan, environment: environment.environment, label: gpu?.node_label, launchers: known.launchers,
    write: (launcher) => post("launch", { ...question, pins: undefined, layout: plan.layout, framework: plan.framework, launcher }),
  });
  shown.candidates = candidates;
  redraw();
  showCost((asked, watch) => postLong("cost", { ...withoutMachines(question), ...asked }, watch));
}

// A link may hold a layout that is none: the plan is shown all the same.
function unlessRefused(problem) {
  if (problem instanceof Refused) return null;
  throw problem;
}

// What a job costs is asked of every machine there is.
const withoutMachines = ({ model, framework, workload }) => ({ model, framework, workload });

// Everything that a comparison or a change of colours touches.
function redraw() {
  if (!shown) return;
  const { plan, other, candidates } = shown;
  const rows = [{ name: "the plan", estimate: plan.estimate }];
  if (other) rows.push({ name: "chosen", estimate: other.estimate });
  showMemory(rows);
  showTime(rows);
  showCompare(other, compare);
  if (candidates && shown.drawn !== candidates) showCandidates(candidates, asPoint(plan), compare);
  shown.drawn = candidates;
}

// The same in other colours.
function recolour() {
  if (shown) shown.drawn = null;
  redraw();
  redrawCost();
}

const asPoint = ({ layout, estimate }) => ({
  layout, memory_bytes: estimate.memory_bytes.total, tokens_per_second_per_gpu: estimate.tokens_per_second_per_gpu,
});

async function compare(layout) {
  let other = null;
  try {
    if (layout) other = await explained(shown.question, layout);
  } catch (problem) {
    if (!(problem instanceof Refused)) throw problem;
    place("own-layout-problem").textContent = problem.errors.map((one) => one.message).join("; ");
    return;
  }
  place("own-layout-problem").textContent = "";
  if (layout) state = { ...state, compare: JSON.stringify(layout) };
  else delete state.compare;
  history.replaceState(null, "", toLink(state));
  shown.other = other;
  redraw();
  if (layout) place("compare").scrollIntoView({ block: "nearest" });
}

// A layout that is not legal is answered too; only one that is no layout is refused.
const explained = (question, layout, signal) => post("explain", { ...question, layout }, signal);

function refuse(plan) {
  shown = null;
  const { nearest } = plan.infeasible;
  place("results").hidden = nearest === null;
  place("results").classList.add("miss");
  tell("No plan: nothing fits.");
  showInfeasible(plan.infeasible);
  if (nearest === null) return;
  const rows = [{ name: "the nearest miss", estimate: nearest.estimate }];
  showMemory(rows);
  showTime(rows);
}

function complain(problem) {
  shown = null;
  place("results").hidden = true;
  tell("No plan yet.");
  const rest = showErrors(problem.errors);
  if (rest.length) showRefusal("This cannot be planned", list(rest.map((one) => one.message)));
  else showRefusal("This cannot be planned", list(problem.errors.map((one) => one.message)));
}

// What a screen reader says; a plan itself is shown in its card.
function tell(sentence, { aloudOnly = false } = {}) {
  place("status").textContent = sentence;
  place("status").classList.toggle("aloud", aloudOnly);
}

async function start() {
  try {
    known = await choices();
  } catch (problem) {
    showRefusal("The service does not answer", list([problem.message]));
    return;
  }
  place("version").textContent = `Catalog ${known.catalog_version}.`;
  buildForm(known, change);
  place("reset").addEventListener("click", () => go({ ...START }));
  place("share").addEventListener("click", share);
  window.addEventListener("hashchange", () => go(fromLink(location.hash)));
  onTheme(recolour);
  fillForm(state);
  await answer();
}

async function share() {
  const label = place("share").textContent;
  try {
    await navigator.clipboard.writeText(location.href);
    place("share").textContent = "Link copied";
  } catch {
    place("share").textContent = "Copy it from the address bar";
  }
  setTimeout(() => { place("share").textContent = label; }, 1600);
}

start();
