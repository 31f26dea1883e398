"""Sample logs, one a symptom; evidence without secrets; any bytes."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import pytest

from app.advisor.advise import Desk, judge
from app.advisor.doctor import SYMPTOMS, Finding, diagnosis, evidence, examine
from app.advisor.errors import Refusal
from app.advisor.launch.setup import Setup
from app.advisor.requests import EstimateQuestion, parse_estimate_body
from app.catalog.loader import load_catalog
from app.planner.search import plan

DESK = Desk(
    catalog=load_catalog(),
    planner=plan,
    clock=itertools.count().__next__,
    allowed_precisions=("bf16", "fp16"),
)
LOGS = Path(__file__).parents[2] / "data" / "logs"
EXPECTED = {
    "oom": "cuda_out_of_memory",
    "timeout": "nccl_timeout",
    "socket": "nccl_over_tcp",
    "infiniband": "infiniband_error",
    "nan": "loss_not_finite",
    "overflow": "gradient_overflow",
    "low_use": "low_gpu_use",
    "preempted": "preempted",
    "ranks": "world_size_mismatch",
    "rendezvous": "rendezvous_failed",
    "loader": "data_loader_failed",
    "host_oom": "host_out_of_memory",
    "gpu_fault": "gpu_fault",
}


def read(name: str) -> list[Finding]:
    with (LOGS / f"{name}.log").open("rb") as stream:
        return examine([(name, stream)])


def found(content: bytes) -> list[str]:
    return [one.symptom.name for one in examine([("log", io.BytesIO(content))])]


@pytest.mark.parametrize(("log", "symptom"), EXPECTED.items())
def test_a_symptom_is_recognised(log: str, symptom: str) -> None:
    assert read(log)[0].symptom.name == symptom


def test_sockets_are_recognised_by_their_first_line_alone() -> None:
    assert found(b"NCCL INFO NET/Socket : Using [0]eth0:10.0.0.3<0>\n") == ["nccl_over_tcp"]


def test_a_healthy_log_has_no_findings() -> None:
    assert read("healthy") == []
    assert diagnosis([])["healthy"]


def test_numbers_of_an_out_of_memory_are_bytes() -> None:
    (only,) = read("oom")
    assert only.numbers["tried_bytes"] == pytest.approx(1.96 * 2**30)
    assert only.numbers["capacity_bytes"] == pytest.approx(79.10 * 2**30)
    assert only.numbers["free_bytes"] == pytest.approx(812.44 * 2**20)


@pytest.mark.parametrize(
    "line",
    [
        "HF_TOKEN=hf_abcdefghijklmnop",
        "authorization: Bearer abcdef123456",
        "postgres://user:hunter22@db/x",
        '"password": "hunter22"',
    ],
)
def test_evidence_keeps_no_secret(line: str) -> None:
    shown = evidence(line)
    assert "[hidden]" in shown
    for secret in ("hf_abcdefghijklmnop", "abcdef123456", "hunter22"):
        assert secret not in shown


def test_utf_16_and_broken_bytes_are_read() -> None:
    text = "start\nCUDA out of memory\n"
    assert found(text.encode("utf-16")) == ["cuda_out_of_memory"]
    assert found(b"\xff\x00\x80CUDA out of memory\r\n") == ["cuda_out_of_memory"]
    assert found(b"") == []


def test_a_line_without_an_end_is_cut() -> None:
    assert found(b"CUDA out of memory " + b"x" * 500_000) == ["cuda_out_of_memory"]


def test_every_symptom_has_a_source() -> None:
    for symptom in SYMPTOMS:
        assert symptom.source
        assert symptom.change


def job(gpu: str, layout: dict[str, str]) -> Setup:
    body = {"model": "llama-3-8b", "gpu": gpu, "layout": layout}
    question = parse_estimate_body(body)
    assert isinstance(question, EstimateQuestion)
    judged = judge(question, DESK)
    assert not isinstance(judged, Refusal)
    return Setup(request=judged.request, estimate=judged.estimate)


@pytest.mark.parametrize(
    ("gpu", "layout", "says"),
    [
        ("H100-SXM5-80GB", {"recompute": "full"}, "the prediction is too low, or the log is of"),
        ("H100-SXM5-80GB", {"sharding": "none"}, "the layout is too large"),
        ("H200-SXM-141GB", {"recompute": "full"}, "the log's card has 79 GiB, so this is another"),
    ],
)
def test_a_prediction_is_held_against_the_log(gpu: str, layout: dict[str, str], says: str) -> None:
    (finding,) = diagnosis(read("oom"), job(gpu, layout))["findings"]
    assert says in finding["cause"]


def test_the_recorder_of_collectives_has_both_names() -> None:
    (finding,) = diagnosis(read("timeout"))["findings"]
    for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"):
        assert name in finding["change"]


def test_a_fragmented_card_does_not_refute_the_prediction() -> None:
    line = (
        b"CUDA out of memory. Tried to allocate 1.00 GiB. Of the allocated memory "
        b"20.00 GiB is allocated by PyTorch, and 50.00 GiB is reserved by PyTorch but unallocated."
    )
    findings = examine([("log", io.BytesIO(line))])
    cause = diagnosis(findings, job("H100-SXM5-80GB", {"recompute": "full"}))["findings"][0][
        "cause"
    ]
    assert cause.endswith("a plan may use 73")
