"""Reading and writing the file of an effect model.

A reader works out the model from the declaration and the noisy sums, and compares all that the file
says of it; what is shown of a model is what the reader worked out.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from estimators.effects.models.basis import NumberTerms
from estimators.effects.models.fit import fit_learner
from estimators.effects.models.model import EffectModel
from flows.effects.released.drafts import document_text, write_draft
from flows.effects.released.findings import effects_json
from flows.effects.released.loss import model_loss
from flows.released.loss.loss import Loss
from schemas.documents import plain
from schemas.effects.file import ModelDocument, ModelHead, from_text, to_text
from schemas.effects.model import EffectDesign, Learner, NoisySums
from schemas.errors import InputError

_LARGEST = 50_000_000  # bytes of a model: most have under 100,000
_TOLERANCE = 1e-9
"""Of a number, in parts of the greatest beside it: sums in another order differ by less."""


@dataclass(frozen=True)
class ModelFile:
    """An effect model and which one it is."""

    head: ModelHead
    model: EffectModel

    def as_json(self) -> dict[str, Any]:
        """What a document of ``--json`` says of it."""
        head, model = self.head, self.model
        design = model.design
        sites = () if design.agreed is None else design.agreed.sites
        return {
            "model_id": head.model_id,
            "learner": head.learner,
            "epsilon": design.epsilon,
            "delta": design.delta,
            "neighbours": design.neighbours,
            "n_rows": model.n_rows,
            "features": [each.name for each in design.features],
            "propensity": design.propensity.kind,
            "degree": model.degree,
            "no_intervals": model.no_intervals,
            **effects_json(model.ate, model.subgroups, model.importance),
            **({} if design.agreed is None else {"agreed": design.agreed.digest}),
            **({"sites": plain(sites)} if sites else {}),
        }


def write_model(file: ModelFile, path: Path) -> None:
    """Write a model to a new file at ``path``, a draft.

    Raises InputError where the model is unsound, or cannot be written.
    """
    write_draft(model_text(file), path)


def model_text(file: ModelFile) -> str:
    """Return the text of a model's file; InputError where the model is unsound."""
    model = file.model
    document = ModelDocument(file.head, model.design, model.n_rows, model.sums, fitted(model))
    return to_text(document)


def read_model(path: Path) -> ModelFile:
    """Read a model, and work it out again from its noisy sums; raises InputError naming the file.

    Nothing in the file is run, and nothing that follows from the sums is believed, nor what they
    are said to cost.
    """
    file, loss = read_with_loss(path)
    if not loss.holds:
        raise InputError(
            f"{path}: costs more than it says: {loss.broken[-1]}; do not use it, and ask who made "
            "it (clusterdp verify --loss says more)"
        )
    return file


def read_with_loss(path: Path) -> tuple[ModelFile, Loss]:
    """Read a model whatever it costs, and what it costs."""
    place = str(path)
    text = document_text(path, _LARGEST, "an effect model is a JSON document")
    document = from_text(text, place)
    model = _fitted_again(document, place)
    if not _agrees(document.fitted, json.loads(json.dumps(fitted(model)))):
        raise InputError(
            f"{place}: altered by hand, or fitted otherwise than this version of clusterdp does: "
            "what it says of the model does not follow from its sums. It says that it was made "
            f"by version {document.head.package_version}; get the file again, or read it with that"
        )
    loss = model_loss(document, len(model.coefficients), model.clip, model.site_clips, path)
    return ModelFile(document.head, model), loss


def _fitted_again(document: ModelDocument, place: str) -> EffectModel:
    found = sound_model(document.head.learner, document.design, document.n_rows, document.sums)
    if found is None:
        raise InputError(f"{place}: its sums are not those of a model with this declaration")
    return found


def sound_model(
    learner: Learner, design: EffectDesign, n_rows: int, sums: Sequence[NoisySums]
) -> EffectModel | None:
    """The model of sums that others made; None where they give none that is finite."""
    try:
        with np.errstate(all="ignore"):
            model = fit_learner(learner, design, n_rows, tuple(sums))
    except (ValueError, ArithmeticError, LookupError, np.linalg.LinAlgError):
        return None
    is_finite = np.isfinite(model.coefficients).all() and np.isfinite(model.covariance).all()
    return model if is_finite else None


def _agrees(given: Any, found: Any, greatest: float = 0.0) -> bool:
    """Whether what a file states is what was worked out; ``greatest``: of the numbers beside it."""
    if isinstance(found, dict):
        return (
            isinstance(given, dict)
            and given.keys() == found.keys()
            and all(
                _agrees(given[key], one, _greatest(one) if key in _OF_ONE_UNIT else greatest)
                for key, one in found.items()
            )
        )
    if isinstance(found, list):
        beside = max(greatest, _greatest(found))
        return (
            isinstance(given, list)
            and len(given) == len(found)
            and all(_agrees(one, two, beside) for one, two in zip(given, found, strict=True))
        )
    if type(found) is not float or type(given) not in (int, float):
        return type(given) is type(found) and bool(given == found)
    try:
        return bool(abs(given - found) <= _TOLERANCE * max(greatest, abs(found)))
    except OverflowError:
        return False


_OF_ONE_UNIT = frozenset({"ate", "subgroups", "importance"})


def _greatest(found: Any) -> float:
    if isinstance(found, dict | list):
        inner = found.values() if isinstance(found, dict) else found
        return max(map(_greatest, inner), default=0.0)
    return abs(found) if type(found) is float else 0.0


def fitted(model: EffectModel) -> dict[str, Any]:
    """Return what follows from the sums, as the file has it for readers without this program."""
    known, of_rows = model.nuisance, dict[str, Any]()
    if known is not None:  # else that is in the stages of its learner
        of_rows = {
            "outcome_coefficients": plain(known.outcome_coefficients),
            "propensity_coefficients": plain(known.propensity_coefficients),
            "residual_std": known.residual_std,
            "clip": dict(model.site_clips) or known.clip,
        }
    return {
        "degree": model.degree,
        "n_complete": model.base.n_complete,
        "basis": list(_basis(model)),
        "coefficients": plain(model.coefficients),
        "covariance": plain(model.covariance),
        **of_rows,
        **effects_json(model.ate, model.subgroups, model.importance),
        "no_intervals": model.no_intervals,
        "curves": plain(model.curves),
        "queries": [
            {"name": one.name, "rho": one.rho, "noise_std": one.noise_std, "n": len(one.steps)}
            for one in model.sums
        ],
        "warnings": list(model.warnings),
    }


def _basis(model: EffectModel) -> Iterator[dict[str, Any]]:
    """The functions of each feature: polynomials of t = (x − mean)/spread, or contrasts."""
    for feature, terms in zip(model.design.features, model.base.basis.terms, strict=True):
        if isinstance(terms, NumberTerms):
            yield {
                "feature": feature.name,
                "mean": terms.mean,
                "spread": terms.spread,
                "polynomials": terms.polynomials.tolist(),
            }
        else:
            yield {"feature": feature.name, "contrasts": terms.contrasts.tolist()}
