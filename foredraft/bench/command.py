"""`foredraft bench kernels` without its command line: check, measure, and put the figures together."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from foredraft.bench.bandwidth import TOTAL_BYTES, ReadBandwidth
from foredraft.bench.engine import MeasuredModel
from foredraft.bench.kernels import KernelPlan, Note, measure
from foredraft.bench.machine import describe_file, describe_machine
from foredraft.bench.peer import BATCHED_BENCH, BENCH, LlamaCpp
from foredraft.bench.starting import measure_starts
from foredraft.errors import OptionError
from foredraft.models.source import open_model


@dataclass(frozen=True, kw_only=True)
class KernelBench:
    """What to measure of which model. contexts_given: the user named the contexts, so that all must fit."""

    model: Path
    num_threads: int
    plan: KernelPlan
    peer_folder: Path | None = None
    contexts_given: bool = False
    bandwidth_bytes: int = TOTAL_BYTES

    def run(self, *, note: Note) -> dict[str, Any]:
        """Measure. note: is told of progress, line by line.

        Raises UserError for a model, a peer or contexts that cannot be measured, before anything is measured.
        """
        peer = self._peer()
        plan = self._fitting_plan(note)
        model = describe_file(self.model)
        about = {
            "machine": describe_machine(),
            "model": model,
            "num_threads": self.num_threads,
            "peer_version": None if peer is None else peer.version(),
            "settings": asdict(plan),
        }
        starts = measure_starts(
            self.model,
            peer,
            num_threads=self.num_threads,
            num_rounds=plan.num_rounds,
            num_file_bytes=model["num_bytes"],
            note=note,
        )
        engine = MeasuredModel(self.model, num_threads=self.num_threads)
        bandwidth = ReadBandwidth(num_threads=self.num_threads, total_bytes=self.bandwidth_bytes)
        try:
            figures = measure(engine, bandwidth.measure, peer, plan, note=note)
        finally:
            bandwidth.close()
        return {**about, "isa": engine.isa, "start_up": starts, **figures}

    def _peer(self) -> LlamaCpp | None:
        if self.peer_folder is None:
            return None
        if self.model.suffix != ".gguf":
            raise OptionError("--peer-dir needs a .gguf model; llama.cpp reads nothing else")
        peer = LlamaCpp(self.peer_folder, self.model, self.num_threads)
        peer.check([BENCH, BATCHED_BENCH])
        return peer

    def _fitting_plan(self, note: Note) -> KernelPlan:
        """The plan, without contexts that the model was not made for unless they were asked for."""
        longest = open_model(self.model).config.context_length
        most = longest - max(self.plan.sizes)
        too_long = [context for context in self.plan.contexts if context > most]
        plan = self.plan
        if too_long and self.contexts_given:
            raise OptionError(
                f"--contexts: {too_long[0]} and {max(plan.sizes)} tokens more do not fit into the model's context of "
                f"{longest}; the longest is {max(most, 0)}"
            )
        if too_long:
            plan = replace(plan, contexts=tuple(c for c in plan.contexts if c <= most))
            note(f"left out, beyond the model's context of {longest}: contexts {', '.join(map(str, too_long))}")
        if plan.longest > longest:
            raise OptionError(f"the model's context of {longest} is too short: {plan.longest} tokens are measured")
        return plan
