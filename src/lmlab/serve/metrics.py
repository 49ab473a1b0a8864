"""The metrics of engines for Prometheus, under the names that vLLM gave them, with the prefix `lmlab:`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
GAUGES = {
    "num_requests_running": "Texts that are being written.",
    "num_requests_waiting": "Texts that wait for a row.",
    "kv_cache_usage_perc": "Fraction of the batch's state room in use, from 0 to 1.",
    "prefix_cache_bytes": "Bytes of the prefix cache in use.",
}
REASONS = ("stop", "length", "cancelled", "error")


class Metrics:
    """The metrics of one engine, in a registry of its own."""

    def __init__(self, model_name: str) -> None:
        self.registry, self.model_name = CollectorRegistry(), model_name
        self.prompt_tokens = self._counter("prompt_tokens", "Tokens of prompts.")
        self.generation_tokens = self._counter("generation_tokens", "Tokens written.")
        self.prefix_cache_queries = self._counter("prefix_cache_queries", "Tokens looked up in the prefix cache.")
        self.prefix_cache_hits = self._counter("prefix_cache_hits", "Tokens found in the prefix cache, not read again.")
        self.first_token = self._histogram("time_to_first_token_seconds", "Seconds to the first token.", SECONDS)
        self.between_tokens = self._histogram("inter_token_latency_seconds", "Seconds between two tokens.", SECONDS)
        self.whole = self._histogram("e2e_request_latency_seconds", "Seconds from a request to its end.", SECONDS)
        self.queue_time = self._histogram("request_queue_time_seconds", "Seconds that a request waited.", SECONDS)
        self.prompt_lengths = self._histogram("request_prompt_tokens", "Tokens of a prompt.", TOKENS)
        self.written_lengths = self._histogram("request_generation_tokens", "Tokens written for a prompt.", TOKENS)
        names = ("model_name", "finished_reason")
        ended = Counter("lmlab:request_success", "Texts that ended, by reason.", names, registry=self.registry)
        self._finished = {reason: ended.labels(model_name, reason) for reason in REASONS}

    def finished(self, reason: str, *, seconds: float, prompt: int, written: int) -> None:
        """Count a text that ended, with the tokens of its prompt and those written."""
        self._finished[reason].inc()
        self.whole.observe(seconds)
        self.prompt_lengths.observe(prompt)
        self.written_lengths.observe(written)

    def watch(self, **gauges: Callable[[], float]) -> None:
        """Add gauges, by their names in `GAUGES`, whose values are computed when the metrics are read."""
        for name, function in gauges.items():
            gauge = Gauge(f"lmlab:{name}", GAUGES[name], ("model_name",), registry=self.registry)
            gauge.labels(self.model_name).set_function(function)

    def value(self, name: str, **labels: str) -> float:
        """The present value of a metric, by the name that Prometheus sees, without the prefix."""
        found = self.registry.get_sample_value(f"lmlab:{name}", {"model_name": self.model_name, **labels})
        assert found is not None, f"there is no metric {name} with {labels}"
        return found

    def _counter(self, name: str, documentation: str) -> Counter:
        return Counter(f"lmlab:{name}", documentation, ("model_name",), registry=self.registry).labels(self.model_name)

    def _histogram(self, name: str, documentation: str, buckets: tuple[float, ...]) -> Histogram:
        made = Histogram(f"lmlab:{name}", documentation, ("model_name",), buckets=buckets, registry=self.registry)
        return made.labels(self.model_name)


class AllMetrics(Collector):
    """The metrics of several engines, each metric once with the samples of all of them."""

    def __init__(self, engines: Iterable[Metrics]) -> None:
        self.engines = list(engines)

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for metrics in self.engines:
            for family in metrics.registry.collect():
                kept = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                kept.samples += [sample for sample in family.samples if not sample.name.endswith("_created")]
        yield from families.values()


def prometheus(engines: Iterable[Metrics]) -> bytes:
    """The metrics of all engines, in the text format of Prometheus."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(AllMetrics(engines))
    return generate_latest(registry)
