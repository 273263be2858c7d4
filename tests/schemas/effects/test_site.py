"""Reports on their way from site to server: sound, unchanged, of one version, and fit together."""

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from flows.cli.effects.aggregate import aggregate_text
from flows.effects.released.site_aggregates import combine
from flows.effects.released.site_report import read_report, read_reports, write_report
from schemas.effects.report_frame import judge_report
from schemas.effects.site import SiteReport, from_text, to_text
from schemas.errors import ConfigError, InputError
from schemas.json_text import checksum
from tests.site_reports import a_report

Fields = dict[str, Any]


def saved(folder: Path, report: SiteReport, name: str | None = None) -> Path:
    path = folder / (name or f"{report.report_id}.json")
    write_report(report, path)
    return path


def changed(report: SiteReport, change: Callable[[Fields], object], *, sign: bool) -> str:
    """The text of a report after a change by hand; ``sign``: with a checksum that fits."""
    document = json.loads(to_text(report))
    change(document)
    if sign:
        document.pop("checksum", None)
        document["checksum"] = checksum(document)
    return json.dumps(document)


# one report


def test_a_report_comes_back_as_it_was(tmp_path: Path) -> None:
    for report in (
        a_report(),
        a_report(estimate=-1e-300, variance=0.1 + 0.2, n_units=2**53, control="π “x”", delta=1e-9),
    ):
        assert read_report(saved(tmp_path, report)) == report


@pytest.mark.parametrize("field", sorted(vars(a_report())))
@pytest.mark.parametrize("value", [None, True, [1], {}, "", 10**400])
def test_every_field_is_of_one_type(field: str, value: object) -> None:
    text = changed(a_report(), lambda one: one.update({field: value}), sign=True)
    with pytest.raises(InputError, match=f"x: ({field}: |not a site|a site report of schema v)"):
        from_text(text, "x")


@pytest.mark.parametrize(
    "field", [one for one, of in vars(a_report()).items() if type(of) is float]
)
@pytest.mark.parametrize("value", [1e151, -1e151])
def test_every_number_can_be_computed_with(field: str, value: float) -> None:
    text = changed(a_report(), lambda one: one.update({field: value}), sign=True)
    with pytest.raises(InputError, match=f"x: {field}: input should be"):
        from_text(text, "x")


@pytest.mark.parametrize("field", sorted(set(vars(a_report())) - {"kind", "schema_version"}))
def test_every_field_is_needed(field: str) -> None:
    text = changed(a_report(), lambda one: one.pop(field), sign=True)
    with pytest.raises(InputError, match=f"x: {field}: field required"):
        from_text(text, "x")


def test_spaces_and_order_are_no_change() -> None:
    document = json.loads(to_text(a_report()))
    other = json.dumps(dict(sorted(document.items())), indent=7)
    assert from_text(other, "x") == a_report()


@pytest.mark.parametrize("field", sorted(set(vars(a_report())) - {"kind", "schema_version"}))
def test_an_edit_of_any_field_is_noticed(field: str) -> None:
    def edit(document: Fields) -> None:
        value = document[field]
        document[field] = f"{value}x" if isinstance(value, str) else value + 1

    with pytest.raises(InputError, match=r"x\.json: altered by hand, or cut short"):
        from_text(changed(a_report(), edit, sign=False), "x.json")


@pytest.mark.parametrize(
    "edit",
    [
        lambda one: one.pop("checksum"),
        lambda one: one.update(checksum="sha256:0"),
        lambda one: one.update(note="fine"),
        lambda one: one.pop("epsilon"),
        lambda one: one.update(n_units=100.0),
    ],
)
def test_so_is_any_other(edit: Callable[[Fields], object]) -> None:
    with pytest.raises(InputError, match="altered by hand, or cut short"):
        from_text(changed(a_report(), edit, sign=False), "x")


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_schema_version_is_named(version: object) -> None:
    text = changed(a_report(), lambda one: one.update(schema_version=version), sign=True)
    with pytest.raises(InputError, match=r"x: a site report of schema version .*reads version 1"):
        from_text(text, "x")


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "{'a': 1}", '{"a": NaN}', "[" * 100_000])
def test_what_is_no_json_document_is_told(text: str) -> None:
    with pytest.raises(InputError, match="x: not a JSON document"):
        from_text(text, "x")


