"""How a row of a log becomes a row of an effect model: numbers within what was declared, or zeros.

Any row becomes one, and no value can make this fail. A row of an arm that is neither of the two
takes no part, nor does one with a fault (no arm, a feature or a propensity that is missing and has
no declared value); both are all zeros from here on. A faulty outcome is no fault: it counts as the
declared value.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from flows.effects.config.effects import EffectConfig
from flows.raw.reading.columns import identifier, number, private_label
from flows.raw.reading.stores import LogFile
from schemas.arrays import Bools, Floats
from schemas.effects.model import EffectDesign, Feature, LevelFeature, NumberFeature
from schemas.raw import ARM, FAULT, OUTCOME, UNIT, Values

COMPLETE = "complete"
TREATED = "treated"
PROPENSITY = "propensity"


_ARM_FAULT = "arm_missing"
_PROPENSITY_FAULT = "propensity_missing"
_FEATURE_FAULT = "feature_missing"
FAULTS = ("", _ARM_FAULT, _PROPENSITY_FAULT, _FEATURE_FAULT)
"""What is wrong with a row, by the number in its column ``fault``; the first that it has."""


def feature_column(number: int) -> str:
    """The column of a feature, by its place among those that are declared."""
    return f"feature_{number}"


@dataclass(frozen=True)
class EffectColumns:
    """How the columns of a log are read, and mapped to what a model takes."""

    config: EffectConfig

    @cached_property
    def design(self) -> EffectDesign:
        """The declaration as the model takes it, made once."""
        return self.config.design

    @property
    def private(self) -> tuple[str, ...]:
        """The columns that no message may follow from: all but the unit's."""
        columns, share = self.config.columns, self.config.propensity.column
        of_propensity = () if share is None else (share,)
        names = (each.name for each in self.config.features)
        return (columns.arm, columns.outcome, *of_propensity, *names)

    @property
    def kept(self) -> dict[str, pl.DataType]:
        """What a mapped row holds beside its unit, a few bytes each."""
        features: dict[str, pl.DataType] = {
            feature_column(place): pl.Float64() if isinstance(each, NumberFeature) else pl.UInt8()
            for place, each in enumerate(self.design.features)
        }
        shares = {PROPENSITY: pl.Float64()} if self.design.propensity.kind == "column" else {}
        flags = {COMPLETE: pl.Boolean(), TREATED: pl.Boolean()}
        return {**flags, OUTCOME: pl.Float64(), **shares, **features}

    @property
    def ranges(self) -> dict[str, Values]:
        """What holds of a mapped row, by column: numbers within these ends, zeros among them."""
        ends: dict[str, Values] = {OUTCOME: (-1.0, 1.0), PROPENSITY: (0.0, 1.0)}
        ends |= {
            feature_column(place): (0.0, 1.0)
            for place, each in enumerate(self.design.features)
            if isinstance(each, NumberFeature)
        }
        return {name: ends.get(name, kind) for name, kind in self.kept.items()}

    def expressions(self, frame: pl.DataFrame, path: LogFile) -> list[pl.Expr]:
        """Read the columns of a file; InputError where one is of a type that cannot be meant."""
        columns, share = self.config.columns, self.config.propensity.column
        read = [
            identifier(frame, path, columns.unit, "unit").alias(UNIT),
            private_label(frame, path, columns.arm, "arm").alias(ARM),
            number(frame, path, columns.outcome, "outcome").alias(OUTCOME),
        ]
        if share is not None:
            read.append(number(frame, path, share, "propensity").alias(PROPENSITY))
        for place, each in enumerate(self.design.features):
            one = (
                number(frame, path, each.name, "feature")
                if isinstance(each, NumberFeature)
                else _codes(private_label(frame, path, each.name, "feature"), each)
            )
            read.append(one.alias(feature_column(place)))
        return read

    def mapped(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Map what was read: to positions, levels and arms, zeros where a row takes no part."""
        arms = self.config.arms
        arm = frame[ARM]
        treated = (arm == self.config.treatment).fill_null(value=False).to_numpy()
        compared = treated | (arm == arms.control).fill_null(value=False).to_numpy()
        other = ~compared & (arm.fill_null("") != "").to_numpy()
        fault = np.where(compared | other, 0, FAULTS.index(_ARM_FAULT)).astype(np.uint8)
        found: dict[str, np.ndarray] = {}
        if PROPENSITY in frame.columns:
            shares = frame[PROPENSITY].to_numpy()
            bound = self.design.propensity.bound
            fault[np.isnan(shares) & (fault == 0)] = FAULTS.index(_PROPENSITY_FAULT)
            found[PROPENSITY] = np.clip(shares, bound, 1.0 - bound)
        for place, each in enumerate(self.design.features):
            name = feature_column(place)
            found[name], is_known = _feature(frame[name], each)
            fault[~is_known & (fault == 0)] = FAULTS.index(_FEATURE_FAULT)
        fault[other] = 0  # whatever else it lacks
        complete = compared & (fault == 0)
        found[OUTCOME] = self._outcomes(frame[OUTCOME].to_numpy())
        found[TREATED] = treated
        kinds = self.kept
        columns = [pl.Series(COMPLETE, complete), pl.Series(FAULT, fault)]
        for name, kind in list(kinds.items())[1:]:
            values = np.where(complete, found[name], np.zeros((), found[name].dtype))
            columns.append(pl.Series(name, values).cast(kind))
        return frame.select(pl.exclude(ARM, OUTCOME, PROPENSITY, "^feature_.*$")).with_columns(
            columns
        )

    def _outcomes(self, values: Floats) -> Floats:
        """Where outcomes lie in the declared range, in [−1, 1]; a missing one counts as declared.

        (y − middle)/half; shape [n] in and out.
        """
        design = self.design
        known = np.where(np.isnan(values), self.config.outcome.missing_value, values)
        clipped = np.clip(known, design.low, design.high)
        return np.clip((clipped - design.middle) / design.half, -1.0, 1.0) + 0.0  # no −0.0


def _codes(label: pl.Expr, feature: LevelFeature) -> pl.Expr:
    """The number of each label among the levels; null where it is none and has no declared one."""
    given = pl.when(label != "").then(label)
    kind = pl.Enum(feature.levels)
    code = given.cast(kind, strict=False).to_physical().cast(pl.UInt8)
    if feature.other is not None:
        other = pl.lit(feature.levels.index(feature.other), pl.UInt8)
        code = pl.when(given.is_not_null()).then(code.fill_null(other))
    if feature.missing is not None:
        missing = pl.lit(feature.levels.index(feature.missing), pl.UInt8)
        code = pl.when(given.is_null()).then(missing).otherwise(code)
    return code


def _feature(values: pl.Series, feature: Feature) -> tuple[np.ndarray, Bools]:
    """A feature's positions or levels, and of which rows it is known; shape [n] each."""
    if isinstance(feature, LevelFeature):
        return values.fill_null(0).to_numpy(), values.is_not_null().to_numpy()
    numbers = values.to_numpy()
    if feature.missing is not None:
        numbers = np.where(np.isnan(numbers), feature.missing, numbers)
    return feature.positions(numbers), ~np.isnan(numbers)
