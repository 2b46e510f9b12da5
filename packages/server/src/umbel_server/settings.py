"""What a command line asks for, read once and then only handed on."""

from pathlib import Path
from typing import Literal

import msgspec


class FrontendSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What every command that serves asks for; see `umbel render --help`. Times are in seconds.

    `model` is empty for the sample model, `served_model_names` for the model's own.
    """

    model: str
    max_n_sequences: int
    max_completion_prompts: int
    host: str
    port: int
    uds: str | None
    root_path: str
    api_keys: tuple[str, ...]
    allowed_origins: tuple[str, ...]
    allow_credentials: bool
    allowed_methods: tuple[str, ...]
    allowed_headers: tuple[str, ...]
    enable_request_id_headers: bool
    development_mode: bool
    environment: dict[str, str]
    shutdown_timeout: float
    client_write_timeout: float
    sse_keep_alive_interval: float
    ssl_certfile: Path | None
    ssl_keyfile: Path | None
    log_requests: bool
    log_format: Literal["text", "json"]
    served_model_names: tuple[str, ...]
    revision: str | None
    tokenizer: str | None
    max_model_len: str | None
    generation_config: str
    override_generation_config: dict[str, object]
    chat_template: str | None
    content_format: Literal["auto", "string", "openai"]
    default_template_arguments: dict[str, object]
    trust_request_chat_template: bool
    tool_call_parser: str
    reasoning_parser: str
    tool_parser_plugin: Path | None
    structured_outputs_backend: str
    max_logprobs: int
    response_role: str
    enable_prompt_tokens_details: bool
    enable_per_request_metrics: bool
    enable_force_include_usage: bool
    enable_scale_out: bool
    enable_tokenizer_info_endpoint: bool
    return_tokens_as_token_ids: bool


class ServeSettings(FrontendSettings, frozen=True, kw_only=True):
    """What `umbel serve` asks for besides: engines. Times are in seconds.

    An `engine_stall_timeout` of 0 is none.
    """

    dtype: str | None
    python: Path | None
    data_parallel_address: str
    data_parallel_rpc_port: int
    data_parallel_size: int
    data_parallel_size_local: int
    engine_ready_timeout: float
    max_concurrent_sequences: int
    max_num_queued_reqs: int | None
    max_num_queued_tokens: int | None
    engine_stall_timeout: float
    log_stats: bool
    api_server_count: int
    engine_arguments: tuple[str, ...]
