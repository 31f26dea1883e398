"""Pages of a plan and an estimate at the widths people have."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from app.advisor.advise import Desk, PlanAnswer, answer_estimate, answer_plan
from app.advisor.errors import Refusal
from app.catalog.loader import load_catalog
from app.cli.plan_view import _show_alternatives, count_words, show_estimate, show_plan
from app.cli.screen import bar
from app.planner.request import NoFeasiblePlan, Plan
from app.planner.search import plan

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
QUESTION = {"model": "llama-3-70b", "gpu": "H100-SXM5-80GB", "nodes": 8}


@pytest.fixture(scope="module")
def desk() -> Desk:
    """The real catalog and search."""
    return Desk(
        catalog=load_catalog(),
        planner=plan,
        clock=lambda: 0.0,
        allowed_precisions=("bf16", "fp16"),
    )


def page(desk: Desk, width: int, **change: Any) -> str:
    """What a colour terminal of `width` columns shows of a plan, or of an estimate."""
    screen = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", width=width)
    body = QUESTION | change
    if "layout" in body:
        estimate = answer_estimate(body, desk)
        assert not isinstance(estimate, Refusal), estimate
        show_estimate(screen, estimate)
    else:
        answer = answer_plan(body, desk)
        assert not isinstance(answer, Refusal), answer
        show_plan(screen, answer)
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


@pytest.mark.parametrize("width", [30, 44, 80, 200])
@pytest.mark.parametrize("change", [{}, {"gpu": "T4", "nodes": 1}, {"layout": {"tp": 3}}])
def test_no_line_is_wider_than_the_terminal(desk: Desk, width: int, change: dict[str, Any]) -> None:
    lines = COLOURS.sub("", page(desk, width, **change)).splitlines()
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize(
    ("layout", "words"),
    [({"precision": "fp8", "tp": 8}, "% MFU of the bf16 peak"), ({"tp": 8}, "% MFU\n")],
)
def test_mfu_says_against_which_peak(desk: Desk, layout: dict[str, Any], words: str) -> None:
    shown = COLOURS.sub("", page(desk, 200, layout=layout, framework="megatron"))
    assert words in shown


def test_a_terminal_has_colours_and_bars(desk: Desk) -> None:
    shown = page(desk, 100)
    assert COLOURS.search(shown)
    assert "█" in shown


def test_a_narrow_terminal_has_no_room_for_bars(desk: Desk) -> None:
    assert "█" not in page(desk, 40)


def test_offloaded_bytes_are_shown_beside_the_card(desk: Desk) -> None:
    shown = page(desk, 100, workload={"offload": "optimizer"}, layout={"tp": 8})
    assert "of host memory on each node" in shown


def test_choices_that_matter_are_named(desk: Desk) -> None:
    layout = {"tp": 4, "pp": 4, "vpp": 2, "sharding": "zero1", "recompute": "selective"}
    shown = page(desk, 100, framework="megatron", layout=layout)
    assert "zero1, recompute selective, vpp 2, sequence parallel" in COLOURS.sub("", shown)


def test_experts_and_shard_groups_are_named(desk: Desk) -> None:
    layout = {"ep": 8, "sharding": "hsdp", "dp_shard": 8}
    shown = COLOURS.sub("", page(desk, 100, model="mixtral-8x7b", layout=layout))
    assert "active" in shown
    assert "hsdp over 8" in shown
    assert "ep 8" in shown


def test_an_uneven_pipeline_is_spelled_out(desk: Desk) -> None:
    layout = {"pp": 2, "stage_layers": [41, 39]}
    assert "layers a stage 41/39" in COLOURS.sub("", page(desk, 100, layout=layout))


def test_what_an_answer_lacks_has_no_heading(desk: Desk) -> None:
    """No empty part for a plan without neighbours or a refusal without a nearest miss."""
    answer = answer_plan(QUESTION, desk)
    assert isinstance(answer, PlanAnswer)
    assert isinstance(answer.outcome, Plan)
    nothing = answer_plan(QUESTION | {"pins": {"tp": 3}}, desk)
    assert isinstance(nothing, PlanAnswer)
    assert isinstance(nothing.outcome, NoFeasiblePlan)
    lost = replace(nothing, outcome=replace(nothing.outcome, nearest=None))
    screen = Console(file=io.StringIO(), width=100)
    _show_alternatives(screen, answer.outcome, ())
    show_plan(screen, lost)
    assert isinstance(screen.file, io.StringIO)
    assert "Runners-up" not in screen.file.getvalue()
    assert "nearest miss" not in screen.file.getvalue()


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (1_500_000_000_000, "1.5 T"),
        (70_553_706_496, "70.6 B"),
        (124_439_808, "124 M"),
        (9_999, "9,999"),
    ],
)
def test_counts_read_as_people_say_them(number: int, words: str) -> None:
    assert count_words(number) == words


@pytest.mark.parametrize(
    ("share", "drawn"), [(0, ""), (0.5, "████"), (0.0625, "▌"), (1, "█" * 8), (7.0, "█" * 8)]
)
def test_bars_have_eighths_of_a_cell(share: float, drawn: str) -> None:
    assert bar(share, 8, blocks=True, style="green").plain.rstrip() == drawn


def test_bars_without_blocks_are_ascii() -> None:
    assert bar(0.5, 8, blocks=False, style="green").plain == "####"
