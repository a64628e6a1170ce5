"""Run a plan: every cell's completions against those of plain decoding, then the distributions."""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from foredraft.check.compare import Difference, difference
from foredraft.check.distribution import DistributionResult, planned_tests
from foredraft.check.grid import OPTION_SETS, Cell, Plan
from foredraft.config import DraftConfig
from foredraft.drafters import PREDICTION
from foredraft.engine import Completion
from foredraft.errors import UserError
from foredraft.llm import LLM, SamplingParams

SEED = 7
Progress = Callable[[int, int, str], None]
"""Called before each step with how many are done, how many there are, and what comes."""


@dataclass(frozen=True)
class CellResult:
    """What a cell came to. refused: the line by which the combination was refused; failed: what broke."""

    cell: Cell
    num_completions: int = 0
    differences: tuple[Difference, ...] = ()
    num_tokens: int = 0
    num_rounds: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    seconds: float = 0.0
    refused: str = ""
    failed: str = ""

    @property
    def holds(self) -> bool:
        """Whether every completion was that of plain decoding."""
        return not self.differences and not self.failed


@dataclass(frozen=True)
class Report:
    """All results."""

    plan: Plan
    cells: tuple[CellResult, ...]
    distributions: tuple[DistributionResult, ...]
    seconds: float

    @property
    def holds(self) -> bool:
        """Whether speculation changed nothing anywhere, and every control was found out."""
        return all(result.holds for result in self.cells) and all(result.holds for result in self.distributions)


def run(
    llm: LLM, plan: Plan, progress: Progress = lambda done, of, what: None, *, traces: Path | None = None
) -> Report:
    """Run everything. llm: the target, whatever it drafts with. traces: a folder for what the rounds of the comparisons
    do, a file for each way of drafting.

    Raises UserError where a drafter cannot be had, or a prompt does not fit.
    """
    started = time.perf_counter()
    tests = list(planned_tests(llm, plan))
    of = len(plan.cells) + len(tests)
    checker = _Checker(llm, plan, traces)
    cells = []
    for done, cell in enumerate(plan.cells):
        progress(done, of, cell.describe())
        cells.append(checker.result(cell))
    distributions = []
    for done, test in enumerate(tests, start=len(plan.cells)):
        progress(done, of, test.name)
        distributions.append(test.run())
    progress(of, of, "")
    return Report(plan, tuple(cells), tuple(distributions), time.perf_counter() - started)


@dataclass
class _Checker:
    llm: LLM
    plan: Plan
    traces: Path | None = None
    num_traces: int = 0
    plain: LLM = field(init=False)
    completions: dict[tuple[str, SamplingParams], Completion] = field(default_factory=dict)
    current: tuple[DraftConfig, LLM] | None = None

    def __post_init__(self) -> None:
        self.plain = self.llm.with_drafts("none")

    def result(self, cell: Cell) -> CellResult:
        """Complete all prompts of a cell, and compare."""
        params = self._params(cell)
        started = time.perf_counter()
        try:
            expected = [self._expected(prompt, params) for prompt in self.plan.prompts]
            found = self._found(cell, params, expected)
        except UserError as error:
            if cell.options == "plain" and cell.config.acceptance == "coupled":
                raise
            return CellResult(cell, refused=str(error))
        except Exception as error:  # whatever breaks is a finding
            return CellResult(cell, failed=f"{type(error).__name__}: {error}")
        pairs = zip(self.plan.prompts, expected, found, strict=True)
        compared = [difference(self.plain, prompt, plain, drafted) for prompt, plain, drafted in pairs]
        spec = [completion.speculation for completion in found]
        return CellResult(
            cell,
            num_completions=len(found),
            differences=tuple(one for one in compared if one is not None),
            num_tokens=sum(one.num_emitted_tokens for one in spec),
            num_rounds=sum(one.num_rounds for one in spec),
            num_draft_tokens=sum(one.num_draft_tokens for one in spec),
            num_accepted_tokens=sum(one.num_accepted_tokens for one in spec),
            seconds=time.perf_counter() - started,
        )

    def _params(self, cell: Cell) -> SamplingParams:
        options = {"max_tokens": self.plan.max_tokens, **OPTION_SETS[cell.options]}
        return SamplingParams(temperature=cell.temperature, seed=SEED, **options)

    def _expected(self, prompt: str, params: SamplingParams) -> Completion:
        key = prompt, params
        if key not in self.completions:
            [self.completions[key]] = self.plain.generate(prompt, params)
        return self.completions[key]

    def _found(self, cell: Cell, params: SamplingParams, expected: Sequence[Completion]) -> list[Completion]:
        drafted = self._drafted(cell.config)
        if PREDICTION in (*cell.config.drafters, *drafted.methods):
            # Mostly right: the texts, as far as their middle, and then on from somewhere else.
            halves = [plain.text[: len(plain.text) // 2] + plain.text[-5:] for plain in expected]
            params = replace(params, prediction="\n".join(halves) or "x")
        found: list[Completion] = []
        for prompts in _batches(self.plan.prompts, cell.batch):
            found += drafted.generate(prompts, params)
        return found

    def _drafted(self, config: DraftConfig) -> LLM:
        """The model with that way of drafting, which is kept while cells go on with it."""
        if self.current is None or self.current[0] != config:
            self.current = None  # what it holds may be large
            self.current = config, self.llm.with_drafts(config, trace=self._next_trace(config))
        return self.current[1]

    def _next_trace(self, config: DraftConfig) -> Path | None:
        if self.traces is None:
            return None
        self.num_traces += 1
        name = re.sub(r"[^\w.+-]+", "-", config.name).strip("-")
        return self.traces / f"{self.num_traces:03}-{name}.jsonl"


def _batches(prompts: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(prompts), size):
        yield prompts[start : start + size]
