"""From drafters to a planner that knows what they cost here."""

from collections.abc import Callable, Mapping, Sequence

from foredraft.drafters.base import Drafter
from foredraft.errors import ForedraftError
from foredraft.models.cached_decoder import CachedDecoder
from foredraft.planner.auto import AutoPlanner
from foredraft.planner.calibration import DRAFT_TOKENS, PASS_TOKENS, CalibrationStore, TimePass, calibrate, holds
from foredraft.planner.cost import Calibration, CostModel
from foredraft.planner.first_look import agreement
from foredraft.planner.profile import Learned, Profile
from foredraft.planner.step_costs import StepCosts

FIRST_GAIN = 0.1
"""Tokens that a model-based drafter is taken to gain for each token of a completion before any has shown it."""


def make_cost_model(
    decoder: CachedDecoder, store: CalibrationStore, key: Mapping[str, object], profile: Profile | None = None
) -> CostModel:
    """What the target's passes cost here: calibrated now, where it was not before. Arguments as below."""
    known = profile.calibration(key) if profile else None
    context = max(0, min(1024, decoder.config.context_length - 64))

    def time_pass(num_tokens: int, context: int) -> float:
        return decoder.time_forward(num_tokens=num_tokens, context=context)

    return CostModel(known or _known(store, key, time_pass, context=context))


def make_auto_planner(
    drafters: Sequence[Drafter],
    decoder: CachedDecoder,
    store: CalibrationStore,
    key: Mapping[str, object],
    sample: Callable[[], Sequence[int]],
    profile: Profile | None = None,
) -> AutoPlanner:
    """Calibrate what was not calibrated before, look how often model-based drafters are right, and plan by it.

    decoder: the target's. key: what its times depend on: file, kernels, machine, settings. sample: the tokens of
    `first_look.SAMPLE`. profile: what was found out before; it comes before the store.
    """
    steps, learned = {}, dict(profile.learned if profile else {})
    cost = make_cost_model(decoder, store, key, profile)
    for drafter in drafters:
        if not drafter.model_free:
            known = profile.calibration(key, drafter.name) if profile else None
            steps[drafter.name] = StepCosts(known or _of_drafter(drafter, store, key))
            if drafter.name not in learned:
                learned[drafter.name] = _looked_at(drafter, decoder, store, key, sample)
    return AutoPlanner(drafters, cost, steps, learned=learned)


def _looked_at(
    drafter: Drafter,
    decoder: CachedDecoder,
    store: CalibrationStore,
    key: Mapping[str, object],
    sample: Callable[[], Sequence[int]],
) -> Learned:
    own_key = _own_key(drafter, key)
    seen = store.load_agreement(own_key) if drafter.spec.identity else None
    if seen is None:
        try:
            seen = agreement(drafter, decoder, sample())
        except ForedraftError:  # it will be told when the drafter is asked for a completion
            return Learned()
        if drafter.spec.identity:
            store.save_agreement(own_key, seen)
    gain = FIRST_GAIN if seen[1] else 0.0
    return Learned(greedy_acceptance=seen, sampled_acceptance=seen, greedy_gain=gain, sampled_gain=gain)


def _own_key(drafter: Drafter, key: Mapping[str, object]) -> dict[str, object]:
    return {**key, "drafter": drafter.name, "identity": drafter.spec.identity}


def _of_drafter(drafter: Drafter, store: CalibrationStore, key: Mapping[str, object]) -> Calibration:
    def time_pass(num_tokens: int, context: int) -> float:
        return drafter.time_step(num_tokens=num_tokens, context=context)

    return _known(store, _own_key(drafter, key), time_pass, num_tokens=DRAFT_TOKENS, context=0)


def _known(
    store: CalibrationStore,
    key: Mapping[str, object],
    time_pass: TimePass,
    *,
    num_tokens: tuple[int, ...] = PASS_TOKENS,
    context: int,
) -> Calibration:
    saved = store.load(key)
    if saved is not None and holds(saved, time_pass, context=context):
        return saved
    calibration = calibrate(time_pass, num_tokens=num_tokens, context=context)
    store.save(key, calibration)
    return calibration
