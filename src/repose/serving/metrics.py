"""What the server counts, in Prometheus' format. Of the front process alone, which sees everything; no label names a
client or has a text in it.

Plain numbers, since each request changes a dozen of them and one thread changes all; families are made of them when
somebody asks.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from math import inf
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600)  # what a file has
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0)
_MODEL_LABELS = ("source", "target", "preset", "sha256", "precision")


class Histogram:
    """Values in buckets, each of which ends with one of the bounds."""

    def __init__(self, bounds: Sequence[float] = _SECONDS) -> None:
        self._bounds, self._counts, self._sum = bounds, [0] * (len(bounds) + 1), 0.0

    def observe(self, value: float) -> None:
        """Count one more value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str] = ()) -> HistogramMetricFamily:
        """Add the values as Prometheus counts them: a bucket holds all that are below its bound."""
        buckets, total = list[tuple[str, float]](), 0
        for bound, count in zip((*self._bounds, inf), self._counts, strict=True):
            total += count
            buckets.append(("+Inf" if bound == inf else str(float(bound)), total))
        family.add_metric(labels, buckets, self._sum)
        return family


class Metrics:
    """All that is measured of a server."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        """Answered, by endpoint and code."""
        self.seconds: defaultdict[str, Histogram] = defaultdict(Histogram)
        """From the head of a request to its answer, by endpoint."""
        self.in_flight = 0
        self.queue_tokens = 0
        self.queue_seconds = Histogram()
        self.batch_rows, self.padded_share = Histogram(_ROWS), Histogram(_SHARES)
        self.tokens: Counter[str] = Counter(source=0, target=0)
        self.workers = 0
        """Ready ones."""
        self.restarts = self.cancelled = self.truncated = 0
        self.reloads = Counter(done=0, failed=0)
        self._models: list[list[str]] = []
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def set_models(self, models: Sequence[dict[str, Any]], precision: str) -> None:
        """The models as /models has them; `precision` is of those that do not have one of their own."""
        every = [{**model, "precision": model.get("precision") or precision} for model in models]
        self._models = [[str(model.get(name) or "") for name in _MODEL_LABELS] for model in every]

    def exposed(self) -> bytes:
        """All metrics as text."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """The metrics, as prometheus_client asks for them."""
        answered = CounterMetricFamily("repose_requests", "Requests answered", labels=["endpoint", "code"])
        for labels, number in self.requests.items():
            answered.add_metric(labels, number)
        yield answered
        seconds = HistogramMetricFamily(
            "repose_request_seconds", "From the head of a request to its answer", labels=["endpoint"]
        )
        for endpoint, observed in self.seconds.items():
            observed.add_to(seconds, [endpoint])
        yield seconds
        yield GaugeMetricFamily("repose_requests_in_flight", "Requests not yet answered", self.in_flight)
        yield GaugeMetricFamily("repose_queue_tokens", "Source tokens that wait for a worker, about", self.queue_tokens)
        histograms = (
            ("repose_queue_seconds", "Time that a sentence waited for a worker", self.queue_seconds),
            ("repose_batch_rows", "Sentences of a batch", self.batch_rows),
            ("repose_batch_padded_share", "Padding among the source tokens of a batch", self.padded_share),
        )
        for name, documentation, observed in histograms:
            yield observed.add_to(HistogramMetricFamily(name, documentation))
        counters = (
            ("repose_worker_restarts", "Workers that were replaced", self.restarts),
            ("repose_cancelled", "Sentences dropped since nobody waited for them any more", self.cancelled),
            ("repose_truncated", "Sentences that were cut at the model's length", self.truncated),
        )
        for name, documentation, number in counters:
            yield CounterMetricFamily(name, documentation, number)
        yield from self._by_label()

    def _by_label(self) -> Iterator[Metric]:
        by_label = (
            ("repose_translated_tokens", "Tokens of translated sentences", "side", self.tokens),
            ("repose_reloads", "Exchanges of the models", "result", self.reloads),
        )
        for name, documentation, label, counter in by_label:
            counted = CounterMetricFamily(name, documentation, labels=[label])
            for value, number in counter.items():
                counted.add_metric([value], number)
            yield counted
        workers = GaugeMetricFamily("repose_workers", "Worker processes", labels=["state"])
        workers.add_metric(["ready"], self.workers)
        yield workers
        models = GaugeMetricFamily("repose_model_info", "Models that are served", labels=_MODEL_LABELS)
        for values in self._models:
            models.add_metric(values, 1)
        yield models
