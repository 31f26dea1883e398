import os

import pytest

from app.catalog.loader import CatalogError, load_catalog
from app.planner.intent import TrainIntent

GOOD = """
[gpus."H100-SXM5-96GB"]
like = "H100-SXM5-80GB"
memory_mib = 97871
source = "nvidia-smi on our nodes"

[labels]
"ACME-H100" = "H100-SXM5-96GB"

[fabrics."acme-spine"]
kind = "roce"
gbit_per_second = 200
per = "gpu"
latency_us = 12
aliases = ["spine"]
source = "our own nccl-tests"

[instances."acme-8x"]
provider = "acme"
gpu = "H100-SXM5-96GB"
gpus_per_node = 8
host_memory_gib = 1024
fabric = "acme-spine"
nvlink_domain_size = 8
source = "our racks"

[models."acme-13b"]
aliases = ["acme/thirteen"]
sequence_length = 8192
source = "our config.json"
config = { model_type = "llama", hidden_size = 5120, num_hidden_layers = 40, num_attention_heads = 40, intermediate_size = 13824, vocab_size = 64000 }
"""  # noqa: E501 - TOML inline tables stay on one line


@pytest.fixture
def folder(tmp_path):
    """Write files into an overlay directory and answer it."""

    def write(**files):
        for name, text in files.items():
            (tmp_path / name.replace("__", ".")).write_text(text)
        return tmp_path

    return write


def test_own_entries_resolve(folder):
    catalog = load_catalog(folder(acme__toml=GOOD))
    gpu = catalog.gpu("ACME-H100").gpu
    assert gpu.memory_bytes == 97871 * 2**20
    assert gpu.peak_flop_per_second == catalog.gpus["H100-SXM5-80GB"].peak_flop_per_second
    request = catalog.resolve(
        TrainIntent(model="ACME thirteen", instance_type="acme-8x", nodes=4, gpus_per_node=8)
    )
    assert request.model.name == "acme-13b"
    assert request.cluster.gpu == gpu
    assert request.cluster.inter.bytes_per_second == 25e9
    assert request.cluster.host_memory_bytes_per_node == 2**40


def test_own_rows_may_be_csv(folder):
    row = "name,kind,gbit_per_second,per,latency_us,source\nmine,roce,50,node,9,measured\n"
    catalog = load_catalog(folder(fabrics__csv=row))
    assert catalog.fabrics["mine"].bytes_per_second_per_gpu(8) == 50e9 / 8 / 8


def test_an_own_entry_replaces_the_built_in_one(folder):
    text = '[gpus.L4]\nlike = "L4"\nmemory_mib = 24000\nsource = "ours"\n'
    assert load_catalog(folder(l4__toml=text)).gpus["L4"].memory_bytes == 24000 * 2**20


def test_an_own_label_wins(folder):
    catalog = load_catalog(folder(l__toml='[labels]\n"H100" = "H100-PCIe-80GB"\n'))
    assert catalog.gpu("h100").gpu.name == "H100-PCIe-80GB"


def test_a_mounted_configmap_is_read(tmp_path):
    """Files are links into a hidden directory, as kubelet mounts them."""
    hidden = tmp_path / "..2026_11_30_07_00_00.1"
    hidden.mkdir()
    (hidden / "acme.toml").write_text(GOOD)
    (tmp_path / "..data").symlink_to(hidden.name)
    (tmp_path / "acme.toml").symlink_to(os.path.join("..data", "acme.toml"))  # noqa: PTH118 - a link's text
    assert "acme-13b" in load_catalog(tmp_path).models


def test_an_empty_overlay_changes_nothing(tmp_path):
    assert load_catalog(tmp_path).version == load_catalog().version


def test_the_version_covers_the_overlay(folder):
    assert load_catalog(folder(acme__toml=GOOD)).version != load_catalog().version


GPU = '[gpus.X]\nlike = "L4"\nsource = "ours"\n'
MODEL = '[models.x]\nsequence_length = 8\nsource = "ours"\n'
CONFIG = (
    'config = { model_type = "llama", hidden_size = 64, num_hidden_layers = 2, '
    "num_attention_heads = 4, intermediate_size = 128, vocab_size = 100 }\n"
)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.toml", "[gpus", "must be TOML"),
        ("a.toml", "[gpu.X]\n", "did you mean `gpus`?"),
        ("a.toml", "gpus = 3\n", "must hold tables"),
        ("a.toml", '[gpus.X]\nlike = "L4"\n', "X.source: must be a text"),
        ("a.toml", GPU + "memory_mib = 3\n", "X.memory_mib: must be a number from 1024"),
        ("a.toml", GPU + 'memory_mib = "much"\n', 'not "much"'),
        ("a.toml", GPU + "memory_mib = true\n", "not true"),
        ("a.toml", GPU + "memory_mib = nan\n", "not nan"),
        ("a.toml", GPU + "memory_mb = 3\n", "did you mean `memory_mib`?"),
        ("a.toml", GPU + 'family = "adda"\n', "did you mean `ada`?"),
        ("a.toml", GPU + "mxfp8_tflop_per_second = 9\n", "compute capability 10"),
        ("a.toml", GPU + "nvlink_domain_size = 8\n", "X.nvlink_scope"),
        ("a.toml", GPU + 'default_fabric = "none"\n', "X.default_fabric"),
        ("a.toml", GPU + 'derived = "all of it"\n', "X.derived: must read"),
        ("a.toml", '[gpus.X]\nlike = "L5"\nsource = "s"\n', "X.like: must name an entry"),
        ("a.toml", '[labels]\n"A" = "L5"\n', "A.gpu"),
        ("a.toml", '[labels.A]\ngpu = "L4"\n', "labels.A: must be the name of a GPU"),
        ("a.toml", MODEL, "exactly one of `config` and `architecture`"),
        ("a.toml", MODEL + CONFIG + "params = 3\n", "x.params: must be"),
        ("a.toml", MODEL + 'config = { model_type = "lama" }\n', "did you mean `llama`?"),
        ("a.toml", MODEL + "architecture = { hidden_size = 64 }\n", "must be given"),
        ("gpus.csv", "name,memory_mib\nX,1\n", "gpus.csv: X."),
        ("gpus.csv", "name,memory_mib\nX\n", "line 2 must have as many cells"),
        ("gpus.csv", "name,memory_mib\n,1\n", "must have a `name`"),
        ("gpu.csv", "name\nX\n", "`gpus.csv`"),
        ("models.csv", "name\nX\n", "end in .toml"),
        ("a.yaml", "gpus: {}", "end in .toml"),
    ],
)
def test_a_bad_file_gives_one_clear_error(tmp_path, name, text, words):
    """The error names the file, the key and what would be right."""
    (tmp_path / name).write_text(text)
    with pytest.raises(CatalogError) as raised:
        load_catalog(tmp_path)
    message = str(raised.value)
    assert message.startswith(name)
    assert words in message


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "a.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(CatalogError, match="UTF-8"):
        load_catalog(tmp_path)


def test_a_huge_file_is_refused(tmp_path):
    (tmp_path / "a.toml").write_text("#" * (2**20 + 1))
    with pytest.raises(CatalogError, match="larger"):
        load_catalog(tmp_path)


def test_a_folder_inside_is_refused(tmp_path):
    (tmp_path / "more").mkdir()
    with pytest.raises(CatalogError, match="flat"):
        load_catalog(tmp_path)


def test_a_directory_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(CatalogError, match="must be a directory"):
        load_catalog(tmp_path / "none")
