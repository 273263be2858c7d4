"""Who benefits, for the front door in Python: effects of a release or a model, as polars frames."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, cast

import polars as pl

from flows.effects.released.findings import EFFECT, effect_row
from flows.released.estimates.frames import as_polars, like

if TYPE_CHECKING:
    from typing import Any

    import pandas as pd
    from typing_extensions import TypeVar

    from flows.effects.released.from_release import Findings, ReleaseEffects
    from flows.effects.released.model_file import ModelFile

    Frame = TypeVar("Frame", bound=pl.DataFrame | pd.DataFrame, default=pl.DataFrame)

_EFFECT = dict.fromkeys(EFFECT, pl.Float64)


class Benefits:
    """What :class:`Effects` and :class:`EffectModel` both say of who benefits."""

    def __init__(self, found: Findings) -> None:
        """Take what was found out."""
        self._found = found

    def ate(self) -> pl.DataFrame:
        """The average effect of everybody (of a model, at 95 %); no row without an interval."""
        average = self._found.ate
        return pl.DataFrame([] if average is None else [asdict(average)], schema=_EFFECT)

    def subgroups(self) -> pl.DataFrame:
        """The average effect in each subgroup (``name``, ``level``), or why it is ``refused``."""
        rows = [effect_row(one) for one in self._found.subgroups]
        texts = {"name": pl.String, "level": pl.String}
        return pl.DataFrame(rows, schema=texts | _EFFECT | {"refused": pl.String})

    def curves(self) -> pl.DataFrame:
        """The effect along each ``feature``, at numbers (``at``) or levels (``level``).

        ``noise_std_error`` is of noise and sampling, not of what the curve cannot follow.
        """
        kinds: dict[str, type[pl.DataType]] = {"feature": pl.String, "at": pl.Float64}
        kinds |= {"level": pl.String, "effect": pl.Float64, "noise_std_error": pl.Float64}
        rows: list[tuple[object, ...]] = []
        for curve in self._found.curves:
            of_noise = curve.noise_std_errors
            errors = [None] * len(curve.at) if of_noise is None else of_noise.tolist()
            for at, effect, error in zip(curve.at, curve.effects.tolist(), errors, strict=True):
                place = (None, at) if isinstance(at, str) else (at, None)
                rows.append((curve.feature, *place, effect, error))
        return pl.DataFrame(rows, schema=kinds, orient="row")


class Effects(Benefits):
    """Who benefits from a treatment, by :meth:`Release.effects`."""

    _found: ReleaseEffects

    def __repr__(self) -> str:
        """Which effects they are, and by which features."""
        names = ", ".join(feature.name for feature in self._found.design.features)
        return f"<clusterdp effects of {self._found.arm} by {names}>"

    def importance(self) -> pl.DataFrame:
        """By ``feature`` the variance of its curve (``importance``), the greatest first."""
        schema = {"feature": pl.String, "importance": pl.Float64}
        return pl.DataFrame(list(self._found.importance), schema=schema, orient="row")

    def report(self, path: str | Path) -> Path:
        """Write a web page about them, or replace one; returns its absolute path."""
        from flows.effects.released.report_model import write_effects_report  # noqa: PLC0415 - jinja2
        from flows.released.report import check_output  # noqa: PLC0415 - jinja2

        check_output(Path(path))
        return write_effects_report(self._found, Path(path))

    def as_json(self) -> dict[str, Any]:
        """The document of ``clusterdp effects --json``."""
        return self._found.as_json()


class EffectModel(Benefits):
    """An effect model: who benefits, and how much; opened by :func:`open_model`."""

    def __init__(self, file: ModelFile) -> None:
        """Take what was read and worked out; use :func:`open_model`."""
        super().__init__(file.model)
        self._file = file

    def __repr__(self) -> str:
        """Which model it is, how many units it has and what it cost."""
        design = self._file.model.design
        return (
            f"<clusterdp effect model {self.model_id}: {self.n_rows:,} units, "
            f"epsilon {design.epsilon:g}, delta {design.delta:g}>"
        )

    @property
    def model_id(self) -> str:
        """``EXPERIMENT+cate.PERIOD.rN``."""
        return self._file.head.model_id

    @property
    def n_rows(self) -> int:
        """All units, also those whose rows have a fault and count as zeros."""
        return self._file.model.n_rows

    @property
    def guarantee(self) -> str:
        """What is promised, in words."""
        from schemas.effects.file import guarantee  # noqa: PLC0415 - pydantic, seldom

        return guarantee(self._file.model.design)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the noisy sums show of the declaration: bounds too wide, say."""
        return self._file.model.warnings

    def predict(self, features: Frame) -> Frame:
        """Return the table with the columns ``effect`` and ``noise_std_error`` added.

        The latter is null where the propensity was learnt. All in memory. It is an
        :class:`InputError` where a feature is missing, or has values that the model does not know.
        """
        from flows.effects.released.predict import predict_frame  # noqa: PLC0415 - pydantic, seldom

        found = predict_frame(self._file.model, as_polars(features, "features"), "features")
        return cast("Frame", like(features, found))
