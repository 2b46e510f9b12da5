"""Metrics as a scrape sees them."""

from prometheus_client import CollectorRegistry, generate_latest

from umbel_llm import LlmMetrics


class Exposition:
    """What a scrape of these metrics gives."""

    def __init__(self, metrics: LlmMetrics) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(metrics)

    @property
    def text(self) -> str:
        return generate_latest(self.registry).decode()

    def value(self, name: str, engine: int | None = 0, **labels: str) -> float | None:
        labels["model_name"] = "m"
        if engine is not None:
            labels["engine"] = str(engine)
        return self.registry.get_sample_value(f"vllm:{name}", labels)

    def histogram(self, name: str, engine: int = 0) -> tuple[float | None, float | None]:
        """Count and sum."""
        total = self.value(f"{name}_sum", engine)
        return (
            self.value(f"{name}_count", engine),
            None if total is None else round(total, 6),
        )

    def finished(self) -> dict[str, float]:
        """How many samples ended for each reason, where any did."""
        reasons = ("stop", "length", "abort", "error", "repetition")
        counts = {
            reason: self.value("request_success_total", finished_reason=reason)
            for reason in reasons
        }
        return {reason: count for reason, count in counts.items() if count}
