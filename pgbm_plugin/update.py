"""update(): more rows for a wrapped model, without retraining."""

from __future__ import annotations

import math
from dataclasses import replace

from .calibration.follow import follow_residuals, is_comparable
from .leaves.certificate import Certificate, certify
from .leaves.moments import LeafMoments
from .leaves.weights import leaf_weights, typical_variance
from .predict.chosen import Chosen
from .predict.state import ModelState, default_rho
from .sources import Options, Source


def updated(state: ModelState, source: Source, decay: float | None, options: Options) -> ModelState:
    """Return the state with the moments of more rows merged in, see `ProbabilisticModel.update`."""
    decay = 1.0 if decay is None else float(decay)
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"decay must lie in [0, 1], not {decay}: what rows seen before still count for")
    if not source.may_be_table:
        state.spec.check_sequential(
            "update from batches, files, Dask or moments",
            "give the rows as one table, whose residuals rescale the boosted scale, or call tune",
        )
    further, data = source.through(state.surroundings, state.forest).further(state.forest, state.spec, options)
    moments = state.moments.faded(decay).merge(further)
    weights = leaf_weights(state.forest, state.spec, moments)
    before, after = (
        typical_variance(state.forest, *leaves) for leaves in ((state.moments, state.weights), (moments, weights))
    )
    ratio = after / before if before > 0 else 1.0
    chosen, scale, rho = state.chosen, state.chosen.scale, default_rho(moments)
    chosen = replace(
        chosen,
        rho=rho if chosen.rho == state.default_rho else chosen.rho,
        calibration=chosen.calibration.rescaled(ratio),
        bin_edges=chosen.rescaled_edges(ratio),
        scale=None if scale is None else scale.rescaled(ratio),
        cross_fitted=None,
        correlation=None,
        conformal=None,  # but `around` stays, for the next `conformalize`
    )
    certificate = _certificate(state, moments, further.rows)
    new = replace(state, moments=moments, weights=weights, certificate=certificate, chosen=chosen, default_rho=rho)
    if data is not None and certificate.status != "certified" and is_comparable(state.chosen):
        followed = follow_residuals(state, new, data, further, options.n_jobs)
        if followed is not None:
            chosen, ratio = followed
            new = replace(new, chosen=replace(chosen, bin_edges=state.chosen.rescaled_edges(ratio)))
    if state.chosen.observed is not None:
        new = replace(new, chosen=_observed_on(state.chosen, new.chosen, ratio))
    if state.training_scale is None:
        return new
    return replace(new, training_scale=state.training_scale.rescaled(ratio))


def _observed_on(before: Chosen, after: Chosen, ratio: float) -> Chosen:
    """Return settings that go on observing in the unit of the new spread, whose variances are `ratio` times larger."""
    observed, scores = before.observed, before.conformal
    assert observed is not None
    if scores is None or (scores.rho, scores.calibration) != (before.rho, before.calibration):
        return replace(after, observed=None)
    groups, usable = scores.groups, 0.0 < ratio < math.inf
    if groups is not None and groups.by == "spread" and usable:
        groups = groups.rescaled(ratio)
    scores = replace(scores, rho=after.rho, calibration=after.calibration, groups=groups)
    return replace(after, conformal=scores, observed=observed.rescaled(ratio) if usable else observed)


def _certificate(state: ModelState, moments: LeafMoments, further: float) -> Certificate:
    """Certify all rows. Rows that do not reproduce the leaves are no fault here: `update` is for new rows."""
    certificate = certify(state.forest, state.spec, moments)
    brought = f"update brought the last {further:.0f} rows"
    if certificate.status == "certified":
        return certificate
    if state.spec.approximate or state.spec.subsampled:
        return replace(certificate, sentence=f"{certificate.sentence}; {brought}")
    sentence = f"the moments are those of {moments.rows:.0f} rows that are not just those of training: {brought}"
    return replace(certificate, status="held-out", sentence=sentence)
