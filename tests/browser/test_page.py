"""The page in a real browser: what a reader sees, by mouse and by keyboard. No figure is frozen."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Visit, visiting
from tests.faults.service import review

LARGE = "#model=llama-3-405b&gpu=H100-SXM5-80GB&nodes=32&framework=megatron"
HOPELESS = "#model=llama-3-70b&gpu=A10&nodes=1"
CONFIG = {
    "model_type": "llama", "_name_or_path": "acme/tiny", "hidden_size": 2048,
    "intermediate_size": 5632, "num_hidden_layers": 16, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 4096,
}  # fmt: skip
CARDS = ("words", "memory", "time", "mesh", "candidates", "environment", "launch")


def no_sideways_scroll(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


def test_a_plan_is_shown_at_once(visit: Visit) -> None:
    """Every card of the default question, with a chart where there should be one."""
    page = visit.open()
    for card in CARDS:
        expect(page.locator(f"#{card} h2")).to_be_visible()
    for card in ("memory", "time", "candidates"):
        expect(page.locator(f"#{card} canvas")).to_be_visible()
    expect(page.locator("#words")).to_contain_text("tokens/s")
    expect(page.locator("#mesh .gpu")).to_have_count(64)
    tops = {gpu_top(page, rank) for rank in (0, 8)}
    assert len(tops) == 1, "nodes stand side by side where there is room"
    expect(page.locator("#refusal")).to_be_hidden()


def gpu_top(page: Page, rank: int) -> float:
    """Where a GPU of the mesh begins, in pixels."""
    box = page.locator(f"#mesh .gpu[data-rank='{rank}']").bounding_box()
    assert box is not None
    return box["y"]


def test_an_edit_asks_again(visit: Visit) -> None:
    page = visit.open()
    page.get_by_label("Nodes", exact=True).fill("4")
    page.get_by_label("Framework").select_option("megatron")
    visit.settled()
    expect(page.locator("#words h2")).to_contain_text("32 \u00d7")
    expect(page.locator("#words")).to_contain_text("megatron")
    expect(page.locator("#mesh .gpu")).to_have_count(32)


def test_a_pipeline_is_drawn(visit: Visit) -> None:
    page = visit.open(f"{LARGE}&pin.pp=8")
    expect(page.locator("#timeline svg rect").first).to_be_visible()
    page.get_by_role("button", name=re.compile(r"^PP 8$")).click()
    expect(page.locator("#mesh .gpu.member")).to_have_count(8)


def test_what_does_not_fit_shows_the_nearest_miss(visit: Visit) -> None:
    page = visit.open(HOPELESS)
    refusal = page.locator("#refusal")
    expect(refusal).to_contain_text("Nothing fits")
    expect(refusal).to_contain_text("The nearest miss")
    expect(refusal).to_contain_text("What would help")
    expect(page.locator("#memory canvas")).to_be_visible()
    expect(page.locator("#words")).to_be_hidden()
    page.get_by_label("Nodes", exact=True).fill("64")
    visit.settled()
    expect(refusal).to_be_hidden()
    expect(page.locator("#words")).to_be_visible()


def test_an_unknown_model_is_told_the_nearest(visit: Visit) -> None:
    page = visit.open()
    page.get_by_label("Model", exact=True).fill("lama-3-70b")
    visit.settled()
    expect(page.locator("#model-problem")).to_contain_text("llama-3-70b")
    expect(page.get_by_label("Model", exact=True)).to_have_attribute("aria-invalid", "true")
    page.get_by_label("Model", exact=True).fill("llama-3-8b")
    visit.settled()
    expect(page.locator("#model-problem")).to_be_empty()
    expect(page.locator("#words h2")).to_contain_text("llama-3-8b")


def test_a_field_that_is_no_number_is_explained(visit: Visit) -> None:
    page = visit.open()
    page.get_by_label("Nodes", exact=True).fill("many")
    visit.settled()
    expect(page.locator("#nodes-problem")).to_contain_text("whole number")


def test_a_name_is_text_and_never_markup(visit: Visit) -> None:
    page = visit.open("#model=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E&gpu=H100-SXM5-80GB")
    expect(page.locator("#refusal")).to_be_visible()
    assert page.locator("img").count() == 0


def test_a_config_file_is_planned_for(visit: Visit, tmp_path: Path) -> None:
    page = visit.open()
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIG))
    page.locator("#config-file").set_input_files(file)
    visit.settled()
    expect(page.locator("#words h2")).to_contain_text("tiny")
    expect(page.locator("#config-note")).to_contain_text("llama")
    page.reload()
    visit.settled()
    expect(page.locator("#words h2")).to_contain_text("tiny")


def test_a_link_holds_the_whole_question(visit: Visit, browser: Browser) -> None:
    page = visit.open()
    page.get_by_label("GPU", exact=True).select_option("A100-SXM4-80GB")
    page.get_by_label("Global batch").fill("256")
    page.locator("summary", has_text="Pins").click()
    page.get_by_label("TP", exact=True).fill("4")
    visit.settled()
    link, words = page.url, page.locator("#words h2").inner_text()
    with visiting(browser, visit.origin) as other:
        again = other.open(link.removeprefix(f"{visit.origin}/"))
        assert again.url == link
        assert again.locator("#words h2").inner_text() == words
        expect(again.get_by_label("TP", exact=True)).to_have_value("4")
        expect(again.locator("#words .degrees")).to_contain_text("TP4")


def test_a_candidate_is_compared_by_keyboard_alone(visit: Visit) -> None:
    """Tab reaches the form, then the front; Enter compares; the link remembers."""
    page = visit.open()
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    seen = []
    for _ in range(80):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.name || document.activeElement.id"))
        if page.evaluate("document.activeElement.matches('#candidates button')"):
            break
    fields = [name for name in seen if name in ("model", "gpu", "nodes", "framework")]
    assert fields == ["model", "gpu", "nodes", "framework"]
    for _ in range(3):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    visit.settled()
    expect(page.locator("#compare")).to_contain_text("Side by side")
    assert "compare=" in page.url
    page.reload()
    visit.settled()
    expect(page.locator("#compare")).to_be_visible()
    page.get_by_role("button", name="End the comparison").press("Enter")
    expect(page.locator("#compare")).to_be_hidden()
    assert "compare=" not in page.url


def test_a_dot_is_compared_by_a_click(visit: Visit) -> None:
    page = visit.open()
    spot: Any = page.evaluate(
        """() => {
          const chart = Chart.getChart(document.querySelector("#candidates canvas"));
          const { x, y } = chart.getDatasetMeta(2).data[0];
          return { x, y };
        }"""
    )
    page.locator("#candidates canvas").click(position=spot)
    visit.settled()
    expect(page.locator("#compare")).to_be_visible()


def test_a_layout_of_the_readers_own_is_explained(visit: Visit) -> None:
    """What it lacks in GB, term by term, and one change that helps, which is compared in turn."""
    page = visit.open()
    page.get_by_label("Or a layout of your own").fill("tp=1, pp=1, cp=1, microbatch_size=4")
    page.get_by_role("button", name="Compare it").click()
    compared = page.locator("#compare")
    expect(compared).to_contain_text(re.compile(r"does not fit: [\d.]+ GiB above"))
    expect(compared).to_contain_text("Memory by term")
    expect(compared).to_contain_text("activations")
    expect(compared).to_contain_text("One change that would make it work")
    compared.locator(".remedies button").first.click()
    expect(compared).not_to_contain_text("does not fit")
    expect(compared).to_contain_text("Time by term")


def test_a_layout_that_breaks_a_rule_is_told_which(visit: Visit) -> None:
    page = visit.open()
    page.get_by_label("Or a layout of your own").fill("tp=3")
    page.get_by_role("button", name="Compare it").click()
    expect(page.locator("#compare")).to_contain_text("not legal")
    page.get_by_label("Or a layout of your own").fill("speed=9")
    page.get_by_role("button", name="Compare it").click()
    expect(page.locator("#own-layout-problem")).to_contain_text("speed")


def test_a_link_with_a_layout_that_is_none_shows_the_plan(visit: Visit) -> None:
    page = visit.open("#model=llama-3-8b&gpu=H100-SXM5-80GB&compare=%7B%22speed%22%3A9%7D")
    expect(page.locator("#words h2")).to_contain_text("llama-3-8b")
    expect(page.locator("#compare")).to_be_hidden()


def test_the_mesh_is_walked_with_arrow_keys(visit: Visit) -> None:
    page = visit.open()
    page.locator("#mesh .gpu[data-rank='0']").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#mesh .gpu[data-rank='1']")).to_be_focused()
    expect(page.locator("#mesh-note")).to_contain_text("GPU 1 ")


@pytest.mark.parametrize("link", ["", f"{LARGE}&pin.pp=8", HOPELESS], ids=["plan", "large", "miss"])
def test_a_telephone_scrolls_one_way(browser: Browser, origin: str, link: str) -> None:
    with visiting(browser, origin, viewport={"width": 375, "height": 800}) as visit:
        page = visit.open(link)
        assert no_sideways_scroll(page)


def test_the_dark_has_its_own_colours(browser: Browser, origin: str) -> None:
    grounds = []
    for scheme in ("light", "dark"):
        with visiting(browser, origin, color_scheme=scheme) as visit:
            page = visit.open()
            grounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            assert contrast(page) >= 4.5
    assert grounds[0] != grounds[1]


def contrast(page: Page) -> float:
    """Of the quietest text on a card. Source: WCAG 2.2, contrast ratio."""
    colours = page.evaluate(
        """() => {
          const style = (where) => getComputedStyle(document.querySelector(where));
          return [style("#words .soft").color, style("#words").backgroundColor];
        }"""
    )
    first, second = sorted(map(luminance, colours), reverse=True)
    return (first + 0.05) / (second + 0.05)


def luminance(colour: str) -> float:
    """Of `rgb(r, g, b)`. Source: WCAG 2.2, relative luminance."""
    channels = [int(number) / 255 for number in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("form", ["TrainJob, plan fixed", "TrainJob, planned at admission"])
@pytest.mark.parametrize(
    "address", ["", "#model=llama-3-70b&gpu=H100-SXM5-80GB&nodes=1&task=qlora&lora_rank=8"]
)
def test_the_manifest_is_admitted_as_it_is(visit: Visit, form: str, address: str) -> None:
    """What is copied from the page, sent to the webhook of the same service."""
    page = visit.open(address)
    page.get_by_role("button", name=form).click()
    job = yaml.safe_load(page.locator("#launch pre").inner_text())
    stated = job["metadata"]["annotations"]
    if address:
        assert stated["training.vsr.dev/task"] == "qlora"
        assert stated["training.vsr.dev/lora-rank"] == "8"
    assert job["spec"]["checkpoint"]["storagePath"]
    asked = review()
    asked["request"]["object"] = job
    for door in ("validate", "mutate"):
        answer = page.request.post(f"{visit.origin}/{door}", data=asked).json()
        assert answer["response"]["allowed"], answer


def test_a_launcher_writes_its_files(visit: Visit) -> None:
    page = visit.open()
    page.get_by_role("button", name="torchtitan", exact=True).click()
    expect(page.locator("#launch")).to_contain_text("torchtitan.toml")
    expect(page.locator("#launch pre").first).to_contain_text("torchrun")
    expect(page.locator("#launch pre").nth(1)).to_contain_text("tensor_parallel_degree")


def test_a_launcher_that_cannot_says_why(visit: Visit) -> None:
    page = visit.open("#model=llama-3-70b&gpu=H100-SXM5-80GB&nodes=8&pin.tp=8")
    page.get_by_role("button", name="ddp", exact=True).click()
    expect(page.locator("#launch .problem")).to_contain_text("`tp`")


OFFER_HEADS = [
    *("instance type", "provider", "nodes", "time", "on demand", "spot", "per billion tokens"),
    "price of",
]


def test_what_it_costs_is_answered_when_asked(visit: Visit) -> None:
    page = visit.open("#model=llama-3-8b&gpu=H100-SXM5-80GB&nodes=1")
    page.get_by_label("Tokens to train on").fill("many")
    page.get_by_role("button", name="Compare every instance type").click()
    expect(page.locator("#cost .problem")).to_contain_text("tokens")
    page.get_by_label("Tokens to train on").fill("1e11")
    page.get_by_label("Hours it may take").fill("300")
    page.get_by_role("button", name="Compare every instance type").click()
    expect(page.locator("#cost progress")).to_have_attribute("value", re.compile(r"^[1-9]"))
    expect(page.locator("#cost canvas")).to_be_visible(timeout=60_000)
    expect(page.locator("#cost")).to_contain_text("$")
    expect(page.locator("#cost")).to_contain_text("the cheapest that ends in 300 hours")
    offers = page.get_by_label("Offers nothing beats").locator("table")
    expect(offers.get_by_role("columnheader")).to_have_text(OFFER_HEADS)
    expect(offers.locator("tbody tr").first).to_contain_text("coreweave")
    fits = "table => table.parentElement.scrollWidth <= table.parentElement.clientWidth"
    assert offers.evaluate(fits), "the last column is cut off"
    before = pixels(page, "#cost canvas")
    page.emulate_media(color_scheme="dark")
    expect(page.locator("#cost canvas")).to_be_visible()
    assert pixels(page, "#cost canvas") != before


def pixels(page: Page, canvas: str) -> str:
    """What a chart shows."""
    return str(page.eval_on_selector(canvas, "canvas => canvas.toDataURL()"))


def test_every_control_has_a_name(visit: Visit) -> None:
    page = visit.open()
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("input, select, button, canvas, [role=img]")]
          .filter((one) => !one.labels?.length)
          .filter((one) => !one.getAttribute("aria-label") && !one.textContent)
          .map((one) => one.outerHTML)"""
    )
    assert nameless == []


