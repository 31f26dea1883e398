"""Whole command lines, run in this process: what is printed, and the exit code."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from app.cli.root import COMMANDS, main, run

ROOT = Path(__file__).parents[3]
QUESTION = ("--model", "llama-3-8b", "--gpu", "NVIDIA-H100-80GB-HBM3")
IMPOSSIBLE = ("--model", "llama-3-70b", "--gpu", "T4", "--gpus-per-node", "2")
AUTO = """
apiVersion: training.vsr.dev/v1alpha1
kind: TrainJob
metadata: {name: llama, namespace: research}
spec:
  model: llama-3-8b
  image: example.com/train:1
  command: [python, train.py]
  numNodes: 1
  gpusPerNode: 8
  autoParallelism: true
  nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
"""


class Ended(NamedTuple):
    """How a command line ended."""

    code: int
    out: str
    err: str

    @property
    def body(self) -> Any:
        """The one JSON line that was printed."""
        (line,) = self.out.splitlines()
        return json.loads(line)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command line."""

    def ended(*arguments: str) -> Ended:
        code = run(arguments)
        captured = capsys.readouterr()
        return Ended(code, captured.out, captured.err)

    return ended


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts a text on standard input."""

    def put(text: str) -> None:
        stream = io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8")
        monkeypatch.setattr(sys, "stdin", stream)

    return put


def test_version_says_which_planner_runs(cli: Any) -> None:
    ended = cli("--version")
    assert ended.code == 0
    assert ended.out.startswith("trainjob-advisor ")
    assert "planner: pure Python" in ended.out or "planner: compiled" in ended.out


def test_version_waits_for_no_heavy_room() -> None:
    """The shell's first answer imports no server, no tables, no cryptography."""
    code = (
        "import sys; from app.cli.root import COMMANDS, main, run; run(['--version']); "
        "heavy = {'fastapi', 'uvicorn', 'rich', 'yaml', 'cryptography', 'jsonpatch'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "[]"


def test_planning_needs_no_server() -> None:
    code = (
        "import sys; from app.cli.root import COMMANDS, main, run; "
        f"run(['plan', '--json', *{QUESTION!r}]); "
        "print(sorted({'fastapi', 'uvicorn', 'rich', 'yaml'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "[]"


def test_the_module_is_the_command() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "app", "--help"], capture_output=True, text=True, check=True
    )
    assert "trainjob-advisor" in shown.stdout


def test_the_process_ends_with_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["trainjob-advisor", "models", "xxyyzz"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2


def test_help_lists_every_command_with_its_first_sentence(cli: Any) -> None:
    shown = cli("--help").out
    for name in COMMANDS:
        assert re.search(rf"\b{name} +[A-Z]", shown), name


def test_a_plan_is_a_page_of_plain_text(cli: Any) -> None:
    ended = cli("plan", *QUESTION)
    assert ended.code == 0
    first, *_ = ended.out.splitlines()
    assert first.startswith("TP=")
    assert "TFLOP/s per GPU" in first
    for title in ("Layout", "Memory of one GPU", "Time of one step", "Why", "Runners-up"):
        assert f"\n{title}" in ended.out
    assert "\x1b" not in ended.out
    assert ended.out.isascii()


def test_a_plan_as_json_is_one_line(cli: Any) -> None:
    ended = cli("plan", *QUESTION, "--json")
    assert (ended.code, ended.err) == (0, "")
    assert {"layout", "estimate", "search"} <= set(ended.body)


def test_flags_and_a_body_ask_the_same(cli: Any, stdin: Any) -> None:
    flags = cli(
        "plan", *QUESTION, "--nodes", "2", "--pin", "tp=2", "--sequence-length", "4096", "--json"
    )
    stdin(
        '{"model": "llama-3-8b", "gpu": "NVIDIA-H100-80GB-HBM3", "nodes": 2, "pins": {"tp": 2},'
        ' "workload": {"sequence_length": 4096}}\n'
    )
    line = cli("plan", "--jsonl", "-")
    for body in (flags.body, line.body):
        del body["search"]["duration_seconds"]
    assert flags.body["layout"]["tp"] == 2
    assert {**flags.body, "search": 0} == {**line.body, "search": 0}


def test_nothing_fits_is_exit_code_1(cli: Any) -> None:
    ended = cli("plan", *IMPOSSIBLE)
    assert ended.code == 1
    assert "Nothing legal fits" in ended.out
    assert "The nearest miss lacks" in ended.out
    as_json = cli("plan", *IMPOSSIBLE, "--json")
    assert as_json.code == 1
    assert as_json.body["infeasible"]["reasons"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("plan", "--gpu", "T4"), "must be given"),
        (("plan", *QUESTION, "--nodes", "0"), "must be a whole number"),
        (("plan", *QUESTION, "--nodes", "many"), "integer"),
        (("plan", *QUESTION, "--pin", "tpp=2"), "did you mean `tp`"),
        (("plan", *QUESTION, "--pin", "tp"), "KEY=VALUE"),
        (("plan", *QUESTION, "--precision", "int4"), "`int4`"),
        (("plan", *QUESTION, "--model", "lama-3-8b"), "llama-3-8b"),
        (("plan", *QUESTION, "--jsonl", "x"), "remove --model"),
        (("plan", "--jsonl", "/nowhere"), "readable file"),
        (("plan", "--catalog", "/nowhere"), "does not exist"),
        (("estimate", *QUESTION, "--layout", "tp=two"), "whole number"),
        (("estimate", "--layout", "tp=2", "--jsonl", "-"), "remove --layout"),
        (("review", "/nowhere.yaml"), "readable"),
        (("models", "xxyyzz"), "leave the word out"),
        (("gpus", "xxyyzz"), "leave the word out"),
        (("estimate", "--gpu", "T4"), "must be given"),
        (("env", "--gpu", "T9"), "T9"),
        (("plan", "--nonsense"), "No such option"),
        (("nonsense",), "No such command"),
        (("certs", "--days", "0"), "greater than"),
    ],
)
def test_bad_input_is_exit_code_2_in_the_form_that_was_asked_for(
    cli: Any, arguments: tuple[str, ...], words: str
) -> None:
    ended = cli(*arguments)
    assert ended.code == 2
    if "--jsonl" in arguments:
        assert words in ended.body["error"]["message"]
        return
    assert ended.out == ""
    assert words in " ".join(ended.err.replace("│", " ").split())
    as_json = cli(*arguments, "--json")
    assert as_json.code == 2
    assert as_json.err == ""
    assert set(as_json.body["error"]) >= {"code", "message", "path"}
    assert words in as_json.body["error"]["message"]


