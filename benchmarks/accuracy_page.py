"""Write docs/accuracy.md and its plots from the published runs: `make accuracy`."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt

from app.advisor.accuracy import (
    DEFAULT_DATA,
    GOALS,
    Choice,
    Comparison,
    Summary,
    choices,
    compare,
    measured_runs,
    summaries,
)
from app.advisor.published import Excluded
from app.catalog.loader import load_catalog
from benchmarks.calibrate import constants, usable
from benchmarks.left_out import RESULT
from benchmarks.markdown import table
from benchmarks.plans_page import plans_section

DOCS = Path(__file__).parents[1] / "docs"
IMAGES = DOCS / "images"
WORST = 25

INTRODUCTION = """# How accurate the time model is

<!-- Written by `make accuracy` (benchmarks/accuracy_page.py); edit that file, not this one. -->

Every published training run we could read, with the layout it ran in, against our step time for
that layout. Runs and sources: `benchmarks/data/measurements.csv`. Try it: `trainjob-advisor
accuracy`, or `--data FILE` with runs of your own. Errors are of the step time; a positive bias
means that we predict longer steps than were measured. How memory does is in
[memory.md](memory.md).
"""

METHOD = """## How the constants came about

`make calibrate` fits {constants} constants, by software profile and GPU family, to {runs} runs;
it never has one for a model or a source. Recipes pull too where our clock prefers another layout
by more than 3 %. "Left out" refits without each model (its depth-reduced proxies go with it), and
without each source, and judges what was left out.
"""

ORDER = """Layouts of one model, batch and cluster that were all measured: how much longer a step is
with the one we predict to be fastest than with the fastest.
"""

UNEXPLAINED = """## What we can't explain

- **Unseen sources.** vTrain left out as a whole leaves its profile to large models alone, which
  say nothing about launches: a profile is trusted only near the sizes it was fitted to.
- **Jean Zay against Selene.** NVIDIA's own runs of Megatron-LM (Narayanan, Korthikanti) are 15 to
  20 % faster than constants fitted to Megatron-DeepSpeed say, on the same GPUs: their matrix rate
  and exposed launches are constants of `megatron-lm-2022`, everything else it shares with
  `megatron-deepspeed`. A microbatch of BigScience's log has a cost that its tokens don't explain
  (mb 1 to 8: 274 to 215 ms a sequence); adding gradients (8 bytes a parameter) is a third of
  it. Tried without gain: gradients that cross a stage boundary whole, as DeepSpeed sends them. The
  log itself moved by 1 to 5 % when a PCIe fault of the nodes was found.
- **vTrain, TP 8 with a microbatch of one.** Slower in absolute terms than with two (245 against
  202 ms for 24 layers of 1024); no term of ours falls with more tokens.
- **vTrain 1456**: 64 sequences a microbatch take twice as long as 32 for the same batch.
- **vTrain, the order on 256 GPUs.** We choose TP 4 with two stages, 4.5 % behind the fastest, TP 8
  with microbatches of 8. TP 8 is 7 to 10 % too dear by our clock and TP 4 2 to 11 % too cheap; but
  with 16 a microbatch TP 8 was measured 9 % slower than with 8, and no term of ours falls that way.
- **MoE by release.** Megatron-Bridge's MoE rows gained 40 to 55 % from container 26.04 to 26.06
  on the same GPUs and layout: `megatron-2025` differs by one constant, the passes over memory of an
  unfused permutation.
- **MoE layers are bound by their host** at a microbatch of one wherever CUDA graphs don't replay
  them: 3 to 5 ms a layer and pass on H100, B200 and B300 (Qwen3-30B, Qwen3-235B, Moonlight),
  which one constant can't follow. Where a recipe has graphs is taken from NVIDIA's configurations
  (NVL72) and from notes (HybridEP, token dropping).
- **DeepSeek-V3 on GB200 in dgxc-benchmarking** (240 TFLOP/s, bf16) takes 11 ms a layer and pass,
  two to four times longer than every later release.
- **GPT-OSS-120B** left out is predicted 20 to 25 % too fast: attention with sinks and experts with
  biases ran outside of fused kernels.
- **LoRA in NeMo AutoModel** runs at 80 % of what we predict; its kernels and recomputation are
  not stated.
"""


def left_out() -> dict[tuple[str, str], tuple[str, str]]:
    """Mean error and bias by (what was left out, set), as `benchmarks.left_out` wrote them."""
    with RESULT.open(encoding="utf-8", newline="") as file:
        return {
            (row["left_out"], row["set"]): (row["mean_error"], row["bias"])
            for row in csv.DictReader(file)
        }


def sets_table(found: Sequence[Summary]) -> str:
    """Errors by set: in sample, without the run's model, without its source."""
    unseen = left_out()

    def cell(by: str, name: str) -> str:
        value = unseen.get((by, name))
        return f"{float(value[0]):.1%}" if value else "-"

    rows = [
        (
            each.name,
            str(each.rows),
            f"{GOALS[each.name]:.1%}" if each.name in GOALS else "-",
            f"{each.mean_error:.1%}",
            cell("model", each.name),
            cell("source", each.name),
            f"{each.bias:+.1%}",
            f"{each.median_error:.1%}",
        )
        for each in found
    ]
    head = (
        "set",
        "rows",
        "goal",
        "mean error",
        "model left out",
        "source left out",
        "bias",
        "median",
    )
    return table(head, rows)


