"""What an operator decides about a server, fixed when it starts."""

import msgspec

from umbel_server.requests.limits import DEFAULT_MAX_N, DEFAULT_MAX_PROMPTS, DEFAULT_MAX_SEQUENCES

DEFAULT_WRITE_TIMEOUT = 120.0
"""Seconds."""


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the HTTP layer answers.

    `served_model_names` are the names that requests may use; answers carry the first.
    `model_root` is where the model came from.  `max_n_sequences` limits n,
    `max_completion_prompts` the prompts of a completion, `max_concurrent_sequences` the sequences
    that are answered at once (0 is no limit).  `api_keys` are those that are let in,
    none meaning everyone.  `allowed_origins` are the sites whose pages may read answers, "*"
    meaning all of them; what such a page may send is in the other allowances.  Everything is also
    served below `root_path`.  A client that reads nothing for `client_write_timeout` seconds is cut
    off (0: never); a stream that was silent for `sse_keep_alive_interval` seconds gets a comment
    (0: none).  `environment` is what `/server_info` shows of it.  `fingerprint` and
    `engine_version` describe what answers.  `max_body_size` is in bytes, `body_timeout`, in
    which a body has to arrive, in seconds.
    """

    served_model_names: tuple[str, ...]
    model_root: str
    max_n_sequences: int = DEFAULT_MAX_N
    max_completion_prompts: int = DEFAULT_MAX_PROMPTS
    max_concurrent_sequences: int = DEFAULT_MAX_SEQUENCES
    api_keys: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    allow_credentials: bool = False
    allowed_methods: tuple[str, ...] = ("*",)
    allowed_headers: tuple[str, ...] = ("*",)
    enable_request_id_headers: bool = False
    root_path: str = ""
    development_mode: bool = False
    environment: dict[str, str] = {}
    response_role: str = "assistant"
    enable_prompt_tokens_details: bool = False
    enable_per_request_metrics: bool = False
    enable_force_include_usage: bool = False
    enable_scale_out: bool = False
    enable_tokenizer_info_endpoint: bool = False
    return_tokens_as_token_ids: bool = False
    fingerprint: str | None = None
    engine_version: str = ""
    client_write_timeout: float = DEFAULT_WRITE_TIMEOUT
    sse_keep_alive_interval: float = 0.0
    log_requests: bool = False
    max_body_size: int = 32 * 1024 * 1024
    body_timeout: float = 120.0
