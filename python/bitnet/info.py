# SPDX-License-Identifier: Apache-2.0
"""What models and engines say about themselves: the structs of bitnet.h as dataclasses, member for member. The header
describes each member."""
from __future__ import annotations

import dataclasses
import html
from typing import Any, Iterable, Sequence, Tuple

from ._native import part

_record = dataclasses.dataclass(frozen=True)


def table(title: str, rows: list[tuple[str, Any]]) -> str:
    """Two columns for a notebook."""
    body = "".join(f"<tr><th style='text-align:left'>{html.escape(k)}</th><td>{html.escape(str(v))}</td></tr>" for k, v in rows)
    return f"<table><caption>{html.escape(title)}</caption>{body}</table>"


def grid(title: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Several columns, the first one of names."""
    def row(cells: Sequence[Any], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(_shown(c))}</{tag}>" for c in cells) + "</tr>"

    return f"<table><caption>{html.escape(title)}</caption>{row(head, 'th')}{''.join(row(r, 'td') for r in rows)}</table>"


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def rows_of(record: Any, prefix: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for f in dataclasses.fields(record):
        value = getattr(record, f.name)
        if dataclasses.is_dataclass(value):
            rows += rows_of(value, f"{prefix}{f.name}.")
        else:
            rows.append((prefix + f.name, value))
    return rows


class _Html:
    def _repr_html_(self) -> str:
        return table(type(self).__name__, rows_of(self))


@_record
class ModelShape(_Html):
    n_vocab: int
    n_embd: int
    n_ff: int
    n_head: int
    n_head_kv: int
    head_dim: int
    n_ctx_train: int
    n_layer: int
    n_layer_attention: int
    n_layer_mtp: int
    tied_head: int
    n_params: int
    n_params_ternary: int
    state_bytes: int


@_record
class ModelMemory(_Html):
    file_bytes: int
    packed_bytes: int
    head_copy_bytes: int
    ffn_copy_bytes: int
    locked_bytes: int
    layer_bytes: int
    head_bytes: int
    mtp_bytes: int
    head_screen_bytes: int
    numa_near_bytes: int
    numa_nodes: int
    prefetch_bytes: int
    hugepages: str


@_record
class ModelInfo(_Html):
    name: str
    note: str
    architecture: str
    activation: str
    act_quant: str
    weight_type: str
    head_type: str
    backend: str
    layout: str
    packed_path: str
    packed_mapped: int
    load_ns: int
    shape: ModelShape = part(ModelShape)
    memory: ModelMemory = part(ModelMemory)
    plan: str
    checksum: int


@_record
class WorkInfo(_Html):
    steps: int
    prompt_tokens: int
    generated_tokens: int
    preemptions: int
    recomputed_tokens: int
    step_ns: int
    forward_ns: int
    weight_bytes: int
    yields: int


@_record
class KVInfo(_Html):
    type: str
    type_v: str
    bytes: int
    token_bytes: int
    page_tokens: int
    pages: int
    pages_free: int
    pages_cached: int
    seqs_full: int


@_record
class PrefixInfo(_Html):
    queries: int
    hits: int
    queried_tokens: int
    hit_tokens: int


@_record
class StateInfo(_Html):
    seq_bytes: int
    bytes: int
    snapshots: int
    snapshots_used: int
    saves: int
    restores: int
    evictions: int


@_record
class DraftInfo(_Html):
    tokens: int
    accepted: int


@_record
class HeadInfo(_Html):
    type: str
    full: int
    screened: int
    fallbacks: int
    survivors: int
    survivors_max: int
    refined: int
    histogram: Tuple[int, ...]


@_record
class FFNInfo(_Html):
    type: str
    tokens: int
    dense_bytes: int
    read_bytes: int
    up_skipped: int
    down_skipped: int


@_record
class PlanInfo(_Html):
    from_: str
    text: str


@_record
class RanksInfo(_Html):
    n: int
    exchanges: int
    bytes: int
    ns: int


@_record
class EngineInfo(_Html):
    threads: int
    pinned: int
    ctx_tokens: int
    max_seqs: int
    max_batch_tokens: int
    n_running: int
    n_waiting: int
    hugepages: str
    scratch_bytes: int
    locked_bytes: int
    work: WorkInfo = part(WorkInfo)
    kv: KVInfo = part(KVInfo)
    prefix: PrefixInfo = part(PrefixInfo)
    states: StateInfo = part(StateInfo)
    draft: DraftInfo = part(DraftInfo)
    head: HeadInfo = part(HeadInfo)
    ffn: FFNInfo = part(FFNInfo)
    plan: PlanInfo = part(PlanInfo)
    ranks: RanksInfo = part(RanksInfo)


@_record
class Health(_Html):
    choices: int
    repetition: float
    logit_rows: int
    nonfinite_rows: int
    ffn_samples: int
    gates_open: float
    inputs_zero: float
    kv_used: float
    kv_cached: float
    scrub_passes: int
    scrub_mismatches: int


@_record
class KVSideHealth(_Html):
    entropy_bits: float
    peaks: float
    saturated: float
    max_abs: float


@_record
class KVHealth(_Html):
    rows: int
    keys: KVSideHealth = part(KVSideHealth)
    values: KVSideHealth = part(KVSideHealth)


@_record
class Scrub(_Html):
    total_bytes: int
    pass_bytes: int
    passes: int
    mismatches: int
    tensor: str
    offset: int


@_record
class Perplexity(_Html):
    n_tokens: int
    n_windows: int
    nll_per_token: float
    perplexity: float
    std_error: float
    ns: int


@_record
class ProfileEntry(_Html):
    phase: int
    worker: int
    op: str
    kind: str
    layer: int
    ns: int
    calls: int
    bytes: int
    macs: int


@_record
class ProfilePhase(_Html):
    steps: int
    tokens: int
    ns: int


@_record
class FileModel(_Html):
    architecture: str
    n_vocab: int
    n_embd: int
    n_ff: int
    n_head: int
    n_head_kv: int
    head_dim: int
    n_ctx_train: int
    n_layer: int
    n_attention: int
    n_delta: int
    attention_every: int
    n_mtp: int
    delta_k_heads: int
    delta_v_heads: int
    delta_k_dim: int
    delta_v_dim: int
    delta_taps: int
    rotation_block: int
    rotation_signs: int
    rotated_embedding: int
    n_rotated: int
    state_bytes: int
    kv_token_bytes: int


@_record
class TensorInfo(_Html):
    name: str
    type: str
    n_dims: int
    dims: Tuple[int, ...]
    bytes: int
    offset: int
    bits_per_weight: float
    is_ternary_type: int
    is_matrix: int
    is_gate: int
    is_packed: int


@_record
class TensorStats(_Html):
    count: Tuple[int, ...]
    values: str
    dtype: str
    zero_share: float
    scale_min: float
    scale_max: float
    n_scales: int
    dead_rows: int
    value_min: float
    value_max: float
    mean_abs: float
    n_nonfinite: int


@_record
class PruneStep(_Html):
    first_layer: int
    n_layers: int
    layers_left: int
    ffn_width: int
    nll_per_token: float
    perplexity: float
    std_error: float
    kl: float


@_record
class Divergence(_Html):
    n_positions: int
    kl_mean: float
    kl_mean_error: float
    kl_median: float
    kl_p99: float
    kl_max: float
    same_top: float
    same_top_error: float
    ppl_base: float
    ppl: float
    ppl_ratio: float
    ppl_ratio_error: float
    ns: int


@dataclasses.dataclass(frozen=True)
class Memory(_Html):
    """What an engine and its model hold, in bytes; all of it is reserved when they are opened. head: embedding and output
    head as the file has them; copies: of the head and the feed-forward layers."""

    weights: int
    head: int
    copies: int
    kv_cache: int
    states: int
    scratch: int
    total: int


# the struct that each of them mirrors
STRUCTS = {
    ProfilePhase: "bitnet_profile_phase",
    FileModel: "bitnet_file_model",
    TensorInfo: "bitnet_tensor_info",
    TensorStats: "bitnet_tensor_stats",
    PruneStep: "bitnet_prune_step",
    Divergence: "bitnet_divergence",
    ModelShape: "bitnet_model_shape",
    ModelMemory: "bitnet_model_memory",
    ModelInfo: "bitnet_model_info",
    WorkInfo: "bitnet_work_info",
    KVInfo: "bitnet_kv_info",
    PrefixInfo: "bitnet_prefix_info",
    StateInfo: "bitnet_state_info",
    DraftInfo: "bitnet_draft_info",
    HeadInfo: "bitnet_head_info",
    FFNInfo: "bitnet_ffn_info",
    PlanInfo: "bitnet_plan_info",
    RanksInfo: "bitnet_ranks_info",
    EngineInfo: "bitnet_engine_info",
    Health: "bitnet_health",
    KVSideHealth: "bitnet_kv_side_health",
    KVHealth: "bitnet_kv_health",
    Scrub: "bitnet_scrub",
    Perplexity: "bitnet_ppl_result",
    ProfileEntry: "bitnet_profile_entry",
}
