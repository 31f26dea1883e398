"""How a job is spread over GPUs, and the rules that make a spread legal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from app.planner.hardware import Precision
from app.planner.native import mypyc_attr

Sharding = Literal["none", "zero1", "zero2", "zero3", "hsdp"]
Recompute = Literal["none", "selective", "full"]
SHARDINGS: tuple[Sharding, ...] = ("none", "zero1", "zero2", "zero3", "hsdp")
RECOMPUTES: Final[tuple[Recompute, ...]] = ("none", "selective", "full")


@mypyc_attr(acyclic=True)
class Sketch:
    """`Degrees` without the rest of a layout. The search makes many, so it is a plain class."""

    def __init__(
        self,
        *,
        tp: int = 1,
        pp: int = 1,
        cp: int = 1,
        ep: int = 1,
        dp: int = 1,
        sharding: str = "none",
        sequence_parallel: bool = False,
        microbatch_size: int = 1,
        precision: str = "bf16",
    ) -> None:
        self.tp = tp
        self.pp = pp
        self.cp = cp
        self.ep = ep
        self.dp = dp
        self.dp_shard = dp
        self.sharding = sharding
        self.sequence_parallel = sequence_parallel
        self.microbatch_size = microbatch_size
        self.precision = precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One way to run the job. Invariant: `tp * pp * cp * dp` is the number of GPUs.

    `ep` is taken out of the `tp * cp * dp` ranks of a pipeline stage. With `ep` above 1 an expert
    lives whole on its rank; with `ep` 1 experts are cut by `tp` like any MLP.
    `dp_shard` is how many data-parallel ranks share one copy of what `sharding` shards: `dp`
    unless `sharding` is `hsdp`; context-parallel ranks share it too.
    `vpp` is the number of model chunks per pipeline stage (interleaved schedule), 1 for plain 1F1B.
    `stage_layers` fixes an uneven split of the layers; empty means the framework's own rule.
    """

    tp: int = 1
    pp: int = 1
    vpp: int = 1
    cp: int = 1
    ep: int = 1
    dp: int = 1
    dp_shard: int = 1
    sharding: Sharding = "zero3"
    sequence_parallel: bool = False
    microbatch_size: int = 1
    recompute: Recompute = "none"
    precision: Precision = "bf16"
    stage_layers: tuple[int, ...] = ()

    @property
    def world_size(self) -> int:
        """GPUs this layout occupies."""
        return self.tp * self.pp * self.cp * self.dp


Degrees: TypeAlias = Layout | Sketch
"""What the cost of a layer depends on. A union, which the compiled form reads without a look-up."""
