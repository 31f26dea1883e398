"""The part of docs/accuracy.md about plans: ours beside those that experts published."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Sequence

from app.catalog.loader import Catalog
from app.planner.layout import Layout
from app.planner.request import Estimate
from benchmarks.expert_plans import (
    RECIPES,
    TOLERANCE,
    Duel,
    by_source,
    drivers,
    duels,
    gaps,
    holds_more,
    moved,
    named_questions,
    recipe_questions,
    recipe_runs,
    spread,
)
from benchmarks.left_out import RECIPE_RESULT
from benchmarks.markdown import table

GIB = 1024**3

PLANS = """## Plans re-examined

Our plan beside the one that experts published for the same question, both by our clock: seconds of
a step, GiB of the fullest GPU, and how much longer the published plan's step is. A negative gap is
a published plan that is faster than ours because it fills more of the memory than we plan for
(8 % stay free). "none known" is a question nobody we know of published a plan for. Batches without
a published plan are those of Llama 3's pretraining, 16 million tokens. Data:
`benchmarks/data/expert_plans.csv`.
"""

RECIPES_TEXT = """## Recipes of others

Every published recipe with the layout it ran in: is it within {tolerance:.0%} of our best plan for
the same model, cluster, batch and precision? {within} of {recipes} are ({share:.0%}; the goal is
all). A recipe that ran with several releases counts once; what a source leaves open (recomputation,
sharding) takes the value that is best for the recipe. `tests/published/test_expert_plans.py` holds
these numbers. "Left out" is the share within 5% by constants that saw neither the runs nor the
recipes of the model, or of the source (llm-foundry is the only one of its profile).
"""

BEYOND_TEXT = """### Beyond {tolerance:.0%}, and what decides

One line for every published layout of a model on a GPU: the widest gap among its recipes (cluster
sizes, batches, precisions), where our plan differs from it, and which terms of the time differ, in
percent of our step.
"""

LIMITS_TEXT = """Why they differ, by kind:

- **Recipes leave memory free, we fill it.** In {fuller:.0%} of the recipes beyond the tolerance our
  plan holds more: less recomputation, larger microbatches, fewer stages. Published peaks agree with
  ours to 5 % (memory.md), so the room is there; recipes keep it for uneven routing and evaluation.
  Were 23 % to stay free instead of 8 %, 73 % of the recipes would be within 5 %: 79 of them would
  be faster than our plan.
- **Layouts that were not chosen for the question.** DGX Cloud benchmarking keeps one layout over a
  whole scaling series and for depth-reduced proxies; torchtitan's tables of TP 8 on 64 GPUs and of
  405B over 8 stages show that a feature works: by its own numbers 8B on TP 8 is a third slower than
  with FSDP alone (tt-0028 against tt-0006, tokens per second).
- **Tensor parallelism may be too cheap by our clock.** Megatron-Bridge measured 704 TFLOP/s a GPU
  for Llama 3 70B in fp8 with TP 4 and 509 with TP 8 on the same 32 GPUs (skill-0001, skill-0003).
- **Experts inside a node may be too cheap, across nodes too dear.** The measured column of
  Qwen3-235B on 256 H100 above has the four layouts of NVIDIA's model zoo: experts across nodes beat
  those inside a node with a pipeline. Tried without gain: an all-to-all of 2025 that sends every
  copy and one of 2026 that sends one a node, both near the 43 to 58 of 50 GB/s that DeepEP
  publishes. MoE runs came out a point further off, and fewer recipes within 5 %; the 15 runs that
  cross nodes are too few to tell.
- **torchtitan's 405B in 8 stages** has as many microbatches as stages. Our clock reads those steps
  to 5 %, so the bubble is real; what is ours is a layout without stages.
- **Tried, and left out.** Gathers of tensor parallelism in 8 bits, as Transformer Engine sends them
  (step times 0.03 points closer, no recipe more within 5 %); passes over memory for 8-bit casts (no
  gain); rows rounded up per expert instead of half a wave (MoE 0.2 points worse); tensor-parallel
  traffic that hides only behind the products beside it (errors the same, 16 recipes fewer within
  5 %); host time for every expert a rank holds (two recipes more, MoE 1.3 points worse without the
  model).
- **What experts preferred counts in the fit** (`benchmarks/preferences.py`), with little weight. Of
  Megatron-Core's 155 recipes 81, 82, 84 and 91 are within 5 % at weights of 0, 0.3, 0.5 and 1 of a
  run; with their model left out 82, 85, 85 and 85: what more weight adds is learnt by heart. At 0.5
  dense errors without the source rise by 1.4 points, at 1 those without the model by 0.4. Without a
  limit on the pull of one recipe MoE errors without the model rise by 4 points. FSDP's recipes are
  left aside: nothing gained without the model.
- **Recomputation by module.** Recipes of MoE models recompute some modules of a layer; a profile
  has one `selective`, which holds more than DeepSeek's does.
