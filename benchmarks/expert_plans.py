"""Plans of experts beside ours: the layouts others published, judged by our own clock.

Two sets. `expert_plans.csv` in `benchmarks/data` holds questions (a model, a cluster, a batch) with
the layout an expert published for each, or none. `measurements.csv` holds runs; each run of a
tuned recipe is such a question too. In both, what a source leaves open takes the value that makes
the expert's step shortest among those that fit.

The gap of a plan is how much longer the expert's step is than that of our best plan for the same
question in the same precision. It is our clock that judges: a gap says that either the expert or
the clock is wrong. Where a row has a measured step it is shown beside.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path

from app.advisor.accuracy import UNTUNED, measured_seconds
from app.advisor.published import Excluded, Run
from app.catalog.loader import Catalog
from app.planner.estimate import complete, estimate
from app.planner.intent import TrainIntent
from app.planner.layout import Layout
from app.planner.legality import uneven_stages, violations
from app.planner.request import Estimate, PlanRequest, TimeSeconds
from app.planner.search import best_estimate
from benchmarks.memory import completions, runs

DATA = Path(__file__).parent / "data" / "expert_plans.csv"
TOLERANCE = 0.05
"""A published plan this close to ours is as good: the goal is that every one is."""

NAMED = 0.01
"""Share of our step from which a term that differs is named."""

RECIPES: Mapping[str, str] = {
    "mbr": "Megatron-Bridge performance summary",
    "skill": "Megatron-Bridge skills",
    "card": "Megatron-Bridge verification cards",
    "nemo": "NeMo performance pages",
    "dgxc": "DGX Cloud benchmarking",
    "auto": "NeMo AutoModel",
    "mlm": "Megatron-LM README",
    "tt": "torchtitan",
    "fms": "fms-fsdp",
    "llmf": "llm-foundry",
}
"""Source groups of `measurements.csv` whose runs follow recipes somebody tuned or recommends."""

LAYOUT_COLUMNS = ("tp", "pp", "vpp", "cp", "ep", "microbatch_size")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What was asked, and the expert's answer: the layouts it may mean, none if not published."""

    name: str
    source: str
    request: PlanRequest
    layouts: tuple[Layout, ...]
    measured_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Duel:
    """Our plan and the expert's for one question; `None` where there is none or nothing fits."""

    question: Question
    ours: Estimate | None
    expert: Estimate | None

    @property
    def gap(self) -> float:
        """How much longer the expert's step is than ours: 0.05 is five percent.

        Raises AssertionError where one of the two is missing.
        """
        assert self.ours is not None  # noqa: S101 - for duels with both
        assert self.expert is not None  # noqa: S101
        return self.expert.step_time_seconds / self.ours.step_time_seconds - 1


def judged(question: Question) -> Duel:
    """The duel of one question: an illegal layout is no answer, and first comes what fits."""
    request = question.request
    ours, _ = best_estimate(request)
    legal = [
        estimate(request, layout) for layout in question.layouts if not violations(request, layout)
    ]
    expert = min(legal, key=lambda each: (not each.fits, each.step_time_seconds), default=None)
    return Duel(question=question, ours=ours, expert=expert)


# The plans of expert_plans.csv ------------------------------------------------------------------


def _asked(row: Mapping[str, str], catalog: Catalog) -> PlanRequest:
    """The question of a row, in its precision.

    Raises ValueError when a name of the row is not in the catalog.
    """
    intent = TrainIntent(
        model=row["model"],
        gpu=row["gpu"],
        nodes=int(row["nodes"]),
        gpus_per_node=int(row["gpus_per_node"]),
        framework=row["framework"],
        sequence_length=int(row["sequence_length"]),
        global_batch_size=int(row["global_batch_size"]),
        task=row["task"],
        optimizer=row["optimizer"],
        pins={"precision": row["precision"]},
    )
    request = catalog.resolve(intent, allowed_precisions=(row["precision"],))
    if not isinstance(request, PlanRequest):
        message = f"{row['model']} on {row['gpu']}: {request}"
        raise ValueError(message)  # noqa: TRY004 - the value of a data file
    return request


def _answers(row: Mapping[str, str], request: PlanRequest) -> tuple[Layout, ...]:
    """The layouts a row may mean: any recomputation or interleaving where it names none."""
    if not row["tp"]:
        return ()
    given: dict[str, object] = {key: int(row[key]) for key in LAYOUT_COLUMNS if row[key]}
    given |= {"precision": row["precision"], "sharding": row["sharding"]}
    given["stage_layers"] = uneven_stages(request, int(row["pp"]))
    recomputes = (row["recompute"],) if row["recompute"] else tuple(request.framework.kept)
    most = request.model.num_layers if request.framework.supports_vpp else 1
    chunks = (int(row["vpp"]),) if row["vpp"] else tuple(range(1, most + 1))
    found = []
    for recompute, vpp in product(recomputes, chunks):
        layout = complete(request, given | {"recompute": recompute, "vpp": vpp})
        if not isinstance(layout, Layout):
            message = f"{row['model']}: {layout}"
            raise ValueError(message)  # noqa: TRY004 - the value of a data file
        found.append(layout)
    return tuple(found)


