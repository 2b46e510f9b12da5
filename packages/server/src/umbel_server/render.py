"""`umbel render`: prompts are checked and tokenized, and generated from elsewhere."""

import time

import msgspec
from prometheus_client import CollectorRegistry

from umbel_chat import ChatLlm
from umbel_server.app import create_app
from umbel_server.listening import announce, listening_socket, serving
from umbel_server.memory import settle
from umbel_server.model_length import read_max_model_len
from umbel_server.serve import load_model, server_options, with_model
from umbel_server.settings import FrontendSettings
from umbel_server.stop import Stop
from umbel_server.tls import tls_context
from umbel_text import TextLlm, resolve_model_folder


async def render(settings: FrontendSettings) -> int:
    """Serve without engines until told to stop; gives the exit status.

    The routes are those of `vllm launch render` (vllm/entrypoints/launchers/render).
    """
    started = time.monotonic()
    settings = await with_model(settings)
    chat_model, text_model = load_model(settings)
    folder = resolve_model_folder(settings.model, settings.revision)
    max_model_len = read_max_model_len(folder, settings.max_model_len)
    text_model = msgspec.structs.replace(text_model, max_model_len=max_model_len)
    options = msgspec.structs.replace(server_options(settings), enable_scale_out=True)
    app = create_app(ChatLlm(chat_model, TextLlm(text_model)), options, CollectorRegistry())
    tls = tls_context(settings)
    with listening_socket(settings) as listener:
        settle(text_model)
        stop = Stop()
        try:
            async with serving(app, listener, tls) as site:
                announce(settings, listener, started)
                await stop.requested()
                await site.stop()
        finally:
            stop.close()
    return 0