def test_another_document_is_told() -> None:
    with pytest.raises(InputError, match="x: not a site report"):
        from_text('{"estimate": 1}', "x")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"estimate": "0.5"}, "estimate: input should be a valid number"),
        ({"estimate": 1e200}, "estimate: input should be less than"),
        ({"estimate": True}, "estimate: input should be a valid number"),
        ({"estimate": 1}, "estimate: input should be a number with a point"),
        ({"n_units": 0}, "n_units: input should be greater than or equal to 1"),
        ({"n_units": 10**30}, "n_units: input should be less than"),
        ({"n_units": True}, "n_units: input should be a valid integer"),
        ({"epsilon": 0.0}, "epsilon: input should be greater than 0"),
        ({"delta": 1.0}, "delta: input should be less than 1"),
        ({"noise_variance": -1.0}, "noise_variance: input should be greater than"),
        ({"design": "guess"}, "design: input should be 'trial' or"),
        ({"created_at": "today"}, "created_at: string should match"),
        ({"site": "a/b"}, "site: string should match"),
        ({"outcome_bound": 2.0}, "outcome_bound is not outcome_high − outcome_low"),
        (
            {"outcome_high": -1.0, "outcome_bound": -1.0},
            "outcome_bound: input should be greater than 0",
        ),
        ({"treatment": "placebo"}, "the same arm"),
        ({"report_id": "other"}, "report_id is not 'stroke@north.once.r1'"),
        ({"more": 1}, "more: no such field"),
    ],
)
def test_an_unsound_report_is_refused_by_its_field_checksum_or_not(
    fields: Fields, says: str
) -> None:
    text = changed(a_report(), lambda one: one.update(fields), sign=True)
    with pytest.raises(InputError, match=f"x: .*{says}"):
        from_text(text, "x")


def test_an_unsound_report_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="variance: input should be a finite number"):
        saved(tmp_path, a_report(variance=float("nan")))
    assert list(tmp_path.iterdir()) == []


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    binary, large = tmp_path / "binary", tmp_path / "large"
    binary.write_bytes(b"\xff\xfe\x00")
    large.write_text(" " * 2_000_000)
    for path, says in (
        (tmp_path / "none", "no such file"),
        (tmp_path, "is a folder, not a file"),
        (binary, r"is not text in UTF-8 \(byte 1 is not\); .*a site report is a small JSON"),
        (large, "far too large"),
    ):
        with pytest.raises(InputError, match=f"{path}: .*{says}"):
            read_report(path)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (os.mkfifo, "is a pipe, not a file"),
        (lambda path: path.symlink_to("/dev/zero"), "is a device, not a file"),
        (lambda path: path.symlink_to(path), "Too many levels of symbolic links"),
        (lambda path: path.symlink_to("gone"), "a link of this name to nothing"),
    ],
)
def test_what_is_no_file_is_not_read(
    tmp_path: Path, make: Callable[[Path], object], says: str
) -> None:
    path = tmp_path / "north.json"
    make(path)
    with pytest.raises(InputError, match=rf"north\.json: .*{says}"):
        read_report(path)


@cache
def _sound_text() -> str:
    return to_text(a_report())


def spelt(**fields: str) -> str:
    """The text of a sound report with these fields spelt so, and a checksum that is none."""
    sound = _sound_text()
    for name, value in fields.items():
        before, line, after = re.split(rf'("{name}": [^\n]*?)(?=,?\n)', sound)
        assert line
        sound = f'{before}"{name}": {value}{after}'
    return sound


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (spelt(control='"\\ud800"'), "x: 'control' holds half a character, which is no text"),
        (spelt(experiment='"\\udfff"'), "holds half a character"),
        (spelt(checksum='"\\ud800"'), "holds half a character"),
        (
            spelt(control='{"a": ' * 400 + "1" + "}" * 400),
            "altered by hand, or cut short",
        ),
        (spelt(n_units="[1]"), "altered by hand, or cut short"),
        (spelt(n_units="9" * 5000), "not a JSON document"),
        (spelt(n_units="9" * 4000), "altered by hand, or cut short"),
        (spelt(schema_version="9" * 4000), "schema version a number with hundreds of digits"),
        (spelt(schema_version=f'"{"9" * 4000}"'), "schema version '9999"),
        (spelt(estimate="NaN"), "not a JSON document"),
        (spelt(estimate="-Infinity"), "not a JSON document"),
        (spelt(estimate="1e999"), "altered by hand, or cut short"),
        (spelt(estimate="null"), "altered by hand, or cut short"),
        (spelt(estimate='0.1, "estimate": 0.2'), "the field 'estimate' stands in it twice"),
        (spelt(control="[" * 100_000), "not a JSON document"),
    ],
)
def test_what_no_report_holds_is_told_in_few_words(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        from_text(text, "x")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"control": "\ud800"}, "holds half a character"),
        ({"\ud800": 1}, "holds half a character"),
        ({"n_units": 10**4000}, "n_units: input should be less than"),
        ({"estimate": 10**4000}, "estimate: input should be a finite number"),
        ({"x" * 9999: 1}, "x: xxx.*no such field"),
        ({"design": "d" * 9999}, "design: input should be 'trial' or"),
        ({"experiment": "e" * 9999}, "report_id is not 'eee"),
        (
            {"control": json.loads('{"a": ' * 400 + "1" + "}" * 400)},
            "x: the document: invalid JSON",
        ),
    ],
)
def test_a_checksum_that_fits_makes_it_no_better(fields: Fields, says: str) -> None:
    text = changed(a_report(), lambda one: one.update(fields), sign=True)
    with pytest.raises(InputError, match=says) as caught:
        from_text(text, "x")
    assert len(str(caught.value)) < 400


