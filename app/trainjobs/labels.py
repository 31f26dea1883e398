"""Names of labels and annotations that TrainJobs carry, ours and our neighbours'."""

from __future__ import annotations

from typing import Final

PREFIX: Final = "training.vsr.dev/"

SEQUENCE_LENGTH: Final = PREFIX + "sequence-length"
GLOBAL_BATCH_SIZE: Final = PREFIX + "global-batch-size"
FRAMEWORK: Final = PREFIX + "framework"
TASK: Final = PREFIX + "task"
LORA_RANK: Final = PREFIX + "lora-rank"
OPTIMIZER: Final = PREFIX + "optimizer"
OFFLOAD: Final = PREFIX + "offload"
FABRIC: Final = PREFIX + "fabric"
PINS: Final = PREFIX + "pins"

CONFIG: Final = PREFIX + "auto-parallelism-config"
REASON: Final = PREFIX + "auto-parallelism-reason"
PLAN: Final = PREFIX + "plan"
PLAN_RESULT: Final = PREFIX + "plan-result"
"""The plan of a Kubeflow TrainJob, where `PLAN` is the name of a label."""
ENVIRONMENT: Final = PREFIX + "environment"

WORK: Final = (TASK, LORA_RANK, OPTIMIZER, OFFLOAD)
"""What the job trains and how, which decides what it has to hold."""
READ: Final = (SEQUENCE_LENGTH, GLOBAL_BATCH_SIZE, *WORK, FRAMEWORK, FABRIC, PINS)
"""Annotations a TrainJob of `training.vsr.dev` is asked by."""
WRITTEN: Final = (CONFIG, REASON, PLAN, PLAN_RESULT, ENVIRONMENT)

KUEUE_QUEUE: Final = "kueue.x-k8s.io/queue-name"
