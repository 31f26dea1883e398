"""How much of a space the search looks at: counts, never times."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.planner.kernel import Kernel
from app.planner.request import Pins
from app.planner.search import INFEASIBLE, best_layout, first_bytes, group_of
from app.planner.space import groups
from tests.unit.planner.builders import request


@pytest.mark.parametrize(
    ("model", "gpu", "nodes", "share"),
    [
        ("llama-3-8b", "H100-SXM5-80GB", 1, 0.002),
        ("llama-3-70b", "H100-SXM5-80GB", 8, 0.003),
        ("mixtral-8x7b", "H100-SXM5-80GB", 8, 0.001),
        ("deepseek-v3", "H100-SXM5-80GB", 64, 0.001),
        ("qwen3-30b-a3b", "H100-PCIe-80GB", 64, 0.001),
    ],
)
def test_few_layouts_are_evaluated(model: str, gpu: str, nodes: int, share: float) -> None:
    """The bounds leave a small share of the space, on slow networks too."""
    best = best_layout(request(model, gpu=gpu, nodes=nodes, batch=8 * nodes * 8))
    assert best.layout is not None
    assert 0 < best.evaluated <= share * best.configurations


@pytest.mark.parametrize("model", ["llama-3-70b", "qwen3-30b-a3b"])
def test_the_work_does_not_grow_with_the_cluster(model: str) -> None:
    """From 64 to 65,536 GPUs: no more nodes than the degrees can make, no more of them searched."""
    for nodes in (8, 128, 2048, 8192):
        asked = request(model, nodes=nodes, batch=nodes * 8)
        best = best_layout(asked)
        every = sum(len(members) for members in groups(asked))
        assert every <= 400
        assert best.nodes <= 4
        assert best.evaluated <= 20


@pytest.mark.parametrize("task", ["pretrain", "qlora"])
@pytest.mark.parametrize("framework", ["fsdp", "megatron", "deepspeed"])
def test_leanest_states_never_hide_a_node_that_fits(framework: str, task: str) -> None:
    """Whatever the first stage of a node holds at least is found under that very limit."""
    asked = request("mixtral-8x7b", framework=framework, nodes=2, task=task)
    kernel = Kernel(asked)
    for members in groups(asked):
        group = group_of(kernel, members[0])
        for node in members:
            held = first_bytes(kernel, group, node, INFEASIBLE)
            assert held < INFEASIBLE
            assert first_bytes(kernel, group, node, held) == held


def test_a_pipeline_longer_than_the_model_has_no_layout() -> None:
    """A pinned `pp` above the layers is no question the search breaks on."""
    asked = replace(request("llama-3-8b", framework="megatron", nodes=8), pins=Pins(pp=64))
    assert best_layout(asked).layout is None