# several


def test_reports_that_fit_are_combined(tmp_path: Path) -> None:
    given = (a_report(), a_report("south", estimate=0.35, n_units=300))
    combined = combine(read_reports([saved(tmp_path, one) for one in given]))
    assert combined.reports == given
    assert combined.warnings == ()
    document = combined.as_json()
    json.dumps(document, allow_nan=False)
    methods = {one["method"]: one for one in document["aggregates"]}
    assert list(methods) == ["mvagg", "ivw", "all", "largest", "mean-of-sites"]
    assert all(
        set(one) >= {"method", "estimate", "variance", "sites_used"} for one in methods.values()
    )
    assert methods["all"]["estimate"] == pytest.approx(0.25 * 0.25 + 0.75 * 0.35)
    assert methods["ivw"]["estimate"] == pytest.approx(0.3)
    assert methods["largest"]["sites_used"] == ["south"]
    assert document["homogeneity"]["q"] == pytest.approx(0.1**2 / 0.02)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"site": "north", "period": "other"}, "site 'north' stands in two reports"),
        ({"experiment": "other"}, "one experiment at a time"),
        ({"outcome_high": 2.0, "outcome_bound": 2.0}, r"clipped to \[0, 2\].*to \[0, 1\]"),
        ({"control": "aspirin", "treatment": "placebo"}, "the other way round"),
        ({"estimate": 25.0, "variance": 1.0}, r"effect is 25, .*\[0, 1\] .* at most 2.518"),
        ({"estimate": -2.6}, "effect is 2.6"),
        ({"variance": 2.1}, "variance is 2.1, .* at most 2.004"),
    ],
)
def test_reports_that_do_not_fit_are_refused(tmp_path: Path, fields: Fields, says: str) -> None:
    first = saved(tmp_path, a_report())
    second = saved(tmp_path, a_report(**{"site": "south", **fields}), "second.json")
    with pytest.raises(InputError, match=says):
        read_reports([first, second])


def test_one_file_twice_is_one_site_twice(tmp_path: Path) -> None:
    path = saved(tmp_path, a_report())
    with pytest.raises(InputError, match="site 'north' stands in two reports"):
        read_reports([path, path])


def test_versions_are_not_mixed(tmp_path: Path) -> None:
    path = saved(tmp_path, a_report())
    other = tmp_path / "other.json"
    other.write_text(
        changed(a_report("south"), lambda one: one.update(schema_version=2), sign=True)
    )
    with pytest.raises(InputError, match=r"other\.json: .*version 2.*cannot be mixed"):
        read_reports([path, other])


def test_no_report_is_a_fault_of_the_command_line() -> None:
    with pytest.raises(ConfigError, match="REPORT"):
        read_reports([])


def test_what_is_not_alike_is_warned_of() -> None:
    combined = combine(
        (a_report(), a_report("south", period="later"), a_report("west", treatment="ASS"))
    )
    assert len(combined.warnings) == 2
    assert "different periods (later, once)" in combined.warnings[0]
    assert "different arms" in combined.warnings[1]


def test_a_negative_variance_is_raised_to_the_noise_and_told() -> None:
    combined = combine((a_report(variance=-0.5, noise_variance=0.004), a_report("south")))
    assert combined.variance.tolist() == [0.004, 0.01]
    (warning,) = combined.warnings
    assert "site 'north' reports a variance of -0.5" in warning
    site = combined.as_json()["sites"][0]
    assert (site["variance"], site["variance_reported"]) == (0.004, -0.5)
    assert "north" in aggregate_text(combined)


