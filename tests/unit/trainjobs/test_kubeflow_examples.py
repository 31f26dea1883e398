"""Each example is a valid job, gets a plan, and finds every variable its command names."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from app.trainjobs.adapter import WantsPlan
from app.trainjobs.kubeflow import KubeflowAdapter
from app.trainjobs.kubeflow.contract import LAUNCHERS
from app.trainjobs.kubeflow.names import TORCH_RESERVED_ENV
from tests.kubeflow.jobs import creation, env_of, patched
from tests.kubeflow.schema import problems

EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "kubeflow").glob("*.yaml"))


def read(path):
    return yaml.safe_load(path.read_text())


def launcher(created):
    return created["metadata"]["annotations"]["training.vsr.dev/launcher"]


@pytest.fixture(params=EXAMPLES, ids=lambda path: path.stem)
def example(request):
    """One example's document."""
    return read(request.param)


def test_there_is_one_for_each_launcher_of_the_contract():
    named = {launcher(read(path)) for path in EXAMPLES}
    assert named == {"torchtitan", "megatron-lm", "deepspeed", "accelerate"}
    assert named <= LAUNCHERS.keys()


@pytest.mark.parametrize("release", ["2.2", "2.3"])
def test_it_is_valid_before_and_after(example, release):
    assert problems(example, release) == []
    assert problems(patched(example), release) == []


def test_it_asks_for_a_plan_without_a_warning(example):
    wish = KubeflowAdapter().wish(creation(example))
    assert isinstance(wish, WantsPlan)
    assert wish.warnings == ()


def test_every_variable_its_command_names_is_there(example):
    stored = patched(example)
    words = " ".join([*stored["spec"]["trainer"]["command"], *stored["spec"]["trainer"]["args"]])
    named = set(re.findall(r"\$\((\w+)\)", words))
    assert len(named) >= 5
    assert named - env_of(stored).keys() <= TORCH_RESERVED_ENV


def test_the_deepspeed_file_is_json_once_expanded():
    path = next(path for path in EXAMPLES if path.stem == "deepspeed")
    stored = patched(read(path))
    script = stored["spec"]["trainer"]["args"][0]
    for name, value in env_of(stored).items():
        script = script.replace(f"$({name})", value)
    document = json.loads(re.search(r"<<'EOF'\n(.*?)\nEOF", script, re.DOTALL)[1])
    assert document["zero_optimization"]["stage"] == 3
    assert document["train_batch_size"] == 128
