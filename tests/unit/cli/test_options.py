"""The options of every command. A new one is a decision: add it here and to docs/cli.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.cli.root import COMMANDS, load_command

DOCUMENT = Path(__file__).parents[3] / "docs" / "cli.md"
QUESTION = (
    "--model --hf-config --architecture --gpu --nodes --gpus-per-node --fabric --instance-type "
    "--framework --sequence-length --global-batch-size --task --lora-rank --optimizer --offload "
    "--pin --precision --catalog"
)
OPTIONS = {
    "plan": f"{QUESTION} --json --jsonl",
    "estimate": f"{QUESTION} --layout --json --jsonl",
    "explain": f"{QUESTION} --layout --json",
    "launch": f"{QUESTION} --launcher --layout --write --json",
    "cost": f"{QUESTION} --tokens --deadline --budget --max-gpus --spot-interruption-hours --all "
    "--json",
    "doctor": f"FILES {QUESTION} --manifest --layout --json",
    "review": "FILE --patched --catalog --precision --json",
    "env": f"{QUESTION} --layout --set --resource --node-label --profile --json",
    "models": "SEARCH --catalog --json",
    "gpus": "SEARCH --catalog --json",
    "accuracy": "--data --by --json",
    "bench": "WHAT --catalog --json --sample --rate --seconds --connections --ratios --plot --url "
    "--ca",
    "serve": "--host --port --health-port --workers --certificate-dir",
    "certs": "DIRECTORY --host --service --namespace --days --force --json",
}


def options(name: str) -> list[str]:
    """The arguments and options of a command as they are typed, `--help` aside."""
    found = []
    for one in load_command(name).params:
        typed = one.opts[0] if one.opts[0].startswith("-") else one.name.upper()
        if typed != "--help":
            found.append(typed)
    return found


def section(name: str) -> str:
    """What docs/cli.md says under the command's heading."""
    parts = re.split(r"^## ", DOCUMENT.read_text("utf-8"), flags=re.MULTILINE)
    (found,) = [part for part in parts if part.startswith(f"`{name}`\n")]
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_options_are_frozen(name: str) -> None:
    assert sorted(options(name)) == sorted(OPTIONS[name].split())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_documented_where_its_command_is(name: str) -> None:
    documented = set(re.findall(r"`(--[a-z-]+)`", section(name)))
    assert documented == {one for one in options(name) if one.startswith("--")}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_is_for(name: str) -> None:
    for one in load_command(name).params:
        assert one.help, one.opts
        assert one.help.endswith("."), one.help


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_what_it_does(name: str) -> None:
    first = load_command(name).get_short_help_str(limit=100)
    assert first.endswith(".")
    assert "..." not in first
