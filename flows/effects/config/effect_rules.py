"""What the keys of an effect model's configuration must be like together; errors name a key."""

from flows.config.rules.checks import check_length, check_no_guards
from flows.effects.config.effects import (
    EffectArms,
    EffectConfig,
    FeatureSection,
    PropensitySection,
)
from flows.effects.config.site_rules import check_missing, check_places, keys_of_columns
from flows.runtime.paths import check_place
from schemas.effects.design import GREATEST, check_design
from schemas.errors import ConfigError, shown


def check_effect_config(config: EffectConfig) -> None:
    """Raise ConfigError unless the keys go together."""
    check_length("experiment", config.experiment)
    check_places(config, _keys_of_columns(config))
    if config.run.spill_directory is not None:
        check_place(config.directory, config.run.spill_directory, "run.spill_directory")
    _check_arms(config.arms)
    check_no_guards(config.quarantine)
    check_missing(config.outcome)
    for number, each in enumerate(config.features):
        _check_feature(f"features[{number}]", each)
    _check_propensity(config.propensity)
    _check_agreed(config)
    learner = config.privacy.learner
    for key, given in {"subgroups": config.subgroups, "pairs": config.pairs}.items():
        if learner != "moments" and given:
            raise ConfigError(
                key, f'privacy.learner = "{learner}" has none; remove them, or choose "moments"'
            )
    check_design(config.design)


def _check_agreed(config: EffectConfig) -> None:
    if config.moments is None:
        for key in ("degree", "usual"):
            if getattr(config, key):
                raise ConfigError(key, "is for sites to agree on, with [moments]; remove it")
        return
    check_length("experiment and moments.site together", config.series)
    if config.privacy.learner != "moments":
        raise ConfigError("privacy.learner", 'sites add up the sums of "moments", the default')
    features = [each.name for each in config.features]
    for number, one in enumerate(config.usual):
        key = f"usual[{number}].feature"
        if one.feature not in features:
            raise ConfigError(key, f"{shown(one.feature)} is none of the features")
        features.remove(one.feature)


def _check_arms(arms: EffectArms) -> None:
    if len(arms.treatments) != 1:
        raise ConfigError(
            "arms.treatments",
            f"{len(arms.treatments)} are named: an effect model compares one with control; make a "
            "model of each, in a file of its own (rows of other arms count as zeros)",
        )
    treatment = arms.treatments[0]
    if not treatment:
        raise ConfigError("arms.treatments", "an arm's name is empty")
    if treatment == arms.control:
        raise ConfigError("arms.treatments", f"{shown(treatment)} is arms.control already")


def _check_feature(key: str, feature: FeatureSection) -> None:
    if feature.is_number:
        _check_number(key, feature)
        return
    for name in ("low", "high", "scale"):
        if getattr(feature, name) is not None:
            raise ConfigError(f"{key}.{name}", "belongs to a number, without levels; remove it")
    if isinstance(feature.missing, float):
        raise ConfigError(f"{key}.missing", f"{feature.missing} is none of {key}.levels")


def _check_number(key: str, feature: FeatureSection) -> None:
    if feature.low is None and feature.high is None:
        raise ConfigError(key, "give either low and high, of a number, or levels")
    for name in ("low", "high"):
        if getattr(feature, name) is None:
            raise ConfigError(f"{key}.{name}", "missing; a number needs low and high")
    if feature.other is not None:
        raise ConfigError(f"{key}.other", "belongs to levels; remove it")
    missing = feature.missing
    if isinstance(missing, str):
        raise ConfigError(f"{key}.missing", f"{shown(missing)} is not a number")
    if missing is not None and abs(missing) > GREATEST:
        raise ConfigError(f"{key}.missing", f"{shown(missing)} lies outside [low, high]")


def _check_propensity(propensity: PropensitySection) -> None:
    forms = {"value": propensity.value, "column": propensity.column}
    given = [name for name, one in forms.items() if one is not None] + ["learn"] * propensity.learn
    if len(given) != 1:
        found = " and ".join(given) if given else "none of them"
        raise ConfigError("propensity", f"give one of value, column and learn = true, not {found}")
    if propensity.column is not None and propensity.bound is None:
        raise ConfigError(
            "propensity.bound",
            "missing: beside a column say how near to 0 and 1 a propensity may be, such as 0.1 "
            "(those nearer count as it), since noise is made for the nearest there can be",
        )
    if propensity.value is not None and propensity.bound is not None:
        raise ConfigError("propensity.bound", "belongs to column or learn; remove it")


def _keys_of_columns(config: EffectConfig) -> dict[str, str]:
    """No column means two things; two features of one name are refused with the features."""
    share = config.propensity.column
    seen = keys_of_columns(config.columns, {} if share is None else {"propensity.column": share})
    for number, each in enumerate(config.features):
        if each.name in seen:
            raise ConfigError(
                f"features[{number}].name", f"{shown(each.name)} is {seen[each.name]} already"
            )
    return seen | {each.name: f"features[{at}].name" for at, each in enumerate(config.features)}
