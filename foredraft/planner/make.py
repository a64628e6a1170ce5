"""From drafters to a planner that knows what they cost here."""

from collections.abc import Callable, Mapping, Sequence

from foredraft.drafters.base import CostlyDrafter, Drafter
from foredraft.errors import ForedraftError
from foredraft.models.cached_decoder import CachedDecoder
from foredraft.planner.auto import AutoPlanner
from foredraft.planner.calibration import READING_ROWS, ROWS, CalibrationStore, TimePass, calibrate, holds
from foredraft.planner.cost import Calibration, CostModel
from foredraft.planner.first_look import agreement
from foredraft.planner.profile import Learned, Profile
from foredraft.planner.step_costs import StepCosts

FIRST_GAIN = 0.1
"""Tokens that a costly drafter is taken to gain for each token of an answer before any answer has shown it."""


def make_auto_planner(
    drafters: Sequence[Drafter],
    decoder: CachedDecoder,
    store: CalibrationStore,
    key: Mapping[str, object],
    sample: Callable[[], Sequence[int]],
    profile: Profile | None = None,
) -> AutoPlanner:
    """Calibrate what was not calibrated before, look how often costly drafters are right, and plan by it.

    decoder: the target's. key: what its times depend on: file, kernels, machine, settings. sample: the tokens of
    `first_look.SAMPLE`. profile: what was found out before; it comes before the store.
    """
    context = min(1024, decoder.config.context_length - 64)

    def of_target(num_tokens: int, context: int) -> float:
        return decoder.time_forward(num_tokens=num_tokens, context=context)

    known = profile.calibration(key) if profile else None
    cost = CostModel(known or _known(store, key, of_target, context=max(0, context)))
    steps, learned = {}, dict(profile.learned if profile else {})
    for drafter in drafters:
        if not drafter.free:
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
    costly: CostlyDrafter = drafter  # type: ignore[assignment]
    identity, own_key = getattr(drafter, "identity", ""), _own_key(drafter, key)
    seen = store.load_agreement(own_key) if identity else None
    if seen is None:
        try:
            seen = agreement(costly, decoder, sample())
        except ForedraftError:  # it will be told when the drafter is asked for an answer
            return Learned()
        if identity:
            store.save_agreement(own_key, seen)
    gain = FIRST_GAIN if seen[1] else 0.0
    return Learned(greedy_share=seen, sampled_share=seen, greedy_gain=gain, sampled_gain=gain)


def _own_key(drafter: Drafter, key: Mapping[str, object]) -> dict[str, object]:
    return {**key, "drafter": drafter.name, "identity": getattr(drafter, "identity", "")}


def _of_drafter(drafter: Drafter, store: CalibrationStore, key: Mapping[str, object]) -> Calibration:
    costly: CostlyDrafter = drafter  # type: ignore[assignment]

    def time_pass(num_tokens: int, context: int) -> float:
        return costly.time_step(num_tokens=num_tokens, context=context)

    return _known(store, _own_key(drafter, key), time_pass, rows=READING_ROWS, context=0)


def _known(
    store: CalibrationStore,
    key: Mapping[str, object],
    time_pass: TimePass,
    *,
    rows: tuple[int, ...] = ROWS,
    context: int,
) -> Calibration:
    saved = store.load(key)
    if saved is not None and holds(saved, time_pass, context=context):
        return saved
    calibration = calibrate(time_pass, rows=rows, context=context)
    store.save(key, calibration)
    return calibration
