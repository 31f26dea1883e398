"""Bytes one GPU holds under a layout, term by term, on the pipeline stage that holds most.

    parameters  what the layers compute with          gradients  every copy of a gradient
    optimizer   fp32 master copy and moments          activations  kept for the backward pass
    logits      head output and loss                  buffers    gathered layers, communication
    communicators  NCCL, per process group            reserve    CUDA context, fragmentation

Symbols: T tokens of one microbatch on one rank, h hidden, f feed-forward, V padded vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from app.planner.architecture import ModelArchitecture
from app.planner.framework import Bytes, FrameworkProfile, KeptActivations, StateBytes
from app.planner.layout import Degrees, Layout
from app.planner.legality import num_microbatches, padded_vocabulary, stages_or_ceiling
from app.planner.native import mypyc_attr
from app.planner.request import MemoryBytes, PlanRequest

SIXTEEN_BIT: Final = 2
NF4_BYTES: Final = 0.516
"""4 bits, and double-quantised block constants. Source: QLoRA, arXiv:2305.14314, section 3."""

MOMENT_BYTES: Final[Mapping[str, float]] = {
    "adamw": 8.0,
    "adamw_bf16": 4.0,
    "adamw_8bit": 2.0,
    "sgd": 4.0,
    "muon": 4.0,
}
"""Moments per parameter: two in fp32, bf16 or 8 bits; one in fp32 for momentum."""

PURE_SIXTEEN_BIT: Final = frozenset({"adamw_bf16", "adamw_8bit"})
"""Optimizers run without an fp32 master copy or fp32 gradients."""


@mypyc_attr(acyclic=True)
class StageParams:
    """Parameters of one rank of one stage, before data-parallel sharding.

    `dense` is shared by every rank of the data-parallel group, `routed` by those with the same
    experts; the frozen ones get no gradients. `gathered_bytes` is what stands whole at once under
    ZeRO-3. `frozen_tables` of `frozen_dense` are vocabulary tables, which no quantisation touches.
    A plain class, because the search makes many.
    """

    def __init__(
        self,
        *,
        dense: float,
        routed: float,
        gathered_bytes: float,
        frozen_dense: float = 0.0,
        frozen_routed: float = 0.0,
        frozen_tables: float = 0.0,
    ) -> None:
        self.dense = dense
        self.routed = routed
        self.gathered_bytes = gathered_bytes
        self.frozen_dense = frozen_dense
        self.frozen_routed = frozen_routed
        self.frozen_tables = frozen_tables

    @property
    def trained(self) -> float:
        """Parameters that get gradients."""
        return self.dense + self.routed


def expert_split(layout: Degrees) -> int:
    """Ways the routed experts of a stage are divided: by ep, or like an MLP by tp."""
    return layout.ep if layout.ep > 1 else layout.tp


def dense_shard_group(layout: Degrees) -> int:
    """Ranks that share one copy of a sharded dense parameter."""
    return layout.dp_shard * layout.cp


def expert_ranks(tp: int, ep: int, dense: int) -> int:
    """Ranks that share one copy of a sharded expert: what ep leaves of the stage's ranks.

    `dense` share one copy of a dense parameter.
    """
    return dense if ep == 1 else max(1, tp * dense // ep)


def expert_shard_group(layout: Degrees) -> int:
    """Ranks that share one copy of a sharded expert under a layout."""
    return expert_ranks(layout.tp, layout.ep, dense_shard_group(layout))


def lora_params(rows: float, columns: float, rank: int) -> float:
    """Adapter parameters beside one matrix. Source: LoRA, arXiv:2106.09685, section 4.1."""
    return rank * (rows + columns)


def adapter_params_per_layer(model: ModelArchitecture, rank: int) -> float:
    """Adapters beside every attention and MLP matrix of a dense layer (experts have none)."""
    h = model.hidden_size
    width = model.ffn_hidden_size
    if model.moe is not None:
        width = model.moe.shared_expert_ffn_hidden_size
    attention = (
        lora_params(h, model.query_size, rank)
        + 2 * lora_params(h, model.kv_size, rank)
        + lora_params(model.value_size, h, rank)
    )
    mlp = model.mlp_matrices * lora_params(h, width, rank) if width else 0.0
    return attention + mlp


def layer_params(model: ModelArchitecture, layout: Degrees, *, routed: bool) -> tuple[float, float]:
    """Dense and routed parameters one rank holds of one layer, before data-parallel sharding."""
    attention = model.attention_params / layout.tp + model.layer_vector_params
    if not routed or model.moe is None:
        return attention + model.dense_mlp_params / layout.tp, 0.0
    shared = model.shared_expert_params / layout.tp + model.router_params
    each = model.expert_params + model.vector_params_per_expert
    return attention + shared, model.moe.num_experts * each / expert_split(layout)


def stage_params(request: PlanRequest, layout: Layout, stage: int) -> StageParams:
    """Parameters of pipeline stage `stage`. The dense layers of an MoE model come first."""
    model = request.model
    stages = stages_or_ceiling(request, layout)
    start = sum(stages[:stage])
    in_stage = stages[stage]
    plain = max(0, min(start + in_stage, model.num_dense_layers) - start)
    moe_layers = in_stage - plain
    plain_dense, _ = layer_params(model, layout, routed=False)
    moe_dense, moe_routed = layer_params(model, layout, routed=True)
    vocabulary = padded_vocabulary(
        model.vocab_size, layout.tp, request.framework.vocabulary_multiple
    )
    table = vocabulary * model.hidden_size / layout.tp
    first, last = stage == 0, stage == layout.pp - 1
    tables = float(first) + float(last and (layout.pp > 1 or not model.tied_embeddings))
    dense = plain * plain_dense + moe_layers * moe_dense + tables * table
    if last:
        dense += model.outside_params
    routed = moe_layers * moe_routed
    override = model.params_override
    scale = override / max(1, counted_params(model)) if override else 1.0
    dense, routed = dense * scale, routed * scale
    layer = max(plain_dense if plain else 0.0, moe_dense + moe_routed if moe_layers else 0.0)
    of_layer, of_table = gathered_bytes(request)
    gathered = max(layer * of_layer, table * of_table if tables else 0.0)
    if trains_all(request):
        return StageParams(dense=dense, routed=routed, gathered_bytes=gathered)
    adapters = in_stage * adapter_params_per_layer(model, request.workload.lora_rank) / layout.tp
    return StageParams(
        dense=adapters,
        routed=0.0,
        gathered_bytes=gathered,
        frozen_dense=dense,
        frozen_routed=routed,
        frozen_tables=tables * table * scale,
    )


def trains_all(request: PlanRequest) -> bool:
    """Whether every parameter is trained, none frozen."""
    return request.workload.task in ("pretrain", "sft")


def base_bytes(request: PlanRequest) -> float:
    """Bytes per parameter of a frozen base's layers."""
    return NF4_BYTES if request.workload.task == "qlora" else float(SIXTEEN_BIT)