"""


def spelled(layout: Layout) -> str:
    """A layout in a table cell: degrees above 1, microbatch, what is sharded and recomputed."""
    degrees = [
        f"{name} {value}"
        for name in ("tp", "pp", "vpp", "cp", "ep", "dp")
        if (value := getattr(layout, name)) > 1
    ]
    words = [*degrees, f"mb {layout.microbatch_size}", layout.sharding]
    if layout.recompute != "none":
        words.append(layout.recompute)
    return " ".join(words)


def cells(found: Estimate | None, missing: str) -> tuple[str, str, str]:
    """Layout, seconds and GiB of an estimate; a layout that does not fit is said."""
    if found is None:
        return missing, "-", "-"
    held = f"{found.memory.total / GIB:.0f}"
    if not found.fits:
        held += f" of {found.gpu_memory_bytes / GIB:.0f}: no fit"
    return spelled(found.layout), f"{found.step_time_seconds:.3g}", held


def asked(duel: Duel) -> str:
    """The question in a table cell."""
    request = duel.question.request
    work, cluster = request.workload, request.cluster
    task = "" if work.task == "pretrain" else f" {work.task}"
    return (
        f"{request.model.name}{task}, {cluster.world_size:,} {cluster.gpu.name.split('-')[0]}, "
        f"{request.pins.precision}, {work.global_batch_size:,} x {work.sequence_length:,}"
    )


def numbered(sources: Iterable[str]) -> dict[str, int]:
    """Every source once, numbered in the order of its first use."""
    found: dict[str, int] = {}
    for source in sources:
        if source and source not in found:
            found[source] = len(found) + 1
    return found


def plans_table(found: Sequence[Duel]) -> str:
    """Our plan and the published one for every question, and the list of sources."""
    sources = numbered(duel.question.source for duel in found)
    rows = []
    for duel in found:
        both = duel.ours is not None and duel.expert is not None
        published = duel.question.source
        label = f"[{sources[published]}]" if published else ""
        rows.append(
            (
                asked(duel),
                *cells(duel.ours, "nothing fits"),
                *cells(duel.expert, "illegal here" if published else "none known"),
                f"{measured:.3g}" if (measured := duel.question.measured_seconds) else "",
                f"{duel.gap:+.0%}" if both else "-",
                drivers(duel) if both and abs(duel.gap) > TOLERANCE else "",
                label,
            )
        )
    head = (
        "question",
        "our plan",
        "s",
        "GiB",
        "published",
        "s",
        "GiB",
        "measured s",
        "gap",
        "terms",
        "source",
    )
    listed = "\n".join(f"{number}. {source}" for source, number in sources.items())
    return table(head, rows) + f"\nSources:\n\n{listed}\n"


def unseen_shares() -> dict[tuple[str, str], str]:
    """By what was left out and source, `all` too: the share within the tolerance."""
    with RECIPE_RESULT.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    recipes: Counter[tuple[str, str]] = Counter()
    near: Counter[tuple[str, str]] = Counter()
    for row in rows:
        for source in (row["source"], "all"):
            key = (row["left_out"], source)
            recipes[key] += int(row["recipes"])
            near[key] += int(row["within"])
    return {key: f"{near[key] / many:.0%}" for key, many in recipes.items()}


def shares_table(found: dict[str, list[Duel]]) -> str:
    """By source: recipes, how many are within the tolerance, seen and unseen, median and widest."""
    unseen = unseen_shares()
    named = [(group, RECIPES[group], spread(mine)) for group, mine in found.items()]
    named.append(("all", "all", spread([duel for mine in found.values() for duel in mine])))
    rows = [
        (
            name,
            str(each.recipes),
            f"{each.within:.0%}",
            unseen.get(("model", group), "-"),
            unseen.get(("source", group), "-"),
            f"{each.median:+.1%}",
            f"{each.widest:+.0%}",
        )
        for group, name, each in named
    ]
    head = (
        "source",
        "recipes",
        "within 5 %",
        "model left out",
        "source left out",
        "median gap",
        "widest",
    )
    return table(head, rows)


def beyond_table(found: Iterable[Duel]) -> str:
    """The recipes beyond the tolerance, one line for every published layout."""
    groups: dict[tuple[str, ...], list[Duel]] = {}
    for duel in found:
        if duel.gap <= TOLERANCE or duel.expert is None:
            continue
        request, layout = duel.question.request, duel.expert.layout
        spread_over = f"tp {layout.tp} pp {layout.pp} cp {layout.cp} ep {layout.ep}"
        key = (duel.question.source, request.model.name, request.cluster.gpu.name, spread_over)
        groups.setdefault(key, []).append(duel)
    rows = []
    for (source, model, gpu, over), mine in sorted(
        groups.items(), key=lambda pair: (list(RECIPES).index(pair[0][0]), pair[0][1:])
    ):
        widest = mine[0]
        rows.append(
            (
                source,
                model,
                gpu.split("-")[0],
                over,
                str(len(mine)),
                f"{widest.gap:+.0%}",
                moved(widest),
                drivers(widest),
            )
        )
    head = (
        "source",
        "model",
        "GPU",
        "published",
        "recipes",
        "widest",
        "published to ours",
        "terms",
    )
    return table(head, rows)


def plans_section(catalog: Catalog) -> str:
    """The sections of the page."""
    recipes = by_source(duels(recipe_questions(recipe_runs(catalog))))
    every = gaps(duel for mine in recipes.values() for duel in mine)
    whole = spread(every)
    within = round(whole.within * whole.recipes)
    beyond = [duel for duel in every if duel.gap > TOLERANCE]
    return "\n".join(
        (
            PLANS,
            plans_table(duels(named_questions(catalog))),
            RECIPES_TEXT.format(
                tolerance=TOLERANCE, within=within, recipes=whole.recipes, share=whole.within
            ),
            shares_table(recipes),
            BEYOND_TEXT.format(tolerance=TOLERANCE),
            beyond_table(every),
            LIMITS_TEXT.format(fuller=sum(map(holds_more, beyond)) / len(beyond)),
        )
    )
