"""The log: one line of JSON for each thing that happened, with nothing of a job's inside."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from app.admission.decision import Decision
from app.admission.review import parse_review
from app.observability.logs import configure_logging, logger
from app.observability.metrics import Metrics
from app.observability.reviews import Recorder, ReviewRecord
from app.planner.intent import FieldError
from tests.faults.service import review


class Output(io.TextIOWrapper):
    """A standard output that is no terminal, and what was written to it."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="ascii")

    def getvalue(self) -> str:
        """All of it."""
        self.flush()
        return self.buffer.getvalue().decode()  # type: ignore[attr-defined, no-any-return]


@pytest.fixture
def lines() -> Iterator[Output]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    stream = Output()
    configure_logging(level="info", form="auto", stream=stream)
    yield stream
    root.handlers, root.level = before
    structlog.reset_defaults()


def recorded(record: ReviewRecord) -> Metrics:
    metrics = Metrics(version="0", planner="pure Python", catalog_version="0")
    Recorder(metrics, catalog_version="0")(record)
    return metrics


def test_a_review_is_one_line(lines: Output) -> None:
    secret = review(env=[{"name": "HF_TOKEN", "value": "hf_secret"}], model="my secret model")
    error = FieldError(path="spec.model", value="my secret model", message="unknown")
    record = ReviewRecord(
        door="mutate",
        outcome="denied",
        duration_seconds=0.001,
        review=parse_review(json.dumps(secret).encode()),
        decision=Decision(outcome="denied", reason="unresolved", causes=(error,)),
    )
    recorded(record)
    (text,) = lines.getvalue().splitlines()
    line = json.loads(text)
    assert (
        line.items()
        >= {
            "event": "review",
            "level": "info",
            "door": "mutate",
            "uid": secret["request"]["uid"],
            "gvk": "training.vsr.dev/v1alpha1/TrainJob",
            "operation": "CREATE",
            "namespace": "team-a",
            "name": "pretrain",
            "dry_run": False,
            "outcome": "denied",
            "reason": "unresolved",
            "rejections": ["spec.model"],
            "duration_seconds": 0.001,
        }.items()
    )
    assert "secret" not in text


def test_a_body_that_is_no_review_is_counted_without_a_name(lines: Output) -> None:
    metrics = recorded(ReviewRecord(door="mutate", outcome="malformed", duration_seconds=0.001))
    labels = {"crd": "none", "operation": "none", "outcome": "malformed"}
    sample = "trainjob_advisor_admission_reviews_total"
    assert metrics.registry.get_sample_value(sample, labels) == 1
    assert json.loads(lines.getvalue())["outcome"] == "malformed"


def test_another_api_is_counted_as_other() -> None:
    foreign = review()
    foreign["request"]["kind"]["group"] = "someone.example"
    record = ReviewRecord(
        door="mutate",
        outcome="skipped",
        duration_seconds=0.001,
        review=parse_review(json.dumps(foreign).encode()),
    )
    labels = {"crd": "other", "operation": "CREATE", "outcome": "skipped"}
    sample = "trainjob_advisor_admission_reviews_total"
    assert recorded(record).registry.get_sample_value(sample, labels) == 1


def test_exceptions_are_data_and_libraries_speak_the_same_way(lines: Output) -> None:
    """Where they were raised is told, what the variables held is not."""
    secret = "hf_secret"
    try:
        int(secret[:1])
    except ValueError:
        logger().exception("request_failed", route="/mutate")
    logging.getLogger("elsewhere").warning("a %s line", "foreign")
    ours, theirs = (json.loads(line) for line in lines.getvalue().splitlines())
    assert ours["exception"][0]["exc_type"] == "ValueError"
    assert secret not in lines.getvalue()
    assert theirs["event"] == "a foreign line"


def test_a_line_is_written_whatever_is_in_it(lines: Output) -> None:
    """Nothing of it may make a review fail, and standard output may be ASCII."""
    logger().warning("odd", path="half \ud800", number=2**70, thing=Metrics, word="groß")
    (line,) = map(json.loads, lines.getvalue().splitlines())
    assert (line["path"], line["number"], line["word"]) == ("half \ud800", 2**70, "groß")


def test_a_terminal_gets_text() -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    stream = Output()
    configure_logging(level="warning", form="text", stream=stream)
    logger().info("quiet")
    logger().warning("loud", what="it")
    root.handlers, root.level = before
    structlog.reset_defaults()
    assert "loud" in stream.getvalue()
    assert "quiet" not in stream.getvalue()
    assert not stream.getvalue().startswith("{")
