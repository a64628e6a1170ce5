"""From drafters to a planner that knows what they cost here."""

from collections.abc import Mapping, Sequence

from foredraft.drafters.base import CostlyDrafter, Drafter
from foredraft.models.cached_decoder import CachedDecoder
from foredraft.planner.auto import AutoPlanner
from foredraft.planner.calibration import READING_ROWS, ROWS, CalibrationStore, TimePass, calibrate, holds
from foredraft.planner.cost import Calibration, CostModel
from foredraft.planner.costly import StepCosts
from foredraft.planner.profile import Profile


def make_auto_planner(
    drafters: Sequence[Drafter],
    decoder: CachedDecoder,
    store: CalibrationStore,
    key: Mapping[str, object],
    profile: Profile | None = None,
) -> AutoPlanner:
    """Calibrate what was not calibrated before, and plan by it.

    decoder: the target's. key: what its times depend on: file, kernels, machine, settings. profile: what was found
    out before; it comes before the store.
    """
    context = min(1024, decoder.config.context_length - 64)

    def of_target(num_tokens: int, context: int) -> float:
        return decoder.time_forward(num_tokens=num_tokens, context=context)

    known = profile.calibration(key) if profile else None
    cost = CostModel(known or _known(store, key, of_target, context=max(0, context)))
    steps = {}
    for drafter in drafters:
        if not drafter.free:
            known = profile.calibration(key, drafter.name) if profile else None
            steps[drafter.name] = StepCosts(known or _of_drafter(drafter, store, key))
    return AutoPlanner(drafters, cost, steps, learned=profile.learned if profile else None)


def _of_drafter(drafter: Drafter, store: CalibrationStore, key: Mapping[str, object]) -> Calibration:
    costly: CostlyDrafter = drafter  # type: ignore[assignment]

    def time_pass(num_tokens: int, context: int) -> float:
        return costly.time_step(num_tokens=num_tokens, context=context)

    return _known(store, {**key, "drafter": drafter.name}, time_pass, rows=READING_ROWS, context=0)


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