def named_questions(catalog: Catalog) -> list[Question]:
    """Every row of `expert_plans.csv`."""
    with DATA.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    found = []
    for row in rows:
        request = _asked(row, catalog)
        found.append(
            Question(
                name=row["model"],
                source=row["source"],
                request=request,
                layouts=_answers(row, request),
                measured_seconds=float(row["measured_seconds"] or 0),
            )
        )
    return found


# The recipes among the published runs ---------------------------------------------------------


def question(run: Run) -> PlanRequest:
    """What a run was asked, in its own precision."""
    pins = replace(run.request.pins, precision=run.layout.precision)
    return replace(run.request, pins=pins)


def legal_layouts(run: Run) -> list[Layout]:
    """The legal layouts a run may mean, an uneven split written as Megatron-Core wants it."""
    request = question(run)
    meant = [
        replace(layout, stage_layers=uneven_stages(request, layout.pp))
        for layout in completions(run)
    ]
    return [layout for layout in meant if not violations(request, layout)]


def recipe_runs(catalog: Catalog) -> list[Run]:
    """Every run of the recipe groups that can be computed."""
    return [
        each for each in runs(catalog) if not isinstance(each, Excluded) and each.group in RECIPES
    ]


def is_answer(run: Run) -> bool:
    """Whether a run answers its question: tuned, and with the ep of an MoE model stated."""
    stated = run.request.model.moe is None or bool(run.row["ep"])
    return stated and UNTUNED not in run.row["notes"]


def recipe_questions(found: Iterable[Run]) -> list[Question]:
    """One question for every recipe: the runs of one layout on one cluster count once.

    A recipe is measured again with every release; what was measured last in the file is kept.
    """
    by_key: dict[str, Question] = {}
    for run in found:
        if not is_answer(run):
            continue
        request, layout = question(run), run.layout
        key = repr(
            (request.model, request.cluster, request.workload, request.framework.name, layout)
        )
        by_key[key] = Question(
            name=run.row["id"],
            source=run.group,
            request=request,
            layouts=tuple(legal_layouts(run)),
            measured_seconds=measured_seconds(run),
        )
    return list(by_key.values())


def duels(questions: Iterable[Question]) -> list[Duel]:
    """Every question judged."""
    return [judged(each) for each in questions]


def gaps(found: Iterable[Duel]) -> list[Duel]:
    """The duels with two plans, widest gap first."""
    both = [each for each in found if each.ours is not None and each.expert is not None]
    return sorted(both, key=lambda each: (-each.gap, each.question.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The gaps of one source: how many recipes, the share within `TOLERANCE`, median and widest."""

    recipes: int
    within: float
    median: float
    widest: float


def within(sizes: Iterable[float]) -> int:
    """How many gaps are up to `TOLERANCE`."""
    return sum(size <= TOLERANCE for size in sizes)


def spread(found: Sequence[Duel]) -> Spread:
    """Raises IndexError without a duel."""
    sizes = sorted(each.gap for each in found)
    middle = len(sizes) // 2
    return Spread(
        recipes=len(sizes),
        within=within(sizes) / len(sizes),
        median=(sizes[middle] + sizes[-1 - middle]) / 2,
        widest=sizes[-1],
    )


def by_source(found: Iterable[Duel]) -> dict[str, list[Duel]]:
    """Duels with two plans by source group, in the order of `RECIPES`."""
    both = gaps(found)
    return {
        group: mine
        for group in RECIPES
        if (mine := [each for each in both if each.question.source == group])
    }


# What decides a gap ---------------------------------------------------------------------------

TERMS = tuple(each.name for each in fields(TimeSeconds))


def term_differences(duel: Duel) -> dict[str, float]:
    """By cause, what the expert's plan spends more than ours, as a share of our step."""
    assert duel.ours is not None  # noqa: S101 - for duels with both
    assert duel.expert is not None  # noqa: S101
    total = duel.ours.step_time_seconds
    return {
        term: (getattr(duel.expert.time, term) - getattr(duel.ours.time, term)) / total
        for term in TERMS
    }


def drivers(duel: Duel) -> str:
    """The causes that make most of a gap, in words: every one of a percent or more."""
    found = sorted(term_differences(duel).items(), key=lambda pair: -pair[1])
    return ", ".join(f"{term} {share:+.0%}" for term, share in found if abs(share) >= NAMED)


def holds_more(duel: Duel) -> bool:
    """Whether our plan holds more memory than the expert's."""
    assert duel.ours is not None  # noqa: S101 - for duels with both
    assert duel.expert is not None  # noqa: S101
    return duel.ours.memory.total > duel.expert.memory.total


def moved(duel: Duel) -> str:
    """The layout fields in which our plan is another: `tp 4 to 8, pp 8 to 2`."""
    assert duel.ours is not None  # noqa: S101 - for duels with both
    assert duel.expert is not None  # noqa: S101
    theirs, ours = duel.expert.layout, duel.ours.layout
    names = (*LAYOUT_COLUMNS, "sharding", "recompute")
    return ", ".join(
        f"{name.removesuffix('_size')} {getattr(theirs, name)} to {getattr(ours, name)}"
        for name in names
        if getattr(theirs, name) != getattr(ours, name)
    )
