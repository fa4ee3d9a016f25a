"""Metrics of the server, in Prometheus' format.

Only the front process counts, since it sees everything. No label names a client or contains a text.
"""

from collections.abc import Sequence
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600)  # a file's limit
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0)
_MODEL_LABELS = ("source", "target", "preset", "sha256", "precision")
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """All metrics of a server."""

    def __init__(self) -> None:
        self.registry = r = CollectorRegistry()
        self.requests = Counter("repose_requests", "Requests answered", ["endpoint", "code"], registry=r)
        self.seconds = Histogram(
            "repose_request_seconds",
            "From the head of a request to its answer",
            ["endpoint"],
            buckets=_SECONDS,
            registry=r,
        )
        self.in_flight = Gauge("repose_requests_in_flight", "Requests not yet answered", registry=r)
        self.queue_tokens = Gauge("repose_queue_tokens", "Source tokens that wait for a worker, about", registry=r)
        about = "Time that a sentence waited for a worker"
        self.queue_seconds = Histogram("repose_queue_seconds", about, buckets=_SECONDS, registry=r)
        self.batch_rows = Histogram("repose_batch_rows", "Sentences of a batch", buckets=_ROWS, registry=r)
        about = "Padding among the source tokens of a batch"
        self.padded_share = Histogram("repose_batch_padded_share", about, buckets=_SHARES, registry=r)
        self.restarts = Counter("repose_worker_restarts", "Workers that were replaced", registry=r)
        about = "Sentences dropped because nobody was waiting for them any more"
        self.cancelled = Counter("repose_cancelled", about, registry=r)
        self.truncated = Counter("repose_truncated", "Sentences that were cut at the model's length", registry=r)
        self.tokens = Counter("repose_translated_tokens", "Tokens of translated sentences", ["side"], registry=r)
        self.reloads = Counter("repose_reloads", "Exchanges of the models", ["result"], registry=r)
        for counter, labels in ((self.tokens, ("source", "target")), (self.reloads, ("done", "failed"))):
            for label in labels:
                counter.labels(label)  # expose zeros, too
        self.workers = Gauge("repose_workers", "Worker processes", ["state"], registry=r).labels("ready")
        self._models = Gauge("repose_model_info", "Models that are served", _MODEL_LABELS, registry=r)

    def set_models(self, models: Sequence[dict[str, Any]], precision: str) -> None:
        """Set the served models, given as in the answer of /models. `precision` applies to models that state none."""
        self._models.clear()
        for model in models:
            about = {**model, "precision": model.get("precision") or precision}
            self._models.labels(*(str(about.get(name) or "") for name in _MODEL_LABELS)).set(1)

    def exposed(self) -> bytes:
        """Return all metrics as text."""
        return generate_latest(self.registry)
