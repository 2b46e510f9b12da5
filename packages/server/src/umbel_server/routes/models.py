"""The model cards."""

import secrets
import time

import msgspec
from aiohttp import web

from umbel_server.server import SERVER


class Permission(msgspec.Struct, frozen=True):
    """What may be done with a model; OpenAI's old form, which clients still read."""

    id: str
    object: str
    created: int
    allow_create_engine: bool = False
    allow_sampling: bool = True
    allow_logprobs: bool = True
    allow_search_indices: bool = False
    allow_view: bool = True
    allow_fine_tuning: bool = False
    organization: str = "*"
    group: None = None
    is_blocking: bool = False


class ModelCard(msgspec.Struct, frozen=True):
    """One name that a model is served under; `max_model_len` is in tokens."""

    id: str
    object: str
    created: int
    owned_by: str
    root: str
    parent: None
    max_model_len: int
    permission: list[Permission]


class ModelList(msgspec.Struct, frozen=True):
    """Every name that is served."""

    object: str
    data: list[ModelCard]


async def list_models(http: web.Request) -> web.Response:
    """Give a card for each served name (vllm/entrypoints/openai/models/serving.py)."""
    server = http.app[SERVER]
    now = int(time.time())
    cards = [
        ModelCard(
            name,
            "model",
            now,
            "vllm",
            server.options.model_root,
            None,
            server.chat.text.model.max_model_len,
            [Permission(f"modelperm-{secrets.token_hex(8)}", "model_permission", now)],
        )
        for name in server.options.served_model_names
    ]
    body = msgspec.json.encode(ModelList("list", cards))
    return web.Response(body=body, content_type="application/json")


def add_model_routes(app: web.Application) -> None:
    """Add the routes of this module."""
    app.router.add_get("/v1/models", list_models, allow_head=False)
