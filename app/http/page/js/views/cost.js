// What the tokens cost: every priced instance type at every size, time against money. Asked for on
// demand, because a sweep plans hundreds of clusters.

import { draw } from "../chart.js";
import { element, place, table, title } from "../dom.js";
import { count, figures } from "../format.js";
import { HUES, ink } from "../theme.js";

const SHOWN_OFFERS = 40;
let tokens = "1e12";

/** `ask(tokens)` answers with the body of `/v1/cost`. */
export function showCost(ask) {
  const field = element("input", { id: "cost-tokens", type: "text", inputmode: "numeric", value: tokens });
  const problem = element("p", { class: "problem", role: "alert" });
  const results = element("div", { "aria-live": "polite" });
  const button = element("button", { type: "button" }, "Compare every instance type");
  button.addEventListener("click", async () => {
    tokens = field.value.trim();
    problem.textContent = "";
    button.disabled = true;
    results.replaceChildren(element("p", { class: "soft" }, "Planning every cluster: this takes some seconds"));
    try {
      showAnswer(results, await ask(Math.round(Number(tokens)) || tokens));
    } catch (refusal) {
      results.replaceChildren();
      problem.textContent = refusal.message;
    } finally {
      button.disabled = false;
    }
  });
  place("cost").replaceChildren(title("cost", "What it costs"),
    element("div", { class: "row" }, element("label", { for: "cost-tokens" }, "Tokens to train on"), field, button),
    problem, results);
}

function showAnswer(results, answer) {
  const holder = element("div", { class: "chart scatter" });
  const offers = answer.offers.slice(0, SHOWN_OFFERS);
  const best = answer.recommended;
  results.replaceChildren(
    ...(best ? [element("p", {}, element("b", {}, `${count(best.nodes)} × ${best.instance_type}: `),
      `${hours(best.hours)}, ${dollars(best.usd)} on demand. ${answer.scaling_advice ?? ""}.`)] : []),
    ...(answer.checkpoint ? [element("p", {}, `Spot: ${answer.checkpoint.advice}.`)] : []),
    holder,
    element("div", { class: "front scroll", tabindex: "0", role: "region", "aria-label": "Offers" },
      table("Offers", ["instance type", { number: "nodes" }, { number: "time" }, { number: "on demand" },
        { number: "spot" }, { number: "per billion tokens" }, "price of"], offers.map(row))),
    element("p", { class: "soft" }, `${answer.assumptions.join("; ")}.`));
  draw(holder, "cost", "Offers: hours against dollars; the table below lists them", scatter(answer));
}

const row = (one) => [one.instance_type, { number: count(one.nodes) }, { number: hours(one.hours) },
  { number: dollars(one.usd) }, { number: one.spot_usd === null ? "not known" : dollars(one.spot_usd) },
  { number: dollars(one.usd_per_billion_tokens) }, `${one.price.region}, ${one.price.date}`];

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
        { label: "offers", data: points(answer.offers), radius: 4, backgroundColor: HUES[4], borderColor: HUES[0], order: 1 },
      ],
    },
    options: {
      scales: {
        x: { type: "logarithmic", title: { display: true, text: "days" } },
        y: { type: "logarithmic", title: { display: true, text: "USD on demand" } },
      },
      plugins: {
        legend: { position: "bottom", labels: { usePointStyle: true } },
        tooltip: { callbacks: { label: ({ raw }) => `${raw.one.nodes} × ${raw.one.instance_type}: ${hours(raw.one.hours)}, ${dollars(raw.one.usd)}` } },
      },
    },
  };
}
