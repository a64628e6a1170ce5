"""Measuring settings side by side: every prompt in all of them, one right after the other.

No setting profits from what another one, or an earlier turn, has computed or said: before every completion the caches
of target and draft models are emptied, earlier texts are not drafted from, and each turn begins with new drafters.
`auto` alone begins with what it learned in a first turn that is not counted, as it would with the profile.
"""

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from foredraft.bench.completing import Measured, complete
from foredraft.bench.measuring import rotated
from foredraft.config import DraftConfig
from foredraft.drafters import DraftContext, Drafter, make_drafters
from foredraft.errors import OptionError
from foredraft.kernels.choose import available_cores
from foredraft.llm import LLM, SamplingParams
from foredraft.machine import processor_name
from foredraft.planner import Learned, Profile
from foredraft.planner.calibration import DRAFT_TOKENS, calibrate
from foredraft.planner.cost import Calibration
from foredraft.prompts import Prompt
from foredraft.trace import Sink
from foredraft.tune.learn import Learning
from foredraft.tune.prompts import LEAST_TOKENS_TO_JUDGE, RANDOM_SURPRISE
from foredraft.tune.record import WIDTH, RecordingDrafter, recording
from foredraft.tune.settings import PLAIN, chooses_itself

COST_TOKENS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)
COST_CONTEXT = 512
LEARNING_LENGTH = 6
"""Draft tokens of the chains that show how good a draft model is."""


@dataclass(frozen=True)
class Run:
    """One prompt completed in one setting. setting, prompt: their names."""

    setting: str
    prompt: str
    turn: int
    measured: Measured