def test_sites_that_differ_are_warned_of() -> None:
    combined = combine((a_report(), a_report("south", estimate=0.9)))
    (warning,) = combined.warnings
    assert "do not look like having one effect" in warning
    document = combined.as_json()
    by_method = {one["method"]: one for one in document["aggregates"]}
    mean, first = by_method["mean-of-sites"], document["first"]
    assert (first["method"], first["interval_of"]) == ("all", "mean-of-sites")
    assert first["estimate"] == by_method["all"]["estimate"]
    assert (first["ci_lower"], first["ci_upper"]) == (mean["ci_lower"], mean["ci_upper"])
    assert mean["tau_ci_lower"] < mean["tau"] < mean["tau_ci_upper"]
    assert "(all); 95 % interval, of mean-of-sites" in aggregate_text(combined)
    alike = combine((a_report(), a_report("south", estimate=0.3)))
    assert (alike.warnings, alike.first.method) == ((), "mvagg")


@pytest.mark.parametrize(("variance", "first"), [(0.05, "all"), (0.09, "mvagg")])
def test_the_effect_of_all_comes_first_where_it_is_not_much_noisier(
    variance: float, first: str
) -> None:
    """Sites of one size: .01 of mvagg, one of them, against a quarter of .01 and the other's."""
    noisy = a_report("south", estimate=2.0, variance=variance)
    combined = combine((a_report(), noisy))
    assert combined.homogeneity is not None
    assert combined.homogeneity.doubtful
    assert (combined.first.method, combined.beside.method) == (first, "mean-of-sites")


@pytest.mark.parametrize("others", [(), (0.3,), (0.9, 0.2)])
def test_what_is_declared_chooses_the_point_and_never_the_interval(others: list[float]) -> None:
    more = (a_report(f"s{one}", estimate=one, epsilon=0.5, n_units=400) for one in others)
    reports = (a_report(), *more)
    as_ever = combine(reports).as_json()
    for declared, method in (("places", "all"), ("dealt", "ivw-pooled")):
        found = combine(reports, declared)
        document = found.as_json()
        first = document["first"]
        assert (first["declared"], first["method"]) == (declared, method)
        for end in ("interval_of", "ci_lower", "ci_upper"):
            assert first[end] == as_ever["first"][end]
        assert document["aggregates"][declared == "dealt" :] == as_ever["aggregates"]
        assert document["homogeneity"] == as_ever["homogeneity"]
        in_doubt = ["in doubt" in one for one in found.warnings]
        assert in_doubt == [declared == "dealt"] * len(as_ever["warnings"])
        assert f"({method}, declared: {declared}); 95 % interval, of" in aggregate_text(found)
    with pytest.raises(ConfigError, match="'mixed' is neither 'places' nor 'dealt'"):
        combine(reports, "mixed")


def test_people_see_sites_aggregates_and_the_test() -> None:
    text = aggregate_text(replace(combine((a_report(), a_report("south"))), plot=Path("/p.svg")))
    for word in ("north", "south", "mvagg", "ivw", "all", "largest", "Cochran", "plot: /p.svg"):
        assert word in text
    assert "is not tested" in aggregate_text(combine((a_report(),)))


def test_of_very_many_sites_people_see_the_first() -> None:
    text = aggregate_text(combine(tuple(a_report(f"s{n}") for n in range(70))))
    assert "… and 20 more" in text


# the model of what leaves


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"estimate": float("nan")}, "estimate: maximum"),
        ({"epsilon": 0.0}, "epsilon: exclusiveMinimum"),
        ({"delta": 1.0}, "delta: exclusiveMaximum"),
        ({"n_units": 0}, "n_units: minimum"),
        ({"period": "a/b"}, "period: pattern"),
        ({"design": "other"}, "design: enum"),
        ({"estimator": ""}, "estimator: is not empty"),
        ({"outcome_bound": 987.5}, "outcome_bound: outcome_high"),
        ({"revision": 9}, "report_id: of its other fields"),
        ({"treatment": a_report().control}, "treatment: is not control"),
    ],
)
def test_a_report_that_breaks_its_model_is_refused(change: Fields, rule: str) -> None:
    judge_report(a_report())
    with pytest.raises(InputError) as refused:
        judge_report(replace(a_report(), **change))
    assert str(refused.value).startswith("a site report: what is to be published breaks its schema")
    assert rule in str(refused.value)
    assert "987" not in str(refused.value)


def test_what_leaves_is_held_to_its_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[SiteReport] = []
    monkeypatch.setattr("schemas.effects.report_frame.judge_report", judged.append)
    saved(tmp_path, a_report())
    assert judged == [a_report()]
