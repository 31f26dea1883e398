import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pytest

from app.catalog.loader import DATA, load_catalog
from app.catalog.profiles import from_table, merged, read_efficiencies, read_frameworks
from app.catalog.tables import CatalogError, Tables

CATALOG = load_catalog()
FAMILIES = {name: gpu.family for name, gpu in CATALOG.gpus.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    """A nested table."""

    rate: float
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    """One field of every kind a profile may have."""

    name: str
    on: bool
    kind: Literal["a", "b"]
    inner: Inner
    by_name: Mapping[str, Inner]
    rates: Mapping[str, float]
    words: tuple[str, ...]
    maybe: Inner | None = None


TABLE = {
    "name": "x",
    "on": True,
    "kind": "a",
    "inner": {"rate": 1},
    "by_name": {"p": {"rate": 0.5, "count": 2}},
    "rates": {"bf16": 1},
    "words": ["u", "v"],
}


def test_a_table_becomes_its_dataclass():
    """Nested dataclasses, mappings and tuples follow from the fields' types."""
    found = from_table(Outer, TABLE, file="f.toml")
    assert found.inner == Inner(rate=1.0)
    assert found.by_name["p"].count == 2
    assert found.words == ("u", "v")
    assert found.maybe is None
    assert isinstance(found.rates["bf16"], float)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"nme": "x"}, "nme: is not a field of Outer; did you mean `name`?"),
        ({"inner": {}}, "inner.rate: must be given"),
        ({"inner": 3}, "inner: must be a table"),
        ({"inner": {"rate": "fast"}}, "inner.rate: must be a number"),
        ({"inner": {"rate": True}}, "inner.rate: must be a number"),
        ({"inner": {"rate": -1}}, "inner.rate: must be from 0"),
        ({"inner": {"rate": float("nan")}}, "inner.rate: must be from 0"),
        ({"inner": {"rate": 1, "count": 1.5}}, "inner.count: must be a whole number"),
        ({"kind": "c"}, "kind: must be one of `a`, `b`"),
        ({"on": 1}, "on: must be true or false"),
        ({"words": "u"}, "words: must be a list"),
        ({"words": [1]}, "words: must be a text"),
        ({"by_name": {"p": {"rte": 1}}}, "by_name.p.rte: is not a field"),
    ],
)
def test_a_wrong_table_names_file_and_key(change, words):
    with pytest.raises(CatalogError) as raised:
        from_table(Outer, {**TABLE, **change}, file="f.toml")
    assert str(raised.value).startswith("f.toml: ")
    assert words in str(raised.value)


def test_overrides_merge_key_by_key():
    assert merged({"a": {"x": 1, "y": 2}, "b": 3}, {"a": {"y": 4}}) == {
        "a": {"x": 1, "y": 4},
        "b": 3,
    }


@pytest.fixture
def calibration(tmp_path):
    """The shipped calibration of fsdp, its overrides replaced by a text, read back."""

    def read(more):
        shipped = (DATA / "calibration" / "fsdp.toml").read_text()
        parts = re.split(r"^(?=\[)", shipped, flags=re.MULTILINE)
        plain = [part for part in parts if not part.startswith(("[families", "[gpus"))]
        (tmp_path / "fsdp.toml").write_text("".join(plain) + more)
        return read_efficiencies(Tables(), tmp_path, families=FAMILIES)["fsdp"]

    return read


def test_a_family_and_a_gpu_lie_over_the_rest(calibration):
    found = calibration('\n[families.cdna3]\nhbm = 0.5\n[gpus."MI325X"]\nwave = 0.25\n')
    assert found["MI300X"].hbm == 0.5
    assert (found["MI325X"].hbm, found["MI325X"].wave) == (0.5, 0.25)
    assert found["H100-SXM5-80GB"].hbm != 0.5


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("\n[families.hoper]\nhbm = 0.5\n", "families.hoper"),
        ('\n[gpus."H100"]\nhbm = 0.5\n', "gpus.H100"),
        ("\n[families.cdna3]\nhmb = 0.5\n", "families.cdna3.hmb"),
    ],
)
def test_an_override_of_nothing_is_refused(calibration, more, words):
    with pytest.raises(CatalogError, match=words):
        calibration(more)


def test_numbers_without_a_source_are_refused(tmp_path):
    (tmp_path / "x.toml").write_text("[efficiency]\nhbm = 0.5\n")
    with pytest.raises(CatalogError, match="where the numbers come from"):
        read_efficiencies(Tables(), tmp_path, families=FAMILIES)


def test_a_profile_is_named_after_its_file(tmp_path):
    shutil.copy(DATA / "frameworks" / "fsdp.toml", tmp_path / "other.toml")
    with pytest.raises(CatalogError, match="the name of the file"):
        read_frameworks(Tables(), tmp_path)


@pytest.mark.parametrize("name", CATALOG.frameworks)
def test_a_shipped_profile_holds_together(name):
    profile = CATALOG.frameworks[name]
    assert profile.default_sharding in profile.states
    assert set(profile.pipeline_shardings) <= set(profile.states)
