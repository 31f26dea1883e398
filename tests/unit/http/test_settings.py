"""What an operator may set, and that the page for operators says the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from app.http.settings import Settings
from app.main import setting_errors

PAGE = Path(__file__).parents[3] / "docs/operations.md"
PREFIX = "TRAINJOB_ADVISOR_"


def shown(value: object) -> str:
    if value in (None, "", {}):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`{','.join(value)}`"
    return f"`{value}`"


def rows() -> list[str]:
    return [
        f"| `{PREFIX}{name.upper()}` | {shown(field.get_default(call_default_factory=True))} "
        f"| {field.description} |"
        for name, field in Settings.model_fields.items()
    ]


def test_every_setting_is_on_the_page_for_operators() -> None:
    """The table is exactly this; a new knob is a decision that shows."""
    block = PAGE.read_text().partition("<!-- settings -->\n")[2].partition("<!-- /settings -->")[0]
    assert block.strip() == "\n".join(
        ["| variable | default | meaning |", "|---|---|---|", *rows()]
    )


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "PORT": "9443",
        "ALLOWED_PRECISIONS": "bf16, fp8",
        "EXCLUDED_NAMESPACES": "",
        "COLLECTIVE_VALUES": '{"NCCL_SOCKET_IFNAME": "eth0"}',
    }
    for name, value in given.items():
        monkeypatch.setenv(PREFIX + name, value)
    settings = Settings()
    assert settings.port == 9443
    assert settings.allowed_precisions == ("bf16", "fp8")
    assert settings.excluded_namespaces == ("kube-system",)
    assert settings.collective_values == {"NCCL_SOCKET_IFNAME": "eth0"}


def test_every_wrong_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PREFIX + "PORT", "70000")
    monkeypatch.setenv(PREFIX + "ALLOWED_PRECISIONS", "bf16,int3")
    with pytest.raises(ValidationError) as caught:
        Settings()
    lines = setting_errors(caught.value).splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        PREFIX + "PORT",
        PREFIX + "ALLOWED_PRECISIONS_1",
    ]


def test_the_defaults_hold_what_the_api_server_needs() -> None:
    """It keeps idle connections for 90 seconds and sends up to 7 MiB."""
    assert Settings().keep_alive_seconds > 90
    assert Settings().body_limit_bytes == 7 * 1024 * 1024