def table_excess(request: PlanRequest) -> float:
    """How much more a parameter of a frozen vocabulary table takes than one of a layer, as a share.

    QLoRA quantises the linear layers of blocks; embedding and head stay 16 bits wide.
    Source: QLoRA, arXiv:2305.14314, section 3; torchtune `quantize_base`.
    """
    return SIXTEEN_BIT / base_bytes(request) - 1


def gathered_bytes(request: PlanRequest) -> tuple[float, float]:
    """Device bytes per parameter that stands whole at once under ZeRO-3: a layer's, a table's.

    A layer stands with the neighbours that are prefetched and, in its backward pass, its whole
    gradient as wide as it is sent, unless gradients are sent in buckets. A quantised base is
    gathered quantised. A vocabulary table stands alone with its gradient.
    Source: PyTorch FSDP, arXiv:2304.11277, section 4; `MixedPrecisionPolicy.reduce_dtype`.
    """
    framework = request.framework
    whole = trains_all(request) and framework.bucket_bytes == 0
    gradient = framework.gradient_bytes if whole else 0.0
    return framework.gathered_layers * base_bytes(request) + gradient, SIXTEEN_BIT + gradient


def counted_params(model: ModelArchitecture) -> int:
    """Parameters that follow from the sizes, without the override."""
    total = model.embedding_params + model.head_params + model.outside_params
    total += model.num_layers * (model.attention_params + model.layer_vector_params)
    total += model.num_dense_layers * model.dense_mlp_params
    if model.moe is not None:
        each = model.expert_params + model.vector_params_per_expert
        routed = model.router_params + model.shared_expert_params + model.moe.num_experts * each
        total += model.moe.num_moe_layers * routed
    return total


