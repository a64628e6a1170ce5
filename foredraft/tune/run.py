"""The whole of a tuning: how much fits into the time, measuring it, and what came of it."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from foredraft.bench.machine import describe_machine
from foredraft.bench.tables import counted
from foredraft.config import DraftConfig
from foredraft.drafters import COMPARED
from foredraft.llm import LLM
from foredraft.planner import Profile
from foredraft.prompts import Prompt, spread
from foredraft.tune.measure import Measuring, as_json
from foredraft.tune.result import Result, to_json
from foredraft.tune.settings import LENGTHS, chooses_itself, sweep

METHODS = COMPARED
MAX_TURNS = 5
QUICK_PROMPTS, QUICK_TOKENS, MAX_TOKENS = 4, 32, 128
FEWEST_PROMPTS = 2
MODEL_COST = 1.5
"""What a completion takes with a draft model, which prefills the prompt too, in plain ones. A guess."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is to be tuned. seconds: about how long it may take. max_tokens: None: 128, or 32 where it is quick."""

    methods: tuple[str, ...] = METHODS
    models: tuple[str, ...] = ()
    prompts: tuple[Prompt, ...]
    seconds: float = 600.0
    max_tokens: int | None = None
    quick: bool = False
    raw: bool = False
    check_prompts: bool = False

    @property
    def num_tokens(self) -> int:
        """Most tokens of a completion."""
        return self.max_tokens or (QUICK_TOKENS if self.quick else MAX_TOKENS)


@dataclass(frozen=True)
class Plan:
    """What is measured, and about how long it takes."""

    settings: tuple[DraftConfig, ...]
    prompts: tuple[Prompt, ...]
    num_turns: int
    max_tokens: int
    seconds: float

    def words(self) -> str:
        """One line."""
        about = f"{self.seconds:.0f} s" if self.seconds < 120 else f"{self.seconds / 60:.0f} minutes"
        prompts = f"{len(self.prompts)} prompts of {self.max_tokens} tokens"
        return f"{len(self.settings)} settings, {prompts}, {counted(self.num_turns, 'turn')}: about {about}"


def make_plan(wanted: Wanted, plain_s: Mapping[str, float]) -> Plan:
    """The finest comparison that fits into the time. plain_s: what plain decoding takes, by the keys of the prompts.

    First come all prompts with coarse numbers of draft tokens, then finer numbers, then further turns.
    """

    def plan(lengths: Sequence[int], prompts: Sequence[Prompt], num_turns: int) -> Plan:
        settings = sweep(wanted.methods, wanted.models, lengths, with_lenient=not wanted.quick)
        models = set(wanted.models)
        turns = sum(
            (num_turns + chooses_itself(config)) * (MODEL_COST if models & set(config.drafters) else 1.0)
            for config in settings
        )
        turns += MODEL_COST * len(wanted.models)  # to learn how good they are
        seconds = turns * sum(plain_s[prompt.key] for prompt in prompts)
        return Plan(tuple(settings), tuple(prompts), num_turns, wanted.num_tokens, seconds)

    prompts = spread(wanted.prompts, QUICK_PROMPTS if wanted.quick else len(wanted.prompts))
    coarse = plan(LENGTHS[-1], prompts, 1)
    while coarse.seconds > wanted.seconds and len(prompts) > FEWEST_PROMPTS:
        prompts = spread(prompts, max(FEWEST_PROMPTS, int(0.8 * len(prompts))))
        coarse = plan(LENGTHS[-1], prompts, 1)
    if wanted.quick:
        return coarse
    finer = [plan(lengths, prompts, turns) for lengths in LENGTHS[:-1] for turns in range(MAX_TURNS, 0, -1)]
    coarser = [plan(LENGTHS[-1], prompts, turns) for turns in range(MAX_TURNS, 1, -1)]
    return next((found for found in (*finer, *coarser) if found.seconds <= wanted.seconds), coarse)


def tune(
    llm: LLM,
    wanted: Wanted,
    *,
    announce: Callable[[str], None] = lambda line: None,
    progress: Callable[[int, int], None] = lambda done, planned: None,
) -> tuple[dict[str, Any], Profile]:
    """Measure, and say what was found: the report as plain values, and a profile to start from.

    Raises OptionError for prompts of random tokens, where they are to be checked, and as `LLM`.
    """
    started = time.perf_counter()
    machine = describe_machine()
    measuring = Measuring(llm, wanted.models, max_tokens=wanted.num_tokens, raw=wanted.raw)
    if wanted.check_prompts:
        measuring.check_natural(wanted.prompts)
    plan = make_plan(wanted, measuring.expected_s(wanted.prompts))
    announce(plan.words())
    costs = measuring.calibrations()
    measuring.warm_up(plan.settings, plan.prompts)
    runs = measuring.run(
        plan.settings,
        plan.prompts,
        num_turns=plan.num_turns,
        progress=progress,
        deadline=started + wanted.seconds,
        least=min(FEWEST_PROMPTS, len(plan.prompts)),
    )
    completed = {run.prompt for run in runs}
    prompts = [prompt for prompt in plan.prompts if prompt.key in completed]
    result = Result(plan.settings, prompts, runs)
    seconds = time.perf_counter() - started
    report = {
        "model": {"name": llm.name},
        "machine": machine,
        "threads": llm.num_threads,
        "plan": {
            "num_prompts": len(prompts),
            "num_turns": 1 + max(run.turn for run in runs),
            "max_tokens": plan.max_tokens,
            "expected_s": round(plan.seconds, 1),
            "memory": "none: earlier texts are not drafted from, and nothing of them stays cached",
        },
        "seconds": round(seconds, 1),
        **to_json(result, costs),
        "prompts": [asdict(prompt) for prompt in prompts],
        "runs": [as_json(run) for run in runs],
    }
    profile = measuring.profile(costs, measuring.learned(result.best_auto), result.recommended)
    return report, profile
