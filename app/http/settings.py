"""What an operator may set: environment variables that begin with `TRAINJOB_ADVISOR_`.

docs/operations.md lists them for people; a test compares the two.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from app.observability.logs import LogFormat, LogLevel
from app.planner.hardware import Precision

MEBIBYTE = 1024 * 1024
Names = Annotated[tuple[str, ...], NoDecode]
Port = Annotated[int, Field(ge=0, le=65535)]


class Settings(BaseSettings):
    """The service's settings. Lists are written with commas, mappings as JSON."""

    model_config = SettingsConfigDict(
        env_prefix="TRAINJOB_ADVISOR_", frozen=True, extra="forbid", env_ignore_empty=True
    )

    host: str = Field("0.0.0.0", description="Address to listen on.")  # noqa: S104 - a server in a pod
    port: Port = Field(8443, description="HTTPS port: webhook, API and page.")
    health_port: Port = Field(
        8081,
        description="Plain HTTP port of `/healthz`, `/readyz` and `/metrics`; worker `n` of several"
        " listens on this port plus `n`.",
    )
    workers: int = Field(1, ge=1, le=64, description="Processes that serve the HTTPS port.")

    certificate_dir: Path = Field(
        Path("certs/generated"), description="Directory that holds the certificate files."
    )
    certificate_file: str = Field("tls.crt", description="Certificate chain in it, leaf first.")
    key_file: str = Field("tls.key", description="Private key in it.")
    server_name: str = Field(
        "",
        description="DNS name the certificate must hold, such as the Service's; empty takes any.",
    )
    client_ca_file: Path | None = Field(
        None, description="Authorities of client certificates; when set, every client needs one."
    )
    certificate_poll_seconds: float = Field(
        2, gt=0, le=300, description="How often the certificate files are read."
    )

    catalog_dir: Path | None = Field(
        None, description="Directory of operator entries laid over the built-in catalog."
    )
    allowed_precisions: Annotated[tuple[Precision, ...], NoDecode] = Field(
        ("bf16", "fp16"), description="Precisions a plan may choose from."
    )
    collective_profile: str = Field(
        "", description="Network profile of the environment rules where a job does not show one."
    )
    collective_values: dict[str, str] = Field(
        default_factory=dict,
        description="Values only an operator knows (such as interface names) for those rules.",
    )
    excluded_namespaces: Names = Field(
        ("kube-system",), description="Namespaces whose jobs are never touched."
    )
    read_runtimes: bool = Field(
        False,  # noqa: FBT003 - pydantic takes the default first
        description="Read the training runtimes Kubeflow jobs refer to; needs"
        " `k8s/components/runtime-reader`.",
    )
    runtime_budget_seconds: float = Field(
        0.3, gt=0, le=5, description="Seconds one review waits for a runtime before doing without."
    )
    runtime_fresh_seconds: float = Field(
        30, gt=0, le=3600, description="Seconds a runtime that was read is believed."
    )
    plan_cache_size: int = Field(4096, ge=1, description="Plans kept by each worker.")

    keep_alive_seconds: int = Field(
        120,
        ge=1,
        description="Seconds an idle connection stays open; more than the 90 of the API server.",
    )
    body_limit_bytes: int = Field(
        7 * MEBIBYTE, ge=1024, description="Largest request body; above it the answer is 413."
    )
    body_seconds: float = Field(
        10, gt=0, description="Seconds a client has for sending its headers, and then its body."
    )
    drain_seconds: float = Field(
        5,
        ge=0,
        description="Seconds after SIGTERM in which connections are answered and told to close.",
    )
    grace_seconds: int = Field(
        20, ge=1, description="Seconds after draining in which requests in flight are finished."
    )

    log_level: LogLevel = Field("info", description="`debug`, `info`, `warning` or `error`.")
    log_format: LogFormat = Field(
        "auto", description="`json`, `text`, or `auto`: text on a terminal, otherwise JSON."
    )

    @field_validator("allowed_precisions", "excluded_namespaces", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(part for part in (piece.strip() for piece in value.split(",")) if part)
        return value
