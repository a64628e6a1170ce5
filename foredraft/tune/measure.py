"""Measuring settings side by side: every prompt in all of them, one right after the other.

No setting profits from what another one, or an earlier turn, has read or said: before every answer the caches of target
and draft models are emptied, texts of earlier requests are not drafted from, and each turn begins with new drafters.
`auto` alone begins with what it learned in a first turn that is not counted, as it would with the profile.
"""

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from foredraft.drafters import CostlyDrafter, Drafter, DraftOptions, make_drafters
from foredraft.errors import OptionError
from foredraft.kernels.choose import available_cores
from foredraft.llm import LLM
from foredraft.machine import processor_name
from foredraft.planner import Learned, Profile, Recommended
from foredraft.planner.calibration import READING_ROWS, calibrate
from foredraft.planner.cost import Calibration
from foredraft.prompts import Prompt
from foredraft.sampling import SamplingParams
from foredraft.trace import Sink
from foredraft.tune.learn import Learning
from foredraft.tune.prompts import LEAST_TOKENS_TO_JUDGE, RANDOM_SHARE
from foredraft.tune.record import WIDTH, RecordingDrafter, recording
from foredraft.tune.settings import PLAIN, Setting, stopping

COST_ROWS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)
COST_CONTEXT = 512
LEARNING_LENGTH = 6
"""Draft tokens of the chains that show how good a draft model is."""


@dataclass(frozen=True)
class Answer:
    """One prompt answered in one setting. ends: after each round, tokens so far and seconds since the prompt came."""

    setting: str
    prompt: str
    turn: int
    token_ids: tuple[int, ...]
    num_prompt_tokens: int
    decode_s: float
    num_rounds: int
    num_drafted: int
    num_accepted: int
    accepted_per_position: tuple[int, ...]
    reason: str
    ends: tuple[tuple[int, float], ...]

    @property
    def s_per_token(self) -> float:
        """Seconds of decoding for a token."""
        return self.decode_s / len(self.token_ids)

    def seconds_to(self, num_tokens: int) -> float | None:
        """Seconds from the prompt to so many tokens; None where the answer ended before."""
        return next((seconds for emitted, seconds in self.ends if emitted >= num_tokens), None)


