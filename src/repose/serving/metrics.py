"""What the server counts, in Prometheus' format. Of the front process alone, which sees everything; no label names a
client or has a text in it."""

from collections.abc import Sequence
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2, 5, 10, 30)


class Metrics:
    """Counters with a registry of their own."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self.requests = Counter("repose_requests", "Requests answered", ["endpoint", "code"], registry=registry)
        self.seconds = Histogram(
            "repose_request_seconds", "From the head of a request to its answer", ["endpoint"],
            buckets=_SECONDS, registry=registry,
        )  # fmt: skip
        self.in_flight = Gauge("repose_requests_in_flight", "Requests not yet answered", registry=registry)
        self.queue_tokens = Gauge("repose_queue_tokens", "Source tokens that wait for a worker", registry=registry)
        self.queue_seconds = Histogram(
            "repose_queue_seconds", "Time that a sentence waited for a worker", buckets=_SECONDS, registry=registry
        )
        self.batch_rows = Histogram(
            "repose_batch_rows", "Sentences of a batch", buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256), registry=registry
        )
        self.padded_share = Histogram(
            "repose_batch_padded_share", "Padding among the source tokens of a batch",
            buckets=(0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0), registry=registry,
        )  # fmt: skip
        self.tokens = Counter("repose_translated_tokens", "Tokens of translated sentences", ["side"], registry=registry)
        self.workers = Gauge("repose_workers", "Worker processes", ["state"], registry=registry)
        self.restarts = Counter("repose_worker_restarts", "Workers that were replaced", registry=registry)
        self.cancelled = Counter(
            "repose_cancelled", "Sentences dropped since nobody waited for them any more", registry=registry
        )
        self.truncated = Counter("repose_truncated", "Sentences that were cut at the model's length", registry=registry)
        self.reloads = Counter("repose_reloads", "Exchanges of the models", ["result"], registry=registry)
        self._models = Gauge(
            "repose_model_info", "Models that are served",
            ["source", "target", "preset", "sha256", "precision"], registry=registry,
        )  # fmt: skip

    def set_models(self, models: Sequence[dict[str, Any]], precision: str) -> None:
        """The models as /models has them."""
        self._models.clear()
        for model in models:
            labels = [str(model.get(name) or "") for name in ("source", "target", "preset", "sha256")]
            self._models.labels(*labels, precision).set(1)

    def exposed(self) -> bytes:
        """As text."""
        return generate_latest(self._registry)