def groups_table(by: str, found: Sequence[Summary]) -> str:
    """Errors by another key."""
    rows = [
        (each.name, str(each.rows), f"{each.mean_error:.1%}", f"{each.bias:+.1%}") for each in found
    ]
    return table((by, "rows", "mean error", "bias"), rows)


def choices_table(found: dict[str, list[Choice]]) -> str:
    """What our choice among measured layouts costs over the best."""
    rows = []
    for name, some in found.items():
        regrets = [each.regret for each in some]
        rows.append(
            (
                name,
                str(len(some)),
                f"{sum(regrets) / len(regrets):.1%}",
                f"{max(regrets):.1%}",
                f"{sum(regret == 0 for regret in regrets)} of {len(some)}",
            )
        )
    return table(("set", "groups", "mean regret", "worst", "best layout chosen"), rows)


def worst_table(found: Sequence[Comparison]) -> str:
    """The rows we miss most."""
    rows = []
    for each in sorted(found, key=lambda one: -abs(one.error))[:WORST]:
        measured, layout = each.measured, each.measured.layout
        spread = f"tp{layout.tp} pp{layout.pp} cp{layout.cp} ep{layout.ep} dp{layout.dp}"
        rows.append(
            (
                measured.row["id"],
                measured.row["model"],
                measured.request.cluster.gpu.name,
                f"{spread} mb{layout.microbatch_size} {layout.precision}",
                f"{each.predicted_seconds:.3g}",
                f"{measured.seconds:.3g}",
                f"{each.error:+.0%}",
            )
        )
    return table(("row", "model", "GPU", "layout", "predicted s", "measured s", "error"), rows)


def reasons_table(left: Sequence[Excluded]) -> str:
    """Rows that can't be computed, by reason."""
    counts: dict[str, int] = {}
    for each in left:
        counts[each.reason] = counts.get(each.reason, 0) + 1
    ordered = sorted(counts.items(), key=lambda pair: -pair[1])
    return table(("reason", "rows"), [(reason, str(count)) for reason, count in ordered])


def plots(found: Sequence[Comparison]) -> None:
    """Predicted against measured seconds, and the spread of errors by set."""
    mpl.rcParams.update({"svg.hashsalt": "accuracy", "font.size": 8})
    by_set: dict[str, list[Comparison]] = {}
    for each in found:
        name = each.measured.set
        by_set.setdefault("other" if name.startswith("other") else name, []).append(each)
    figure, axes = plt.subplots(figsize=(5, 4.4))
    for name in sorted(by_set):
        some = by_set[name]
        axes.scatter(
            [each.measured.seconds for each in some],
            [each.predicted_seconds for each in some],
            s=5,
            label=name,
        )
    axes.set(xscale="log", yscale="log", xlabel="measured s", ylabel="predicted s")
    low, high = axes.get_xlim()
    axes.plot((low, high), (low, high), color="grey", linewidth=0.7)
    axes.legend(fontsize=7)
    save(figure, "accuracy-predicted.png")
    figure, axes = plt.subplots(figsize=(6, 3.2))
    names = sorted(by_set)
    axes.boxplot(
        [[100 * each.error for each in by_set[name]] for name in names],
        orientation="horizontal",
        tick_labels=names,
        flierprops={"markersize": 2},
    )
    axes.axvline(0, color="grey", linewidth=0.7)
    axes.set(xlabel="error of the step time, %", xlim=(-70, 70))
    save(figure, "accuracy-errors.png")


def save(figure: plt.Figure, name: str) -> None:
    """One PNG, the same bytes for the same data."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(IMAGES / name, dpi=110, metadata={"Software": None})
    plt.close(figure)


def page() -> str:
    """The page."""
    catalog = load_catalog()
    measured, left = measured_runs(DEFAULT_DATA, catalog)
    found = compare(measured)
    plots(found)
    fitted = usable(measured)
    number = sum(len(constants(profile, runs)) for profile, runs in fitted.items())
    parts = [
        INTRODUCTION,
        sets_table(summaries(found, "set")),
        "![predicted against measured](images/accuracy-predicted.png)\n",
        "![errors by set](images/accuracy-errors.png)\n",
        "## The order of layouts\n",
        ORDER,
        choices_table(choices(found)),
        plans_section(catalog),
        METHOD.format(constants=number, runs=sum(len(runs) for runs in fitted.values())),
    ]
    for by in ("source", "gpu", "framework", "precision"):
        parts += [f"## By {by}\n", groups_table(by, summaries(found, by))]
    parts += [UNEXPLAINED, "## The worst rows\n", worst_table(found)]
    parts += ["## Rows that can't be computed\n", reasons_table(left)]
    return "\n".join(parts)


def main() -> None:
    """Write the page."""
    text = page()
    DOCS.mkdir(exist_ok=True)
    (DOCS / "accuracy.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
