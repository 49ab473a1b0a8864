"""What an engine counts, in the text format of Prometheus and under the names that vLLM gave it."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence

SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


class Histogram:
    """How many values fell below each bound, and their sum; one thread adds."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, labels: str) -> Iterator[str]:
        count = 0
        for bound, here in zip((*self.bounds, float("inf")), self.counts, strict=True):
            count += here
            shown = "+Inf" if bound == float("inf") else f"{bound:g}"
            yield f'{name}_bucket{{{labels},le="{shown}"}} {count}'
        yield f"{name}_sum{{{labels}}} {self.total:.6f}"
        yield f"{name}_count{{{labels}}} {count}"


class Figures:
    """The figures of one engine."""

    def __init__(self) -> None:
        self.running = self.waiting = 0
        self.prompt_tokens = self.generated_tokens = 0
        self.finished: Counter[str] = Counter()
        self.first_token, self.between_tokens = Histogram(SECONDS), Histogram(SECONDS)
        self.whole, self.queue_time = Histogram(SECONDS), Histogram(SECONDS)
        self.prompt_lengths, self.written_lengths = Histogram(TOKENS), Histogram(TOKENS)


GAUGES = {
    "num_requests_running": "Texts that are being written.",
    "num_requests_waiting": "Texts that wait for a row.",
    "kv_cache_usage_perc": "Share of the rows that are taken, 1 is all.",
}
COUNTERS = {
    "prompt_tokens_total": "Tokens of prompts.",
    "generation_tokens_total": "Tokens written.",
    "request_success_total": "Texts that ended, by reason.",
}
HISTOGRAMS = {
    "time_to_first_token_seconds": ("first_token", "Seconds from a request to its first token."),
    "inter_token_latency_seconds": ("between_tokens", "Seconds between two tokens of a text."),
    "e2e_request_latency_seconds": ("whole", "Seconds from a request to its end."),
    "request_queue_time_seconds": ("queue_time", "Seconds that a request waited."),
    "request_prompt_tokens": ("prompt_lengths", "Tokens of a prompt."),
    "request_generation_tokens": ("written_lengths", "Tokens written for a prompt."),
}


def prometheus(engines: dict[str, tuple[Figures, int]]) -> str:
    """The figures of all engines, each with its number of rows, as text."""
    lines: list[str] = []
    named = [(f'model_name="{_escape(name)}"', figures, rows) for name, (figures, rows) in engines.items()]
    for name, says in GAUGES.items():
        lines += [f"# HELP lmlab:{name} {says}", f"# TYPE lmlab:{name} gauge"]
        for labels, figures, rows in named:
            value = {
                "num_requests_running": figures.running,
                "num_requests_waiting": figures.waiting,
                "kv_cache_usage_perc": figures.running / rows,
            }[name]
            lines.append(f"lmlab:{name}{{{labels}}} {value:g}")
    for name, says in COUNTERS.items():
        lines += [f"# HELP lmlab:{name} {says}", f"# TYPE lmlab:{name} counter"]
        for labels, figures, _ in named:
            if name == "request_success_total":
                reasons = ("stop", "length", "cancelled", "error")
                lines += [
                    f'lmlab:{name}{{{labels},finished_reason="{reason}"}} {figures.finished[reason]}'
                    for reason in reasons
                ]
            else:
                total = figures.prompt_tokens if name.startswith("prompt") else figures.generated_tokens
                lines.append(f"lmlab:{name}{{{labels}}} {total}")
    for name, (attribute, says) in HISTOGRAMS.items():
        lines += [f"# HELP lmlab:{name} {says}", f"# TYPE lmlab:{name} histogram"]
        for labels, figures, _ in named:
            lines += getattr(figures, attribute).lines(f"lmlab:{name}", labels)
    return "\n".join(lines) + "\n"


def _escape(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