class Measuring:
    """A target and its draft models, loaded once, and settings made of them."""

    def __init__(self, llm: LLM, models: Sequence[str], *, max_tokens: int, raw: bool = False) -> None:
        self._llm = llm
        self._raw = raw
        self._params = SamplingParams(max_tokens=max_tokens)
        self._models: dict[tuple[str, int], Drafter] = {}
        self._learned: dict[str, Mapping[str, Learned]] = {}
        self._known: dict[str, Learned] = {}
        self.models = tuple(models)
        for model in models:
            self._drafter(model)

    def _drafter(self, model: str, num_branches: int = 1) -> Drafter:
        key = model, num_branches
        if key not in self._models:
            [self._models[key]] = self._made(replace(PLAIN, drafters=(model,), num_branches=num_branches))
        return self._models[key]

    def _made(self, config: DraftConfig) -> list[Drafter]:
        llm = self._llm
        vocab_size = min(llm.tokenizer.vocab_size, llm.decoder.config.vocab_size)
        with llm.exclusive():
            return make_drafters(
                config,
                DraftContext(
                    tokenizer=llm.tokenizer, vocab_size=vocab_size, kernels=llm.decoder.kernels, decoder=llm.decoder
                ),
            )

    def engine(self, config: DraftConfig) -> LLM:
        """A fresh way of drafting for the loaded model, with the draft models that are loaded already."""
        names = [name for name in config.drafters if name not in self.models]
        models = [self._drafter(name, config.num_branches) for name in config.drafters if name in self.models]
        learned = self._known | dict(self.learned(config))
        profile = self.profile({}, learned, PLAIN, key={}) if learned else None
        return self._llm.with_drafts(replace(config, drafters=(*names, *models)), profile=profile)

    def profile(
        self,
        calibrations: Mapping[str, Calibration],
        learned: Mapping[str, Learned],
        recommended: DraftConfig,
        *,
        key: Mapping[str, object] | None = None,
    ) -> Profile:
        """What was found out about this model."""
        return Profile(
            model=self._llm.name,
            tokenizer=self._llm.tokenizer.fingerprint(),
            machine={"processor": processor_name(), "num_cores": available_cores()},
            key=self._llm.calibration_key if key is None else key,
            calibrations=calibrations,
            learned=learned,
            recommended=recommended,
        )

    def learned(self, config: DraftConfig) -> Mapping[str, Learned]:
        """What `auto` found out in its first turn."""
        return self._learned.get(config.name, {})

    def calibrations(self) -> dict[str, Calibration]:
        """What passes cost: of the target under "", of draft models under their names."""
        decoder = self._llm.decoder
        context = max(0, min(COST_CONTEXT, self._llm.context_length - 64))
        with self._llm.exclusive():
            found = {
                "": calibrate(
                    lambda num_tokens, behind: decoder.time_forward(num_tokens=num_tokens, context=behind),
                    num_tokens=COST_TOKENS,
                    context=context,
                    budget_s=1.0,
                )
            }
            for drafter in map(self._drafter, self.models):
                found[drafter.name] = calibrate(
                    lambda num_tokens, behind, d=drafter: d.time_step(num_tokens=num_tokens, context=behind),  # type: ignore[misc]
                    num_tokens=DRAFT_TOKENS,
                    context=0,
                )
        return found

    def check_natural(self, prompts: Sequence[Prompt]) -> None:
        """Raise OptionError for a prompt of random tokens: what completes it says nothing about real ones."""
        engine = self.engine(PLAIN)
        params = SamplingParams(max_tokens=1, prompt_logprobs=0)
        for prompt in prompts:
            [completion] = engine.generate(prompt.text, params)
            assert completion.prompt_logprobs is not None
            found = [token.logprob for token in completion.prompt_logprobs.tokens]
            least = -RANDOM_SURPRISE * math.log(self._llm.tokenizer.vocab_size)
            if len(found) >= LEAST_TOKENS_TO_JUDGE and sum(found) / len(found) < least:
                raise OptionError(
                    f"prompt {prompt.key} looks like random tokens, and figures of such prompts mean nothing for real "
                    "ones: give prompts of the kind you have"
                )

    def record(self, methods: Sequence[str], prompts: Sequence[Prompt], sink: Sink) -> None:
        """Complete the prompts plainly, and tell the sink what all drafters would have proposed at every place."""
        made = self._made(replace(PLAIN, drafters=tuple(methods))) if methods else []
        drafter = RecordingDrafter([*made, *map(self._drafter, self.models)])
        engine = self._llm.with_drafts(
            replace(PLAIN, drafters=(drafter,), num_draft_tokens=WIDTH),
            trace=recording(sink, drafter, self.calibrations()),
        )
        for prompt in prompts:
            self.complete(engine, prompt)

    def complete(self, engine: LLM, prompt: Prompt) -> Measured:
        """Complete one prompt, nothing of it cached."""
        return complete(engine, prompt.text, self._params, raw=self._raw)

    def run(
        self,
        settings: Sequence[DraftConfig],
        prompts: Sequence[Prompt],
        *,
        num_turns: int,
        progress: Callable[[int, int], None],
        deadline: float = float("inf"),
        least: int = 1,
    ) -> list[Run]:
        """All prompts in all settings, `num_turns` times, beginning with another setting each time.

        progress: called with the runs there are and those there will be. deadline: moment of `time.perf_counter` from
        which on no further prompt is begun, once `least` were completed.
        """
        runs: list[Run] = []
        num_planned = num_turns * len(settings) * len(prompts)
        places = itertools.count()
        for turn in range(num_turns):
            engines = {config.name: self.engine(config) for config in settings}
            for prompt in prompts:
                if len(runs) >= least * len(settings) and time.perf_counter() > deadline:
                    return runs
                for name in rotated(list(engines), next(places)):
                    runs.append(Run(name, prompt.key, turn, self.complete(engines[name], prompt)))
                    progress(len(runs), num_planned)
        return runs

    def expected_s(self, prompts: Sequence[Prompt]) -> dict[str, float]:
        """Seconds that plain decoding of the prompts will take, by their keys, from a first one."""
        engine = self.engine(PLAIN)
        runs = [self.complete(engine, prompts[0]) for _ in range(2)]
        prefill_s = min((run.seconds - run.decode_s) / run.completion.usage.prompt_tokens for run in runs)
        decode_s = min(1.0 / run.tokens_per_s for run in runs) * self._params.max_tokens  # type: ignore[operator]
        sizes = {prompt.key: len(self._llm.tokenizer.encode(prompt.text)) for prompt in prompts}
        return {key: prefill_s * size + decode_s for key, size in sizes.items()}

    def warm_up(self, settings: Sequence[DraftConfig], prompts: Sequence[Prompt]) -> None:
        """Let what learns learn, from all prompts.

        How good a draft model is, fixed chains of it show: `auto` by itself is slow to try what costs time.
        """
        for model in self.models:
            learning = Learning()
            chains = replace(PLAIN, drafters=(self._drafter(model),), num_draft_tokens=LEARNING_LENGTH)
            engine = self._llm.with_drafts(chains, trace=learning)
            for prompt in prompts:
                self.complete(engine, prompt)
            self._known |= learning.learned
        for config in filter(chooses_itself, settings):
            engine = self.engine(config)
            for prompt in prompts:
                self.complete(engine, prompt)
            self._learned[config.name] = engine.learned


def as_json(run: Run) -> dict[str, Any]:
    """A run as plain values, without its tokens."""
    measured, completion = run.measured, run.measured.completion
    told = completion.speculation
    return {
        "setting": run.setting,
        "prompt": run.prompt,
        "turn": run.turn,
        "num_prompt_tokens": completion.usage.prompt_tokens,
        "num_tokens": measured.num_tokens,
        "decode_s": measured.decode_s,
        "tokens_per_s": measured.tokens_per_s,
        "num_rounds": told.num_rounds,
        "num_draft_tokens": told.num_draft_tokens,
        "num_accepted_tokens": told.num_accepted_tokens,
        "accepted_per_position": told.accepted_per_position,
        "reason": told.reason,
        "ends": measured.ends,
    }
