// Charts of the vendored Chart.js, dressed in the page's colours. One chart per canvas.

import { element } from "./dom.js";
import { ink } from "./theme.js";

const drawn = new Map();

/** Draw `config` in `holder` under `id`, in place of the chart that was there. */
export function draw(holder, id, label, config) {
  drawn.get(id)?.destroy();
  const canvas = element("canvas", { role: "img", "aria-label": label });
  holder.replaceChildren(canvas);
  const { text, soft, line } = ink();
  const { Chart } = window;
  Chart.defaults.color = soft;
  Chart.defaults.borderColor = line;
  Chart.defaults.font.family = "system-ui, sans-serif";
  Chart.defaults.animation = false;
  Chart.defaults.maintainAspectRatio = false;
  Chart.defaults.plugins.legend.labels.color = text;
  const chart = new Chart(canvas, config);
  drawn.set(id, chart);
  return chart;
}

/** Rows of stacked parts; `limits` are vertical lines with a name. */
export function stackedBars({ rows, series, unit, limits = [] }) {
  const { text, card } = ink();
  const most = Math.max(...limits.map((limit) => limit.at),
    ...rows.map((_, row) => series.reduce((sum, one) => sum + one.data[row], 0)));
  return {
    type: "bar",
    data: {
      labels: rows,
      datasets: series.map((one) => ({
        label: one.name, data: one.data, backgroundColor: one.colour, borderColor: card,
        borderWidth: { right: 1 }, barPercentage: 0.8, categoryPercentage: 0.9,
      })),
    },
    options: {
      indexAxis: "y",
      layout: { padding: { top: limits.length ? 16 : 0, right: 8 } },
      scales: {
        x: { stacked: true, suggestedMax: limits.length ? most * 1.05 : undefined, title: { display: true, text: unit } },
        y: { stacked: true, grid: { display: false }, ticks: { display: rows.length > 1, color: text } },
      },
      plugins: {
        legend: { display: false },
        tooltip: { callbacks: { label: (item) => `${item.dataset.label}: ${item.raw.toFixed(2)} ${unit}` } },
      },
    },
    plugins: [verticalLines(limits)],
  };
}

function verticalLines(limits) {
  return {
    id: "limits",
    afterDatasetsDraw({ ctx, chartArea, scales }) {
      const { text } = ink();
      ctx.save();
      ctx.strokeStyle = ctx.fillStyle = text;
      ctx.font = "11px system-ui, sans-serif";
      ctx.textBaseline = "bottom";
      for (const { at, name, dashed, align } of limits) {
        const x = scales.x.getPixelForValue(at);
        ctx.setLineDash(dashed ? [4, 3] : []);
        ctx.beginPath();
        ctx.moveTo(x, chartArea.top);
        ctx.lineTo(x, chartArea.bottom);
        ctx.stroke();
        ctx.textAlign = align ?? "right";
        ctx.fillText(name, x + (align === "left" ? 3 : -3), chartArea.top - 1);
      }
      ctx.restore();
    },
  };
}
