"""Memory against published runs: the error of each set, and the verdict on every run that ran."""

from __future__ import annotations

import pytest

from app.advisor.published import (
    IN_BACKWARD,
    OUT_OF_MEMORY,
    Excluded,
    Run,
    as_run,
    microbatch,
    profile,
    run_of,
)
from app.catalog.loader import Catalog, load_catalog
from app.planner.estimate import estimate
from app.planner.layout import Layout
from benchmarks.memory import (
    GOALS,
    bias,
    completions,
    errors,
    known,
    mean_error,
    measured_bytes,
    read,
    runs,
)

MEAN_ERROR_GOAL = 0.10
BIAS_GOAL = 0.03
KINDS_OF_EXCLUSION = {
    IN_BACKWARD,
    "expert tensor parallelism: in no layout",
    "GPU or software not named",
    "a calculation, not a run",
    "architecture not stated, or not a plain transformer",
    "microbatch not stated",
    "not a plain transformer",
    "the source contradicts itself",
    OUT_OF_MEMORY,
    "tokens of a step not stated: unpacked sequences",
}


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture(scope="module")
def published(catalog: Catalog) -> list[Run | Excluded]:
    return runs(catalog)


@pytest.mark.parametrize("name", GOALS)
def test_error_and_bias_of_each_set(catalog: Catalog, name: str) -> None:
    """Within 10 % on average, and not leaning to one side by more than 3 %."""
    found = errors(catalog, GOALS[name])
    assert found
    assert mean_error(found) <= MEAN_ERROR_GOAL
    assert abs(bias(found)) <= BIAS_GOAL


def test_paper_figures_of_korthikanti(catalog: Catalog) -> None:
    """State and activation bars of Figure 1: each within 6 %, unfused attention and selective."""
    models = {row["model"]: row for row in read("models")}
    bars = [row for row in read("measurements") if "paper memory model" in row["memory_kind"]]
    assert len(bars) == 6
    for row in bars:
        run = run_of({**row, "notes": ""}, models, catalog)
        assert isinstance(run, Run)
        held = estimate(run.request, run.layout).memory
        shown = held.parameters + held.gradients + held.optimizer + held.activations
        assert shown == pytest.approx(measured_bytes(row), rel=0.06)


def fits_in_some_way(run: Run) -> bool:
    """Whether some completion of what the row leaves open is judged to fit."""
    return any(estimate(run.request, layout).fits for layout in completions(run))


def test_every_run_that_ran_is_judged_to_fit(published: list[Run | Excluded]) -> None:
    """100 %: time rows too, each with its own GPU, batch, precision and recomputation."""
    ran = [each for each in published if isinstance(each, Run)]
    assert len(ran) > 1800
    refused = [each.row["id"] for each in ran if not fits_in_some_way(each)]
    assert refused == []


def test_runs_that_ran_out_of_memory_are_judged_not_to_fit(catalog: Catalog) -> None:
    """The log of BigScience says of three layouts that they did not fit."""
    models = {row["model"]: row for row in read("models")}
    judged = {}
    for row in read("measurements"):
        found = run_of(row, models, catalog)
        if isinstance(found, Excluded) and found.reason == OUT_OF_MEMORY and row["id"][:3] == "bs-":
            again = run_of({**row, "notes": row["notes"].replace("OOM", "")}, models, catalog)
            assert isinstance(again, Run)
            judged[row["id"]] = fits_in_some_way(again)
    assert judged == {"bs-0098": False, "bs-0105": False, "bs-0141": False}


def test_exclusions_have_a_reason_that_names_a_kind(published: list[Run | Excluded]) -> None:
    """Nothing is dropped one by one: a reason is a cell that is empty, or one of these kinds."""
    reasons = {each.reason for each in published if isinstance(each, Excluded)}
    assert {r for r in reasons if not r.endswith("not stated")} <= KINDS_OF_EXCLUSION


def test_stated_cells_are_never_changed(published: list[Run | Excluded]) -> None:
    """A layout has the degrees, batch and precision of its row."""
    for each in published:
        if isinstance(each, Excluded):
            continue
        layout, row = each.layout, each.row
        assert (layout.tp, layout.pp) == (int(row["tp"]), int(row["pp"]))
        assert layout.world_size <= int(row["num_gpus"])
        if row["precision"]:
            assert layout.precision == row["precision"]
        if row["micro_batch"]:
            assert layout.microbatch_size == microbatch(row, layout.dp)


def test_versions_of_software(catalog: Catalog, published: list[Run | Excluded]) -> None:
    """The torchtitan of a date, Megatron-Bridge with its 16-bit gradients."""
    by_id = {each.row["id"]: each for each in published if isinstance(each, Run)}
    assert by_id["tt-0001"].request.framework.name == "fsdp-2024"
    assert by_id["tt-0031"].request.framework.name == "fsdp"
    bridge = profile(by_id["skill-0019"].row, catalog)
    assert bridge is not None
    assert as_run(by_id["skill-0019"].row, bridge).states["zero1"].gradients.replicated == 2
    assert bridge.states["zero1"].gradients.replicated == 4
    assert known(by_id["skill-0019"])


def test_completions_leave_what_is_stated(published: list[Run | Excluded]) -> None:
    """A row of vTrain states full recomputation but neither precision nor sharding."""
    one = next(
        each for each in published if isinstance(each, Run) and each.row["id"].startswith("vt-")
    )
    offered: list[Layout] = list(completions(one))
    assert {each.recompute for each in offered} == {"full"}
    assert len({each.sharding for each in offered}) > 1