def states_of(request: PlanRequest, layout: Degrees) -> StateBytes:
    """Bytes per trained parameter under the layout's sharding, precision and optimizer."""
    framework, optimizer = request.framework, request.workload.optimizer
    states = framework.states[layout.sharding]
    for kind in (layout.precision, "pp" if layout.pp > 1 else "", optimizer):
        states = framework.variants.get(f"{layout.sharding}@{kind}", states)
    if layout.precision == "fp32":
        return _narrowed(states, weight=4.0, gradient=4.0)
    if optimizer in PURE_SIXTEEN_BIT and f"{layout.sharding}@{optimizer}" not in framework.variants:
        return _narrowed(states, weight=2.0, gradient=2.0)
    return states


def _narrowed(states: StateBytes, *, weight: float, gradient: float) -> StateBytes:
    """The same sharding with weights and gradients of one width, and no master.

    Weights gathered from a shard stay beside it. Gradients that stand whole give way to their
    shards as they are reduced.
    """
    whole, part = states.weights.replicated > 0, states.weights.sharded > 0
    gradients = (
        Bytes(replicated=gradient) if states.gradients.replicated else Bytes(sharded=gradient)
    )
    return StateBytes(
        weights=Bytes(replicated=weight if whole else 0.0, sharded=weight if part else 0.0),
        gradients=gradients,
        master=Bytes(),
        moments_sharded=states.moments_sharded,
    )


Share = tuple[float, float]
"""Bytes per parameter: `replicated` on every rank, `sharded` over the shard group."""

NOWHERE: Share = (0.0, 0.0)


def per_parameter(copy: Share, group: int) -> float:
    """Bytes per parameter one rank of a shard group of `group` ranks holds of a copy."""
    return copy[0] + copy[1] / group


@mypyc_attr(acyclic=True)
class PlacedStates:
    """Bytes per parameter by what they are and where: on the device, on the host, or frozen.

    Offloading the optimizer moves master and moments to the host, and under a sharded optimizer the
    gradient shard too; offloading parameters moves sharded weights, a frozen base included.
    A rank whose weights are not sharded loads all of them, `loading_bytes` wide, before it moves
    anything: the host then holds the larger of the two. Source: DeepSpeed's ZeRO-2 memory
    estimator, 1.5 * max(4 * ranks, 16) bytes per parameter.
    A plain class over pairs, because the search makes many.
    """

    def __init__(
        self,
        *,
        parameters: Share,
        gradients: Share,
        optimizer: Share,
        host: Share,
        frozen: Share,
        frozen_host: Share,
    ) -> None:
        self.parameters = parameters
        self.gradients = gradients
        self.optimizer = optimizer
        self.host = host
        self.frozen = frozen
        self.frozen_host = frozen_host


def share(copy: Bytes) -> Share:
    """A profile's bytes as a pair."""
    return copy.replicated, copy.sharded


