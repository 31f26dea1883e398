"""Every row of the shipped data: loads, has a source, and agrees with the other files."""

import csv
import re
from pathlib import Path

import pytest

from app.catalog.loader import DATA, ResolvedGpu, Unknown, load_catalog
from app.planner.hardware import PRECISIONS

CATALOG = load_catalog()
LABELS = list(csv.DictReader((DATA / "labels.csv").read_text().splitlines()))
FIRST = ["llama-3-8b", "llama-3.1-8b", "llama-3-1b", "mistral-7b", "qwen2.5-7b", "qwen3-8b"]
REFERENCE_MODELS = [
    "llama-3-405b",
    "llama-3-70b",
    "llama-3-8b",
    "llama-3-1b",
    "mixtral-8x7b",
    "mistral-7b",
    "gpt-4-scale",
]


def test_there_is_enough_of_everything():
    assert len(CATALOG.gpus) == 50
    assert len(CATALOG.instances) == 102
    assert len(CATALOG.models) >= 40
    assert list(CATALOG.models)[: len(FIRST)] == FIRST


@pytest.mark.parametrize("name", REFERENCE_MODELS)
def test_models_of_existing_jobs_are_there(name):
    assert name in CATALOG.models


@pytest.mark.parametrize("entry", CATALOG.gpu_entries.values(), ids=CATALOG.gpu_entries)
def test_a_gpu_is_complete(entry):
    gpu = entry.gpu
    assert entry.source
    assert "fp32" in gpu.peak_flop_per_second
    assert set(gpu.peak_flop_per_second) <= set(PRECISIONS)
    assert gpu.memory_bytes > 10e9
    assert gpu.num_sms > 0
    assert gpu.pcie_bytes_per_second > 0
    assert (gpu.nvlink_domain_size > 1) == (gpu.nvlink_bytes_per_second > 0)
    assert entry.default_fabric in CATALOG.fabrics
    assert set(entry.derived) | set(entry.assumed) <= set(_columns())


def _columns():
    return next(csv.reader((DATA / "gpus.csv").read_text().splitlines()))


@pytest.mark.parametrize("gpu", CATALOG.gpus.values(), ids=CATALOG.gpus)
def test_precisions_follow_the_compute_capability(gpu):
    """No bf16 on Volta and Turing, fp8 from 8.9, mxfp8 and nvfp4 on 10.x only (NVIDIA)."""
    if gpu.vendor != "NVIDIA":
        return
    capability, peaks = gpu.compute_capability, gpu.peak_flop_per_second
    assert ("bf16" in peaks) == (capability >= 8.0)
    assert ("fp8" in peaks) == (capability >= 8.9)
    assert ("mxfp8" in peaks) == (10.0 <= capability < 11)
    assert ("nvfp4" in peaks) == (10.0 <= capability < 11)
    assert gpu.default_precision == ("bf16" if capability >= 8.0 else "fp16")


@pytest.mark.parametrize(
    ("name", "memory_mib", "bf16", "nvlink", "domain"),
    [
        ("H100-SXM5-80GB", 81559, 989e12, 450e9, 8),
        ("A100-SXM4-80GB", 81920, 312e12, 300e9, 8),
        ("H100-PCIe-80GB", 81559, 756e12, 0, 1),
        ("H200-SXM-141GB", 143771, 989e12, 450e9, 8),
        ("B200-SXM-180GB", 183359, 2250e12, 900e9, 8),
        ("GB200-186GB", 189471, 2500e12, 900e9, 72),
        ("MI300X", 192 * 1024, 1307e12, 448e9, 8),
        ("MI250X", 64 * 1024, 191.5e12, 175e9, 8),
        ("L40S", 46068, 362.05e12, 0, 1),
    ],
)
def test_known_parts(name, memory_mib, bf16, nvlink, domain):
    gpu = CATALOG.gpus[name]
    assert gpu.memory_bytes == memory_mib * 2**20
    assert gpu.peak_flop_per_second["bf16"] == bf16
    assert gpu.nvlink_bytes_per_second == nvlink
    assert gpu.nvlink_domain_size == domain


def test_volta_has_no_bf16():
    assert "bf16" not in CATALOG.gpus["V100-SXM2-32GB"].peak_flop_per_second


@pytest.mark.parametrize("row", LABELS, ids=lambda row: f"{row['key']}={row['value']}")
def test_a_label_resolves_to_what_its_row_says(row):
    index = CATALOG.facts.gpu_index
    found = index.find(row["value"], key=row["key"])
    if row["reads"] == "gpu":
        assert isinstance(found, ResolvedGpu)
        assert found.gpu.name == row["gpu"]
        assert found.exclusive
    elif row["reads"] == "ambiguous":
        assert isinstance(found, Unknown)
        assert found.ambiguous
        assert found.nearest == tuple(row["candidates"].split())
    elif row["reads"] == "unsupported":
        assert isinstance(found, Unknown)
        assert "rates" in found.message
    assert row["source"]


@pytest.mark.parametrize("instance", CATALOG.instances.values(), ids=CATALOG.instances)
def test_an_instance_names_what_exists(instance):
    assert instance.gpu in CATALOG.gpus
    assert instance.fabric in CATALOG.fabrics
    assert instance.source
    assert bool(instance.usd_per_gpu_hour) == bool(instance.on_demand_usd_per_hour)
    if instance.usd_per_gpu_hour:
        whole = instance.usd_per_gpu_hour * instance.gpus_per_node
        assert whole == pytest.approx(instance.on_demand_usd_per_hour, rel=1e-3)
        assert re.fullmatch(r"20\d\d(-\d\d){0,2}", instance.price_date)
        assert instance.price_region


@pytest.mark.parametrize("entry", CATALOG.model_entries.values(), ids=CATALOG.model_entries)
def test_a_model_counts_to_what_its_entry_says(entry):
    assert entry.model.params == entry.params
    assert entry.model.active_params <= entry.params
    assert entry.sequence_length > 0
    assert entry.source


def test_no_two_names_mean_different_entries():
    """A spelling with its punctuation gone still means one entry of its kind."""
    for entries in (CATALOG.model_entries, CATALOG.facts.fabrics):
        names = {}
        for name, entry in entries.items():
            for spelling in (name, *entry.aliases):
                key = "".join(char for char in spelling.lower() if char.isalnum() or char == ".")
                assert names.setdefault(key, name) == name, spelling


def test_every_profile_is_calibrated_for_every_gpu():
    for profile in CATALOG.frameworks.values():
        assert set(CATALOG.facts.efficiencies[profile.efficiency]) == set(CATALOG.gpus)


def test_data_names_public_sources_only():
    for path in Path(DATA).rglob("*"):
        if path.is_file():
            assert "/work/" not in path.read_text()


def test_collective_rules_are_rows():
    assert CATALOG.collective_rules
    assert all(row["source"] and row["kind"] for row in CATALOG.collective_rules)


def test_the_version_is_the_content():
    assert load_catalog().version == CATALOG.version
    assert len(CATALOG.version) == 12
