"""The flags of a question, shared by every command that asks the planner something."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from app.cli.refuse import WORKLOAD, bad_input, flag_of

_MODEL, _CLUSTER, _WORK, _SEARCH = "Model", "Cluster", "Workload", "Search"


def _option(flag: str, panel: str, text: str, **more: Any) -> Any:
    return typer.Option(flag, rich_help_panel=panel, help=text, show_default=False, **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What the flags say; `None` was not given. `body` makes it the JSON of the HTTP API."""

    model: Annotated[
        str | None, _option("--model", _MODEL, "A model of the catalog (see `models`).")
    ] = None
    hf_config: Annotated[
        Path | None,
        _option("--hf-config", _MODEL, "A Hugging Face config.json.", exists=True, dir_okay=False),
    ] = None
    architecture: Annotated[
        str | None, _option("--architecture", _MODEL, "An architecture: JSON, or a file of it.")
    ] = None
    gpu: Annotated[
        str | None,
        _option("--gpu", _CLUSTER, "A GPU of the catalog or a node label value (see `gpus`)."),
    ] = None
    nodes: Annotated[int | None, _option("--nodes", _CLUSTER, "Nodes (1).")] = None
    gpus_per_node: Annotated[
        int | None,
        _option("--gpus-per-node", _CLUSTER, "GPUs of each node (8, or the instance type's)."),
    ] = None
    fabric: Annotated[
        str | None,
        _option(
            "--fabric",
            _CLUSTER,
            "A fabric of the catalog, or its one-way bytes per second for each GPU.",
        ),
    ] = None
    instance_type: Annotated[
        str | None,
        _option("--instance-type", _CLUSTER, "A cloud instance type, for GPU and fabric."),
    ] = None
    framework: Annotated[
        str | None,
        _option(
            "--framework",
            _WORK,
            "fsdp (default), fsdp-2024, composer, deepspeed, megatron, megatron-2025, "
            "megatron-deepspeed, megatron-lm-2022 or maxtext.",
        ),
    ] = None
    sequence_length: Annotated[
        int | None, _option("--sequence-length", _WORK, "Tokens of one sequence.")
    ] = None
    global_batch_size: Annotated[
        int | None,
        _option("--global-batch-size", _WORK, "Sequences of one optimizer step, whole job."),
    ] = None
    task: Annotated[
        str | None, _option("--task", _WORK, "pretrain (default), sft, lora or qlora.")
    ] = None
    lora_rank: Annotated[
        int | None, _option("--lora-rank", _WORK, "Rank of the adapters of lora and qlora.")
    ] = None
    optimizer: Annotated[
        str | None,
        _option("--optimizer", _WORK, "adamw (default), adamw_bf16, adamw_8bit, sgd or muon."),
    ] = None
    offload: Annotated[
        str | None,
        _option("--offload", _WORK, "To host memory: none (default), optimizer or parameters."),
    ] = None
    pin: Annotated[
        list[str] | None,
        _option(
            "--pin", _SEARCH, "Fix a layout field: KEY=VALUE. Repeatable.", metavar="KEY=VALUE"
        ),
    ] = None
    precision: Annotated[
        str | None,
        _option(
            "--precision",
            _SEARCH,
            "Precisions the search may choose from, with commas (bf16,fp16).",
            envvar="TRAINJOB_ADVISOR_ALLOWED_PRECISIONS",
        ),
    ] = None
    catalog: Annotated[
        Path | None,
        _option(
            "--catalog",
            _SEARCH,
            "A directory of own entries, over the built-in catalog.",
            envvar="TRAINJOB_ADVISOR_CATALOG_DIR",
            exists=True,
            file_okay=False,
        ),
    ] = None

    def body(self) -> dict[str, Any]:
        """The same question as a `POST /v1/plan` body, without what was not given."""
        same = ("gpu", "nodes", "gpus_per_node", "instance_type", "framework")
        body = {
            "model": self._model(),
            **{name: getattr(self, name) for name in same},
            "fabric": fabric(self.fabric),
            "workload": {name: getattr(self, name) for name in WORKLOAD},
            "pins": key_values(self.pin or (), flag="--pin"),
        }
        body["workload"] = {k: v for k, v in body["workload"].items() if v is not None}
        return {k: v for k, v in body.items() if v not in (None, {})}

    def given(self) -> tuple[str, ...]:
        """Flags that state part of a question (not those that set the desk)."""
        names = [f.name for f in fields(self) if f.name not in {"catalog", "precision"}]
        return tuple(flag_of(name) for name in names if getattr(self, name) is not None)

    def _model(self) -> Any:
        described = {
            "architecture": self.architecture and document(self.architecture, "--architecture"),
            "hf_config": self.hf_config and document(str(self.hf_config), "--hf-config"),
        }
        described = {k: v for k, v in described.items() if v is not None}
        if not described:
            return self.model
        return described | ({"name": self.model} if self.model else {})


def with_question(function: Callable[..., None]) -> Callable[..., None]:
    """The command `function(question, **own)`, its `question` spread into the shared flags."""

    def command(**values: Any) -> None:
        shared = {one.name: values.pop(one.name) for one in fields(Question)}
        function(Question(**shared), **values)

    hints = get_type_hints(Question, include_extras=True)
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    parameters = [
        inspect.Parameter(
            one.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=one.default,
            annotation=hints[one.name],
        )
        for one in fields(Question)
    ]
    parameters += [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # typer reads it
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    command.__doc__ = function.__doc__
    return command


def fabric(text: str | None) -> str | Mapping[str, float] | None:
    """A catalog name as it is, a number as the rate it states."""
    if text is None:
        return None
    try:
        return {"bytes_per_second_per_gpu": float(text)}
    except ValueError:
        return text


def key_values(pairs: list[str] | tuple[str, ...], *, flag: str) -> dict[str, Any]:
    """`["tp=8", "sequence_parallel=true"]` as `{"tp": 8, "sequence_parallel": True}`."""
    return {key: _value(text) for key, text in key_texts(pairs, flag=flag).items()}


def layout_pairs(texts: list[str] | tuple[str, ...]) -> list[str]:
    """`["tp=8,pp=4", "stage_layers=3,4"]` as `["tp=8", "pp=4", "stage_layers=3,4"]`."""
    pairs: list[str] = []
    for text in texts:
        for part in text.split(","):
            if "=" in part or not pairs:
                pairs.append(part)
            else:
                pairs[-1] += f",{part}"
    return pairs


def key_texts(pairs: list[str] | tuple[str, ...], *, flag: str) -> dict[str, str]:
    """`["NCCL_DEBUG=INFO"]` as `{"NCCL_DEBUG": "INFO"}`."""
    texts = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise bad_input(f"`{flag}` must be KEY=VALUE, not `{pair}`", path=flag)
        texts[key.strip()] = text.strip()
    return texts


def _value(text: str) -> Any:
    words: dict[str, Any] = {"true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    parts = text.split(",")
    if all(part.strip().lstrip("-").isdecimal() and len(part) < 20 for part in parts):  # noqa: PLR2004
        numbers = [int(part) for part in parts]
        return numbers[0] if len(numbers) == 1 else numbers
    return text


def document(text: str, flag: str) -> Any:
    """JSON given as text (it starts with a brace) or as the name of a file that holds it."""
    try:
        content = text if text.lstrip().startswith("{") else Path(text).read_text("utf-8")
        return json.loads(content)
    except (OSError, ValueError, RecursionError) as problem:
        raise bad_input(f"`{flag}` must be JSON: {problem}", path=flag) from problem
