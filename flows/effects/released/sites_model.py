"""One effect model of many sites: reports of their sums in, the model of all their people out.

A report is an effect model of one site, in the file that every model has, so that its price, its
sums and what follows from them are looked at as those of any other. Nobody pays for adding up.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np

from estimators.effects.models.queries import HISTOGRAMS, named
from flows.effects.released.loss import farthest
from flows.effects.released.model_file import (
    ModelFile,
    model_text,
    read_model,
    sound_model,
)
from schemas.effects.file import MOST_SITES
from schemas.effects.model import EffectDesign, SiteSums
from schemas.errors import ConfigError, InputError, in_short

_CHANCES = 8.0
"""Standard deviations of noise beyond which no sum is: one in 10¹⁴ is."""


def aggregate_models(reports: Sequence[Path], output: Path) -> ModelFile:
    """Add up the sums of one report a site, and write the effect model of all to a new ``output``.

    Raises InputError where a report cannot be read, costs more than it says, has sums that no rows
    give, or does not go with the first; ConfigError where there are none, or too many.
    """
    if not 1 <= len(reports) <= MOST_SITES:
        raise ConfigError("REPORT", f"{len(reports):,} are given; name one file of each site")
    files: dict[str, ModelFile] = {}
    for path in reports:
        file = read_model(path)
        site = file.head.site
        if site is None:
            raise InputError(
                f"{path}: {file.head.model_id} is no report of a site; its configuration has "
                "[moments], with the site's name and what all sites agreed on"
            )
        if site in files:
            raise InputError(
                f"{path}: site {site!r} stands in two reports; its units would count twice, so "
                "give one report of each site"
            )
        files[site] = file
        _check_beside(next(iter(files.values())), file, path)
        _check_sums(file, path)
    made = _together([files[site] for site in sorted(files)])
    text = model_text(made)
    try:
        with output.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError:
        exists = f"{output}: exists already, and is not overwritten; name another file"
        raise InputError(exists) from None
    except OSError as error:
        raise InputError(f"{output}: cannot be written ({error.strerror})") from None
    return made


def _check_beside(first: ModelFile, file: ModelFile, path: Path) -> None:
    """Refuse a report that is of something else than the first one."""
    beside, its = first.head.model_id, file.head
    for what, one, other in (
        ("experiment", first.head.experiment, its.experiment),
        ("period", first.head.period, its.period),
        ("control", first.head.control, its.control),
        ("treatment", first.head.treatment, its.treatment),
        ("neighbours", first.model.design.neighbours, file.model.design.neighbours),
    ):
        if one != other:
            raise InputError(
                f"{path}: its {what} is {in_short(other)!r}, and that of {beside} "
                f"{in_short(one)!r}; sums of different things do not add up"
            )
    digests = [
        each.model.design.agreed and each.model.design.agreed.digest for each in (first, file)
    ]
    if digests[0] != digests[1]:
        raise InputError(
            f"{path}: made by another agreement (digest {str(digests[1])[:12]}) than {beside} "
            f"({str(digests[0])[:12]}); have all sites take one file, and report again"
        )
    if _declared(first.model.design) != _declared(file.model.design):
        raise InputError(
            f"{path}: declares other things than {beside}, though its digest is the same; do not "
            "use it, and ask the site for another"
        )


def _declared(design: EffectDesign) -> EffectDesign:
    """What has to be alike: all but the price, which is a site's own."""
    return replace(design, epsilon=1.0, delta=0.1)


def _check_sums(file: ModelFile, path: Path) -> None:
    """Refuse sums that lie beyond what the rows of a site and its noise can give."""
    model = file.model
    for each in model.sums:
        clip = 2.0 if model.clip is None else model.clip
        most = model.n_rows * farthest(model.design, each.name, len(model.coefficients), clip)
        chance = each.noise_std * (np.sqrt(len(each.steps)) + _CHANCES) + each.step * len(
            each.steps
        )
        least = -_CHANCES * each.noise_std - each.step
        if float(np.linalg.norm(each.values)) > most + chance:
            problem = f"are greater than those of {model.n_rows:,} rows can be"
        elif each.name == HISTOGRAMS and each.values.min() < least:
            problem = "are counts below 0, by more than noise makes"
        else:
            continue
        raise InputError(
            f"{path}: its sums {each.name!r} {problem}; do not use it, and ask the site for another"
        )


def _together(files: Sequence[ModelFile]) -> ModelFile:
    """Return the model of all sites' people, by the sums of each."""
    first, designs = files[0], [file.model.design for file in files]
    agreed = first.model.design.agreed
    sites = tuple(
        SiteSums(str(file.head.site), file.head.revision, file.model.n_rows, one.epsilon, one.delta)
        for file, one in zip(files, designs, strict=True)
    )
    design = replace(
        first.model.design,
        epsilon=max(one.epsilon for one in designs),
        delta=max(one.delta for one in designs),
        agreed=agreed and replace(agreed, sites=sites),
    )
    sums = tuple(
        replace(each, name=named(one.site, each.name))
        for one, file in zip(sites, files, strict=True)
        for each in file.model.sums
    )
    head = replace(
        first.head,
        revision=1,
        created_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        package_version=version("clusterdp"),
        site=None,
    )
    n_rows = sum(one.n_rows for one in sites)
    model = sound_model("moments", design, n_rows, sums)
    if model is None:
        raise InputError(
            "REPORT: the sums of these sites give no model together, as the steps or the noise of "
            "one are far from those of the others; leave out one after the other to see which, and "
            "ask that site for another"
        )
    return ModelFile(head, model)