@pytest.mark.parametrize(
    ("pp", "vpp", "microbatches"), [(2, 1, 1), (4, 1, 8), (8, 1, 3), (4, 2, 8), (8, 4, 8)]
)
def test_the_drawn_schedule_is_a_schedule(
    visit: Visit, pp: int, vpp: int, microbatches: int
) -> None:
    """Every pass once, one at a time on a stage, and as long as the bubble formula says.

    Source: Narayanan et al. 2021, arXiv:2104.04473, section 2.2: m passes and (p - 1) / v more.
    """
    page = visit.open()
    passes: list[dict[str, Any]] = page.evaluate(
        """async ([pp, vpp, microbatches]) => {
          const main = document.querySelector("script[type=module]").src;
          const { schedule } = await import(main.replace("main.js", "schedule.js"));
          return schedule(pp, vpp, microbatches);
        }""",
        [pp, vpp, microbatches],
    )
    names = {(p["stage"], p["chunk"], p["microbatch"], p["isForward"]) for p in passes}
    assert len(names) == len(passes) == 2 * pp * vpp * microbatches
    for stage in range(pp):
        spans = sorted((p["start"], p["end"]) for p in passes if p["stage"] == stage)
        assert all(end <= start + 1e-9 for (_, end), (start, _) in pairwise(spans))
    length = max(p["end"] for p in passes)
    assert length == pytest.approx(3 * (microbatches + (pp - 1) / vpp))
