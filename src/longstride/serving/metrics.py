"""Figures for Prometheus, under the names that vLLM's dashboards have, after ``longstride:``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import monotonic

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from longstride.contract import Hypothesis, Step
from longstride.serving.errors import ServingError
from longstride.serving.scheduler import Sentence

LABELS = ["model_name", "decoder"]
"""The decoder is the one that the request names, or the model's default."""
RAN = "ran"
"""Label: the decoder that ran, which may be a faster one with the same output."""
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
POSITIONS = 16
"""Places of a draft that are counted one by one."""

Loads = Callable[[], Iterable[tuple[str, str, int, int]]]
"""Names of model and decoder, sentences that are decoded and that wait, for every scheduler."""


class Metrics:
    """What happened since the server started."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, about: str, more: list[str] | None = None) -> Counter:
            return Counter(f"longstride:{name}", about, [*LABELS, *(more or [RAN])], registry=self.registry)

        def histogram(name: str, about: str) -> Histogram:
            return Histogram(f"longstride:{name}", about, [*LABELS, RAN], buckets=SECONDS, registry=self.registry)

        self.success = counter("request_success", "Sentences that were decoded.")
        self.failure = counter("request_failure", "Sentences that were not.", ["reason"])
        self.prompt_tokens = counter("prompt_tokens", "Tokens of sources, EOS counted.")
        self.generation_tokens = counter("generation_tokens", "Tokens of outputs, EOS not counted.")
        self.iterations = counter("iterations", "Iterations of tables.")
        self.drafts = counter("spec_decode_num_drafts", "Drafts that were verified.")
        self.draft_tokens = counter("spec_decode_num_draft_tokens", "Tokens that were drafted.")
        self.accepted_tokens = counter("spec_decode_num_accepted_tokens", "Drafted tokens that stood.")
        self.accepted_at = counter(
            "spec_decode_num_accepted_tokens_per_pos", "The same by their place in the draft.", [RAN, "position"]
        )
        self.queue_time = histogram("request_queue_time_seconds", "From arrival to a row.")
        self.first_token = histogram("time_to_first_token_seconds", "From arrival to the first iteration's end.")
        self.token_time = histogram("inter_token_latency_seconds", "Time in a row by tokens of the output.")
        self.total_time = histogram("e2e_request_latency_seconds", "From arrival to the output, of a sentence.")
        self.http = Histogram(
            "longstride:http_request_seconds",
            "Time of requests.",
            ["path", "status"],
            buckets=SECONDS,
            registry=self.registry,
        )

    def watch_loads(self, loads: Loads) -> None:
        """Ask for what runs and waits whenever figures are asked for."""
        self.registry.register(_Loads(loads))

    def watcher(self, model: str, decoder: str) -> ModelMetrics:
        """Who counts what a scheduler does."""
        return ModelMetrics(self, model, decoder)

    def request(self, path: str, status: int, seconds: float) -> None:
        """An HTTP request was answered."""
        self.http.labels(path, str(status)).observe(seconds)

    def text(self) -> bytes:
        """In Prometheus' format."""
        return generate_latest(self.registry)


class ModelMetrics:
    """Figures of one model's decoder."""

    def __init__(self, metrics: Metrics, model: str, decoder: str) -> None:
        self._all, self._labels = metrics, (model, decoder)

    def iteration(self, step: Step, decoder: str) -> None:
        """All rows of a table have advanced. Drafts are counted where looking costs nothing: not on a GPU."""
        metrics, labels = self._all, (*self._labels, decoder)
        metrics.iterations.labels(*labels).inc()
        if step.draft is None or step.drafted.device.type != "cpu":
            return
        active, drafted, accepted = step.active.tolist(), step.drafted.tolist(), step.accepted.tolist()
        rows = [row for row, live in enumerate(active) if live and drafted[row]]
        if not rows:
            return
        metrics.drafts.labels(*labels).inc(len(rows))
        metrics.draft_tokens.labels(*labels).inc(sum(drafted[row] for row in rows))
        metrics.accepted_tokens.labels(*labels).inc(sum(accepted[row] for row in rows))
        for place in range(min(POSITIONS, max(accepted[row] for row in rows))):
            stood = sum(accepted[row] > place for row in rows)
            metrics.accepted_at.labels(*labels, str(place)).inc(stood)

    def finished(self, sentence: Sentence, hypotheses: list[Hypothesis]) -> None:
        """A sentence is done."""
        metrics, labels, now = self._all, (*self._labels, sentence.decoder), monotonic()
        tokens = len(hypotheses[0].tokens) if hypotheses else 0
        admitted = sentence.admitted or now
        metrics.success.labels(*labels).inc()
        metrics.prompt_tokens.labels(*labels).inc(len(sentence.ids))
        metrics.generation_tokens.labels(*labels).inc(tokens)
        metrics.queue_time.labels(*labels).observe(admitted - sentence.came)
        metrics.first_token.labels(*labels).observe((sentence.first or now) - sentence.came)
        metrics.token_time.labels(*labels).observe((now - admitted) / (tokens + 1))
        metrics.total_time.labels(*labels).observe(now - sentence.came)

    def failed(self, why: ServingError) -> None:
        """A sentence will not be done."""
        self._all.failure.labels(*self._labels, type(why).__name__.removesuffix("Error").lower()).inc()


class _Loads(Collector):
    def __init__(self, loads: Loads) -> None:
        self._loads = loads

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Two gauges for every scheduler."""
        running = GaugeMetricFamily("longstride:num_requests_running", "Sentences being decoded.", labels=LABELS)
        waiting = GaugeMetricFamily("longstride:num_requests_waiting", "Sentences that wait.", labels=LABELS)
        for model, decoder, live, wait in self._loads():
            running.add_metric([model, decoder], live)
            waiting.add_metric([model, decoder], wait)
        return [running, waiting]
