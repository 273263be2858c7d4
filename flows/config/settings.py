"""The settings of a release in one spelling, by which a later run knows the same again."""

import json
from collections.abc import Sequence
from typing import Any

from flows.config.model.experiment import AnyDesign, Config
from flows.config.model.sections import NamedOutcome
from flows.config.unit_id_key import read_key
from privatizers.mechanisms.paired_optimal_dp import PairedOptimalDP
from privatizers.mechanisms.parameters import OptimalParameters


def settings_of(config: Config, designs: Sequence[AnyDesign]) -> bytes:
    """Everything that can affect a release of given rows, spelt in one way.

    Each outcome has one of the ``designs``, in the order of ``config.outcomes``.
    """
    arms, key = config.arms, read_key(config.id_key_path)
    of_outcomes = [*map(_outcome_settings, config.views, designs)]
    document: dict[str, Any] = {
        "experiment": config.experiment,
        "control": arms.control,
        "treatments": arms.treatments,
        "same_shares": arms.same_shares,
        "mechanism": designs[0].mechanism.name,
        "min_stratum": config.privacy.min_stratum,
        "unit_id": config.publish.unit_id,
        "unit_id_key": key.name if key else None,
    }
    if config.named_outcomes:
        document["outcomes"] = of_outcomes
        document["epsilon"], document["delta"] = config.cost.epsilon, config.cost.delta
    else:  # as it was before there could be several
        document |= of_outcomes[0]
    privacy, private, columns = config.privacy, config.private_clusters, config.columns
    leaves_out = privacy.returning != "charge" or privacy.spent != "refuse"
    by_accounts = leaves_out or privacy.rows_each is not None
    optional: dict[str, Any] = {  # what is None leaves all as it was before there was such a thing
        "ratios": [
            {key: value for key, value in one.model_dump().items() if value is not None} | one.goal
            for one in config.ratios
        ]
        or None,
        "decision": config.decision_rule,
        "returning": privacy.returning if leaves_out else None,
        "spent": privacy.spent if leaves_out else None,
        "privacy_unit": columns.privacy_unit if privacy.rows_each is not None else None,
        "rows_each": privacy.rows_each,
        "ids": config.source.ids if config.source.ids != "canonical" and by_accounts else None,
        "attributes": list(columns.named_attributes) or None,
        "margins": list(config.margins) or None,
        "assigned": True if columns.assigned_by is not None else None,
        "private_clusters": None
        if private is None
        else {
            "epsilon": private.epsilon,
            "centres_epsilon": private.centres_epsilon,
            "names": sorted(private.names),
            "missing": private.missing_name,
        },
    }
    document |= {key: value for key, value in optional.items() if value is not None}
    return json.dumps(document, sort_keys=True, allow_nan=False).encode()


def _outcome_settings(config: Config, design: AnyDesign) -> dict[str, Any]:
    """The settings of one outcome; ``config`` is its own."""
    outcome, parameters = config.outcome, design.mechanism.parameters
    named = {
        "name": config.outcomes[0].name if isinstance(outcome, NamedOutcome) else None,
        "label": outcome.label,
        "measured_in": outcome.measured_in,
        "texts": outcome.numbers_of_texts or None,
        "decimal": "," if outcome.decimal == "," else None,
    }
    return {
        "grid": outcome.grid,
        "missing": outcome.missing_value,
        "rounding": outcome.rounding,
        "guess": "uniform" if isinstance(outcome.guess, str) else outcome.guess,
        "resampling_probability": parameters.resampling_probability,
        "truncation_threshold": parameters.truncation_threshold,
        "noise_scale": parameters.noise_scale,
        "strata_statistic": parameters.strata_statistic,
        **({} if parameters.margins is None else {"margins": parameters.margins.noise_scales}),
        "epsilon": design.epsilon,
        "delta": design.delta,
        **{key: value for key, value in named.items() if value is not None},
        **_table_settings(design),
        **outcome.goal,
    }


def _table_settings(design: AnyDesign) -> dict[str, Any]:
    """What tables of the optimal randomiser are solved for; nothing of other mechanisms."""
    mechanism, parameters = design.mechanism, design.mechanism.parameters
    if not isinstance(parameters, OptimalParameters):
        return {}
    of_pair: dict[str, Any] = {}
    if isinstance(mechanism, PairedOptimalDP):  # else as it was before there were pairs
        of_pair["brings_epsilon"] = mechanism.pair[mechanism.place].epsilon
    return of_pair | {
        "response_grid": parameters.grid,
        "response_guess": parameters.guess,
        "response_epsilon": parameters.response_epsilon,
        "arm_noise_scale": parameters.arm_noise_scale,
        "learns": parameters.learns,
    }
