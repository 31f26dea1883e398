"""Lists of the catalog, and searching them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.advisor.errors import Refusal
from app.advisor.listing import gpus_body, models_body
from app.catalog.loader import Catalog, load_catalog


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    """The built-in catalog."""
    return load_catalog()


def names(body: Any, kind: str) -> list[str]:
    """The names of a list."""
    assert not isinstance(body, Refusal), body
    return [one["name"] for one in body[kind]]


def test_without_a_word_all_are_listed_in_the_catalog_s_order(catalog: Catalog) -> None:
    assert names(models_body(catalog), "models") == list(catalog.models)
    assert names(gpus_body(catalog), "gpus") == list(catalog.gpus)


def test_every_entry_says_where_it_comes_from(catalog: Catalog) -> None:
    lists: Any = [*models_body(catalog)["models"], *gpus_body(catalog)["gpus"]]  # type: ignore[index]
    assert all(one["source"] for one in lists)
    assert json.loads(json.dumps(lists, allow_nan=False)) == lists


@pytest.mark.parametrize("word", ["llama-3-70b", "LLAMA3-70B", "llama 3 70b", "Meta-Llama-3-70B"])
def test_case_and_signs_do_not_matter(catalog: Catalog, word: str) -> None:
    assert names(models_body(catalog, word), "models") == ["llama-3-70b"]


@pytest.mark.parametrize(
    "label", ["NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-80GB-HBM3-SHARED", "nvidia-h100-80gb"]
)
def test_a_node_label_finds_its_gpu(catalog: Catalog, label: str) -> None:
    assert "H100-SXM5-80GB" in names(gpus_body(catalog, label), "gpus")


@pytest.mark.parametrize(
    ("list_body", "word", "near"),
    [
        (models_body, "lamma-3-70bb", "llama-3-70b"),
        (gpus_body, "H1000-SXM", "H100-SXM5-80GB"),
        (gpus_body, "H900", "H800-SXM5-80GB"),
    ],
)
def test_a_word_that_matches_nothing_names_the_nearest(
    catalog: Catalog, list_body: Any, word: str, near: str
) -> None:
    answer = list_body(catalog, word)
    assert isinstance(answer, Refusal)
    assert answer.code == "not_found"
    assert near in answer.errors[0].message


def test_a_word_like_nothing_says_how_to_see_all(catalog: Catalog) -> None:
    answer = models_body(catalog, "x" * 1000)
    assert isinstance(answer, Refusal)
    assert "nothing is near it; leave the word out" in answer.errors[0].message
    assert len(answer.errors[0].message) < 200
