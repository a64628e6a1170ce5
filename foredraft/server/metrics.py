"""What Prometheus is told: names and meanings are vLLM's, with a prefix of our own."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from foredraft.engine import Completion
from foredraft.server.pool import ModelPool

_MODEL = ("model_name",)
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0)
_TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5)


class Metrics:
    """Counts and histograms of the requests to a server, and gauges of its models as they are asked for."""

    def __init__(self, pool: ModelPool) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Gauges(pool))
        self._prompt_tokens = self._counter("prompt_tokens", "Tokens of prompts.")
        self._generation_tokens = self._counter("generation_tokens", "Tokens produced.")
        self._cached_tokens = self._counter("prefix_cache_hits", "Tokens of prompts found in the prefix cache.")
        self._queried_tokens = self._counter("prefix_cache_queries", "Tokens of prompts looked for there.")
        self._requests = self._counter("request_success", "Requests that ended.", "finished_reason")
        self._drafts = self._counter("spec_decode_num_drafts", "Rounds of drafting and verifying.")
        self._draft_tokens = self._counter("spec_decode_num_draft_tokens", "Tokens drafted.")
        self._accepted = self._counter("spec_decode_num_accepted_tokens", "Drafted tokens that were accepted.")
        self._positions = self._counter(
            "spec_decode_num_accepted_tokens_per_pos", "Accepted tokens by their place in the draft.", "position"
        )
        self._first_token = self._histogram("time_to_first_token_seconds", "From arrival to the first token.")
        self._token = self._histogram(
            "request_time_per_output_token_seconds", "Mean time between tokens of a request.", _TOKEN_SECONDS
        )
        self._whole = self._histogram("e2e_request_latency_seconds", "From arrival to the last token.")
        self._queue = self._histogram("request_queue_time_seconds", "From arrival to the first pass.")
        self._prefill = self._histogram("request_prefill_time_seconds", "Passes over the prompt.")
        self._decode = self._histogram("request_decode_time_seconds", "From the end of the prompt to the last token.")

    def _counter(self, name: str, words: str, *labels: str) -> Counter:
        return Counter(f"foredraft:{name}", words, (*_MODEL, *labels), registry=self._registry)

    def _histogram(self, name: str, words: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
        return Histogram(f"foredraft:{name}", words, _MODEL, registry=self._registry, buckets=buckets)

    def completed(self, model: str, completion: Completion) -> None:
        """Count a completion."""
        usage, times, spec = completion.usage, completion.timings, completion.speculation
        self._prompt_tokens.labels(model).inc(usage.prompt_tokens)
        self._generation_tokens.labels(model).inc(usage.completion_tokens)
        self._cached_tokens.labels(model).inc(usage.cached_tokens)
        self._queried_tokens.labels(model).inc(usage.prompt_tokens)
        self._requests.labels(model, completion.finish_reason).inc()
        self._drafts.labels(model).inc(spec.num_rounds)
        self._draft_tokens.labels(model).inc(spec.num_draft_tokens)
        self._accepted.labels(model).inc(spec.num_accepted_tokens)
        for position, number in enumerate(spec.accepted_per_position):
            self._positions.labels(model, str(position)).inc(number)
        self._whole.labels(model).observe(times.whole_s)
        self._queue.labels(model).observe(times.queue_s)
        self._prefill.labels(model).observe(times.prefill_s)
        self._decode.labels(model).observe(times.decode_s)
        if usage.completion_tokens:
            self._first_token.labels(model).observe(times.first_token_s)
        if usage.completion_tokens > 1:
            self._token.labels(model).observe((times.whole_s - times.first_token_s) / (usage.completion_tokens - 1))

    def exposition(self) -> bytes:
        """All of it in Prometheus' text format."""
        return generate_latest(self._registry)


class _Gauges(Collector):
    """How busy the models are when they are asked for it."""

    def __init__(self, pool: ModelPool) -> None:
        self._pool = pool

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client`."""
        running = GaugeMetricFamily("foredraft:num_requests_running", "Sequences in work.", labels=_MODEL)
        waiting = GaugeMetricFamily("foredraft:num_requests_waiting", "Sequences that wait for a place.", labels=_MODEL)
        usage = GaugeMetricFamily("foredraft:kv_cache_usage_perc", "Part of the cache in use, 0 to 1.", labels=_MODEL)
        for model in self._pool.loaded:
            load = model.llm.load
            running.add_metric([model.name], load.num_running)
            waiting.add_metric([model.name], load.num_waiting)
            usage.add_metric([model.name], load.kv_cache_usage)
        yield from (running, waiting, usage)
