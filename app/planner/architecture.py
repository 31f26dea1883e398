"""The shape of a transformer: its parameters and the work of its parts.

Everything here is a property of the model alone. How it is spread over GPUs is `layout`,
what that costs is `memory` and `timing`.

Symbols in formulas: h hidden size, f feed-forward size, a heads, k key/value heads, d head size,
V vocabulary, L layers, E experts, s sequence length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Attention = Literal["mha", "gqa", "mla"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention sizes. Source: DeepSeek-V2, arXiv:2405.04434, section 2.1.

    `q_lora_rank` 0 means that queries are projected without compression.
    """

    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureOfExperts:
    """Routed experts; `num_moe_layers` of the model's layers have them, the others are dense.

    `shared_expert_ffn_hidden_size` is the width every token passes through, 0 for none.
    """

    num_experts: int
    top_k: int
    expert_ffn_hidden_size: int
    shared_expert_ffn_hidden_size: int = 0
    num_moe_layers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RotaryPositions:
    """Rotary position embedding: no plan depends on it, but who starts one must say it.

    `base` is `rope_theta`, a whole number in every published config. `factor` above 1 stretches
    positions as Llama 3.1 does, with its other constants (low 1, high 4, 8,192 original positions).
    Source: transformers 4.57.1 modeling_rope_utils.py, `_compute_llama3_parameters`.
    """

    base: int
    factor: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelArchitecture:
    """One transformer.

    Matrices follow from the sizes. Vectors (norms, biases) and whatever stands outside the layers
    (position tables, poolers) are given as counts, because families differ there:
    `vector_params_per_layer` and `extra_params`. Left at -1 they take the pre-norm RMSNorm form:
    two norms a layer and one at the end. `params_override` wins over every count.

    `sliding_window` 0 means that all layers attend to the whole sequence, else
    `num_sliding_layers` layers see at most that many tokens. `rotary` is None where nobody
    knows it.
    """

    name: str
    hidden_size: int
    ffn_hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    gated_mlp: bool = True
    tied_embeddings: bool = False
    attention: Attention = "gqa"
    latent: LatentAttention | None = None
    moe: MixtureOfExperts | None = None
    rotary: RotaryPositions | None = None
    causal: bool = True
    sliding_window: int = 0
    num_sliding_layers: int = 0
    max_sequence_length: int = 0
    vector_params_per_layer: int = -1
    vector_params_per_expert: int = 0
    extra_params: int = -1
    params_override: int = 0
    active_params_override: int = 0

    @property
    def query_size(self) -> int:
        """Width of all query heads together."""
        if self.latent is not None:
            return self.num_heads * (self.latent.qk_nope_head_dim + self.latent.qk_rope_head_dim)
        return self.num_heads * self.head_dim

    @property
    def value_size(self) -> int:
        """Width of the attention output before its projection."""
        if self.latent is not None:
            return self.num_heads * self.latent.v_head_dim
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Width of the keys of all key/value heads together (MLA expands to every head)."""
        if self.latent is not None:
            return self.query_size
        return self.num_kv_heads * self.head_dim

    @property
    def num_moe_layers(self) -> int:
        """Layers with routed experts."""
        return self.moe.num_moe_layers if self.moe is not None else 0

    @property
    def num_dense_layers(self) -> int:
        """Layers with one ordinary MLP."""
        return self.num_layers - self.num_moe_layers

    @property
    def mlp_matrices(self) -> int:
        """Matrices of one MLP: up and down, and the gate if there is one."""
        return 3 if self.gated_mlp else 2

    @property
    def attention_params(self) -> int:
        """Matrix parameters of one attention block."""
        h = self.hidden_size
        if self.latent is None:
            return h * (self.query_size + 2 * self.kv_size) + self.value_size * h
        m = self.latent
        queries = (
            h * m.q_lora_rank + m.q_lora_rank * self.query_size
            if m.q_lora_rank
            else h * self.query_size
        )
        compressed = h * (m.kv_lora_rank + m.qk_rope_head_dim)
        expanded = m.kv_lora_rank * self.num_heads * (m.qk_nope_head_dim + m.v_head_dim)
        return queries + compressed + expanded + self.value_size * h

    @property
    def dense_mlp_params(self) -> int:
        """Matrix parameters of the MLP of a dense layer."""
        return self.mlp_matrices * self.hidden_size * self.ffn_hidden_size

    @property
    def expert_params(self) -> int:
        """Matrix parameters of one routed expert."""
        if self.moe is None:
            return 0
        return self.mlp_matrices * self.hidden_size * self.moe.expert_ffn_hidden_size

    @property
    def shared_expert_params(self) -> int:
        """Matrix parameters of the shared expert of one MoE layer."""
        if self.moe is None:
            return 0
        return self.mlp_matrices * self.hidden_size * self.moe.shared_expert_ffn_hidden_size

    @property
    def router_params(self) -> int:
        """Matrix parameters of the router of one MoE layer."""
        return self.hidden_size * self.moe.num_experts if self.moe is not None else 0

    @property
    def layer_vector_params(self) -> int:
        """Norms and biases of one layer, experts' own vectors aside."""
        if self.vector_params_per_layer >= 0:
            return self.vector_params_per_layer
        latent = self.latent
        ranks = latent.q_lora_rank + latent.kv_lora_rank if latent is not None else 0
        return 2 * self.hidden_size + ranks

    @property
    def embedding_params(self) -> int:
        """The input table; the output head is `head_params`."""
        return self.vocab_size * self.hidden_size

    @property
    def head_params(self) -> int:
        """The output head, 0 when it shares the input table."""
        return 0 if self.tied_embeddings else self.vocab_size * self.hidden_size

    @property
    def outside_params(self) -> int:
        """Parameters that are in no layer, embedding and head aside."""
        return self.extra_params if self.extra_params >= 0 else self.hidden_size

    @property
    def params(self) -> int:
        """All parameters."""
        return self.params_override or self._count(experts=None)

    @property
    def active_params(self) -> int:
        """Parameters that one token passes through, embedding and head included."""
        if self.active_params_override:
            return self.active_params_override
        if self.moe is None:
            return self.params
        return self._count(experts=self.moe.top_k)

    @property
    def routed_expert_params(self) -> int:
        """Parameters of all routed experts of the model, the part that `ep` divides."""
        if self.moe is None:
            return 0
        each = self.expert_params + self.vector_params_per_expert
        return self.moe.num_moe_layers * self.moe.num_experts * each

    def _count(self, *, experts: int | None) -> int:
        total = self.embedding_params + self.head_params + self.outside_params
        total += self.num_layers * (self.attention_params + self.layer_vector_params)
        total += self.num_dense_layers * self.dense_mlp_params
        if self.moe is not None:
            counted = self.moe.num_experts if experts is None else experts
            each = self.expert_params + self.vector_params_per_expert
            one_layer = self.router_params + self.shared_expert_params + counted * each
            total += self.moe.num_moe_layers * one_layer
        return total

    def attended_tokens(self, sequence_length: int) -> float:
        """Mean tokens one query attends to in a full-attention layer."""
        return sequence_length / 2 if self.causal else float(sequence_length)

    def sliding_attended_tokens(self, sequence_length: int) -> float:
        """Mean tokens one query attends to in a sliding-window layer."""
        return min(self.attended_tokens(sequence_length), float(self.sliding_window))

    def attention_flop_per_token(self, sequence_length: int) -> float:
        """Forward FLOP of the two attention products of all layers, per token.

        Counts only the positions a query may see: half the square when causal.
        """
        full = self.num_layers - self.num_sliding_layers
        seen = full * self.attended_tokens(sequence_length)
        seen += self.num_sliding_layers * self.sliding_attended_tokens(sequence_length)
        return 2 * seen * (self.query_size + self.value_size)

    def matmul_params_per_token(self) -> int:
        """Matrix parameters one token is multiplied with: active ones, the head, no look-up."""
        total = self.num_layers * self.attention_params
        total += self.num_dense_layers * self.dense_mlp_params
        if self.moe is not None:
            each = self.router_params + self.shared_expert_params
            total += self.moe.num_moe_layers * (each + self.moe.top_k * self.expert_params)
        return total + self.vocab_size * self.hidden_size

    def model_flop_per_token(self, sequence_length: int) -> float:
        """Forward and backward FLOP of one token, no recomputation counted.

        6 per matrix parameter (2 forward, 4 backward) plus three times the forward attention,
        causal positions only: the convention of Megatron-Bridge's tables.
        """
        matrices = 6 * self.matmul_params_per_token()
        return matrices + 3 * self.attention_flop_per_token(sequence_length)
