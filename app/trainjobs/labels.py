"""Names of labels and annotations that TrainJobs carry, ours and our neighbours'."""

from __future__ import annotations

from typing import Final

PREFIX: Final = "training.vsr.dev/"

SEQUENCE_LENGTH: Final = PREFIX + "sequence-length"
GLOBAL_BATCH_SIZE: Final = PREFIX + "global-batch-size"
FRAMEWORK: Final = PREFIX + "framework"
FABRIC: Final = PREFIX + "fabric"
PINS: Final = PREFIX + "pins"

CONFIG: Final = PREFIX + "auto-parallelism-config"
REASON: Final = PREFIX + "auto-parallelism-reason"
PLAN: Final = PREFIX + "plan"
ENVIRONMENT: Final = PREFIX + "environment"

READ: Final = (SEQUENCE_LENGTH, GLOBAL_BATCH_SIZE, FRAMEWORK, FABRIC, PINS)
"""Annotations a TrainJob of `training.vsr.dev` is asked by."""
WRITTEN: Final = (CONFIG, REASON, PLAN, ENVIRONMENT)

KUEUE_QUEUE: Final = "kueue.x-k8s.io/queue-name"
