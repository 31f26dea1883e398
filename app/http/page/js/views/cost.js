// What the tokens cost: every priced instance type at every size, time against money. Asked for on
// demand, because a sweep plans hundreds of clusters.

import { Refused } from "../api.js";
import { draw } from "../chart.js";
import { element, place, table, title } from "../dom.js";
import { count, figures, instances, percent } from "../format.js";
import { HUES, ink } from "../theme.js";

const SHOWN_OFFERS = 40;
const FIELDS = [
  ["tokens", "Tokens to train on", "1e12"],
  ["deadline_hours", "Hours it may take", "any"],
  ["budget_usd", "Dollars it may cost", "any"],
];
const given = { tokens: "1e12" };
let sweep = new AbortController();
let shown = null;

/** `ask(body, { signal, onProgress })` answers with the body of `/v1/cost`. */
export function showCost(ask) {
  sweep.abort();
  shown = null;
  const problem = element("p", { class: "problem", role: "alert" });
  const results = element("div", { id: "offers", "aria-live": "polite" });
  const button = element("button", { type: "submit" }, "Compare every instance type");
  const form = element("form", { class: "row", "aria-label": "What to train, and within what" },
    FIELDS.map(([key, label, hint]) => element("label", {}, label, element("input", {
      id: `cost-${key}`, type: "text", inputmode: "decimal", placeholder: hint, value: given[key] ?? "",
      on: { input: (event) => { given[key] = event.target.value.trim(); } },
    }))), button);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    sweep = new AbortController();
    const { signal } = sweep;
    problem.textContent = "";
    button.disabled = true;
    try {
      const answer = await ask(numbers(given), { signal, onProgress: progressIn(results) });
      if (!signal.aborted) showAnswer(results, answer);
    } catch (refusal) {
      if (refusal.name === "AbortError") return;
      if (!(refusal instanceof Refused)) throw refusal;
      results.replaceChildren();
      problem.textContent = refusal.message;
    } finally {
      button.disabled = false;
    }
  });
  place("cost").replaceChildren(title("cost", "What it costs"), form, problem, results);
}

/** Draw the chart again, in the colours of now. */
export function redrawCost() {
  if (shown) draw(shown.holder, "cost", shown.label, scatter(shown.answer));
}

// A text that is no number travels as it is, so that the service says what it would accept.
const numbers = (texts) => Object.fromEntries(Object.entries(texts).filter(([, text]) => text)
  .map(([key, text]) => [key, Number.isNaN(Number(text)) ? text : Number(text)]));

function progressIn(results) {
  const bar = element("progress", { id: "cost-progress", "aria-label": "Clusters planned" });
  const words = element("span", { class: "soft", "aria-hidden": "true" }, "Planning every cluster");
  results.replaceChildren(element("div", { class: "row" }, bar, words));
  return ({ done, total, name }) => {
    bar.max = total;
    bar.value = done;
    words.textContent = `${count(done)} of ${count(total)} clusters planned; now ${name}`;
  };
}

function showAnswer(results, answer) {
  const holder = element("div", { class: "chart scatter" });
  const { pareto, offers, scaling } = answer;
  results.replaceChildren(
    ...advice(answer), holder,
    element("details", { open: true }, element("summary", {}, `Nothing is both faster and cheaper (${pareto.length})`),
      offerTable("Offers nothing beats", pareto)),
    element("details", {}, element("summary", {}, `The cheapest of all ${count(offers.length)} offers`),
      offerTable("The cheapest offers", offers.slice(0, SHOWN_OFFERS))),
    ...(scaling.length > 1 ? [element("details", {}, element("summary", {}, "More machines of the recommended type"),
      scalingTable(scaling))] : []),
    element("p", { class: "soft" }, `${answer.assumptions.join("; ")}.`));
  const label = "Offers: days against dollars; the tables below list them";
  shown = { answer, holder, label };
  redrawCost();
}

function advice({ recommended: best, reason, scaling_advice, checkpoint }) {
  if (!best) return [element("p", { class: "problem" }, `${reason}.`)];
  return [
    element("p", {}, element("b", {}, `${instances(best.nodes, best.instance_type)}: ${hours(best.hours)}, ` +
      `${dollars(best.usd)} on demand`), `, ${reason}. ${sentence(scaling_advice)}`),
    element("p", { class: "soft" }, best.plan),
    ...(checkpoint ? [element("p", {}, `Spot: ${checkpoint.advice}.`)] : []),
  ];
}

const sentence = (text) => text ? `${text}.` : "";

function offerTable(caption, offers) {
  return element("div", { class: "front scroll", tabindex: "0", role: "region", "aria-label": caption },
    table(caption, ["instance type", "provider", { number: "nodes" }, { number: "time" },
      { number: "on demand" }, { number: "spot" }, { number: "per billion tokens" }, "price of"], offers.map(row)));
}

const row = (one) => [one.instance_type, one.provider, { number: count(one.nodes) }, { number: hours(one.hours) },
  { number: dollars(one.usd) }, { number: one.spot_usd === null ? "not known" : dollars(one.spot_usd) },
  { number: dollars(one.usd_per_billion_tokens) }, `${one.price.region}, ${one.price.date}`];

function scalingTable(rows) {
  const heads = [{ number: "nodes" }, { number: "GPUs" }, { number: "tokens/s" }, { number: "efficiency" },
    { number: "time" }, { number: "on demand" }, ""];
  return element("div", { class: "scroll" }, table("Scaling", heads, rows.map((one) => [
    { number: count(one.nodes) }, { number: count(one.gpus) }, { number: count(Math.round(one.tokens_per_second)) },
    { number: percent(one.efficiency) }, { number: hours(one.hours) }, { number: dollars(one.usd) },
    one.speedup_over_previous === null ? "the first size" : one.pays ? "pays" : "does not pay"])));
}

const dollars = (usd) => `$${usd >= 100 ? count(Math.round(usd)) : figures(usd)}`;
const hours = (value) => value >= 48 ? `${figures(value / 24)} days` : `${figures(value)} h`;

function scatter(answer) {
  const { text } = ink();
  const points = (offers) => offers.map((one) => ({ x: one.hours / 24, y: one.usd, one }));
  const chosen = answer.recommended ? [answer.recommended] : [];
  return {
    type: "scatter",
    data: {
      datasets: [
        { label: "recommended", data: points(chosen), pointStyle: "star", radius: 10, borderWidth: 2.5, borderColor: text, order: 0 },
        { label: "nothing is both faster and cheaper", data: points(answer.pareto), pointStyle: "rectRot", radius: 6,
          backgroundColor: HUES[5], borderColor: HUES[5], showLine: true, borderWidth: 1, order: 1 },
        { label: "offers", data: points(answer.offers), radius: 3.5, backgroundColor: HUES[4], borderColor: HUES[0], order: 2 },
      ],
    },
    options: {
      scales: {
        x: { type: "logarithmic", title: { display: true, text: "days" } },
        y: { type: "logarithmic", title: { display: true, text: "USD on demand" } },
      },
      plugins: {
        legend: { position: "bottom", labels: { usePointStyle: true } },
        tooltip: { callbacks: { label: ({ raw: { one } }) => `${instances(one.nodes, one.instance_type)}: ${hours(one.hours)}, ${dollars(one.usd)}` } },
      },
    },
  };
}