class Measuring:
    """A target and its draft models, loaded once, and settings made of them."""

    def __init__(self, llm: LLM, models: Sequence[str], *, max_tokens: int, raw: bool = False) -> None:
        self._llm = llm
        self._raw = raw or not llm.has_chat_template
        self._params = SamplingParams(max_tokens=max_tokens)
        self._models: dict[tuple[str, int], Drafter] = {}
        self._learned: dict[str, Mapping[str, Learned]] = {}
        self._known: dict[str, Learned] = {}
        self.models = tuple(models)
        for model in models:
            self._drafter(model, 1)

    def _drafter(self, model: str, num_branches: int) -> Drafter:
        key = model, num_branches
        if key not in self._models:
            llm = self._llm
            options = DraftOptions(llm.tokenizer, llm.decoder.kernels, num_branches=num_branches, decoder=llm.decoder)
            [self._models[key]] = make_drafters([model], options)
        return self._models[key]

    def engine(self, setting: Setting) -> LLM:
        """A fresh way of drafting for the loaded model."""
        drafts: list[str | Drafter] = [] if setting.models and setting.method != "auto" else [setting.method]
        for model in setting.models:
            drafts.append(stopping(self._drafter(model, setting.num_branches), setting.min_survival))
        return self._llm.with_drafts(
            drafts,
            num_draft_tokens=setting.num_draft_tokens,
            draft_memory="none",
            acceptance="coupled" if setting.lenient is None else f"threshold:eps={setting.lenient:g}",
            profile=self._profile(self._known | dict(self._learned.get(setting.name, {}))),
        )

    def _profile(self, learned: Mapping[str, Learned]) -> Profile | None:
        if not learned:
            return None
        return self.profile({}, learned, Recommended(), key={})

    def profile(
        self,
        calibrations: Mapping[str, Calibration],
        learned: Mapping[str, Learned],
        recommended: Recommended,
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

    def learned(self, setting: Setting) -> Mapping[str, Learned]:
        """What `auto` found out in its first turn."""
        return self._learned.get(setting.name, {})

    def calibrations(self) -> dict[str, Calibration]:
        """What passes cost: of the target under "", of draft models under their names."""
        decoder = self._llm.decoder
        context = max(0, min(COST_CONTEXT, self._llm.context_length - 64))
        found = {
            "": calibrate(
                lambda rows, behind: decoder.time_forward(num_tokens=rows, context=behind),
                rows=COST_ROWS,
                context=context,
                budget_s=1.0,
            )
        }
        for model in self.models:
            drafter: CostlyDrafter = self._drafter(model, 1)  # type: ignore[assignment]
            found[drafter.name] = calibrate(
                lambda rows, behind, drafter=drafter: drafter.time_step(num_tokens=rows, context=behind),  # type: ignore[misc]
                rows=READING_ROWS,
                context=0,
            )
        return found

    def check_natural(self, prompts: Sequence[Prompt]) -> None:
        """Raise OptionError for a prompt of random tokens: what it is answered says nothing about real ones."""
        engine = self.engine(Setting(method=PLAIN))
        params = SamplingParams(max_tokens=1, prompt_logprobs=0)
        for prompt in prompts:
            [completion] = engine.generate(prompt.text, params)
            assert completion.prompt_logprobs is not None
            found = [token.logprob for token in completion.prompt_logprobs.tokens]
            least = -RANDOM_SHARE * math.log(self._llm.tokenizer.vocab_size)
            if len(found) >= LEAST_TOKENS_TO_JUDGE and sum(found) / len(found) < least:
                raise OptionError(
                    f"prompt {prompt.key} looks like random tokens, and figures of such prompts mean nothing for real "
                    "ones: give prompts of the kind you have"
                )

    def record(self, methods: Sequence[str], prompts: Sequence[Prompt], sink: Sink) -> None:
        """Answer the prompts plainly, and tell the sink what all drafters would have proposed at every place."""
        llm = self._llm
        options = DraftOptions(llm.tokenizer, llm.decoder.kernels, memory="none")
        drafters = [*make_drafters(methods, options), *(self._drafter(model, 1) for model in self.models)]
        drafter = RecordingDrafter(drafters)
        engine = llm.with_drafts(
            [drafter],
            num_draft_tokens=WIDTH,
            draft_memory="none",
            trace=recording(sink, drafter, drafters, self.calibrations()),
        )
        for prompt in prompts:
            self.answer(engine, Setting(method=PLAIN), prompt, turn=0)

    def answer(self, engine: LLM, setting: Setting, prompt: Prompt, *, turn: int) -> Answer:
        """Answer one prompt, nothing of it cached."""
        self._llm.forget_texts()
        for drafter in self._models.values():
            drafter.forget_texts()  # type: ignore[attr-defined]
        text = prompt.text if self._raw else [{"role": "user", "content": prompt.text}]
        ends: list[tuple[int, float]] = []
        token_ids: list[int] = []
        completion = None
        started = time.perf_counter()
        for chunk in engine.stream(text, self._params):
            token_ids.extend(chunk.token_ids)
            if chunk.token_ids:
                ends.append((len(token_ids), time.perf_counter() - started))
            completion = chunk.completion or completion
        assert completion is not None
        told = completion.speculation
        return Answer(
            setting=setting.name,
            prompt=prompt.key,
            turn=turn,
            token_ids=completion.token_ids,
            num_prompt_tokens=completion.usage.prompt_tokens,
            decode_s=completion.timings.decode_s,
            num_rounds=told.num_rounds,
            num_drafted=told.num_draft_tokens,
            num_accepted=told.num_accepted_tokens,
            accepted_per_position=told.accepted_per_position,
            reason=told.reason,
            ends=tuple(ends),
        )

    def run(
        self,
        settings: Sequence[Setting],
        prompts: Sequence[Prompt],
        *,
        num_turns: int,
        progress: Callable[[int, int], None],
        deadline: float = float("inf"),
        least: int = 1,
    ) -> list[Answer]:
        """All prompts in all settings, `num_turns` times, beginning with another setting each time.

        progress: called with the answers there are and those there will be. deadline: moment of `time.perf_counter`
        from which on no further prompt is begun, once `least` were answered.
        """
        answers: list[Answer] = []
        num_planned = num_turns * len(settings) * len(prompts)
        starts = itertools.cycle(range(len(settings)))
        for turn in range(num_turns):
            engines = {setting.name: self.engine(setting) for setting in settings}
            for prompt in prompts:
                if len(answers) >= least * len(settings) and time.perf_counter() > deadline:
                    return answers
                start = next(starts)
                for setting in (*settings[start:], *settings[:start]):
                    answers.append(self.answer(engines[setting.name], setting, prompt, turn=turn))
                    progress(len(answers), num_planned)
        return answers

    def expected_s(self, prompts: Sequence[Prompt]) -> dict[str, float]:
        """Seconds that plain answers to the prompts will take, by their keys, from a first one."""
        plain = Setting(method=PLAIN)
        engine = self.engine(plain)
        answers = [self.answer(engine, plain, prompts[0], turn=-1) for _ in range(2)]
        reading_s = min(a.ends[-1][1] - a.decode_s for a in answers) / answers[0].num_prompt_tokens
        decoding_s = min(answer.s_per_token for answer in answers) * self._params.max_tokens  # type: ignore[operator]
        sizes = {prompt.key: len(self._llm.tokenizer.encode(prompt.text)) for prompt in prompts}
        return {key: reading_s * size + decoding_s for key, size in sizes.items()}

    def warm_up(self, settings: Sequence[Setting], prompts: Sequence[Prompt]) -> None:
        """Let what learns learn, from all prompts.

        How good a draft model is, fixed chains of it show: `auto` by itself is slow to try what costs time.
        """
        for model in self.models:
            learning, chains = Learning(), Setting(method="model", models=(model,), num_draft_tokens=LEARNING_LENGTH)
            engine = self._llm.with_drafts(
                [self._drafter(model, 1)], num_draft_tokens=LEARNING_LENGTH, draft_memory="none", trace=learning
            )
            for prompt in prompts:
                self.answer(engine, chains, prompt, turn=-1)
            self._known |= learning.learned
        for setting in settings:
            if setting.method == "auto":
                engine = self.engine(setting)
                for prompt in prompts:
                    self.answer(engine, setting, prompt, turn=-1)
                self._learned[setting.name] = engine.learned


def as_json(answer: Answer) -> dict[str, Any]:
    """An answer as plain values, without its tokens."""
    entry = {name: getattr(answer, name) for name in answer.__dataclass_fields__ if name != "token_ids"}
    return entry | {"num_tokens": len(answer.token_ids), "tokens_per_s": 1.0 / answer.s_per_token}