def placed_states(request: PlanRequest, layout: Degrees, states: StateBytes) -> PlacedStates:
    """Where each copy of a parameter lives; `states` are those of the layout."""
    weights, gradients = share(states.weights), share(states.gradients)
    moments = MOMENT_BYTES[request.workload.optimizer]
    whole, part = share(states.master)
    optimizer = (whole, part + moments) if states.moments_sharded else (whole + moments, part)
    offload = request.workload.offload
    base = base_bytes(request)
    sharded_base = layout.sharding in ("zero3", "hsdp")
    frozen = (0.0, base) if sharded_base else (base, 0.0)
    if offload == "none":
        return PlacedStates(
            parameters=weights,
            gradients=gradients,
            optimizer=optimizer,
            host=NOWHERE,
            frozen=frozen,
            frozen_host=NOWHERE,
        )
    # Gradients move after they were reduced, so a rank keeps only its shard of them.
    moves_gradients = gradients[1] > 0
    moves_weights = offload == "parameters" and weights[0] == 0
    kept, divided = optimizer
    if moves_gradients:
        divided += gradients[1]
    if moves_weights:
        divided += weights[1]
    group = dense_shard_group(layout)
    loaded = request.framework.loading_bytes if weights[0] else 0.0
    if loaded > per_parameter((kept, divided), group):
        kept, divided = loaded, 0.0
    factor = request.framework.host_factor
    moves_base = offload == "parameters" and sharded_base
    return PlacedStates(
        parameters=NOWHERE if moves_weights else weights,
        gradients=NOWHERE if moves_gradients else gradients,
        optimizer=NOWHERE,
        host=(factor * kept, factor * divided),
        frozen=NOWHERE if moves_base else frozen,
        frozen_host=frozen if moves_base else NOWHERE,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTotals:
    """Device bytes of weights, gradients and optimizer of one rank, and what went to the host."""

    parameters: float
    gradients: float
    optimizer: float
    host: float


def state_totals(request: PlanRequest, layout: Layout, params: StageParams) -> StateTotals:
    """Weights, gradients, master copy and moments of one rank; a frozen base counts as weights."""
    placed = placed_states(request, layout, states_of(request, layout))
    dense, routed = dense_shard_group(layout), expert_shard_group(layout)

    def held(copy: Share) -> float:
        return params.dense * per_parameter(copy, dense) + params.routed * per_parameter(
            copy, routed
        )

    base_dense = params.frozen_dense + params.frozen_tables * table_excess(request)
    frozen = base_dense * per_parameter(placed.frozen, dense)
    frozen += params.frozen_routed * per_parameter(placed.frozen, routed)
    base = base_dense * per_parameter(placed.frozen_host, dense)
    base += params.frozen_routed * per_parameter(placed.frozen_host, routed)
    return StateTotals(
        parameters=held(placed.parameters) + frozen,
        gradients=held(placed.gradients),
        optimizer=held(placed.optimizer),
        host=held(placed.host) + base,
    )


def tokens_per_rank(request: PlanRequest, layout: Degrees) -> float:
    """Tokens of one microbatch that one rank computes on."""
    return layout.microbatch_size * request.workload.sequence_length / layout.cp


def kept_of(framework: FrameworkProfile, recompute: str, precision: str) -> KeptActivations:
    """What a layer keeps under a recomputation: narrow inputs of matrix products are kept so."""
    return framework.kept_variants.get(f"{recompute}@{precision}", framework.kept[recompute])


def activation_bytes_per_layer(
    request: PlanRequest, layout: Degrees, kept: KeptActivations, *, routed: bool
) -> float:
    """Bytes one layer keeps for one microbatch on one rank.

    Source: Korthikanti et al., arXiv:2205.05198, equations 1-4, written per tensor so that GQA,
    gated MLPs, flash attention and MoE fit. Deviates: each routed token counts its `top_k` copies,
    which `ep` does not divide because every rank receives as many as it sends.
    """
    model = request.model
    tokens = tokens_per_rank(request, layout)
    tp = layout.tp
    whole = 0.0 if layout.sequence_parallel or tp == 1 else kept.hidden_unsplit
    values = model.hidden_size * ((kept.hidden - whole) / tp + whole)
    values += (kept.query * model.query_size + kept.kv * 2 * model.kv_size) / tp
    values += kept.scores * model.num_heads * request.workload.sequence_length / tp
    if routed and model.moe is not None:
        moe = model.moe
        width = moe.top_k * moe.expert_ffn_hidden_size + moe.shared_expert_ffn_hidden_size
        values += (
            kept.mlp * model.mlp_matrices * width + kept.routed * moe.top_k * model.hidden_size
        ) / tp
    else:
        values += kept.mlp * model.mlp_matrices * model.ffn_hidden_size / tp
    bytes_per_value = 4 if layout.precision == "fp32" else SIXTEEN_BIT
    return tokens * values * bytes_per_value


def in_flight(pp: int, vpp: int, stage: int, microbatches: int) -> float:
    """Microbatches whose activations stage `stage` holds at once, in whole-stage units.

    1F1B keeps pp - stage. Interleaving keeps the warm-up chunks of Megatron's schedule:
    2 (pp - stage - 1) + (vpp - 1) pp, and the one in work, of 1 / vpp each.
    Source: Narayanan et al., arXiv:2104.04473, section 2.2; Korthikanti et al., section 4.2.3.
    """
    if vpp == 1:
        return float(min(microbatches, pp - stage))
    warmup = 2 * (pp - stage - 1) + (vpp - 1) * pp + 1
    return min(microbatches * vpp, warmup) / vpp


def stage_activation_bytes(
    request: PlanRequest, layout: Layout, stage: int, microbatches: int
) -> float:
    """Activation bytes of every microbatch in flight on one stage, and a layer being recomputed."""
    model = request.model
    stages = stages_or_ceiling(request, layout)
    start = sum(stages[:stage])
    plain = max(0, min(start + stages[stage], model.num_dense_layers) - start)
    moe_layers = stages[stage] - plain
    kept = kept_of(request.framework, layout.recompute, layout.precision)
    per_microbatch = plain * activation_bytes_per_layer(request, layout, kept, routed=False)
    per_microbatch += moe_layers * activation_bytes_per_layer(request, layout, kept, routed=True)
    total = per_microbatch * in_flight(layout.pp, layout.vpp, stage, microbatches)
    if layout.recompute == "full":
        everything = kept_of(request.framework, "none", layout.precision)
        total += activation_bytes_per_layer(request, layout, everything, routed=moe_layers > 0)
    if moe_layers:
        total += exchanged_bytes(request, layout)
    return total


def exchanged_bytes(request: PlanRequest, layout: Degrees) -> float:
    """Bytes of one MoE layer in work beyond what it keeps: gradients into and out of its experts.

    Each of a token's `top_k` copies, once as the dispatch returns it and once as the combine sends
    it, 16 bits wide. Balanced routing.
    """
    moe = request.model.moe
    copies = moe.top_k if moe is not None else 0
    values = 2 * copies * request.model.hidden_size * tokens_per_rank(request, layout)
    return values * SIXTEEN_BIT / layout.tp


def logits_bytes(request: PlanRequest, layout: Degrees) -> float:
    """Bytes of the head output, its gradient and the loss of one microbatch, on the last stage."""
    vocabulary = padded_vocabulary(
        request.model.vocab_size, layout.tp, request.framework.vocabulary_multiple
    )
    tokens = tokens_per_rank(request, layout)
    return tokens * vocabulary / layout.tp * request.framework.logits_bytes


def buffer_bytes(request: PlanRequest, layout: Layout, params: StageParams) -> float:
    """Gathered layers under ZeRO-3 and communication buckets."""
    states = states_of(request, layout)
    sharded = states.weights.replicated == 0 and layout.dp_shard * layout.cp > 1
    gathered = params.gathered_bytes if sharded else 0.0
    buckets = request.framework.bucket_bytes if layout.dp * layout.cp > 1 else 0.0
    return gathered + min(buckets, 4 * params.trained)


def num_groups(layout: Layout) -> int:
    """NCCL process groups with more than one rank."""
    degrees = (layout.tp, layout.pp, layout.cp, layout.ep, layout.dp * layout.cp)
    replicas = layout.sharding == "hsdp" and layout.dp > layout.dp_shard
    return sum(degree > 1 for degree in degrees) + int(replicas)


def stage_memory(
    request: PlanRequest, layout: Layout, stage: int, microbatches: int
) -> MemoryBytes:
    """Every term of one pipeline stage."""
    framework = request.framework
    params = stage_params(request, layout, stage)
    states = state_totals(request, layout, params)
    activations = stage_activation_bytes(request, layout, stage, microbatches)
    logits = logits_bytes(request, layout) if stage == layout.pp - 1 else 0.0
    buffers = buffer_bytes(request, layout, params)
    fragments = framework.fragmentation * (activations + logits + buffers)
    return MemoryBytes(
        parameters=states.parameters,
        gradients=states.gradients,
        optimizer=states.optimizer,
        activations=activations,
        logits=logits,
        buffers=buffers,
        communicators=num_groups(layout) * framework.communicator_bytes,
        reserve=framework.context_bytes + fragments,
        host=states.host * request.cluster.gpus_per_node,
        stage=stage,
    )


def stages_that_can_be_worst(request: PlanRequest, layout: Layout) -> tuple[int, ...]:
    """Stages to look at: the first holds most in flight and the embedding, the last the logits.

    Among the stages between, the first of those with most layers dominates: it has as many layers
    as any and more in flight than later ones. An explicit split or an MoE model with dense layers
    is looked at whole.
    """
    pp = layout.pp
    if pp == 1:
        return (0,)
    model = request.model
    if layout.stage_layers or (model.moe is not None and model.num_dense_layers):
        return tuple(range(pp))
    stages = stages_or_ceiling(request, layout)
    if len(set(stages)) <= 1:
        return (0, pp - 1)
    return (0, stages.index(max(stages)), pp - 1)


def memory(request: PlanRequest, layout: Layout) -> MemoryBytes:
    """The device terms of the stage that holds most, and the most any rank puts on its host."""
    microbatches = num_microbatches(request, layout)
    stages = [
        stage_memory(request, layout, stage, microbatches)
        for stage in stages_that_can_be_worst(request, layout)
    ]
    fullest = max(stages, key=lambda held: held.total)
    return replace(fullest, host=max(held.host for held in stages))
