"""What is known here of the engines' KV caches, as the labels of one metric."""

from collections.abc import Sequence

from umbel_engine.wire import ReadyResponse

LABELS = (
    "_block_size_resolved",
    "block_size",
    "cache_dtype",
    "cache_hit_alignment_tokens",
    "effective_attention_block_size",
    "enable_mamba_shared_prefix_checkpoint",
    "enable_prefix_caching",
    "engine",
    "gpu_memory_utilization",
    "hash_block_size",
    "is_attention_free",
    "kv_cache_dtype_skip_layers",
    "kv_cache_layout",
    "kv_cache_max_concurrency",
    "kv_cache_memory_bytes",
    "kv_cache_size_tokens",
    "kv_offloading_backend",
    "kv_offloading_size",
    "kv_sharing_fast_prefill",
    "mamba_block_size",
    "mamba_cache_dtype",
    "mamba_cache_mode",
    "mamba_page_size_padded",
    "mamba_ssm_cache_dtype",
    "num_cpu_blocks",
    "num_gpu_blocks",
    "num_gpu_blocks_override",
    "prefix_cache_retention_interval",
    "prefix_caching_hash_algo",
    "prefix_match_unit",
    "replayssm_buffer_len",
    "simple_cpu_offload_num_blocks",
    "skip_page_size_padded",
    "sliding_window",
    "swa_bounded_replay",
    "use_kda_recoverssm",
    "use_replayssm",
    "user_specified_block_size",
)
"""The fields of vLLM's CacheConfig that it exposes (0.33), and the engine."""


def label_values(engines: Sequence[tuple[int, ReadyResponse]]) -> list[list[str]]:
    """Give the values of `LABELS` for each engine, from what it told at registration.

    An engine tells a few fields only; the others read "None", vLLM's word for a value that is not
    set, so that queries which group by them go on working.  As in vLLM, `num_gpu_blocks` is that of
    all engines together, and the attention block size is given when all engines agree on it
    (vllm/v1/engine/core_client.py).
    """
    gpu_blocks = sum(ready.num_gpu_blocks for _, ready in engines)
    block_sizes = {ready.effective_attention_block_size for _, ready in engines}
    rows = []
    for index, ready in engines:
        known: dict[str, object] = {
            "block_size": ready.block_size,
            "effective_attention_block_size": (
                ready.effective_attention_block_size if len(block_sizes) == 1 else None
            ),
            "engine": index,
            "kv_cache_max_concurrency": ready.kv_cache_max_concurrency,
            "kv_cache_size_tokens": ready.kv_cache_size_tokens,
            "num_gpu_blocks": gpu_blocks,
        }
        rows.append([str(known.get(label)) for label in LABELS])
    return rows
