"""TrainJob Advisor: parallelism plans for distributed training jobs, at admission."""

__version__ = "0.1.0"
