"""How busy the engines are, in the headers of an answer."""

import json

from aiohttp import web

from umbel_llm import Llm


def load_report(http: web.Request, llm: Llm) -> dict[str, str]:
    """Give the header that tells a load balancer how busy the engines are, if it asked for one.

    The formats are those of ORCA, as vLLM writes them (vllm/entrypoints/serve/utils/
    orca_metrics.py).  Of several engines, requests that wait are added up, and the use of their
    caches is averaged.  Without statistics nothing is known, and the report is empty.
    """
    format_name = http.headers.get("endpoint-load-metrics-format", "").upper()
    if format_name not in ("TEXT", "JSON"):
        return {}
    metrics = {}
    engines = llm.client.engines
    if llm.metrics.log_stats:
        metrics["num_requests_waiting"] = float(sum(engine.waiting for engine in engines))
        usage = sum(engine.kv_cache_usage for engine in engines) / len(engines)
        metrics["kv_cache_usage_perc"] = usage
    if format_name == "JSON":
        report = json.dumps({"named_metrics": metrics})
    else:
        report = ", ".join(f"named_metrics.{name}={value}" for name, value in metrics.items())
    return {"endpoint-load-metrics": f"{format_name} {report}"}
