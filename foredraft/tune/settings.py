"""The ways of drafting that are compared, and what they are called elsewhere."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from foredraft.drafters import CostlyDrafter, Drafter, Outcome, RequestView
from foredraft.tree import Budget, DraftTree

PLAIN = "none"
LENGTHS = ((1, 2, 3, 4, 5, 6, 7, 8, 9, 10), (1, 2, 3, 4, 6, 8, 10), (1, 2, 4, 8), (2, 4, 8))
"""Numbers of draft tokens to try, from fine to coarse."""
TREES = ((2, 8), (3, 16))
"""Branches of a draft model's tree, and its nodes."""
SURVIVALS = (0.2, 0.4, 0.6)
"""Thresholds: a chain of a draft model ends behind a token that is less likely than this to be accepted."""
THRESHOLD_LENGTH = 10
LENIENT = (0.5, 0.2, 0.1, 0.05)
"""Thresholds of the lenient rule: a drafted token is kept that the target finds at least so likely."""
LENIENT_LENGTH = 6


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A way of drafting.

    method: none, auto, a method's name or that of a model. models: draft models it needs. num_draft_tokens: None: as
    many as pay. min_survival: see `SURVIVALS`. lenient: see `LENIENT`; None: exact.
    """

    method: str
    models: tuple[str, ...] = ()
    num_draft_tokens: int | None = None
    num_branches: int = 1
    min_survival: float = 0.0
    lenient: float | None = None

    @property
    def name(self) -> str:
        """How it is called in tables."""
        parts = [self.method if self.num_draft_tokens is None else f"{self.method} {self.num_draft_tokens}"]
        if self.method == "auto" and self.models:
            parts.append(f"with {', '.join(Path(name).name for name in self.models)}")
        if self.num_branches > 1:
            parts.append(f"tree of {self.num_branches}")
        if self.min_survival:
            parts.append(f"p {self.min_survival:g}")
        if self.lenient is not None:
            parts.append(f"lenient {self.lenient:g}")
        return " ".join(parts)

    @property
    def draft(self) -> tuple[str, ...]:
        """As `--draft` takes it."""
        return (self.method, *self.models) if self.method == "auto" else self.models or (self.method,)

    @property
    def is_plain_chain(self) -> bool:
        """Whether it is a number of draft tokens and nothing else."""
        special = self.num_branches > 1 or self.min_survival or self.lenient is not None
        return self.num_draft_tokens is not None and not special


def sweep(
    methods: Sequence[str], models: Sequence[str], lengths: Sequence[int], *, with_lenient: bool
) -> list[Setting]:
    """All settings: plain decoding, auto, and what is fixed."""
    settings = [Setting(method=PLAIN), Setting(method="auto")]
    if models:
        settings.append(Setting(method="auto", models=tuple(models)))
    for method in methods:
        settings.extend(Setting(method=method, num_draft_tokens=length) for length in lengths)
    for model in models:
        chain = Setting(method=Path(model).stem, models=(model,), num_draft_tokens=THRESHOLD_LENGTH)
        settings.extend(replace(chain, num_draft_tokens=length) for length in lengths)
        if len(lengths) > len(LENGTHS[-1]):
            settings.extend(replace(chain, num_branches=b, num_draft_tokens=nodes) for b, nodes in TREES)
            settings.extend(replace(chain, min_survival=least) for least in SURVIVALS)
    if with_lenient:
        last = settings[-1]
        base = Setting(method=last.method, models=last.models, num_draft_tokens=LENIENT_LENGTH)
        settings.extend(replace(base, lenient=threshold) for threshold in LENIENT)
    return settings


class Stopping:
    """A costly drafter whose chains end behind a token that is too unlikely."""

    def __init__(self, drafter: CostlyDrafter, min_survival: float) -> None:
        self.name, self.free = drafter.name, False
        self._drafter, self._min_survival = drafter, min_survival

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """See `Drafter`."""
        return self._drafter.propose(requests, [replace(b, min_survival=self._min_survival) for b in budgets])

    def observe(self, requests: Sequence[RequestView], outcomes: Sequence[Outcome]) -> None:
        """See `Drafter`."""
        self._drafter.observe(requests, outcomes)

    def forget(self, request_id: int) -> None:
        """See `Drafter`."""
        self._drafter.forget(request_id)

    def num_unread(self, request: RequestView) -> int:
        """See `CostlyDrafter`."""
        return self._drafter.num_unread(request)

    def time_step(self, *, num_tokens: int, context: int) -> float:
        """See `CostlyDrafter`."""
        return self._drafter.time_step(num_tokens=num_tokens, context=context)


def stopping(drafter: Drafter, min_survival: float) -> Drafter:
    """The drafter, with a threshold if there is one."""
    return Stopping(drafter, min_survival) if min_survival else drafter  # type: ignore[arg-type]


def for_vllm(setting: Setting) -> str | None:
    """The value of vLLM's `--speculative-config` that drafts like this; None where it has nothing like it."""
    number = setting.num_draft_tokens
    if number is None or not setting.is_plain_chain:
        return None
    if setting.models:
        values: dict[str, object] = {"method": "draft_model", "model": Path(setting.models[0]).name}
    elif setting.method == "lookup":
        values = {"method": "ngram", "prompt_lookup_max": 5, "prompt_lookup_min": 2}
    elif setting.method == "suffix":
        values = {"method": "suffix"}
    else:
        return None
    return json.dumps(values | {"num_speculative_tokens": number})


def for_llama_cpp(setting: Setting) -> str | None:
    """The options of llama-server that draft like this; None where it has nothing like it."""
    number = setting.num_draft_tokens
    if number is None or setting.num_branches > 1 or setting.lenient is not None:
        return None
    if setting.models:
        options = f"--spec-type draft-simple -md {Path(setting.models[0]).name} --spec-draft-n-max {number}"
        return f"{options} --spec-draft-p-min {setting.min_survival:g}"
    if setting.method in ("lookup", "suffix"):
        return f"--spec-type ngram-mod --spec-ngram-mod-n-min 1 --spec-ngram-mod-n-max {number}"
    return None
