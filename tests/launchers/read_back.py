"""Reads launch files with the parsers of the tools that will start them: `make read-back`.

Runs in an environment of its own with the tools in it, without a GPU and without this project:
`python read_back.py FOLDER`, where FOLDER/<launcher>/<case>/ holds the files of one answer.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import sys
import tomllib
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

Mismatch = str
Reader = Callable[[Path], Iterator[Mismatch]]


def differing(where: str, read: Any, meant: Any) -> Iterator[Mismatch]:
    """A sentence when a tool read something else than was meant."""
    if read != meant:
        yield f"{where}: meant {meant!r}, read {read!r}"


def torchtitan(folder: Path) -> Iterator[Mismatch]:
    """`ConfigManager` on the file: every value under its table."""
    from torchtitan.config import ConfigManager

    file = folder / "torchtitan.toml"
    config = ConfigManager().parse_args([f"--job.config_file={file}"])
    for table, values in tomllib.loads(file.read_text()).items():
        for key, meant in values.items():
            yield from differing(f"{table}.{key}", getattr(getattr(config, table), key), meant)


def megatron_lm(folder: Path) -> Iterator[Mismatch]:
    """Megatron-LM's own argument parser, which refuses unknown names and wrong words."""
    from megatron.training.arguments import parse_args

    lines = (folder / "megatron.args").read_text().split()
    sys.argv = ["pretrain_gpt.py", *lines]
    arguments = vars(parse_args())
    for line in lines:
        option, equals, meant = line.removeprefix("--").partition("=")
        name = option.replace("-", "_")
        read = arguments.get(name)
        if equals and isinstance(read, int | float | str):
            yield from differing(name, read, type(read)(meant))


def bridge_values(text: str) -> Any:
    """What an override means: null, a truth, a number, a list of words, or its text."""
    if text.startswith("["):
        return text.strip("[]").split(",")
    words = {"null": None, "true": True, "false": False}
    if text in words:
        return words[text]
    return int(text) if text.lstrip("-").isdigit() else text


def megatron_bridge(folder: Path) -> Iterator[Mismatch]:
    """Megatron-Bridge's configuration classes and its reader of overrides."""
    stand_in_for_what_needs_gpus()
    from megatron.bridge.models import GPTModelProvider
    from megatron.bridge.training import config as classes
    from megatron.bridge.training.mixed_precision import get_mixed_precision_config
    from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides

    lines = (folder / "overrides.txt").read_text().split()
    meant = {line.partition("=")[0]: bridge_values(line.partition("=")[2]) for line in lines}
    container = classes.ConfigContainer(
        model=GPTModelProvider(num_layers=80, hidden_size=8192, num_attention_heads=64),
        train=classes.TrainingConfig(train_iters=1, micro_batch_size=1, global_batch_size=8),
        optimizer=classes.OptimizerConfig(lr=1e-4),
        scheduler=classes.SchedulerConfig(),
        dataset=classes.MockGPTDatasetConfig(
            random_seed=1,
            seq_length=8,
            reset_position_ids=False,
            reset_attention_mask=False,
            eod_mask_loss=False,
        ),
        logger=classes.LoggerConfig(),
        tokenizer=classes.TokenizerConfig(tokenizer_type="NullTokenizer", vocab_size=1000),
        checkpoint=classes.CheckpointConfig(),
        ddp=classes.DistributedDataParallelConfig(),
    )
    made = process_config_with_overrides(container, cli_overrides=lines)
    made = container if made is None else made
    for path, value in meant.items():
        found: Any = made
        for name in path.split("."):
            if not hasattr(found, name):
                yield f"{path}: {type(found).__name__} has no {name}"
                break
            found = getattr(found, name)
        else:
            yield from differing(path, found, value)
    get_mixed_precision_config(meant["mixed_precision"])


GPU_OR_DATA_ONLY = ("transformer_engine", "megatron.energon")


def stand_in_for_what_needs_gpus() -> None:
    """Empty modules in its place: configuration imports it and uses none of it."""

    class Nothing(type):
        """A class of no content, which has every attribute."""

        def __getattr__(cls, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return Nothing(name, (), {})

    class Anything(types.ModuleType):
        __path__: ClassVar[list[str]] = []
        __version__ = "2.9.0"

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return Nothing(name, (), {})

    class Finder:
        def find_spec(self, name: str, *_: Any) -> Any:
            if not name.startswith(GPU_OR_DATA_ONLY):
                return None
            return importlib.util.spec_from_loader(name, self, is_package=True)

        def create_module(self, spec: Any) -> types.ModuleType:
            return Anything(spec.name)

        def exec_module(self, module: types.ModuleType) -> None:
            pass

    sys.meta_path.insert(0, Finder())


def deepspeed(folder: Path) -> Iterator[Mismatch]:
    """`DeepSpeedConfig`, which checks that the batches multiply."""
    from deepspeed.runtime import config as module

    # Only this: who asks. Without it the batch is checked for one rank.
    module.dist = types.SimpleNamespace(get_rank=lambda: 0)
    meant = json.loads((folder / "deepspeed.json").read_text())
    accumulated = meant["train_micro_batch_size_per_gpu"] * meant["gradient_accumulation_steps"]
    ranks = meant["train_batch_size"] // accumulated
    mpu = types.SimpleNamespace(get_data_parallel_world_size=lambda: ranks)
    config = module.DeepSpeedConfig(dict(meant), mpu=mpu)
    yield from differing("train_batch_size", config.train_batch_size, meant["train_batch_size"])
    yield from differing(
        "stage", int(config.zero_config.stage), meant["zero_optimization"]["stage"]
    )


def accelerate(folder: Path) -> Iterator[Mismatch]:
    """Accelerate's reader of a configuration file, which refuses unknown keys."""
    import yaml
    from accelerate.commands.config.config_args import load_config_from_file

    file = folder / "accelerate.yaml"
    config = load_config_from_file(str(file))
    for key, meant in yaml.safe_load(file.read_text()).items():
        read = getattr(config, key)
        yield from differing(key, getattr(read, "value", read), meant)


READERS: dict[str, tuple[str, Reader]] = {
    "torchtitan": ("torchtitan", torchtitan),
    "megatron-lm": ("megatron-core", megatron_lm),
    "megatron-bridge": ("megatron-bridge", megatron_bridge),
    "deepspeed": ("deepspeed", deepspeed),
    "accelerate": ("accelerate", accelerate),
}


def main(folder: Path) -> int:
    """Read every answer; the number of those that were not read as meant."""
    warnings.simplefilter("ignore")
    failed = passed = 0
    for name, (package, reader) in READERS.items():
        release = f"{package} {importlib.metadata.version(package)}"
        for case in sorted((folder / name).iterdir()):
            try:
                found = list(reader(case))
            except (Exception, SystemExit) as problem:  # noqa: BLE001 - whatever a tool raises
                found = [f"{type(problem).__name__}: {problem}"]
            passed, failed = passed + (not found), failed + bool(found)
            print(f"{name} {case.name} by {release}: {'; '.join(found) or 'read as meant'}")
    print(f"{passed} passed, {failed} failed")
    return failed


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