def test_lines_are_answered_in_order_and_bad_ones_do_not_stop_them(cli: Any, stdin: Any) -> None:
    good = '{"model": "llama-3-8b", "gpu": "H100-SXM5-80GB"}'
    stdin(f'{good}\nnot json\n\n{{"model": "x"}}\n{good}')
    ended = cli("plan", "--jsonl", "-")
    answers = [json.loads(line) for line in ended.out.splitlines()]
    assert ended.code == 0
    assert [next(iter(one)) for one in answers] == ["layout", "error", "error", "error", "layout"]


def test_estimates_come_from_a_file(cli: Any, tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    lines = [
        {"model": "llama-3-8b", "gpu": "H100-SXM5-80GB", "layout": {"tp": tp}} for tp in (1, 2, 3)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    ended = cli("estimate", "--jsonl", str(file))
    assert [json.loads(line)["legal"] for line in ended.out.splitlines()] == [True, True, False]


def test_an_estimate_says_its_verdict_first(cli: Any) -> None:
    assert cli("estimate", *QUESTION, "--layout", "tp=2").out.startswith("Legal and fits. TP=2")
    illegal = cli("estimate", *QUESTION, "--layout", "tp=3")
    assert illegal.code == 0
    assert illegal.out.startswith("Illegal layout.")
    assert "Rules broken" in illegal.out
    large = cli("estimate", *QUESTION, "--layout", "microbatch_size=16", "--layout", "dp=8")
    assert large.out.startswith("Legal, but does not fit.")
    unable = cli("estimate", *QUESTION, "--layout", "precision=nvfp4")
    assert "Memory of one GPU" not in unable.out


def test_an_estimate_as_json_has_the_layout_it_judged(cli: Any) -> None:
    body = cli("estimate", *QUESTION, "--layout", "tp=2", "--json").body
    assert body["layout"]["tp"] == 2


def test_an_overlay_adds_a_model(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(
        '[models."our-8b"]\nlike = "llama-3-8b"\nsource = "us"\n', "utf-8"
    )
    ended = cli("models", "our-8b", "--catalog", str(tmp_path), "--json")
    assert [one["name"] for one in ended.body["models"]] == ["our-8b"]
    (tmp_path / "own.toml").write_text("[models", "utf-8")
    wrong = cli("models", "--catalog", str(tmp_path), "--json")
    assert wrong.code == 2
    assert "own.toml" in wrong.body["error"]["message"]


def test_lists_are_tables(cli: Any) -> None:
    models = cli("models", "llama-3-70b").out.splitlines()
    assert models[0].split() == ["model", "params", "active", "layers", "hidden", "sequence"]
    assert models[1].split()[:3] == ["llama-3-70b", "70.6", "B"]
    found = cli("gpus", "H100-NVL", "--json").body["gpus"]
    assert [one["name"] for one in found] == ["H100-NVL-94GB"]
    gpus = cli("gpus", "NVIDIA-H100-80GB-HBM3").out.splitlines()
    assert gpus[1].split()[:2] == ["H100-SXM5-80GB", "80"]


def test_an_environment_has_reasons(cli: Any) -> None:
    arguments = ("env", "--gpu", "H100-SXM5-80GB", "--nodes", "2", "--instance-type", "p5.48xlarge")
    body = cli(*arguments, "--json").body
    assert {"environment", "warnings", "profile"} <= set(body)
    assert all(one["reason"] and one["source"] for one in body["environment"])
    shown = cli(*arguments).out
    assert f"profile {body['profile']}" in shown
    assert all(f"{one['name']}={one['value']}" in shown for one in body["environment"])


def test_a_single_gpu_needs_little(cli: Any) -> None:
    shown = cli("env", "--gpu", "T4", "--gpus-per-node", "1").out
    assert shown.startswith("profile ")


def test_what_a_job_sets_itself_is_not_set_again(cli: Any) -> None:
    arguments = ("env", "--gpu", "H100-SXM5-80GB", "--nodes", "2", "--set", "NCCL_DEBUG=INFO")
    body = cli(*arguments, "--json").body
    assert "NCCL_DEBUG" not in {one["name"] for one in body["environment"]}


def test_a_manifest_is_reviewed(cli: Any, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(AUTO)
    shown = cli("review", str(file))
    assert shown.code == 0
    assert shown.out.startswith(
        "allowed: CREATE training.vsr.dev/v1alpha1 TrainJob research/llama\nwarning: TP="
    )
    assert "add /spec/tpDegree" in shown.out
    response = cli("review", str(file), "--json").body["response"]
    assert response["allowed"] is True
    assert {"op", "path", "value"} == set(response["patch"][0])


def test_the_patched_manifest_is_yaml_and_needs_no_second_patch(cli: Any, stdin: Any) -> None:
    stdin(AUTO)
    ended = cli("review", "-", "--patched")
    assert ended.code == 0
    assert ended.err.startswith("allowed: ")
    job = yaml.safe_load(ended.out)
    assert job["spec"]["tpDegree"] >= 1
    stdin(ended.out)
    assert cli("review", "-", "--json").body["response"]["patch"] == []


def test_one_denied_document_of_many_is_exit_code_1(cli: Any, stdin: Any) -> None:
    unknown = AUTO.replace("H100-80GB-HBM3", "H9000")
    stdin(f"{AUTO}\n---\n{unknown}\n---\napiVersion: v1\nkind: ConfigMap\n")
    ended = cli("review", "-", "--json")
    responses = [json.loads(line)["response"] for line in ended.out.splitlines()]
    assert ended.code == 1
    assert [one["allowed"] for one in responses] == [True, False, True]
    assert responses[1]["status"]["code"] == 422
    assert responses[2]["patch"] == []


def test_long_values_are_cut_for_reading_and_whole_as_json(cli: Any, stdin: Any) -> None:
    stdin(AUTO)
    assert "characters; --json shows all" in cli("review", "-").out
    stdin(AUTO)
    assert "characters; --json" not in cli("review", "-", "--json").out


def test_a_denial_lists_its_causes(cli: Any, stdin: Any) -> None:
    stdin(AUTO.replace("gpusPerNode: 8", "gpusPerNode: -1").replace("numNodes: 1", "numNodes: 0"))
    ended = cli("review", "-")
    assert ended.code == 1
    assert ended.out.startswith("denied: ")
    assert "- spec.gpusPerNode" in ended.out
    assert "- spec.numNodes" in ended.out


def test_the_patch_of_a_job_that_is_denied_afterwards_is_not_shown(cli: Any, stdin: Any) -> None:
    """Defaults are written first, then the layout its author chose is judged."""
    stdin(AUTO.replace("autoParallelism: true", "tpDegree: 3\n  ppDegree: 1"))
    ended = cli("review", "-")
    assert ended.code == 1
    assert "spec.tpDegree" in ended.out
    assert "is dropped with it" in ended.out


def test_a_job_that_needs_nothing_has_no_patch(cli: Any, stdin: Any) -> None:
    stdin("apiVersion: v1\nkind: ConfigMap\n")
    assert cli("review", "-").out.splitlines()[-1] == "no patch"


def test_a_review_as_the_api_server_sends_it_is_read(cli: Any) -> None:
    ended = cli("review", str(ROOT / "examples" / "reviews" / "auto.json"), "--json")
    assert ended.body["response"]["allowed"] is True


@pytest.mark.parametrize(
    "text",
    ["", "---\n", '{"kind": "AdmissionReview"}', '{"kind": "AdmissionReview", "request": 1}'],
)
def test_what_is_no_object_is_bad_input(cli: Any, stdin: Any, text: str) -> None:
    stdin(text)
    ended = cli("review", "-", "--json")
    assert ended.code == 2
    assert ended.body["error"]["code"] == "invalid_request"


def test_a_wrong_setting_stops_serving_before_it_starts(cli: Any) -> None:
    ended = cli("serve", "--port", "99999")
    assert ended.code == 2
    assert "TRAINJOB_ADVISOR_PORT" in ended.err


def test_certificates_are_made_once(cli: Any, tmp_path: Path) -> None:
    assert cli("certs", str(tmp_path), "--json").body["made"] is True
    again = cli("certs", str(tmp_path))
    assert again.out.startswith("kept, still good: ")
    assert cli("certs", str(tmp_path), "--force", "--json").body["made"] is True


def test_certificates_need_a_place(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = cli("certs", str(tmp_path / "file"), "--json")
    assert ended.code == 2
    assert "must be writable" in ended.body["error"]["message"]
