"""The bill of materials: what a run is made of, as CycloneDX writes it.

It is made of ``requirements.lock``, of what is installed here and of the explorer's engine, and is
the same bytes whenever it is made of the same. Its hashes are those of every file that the lock
lets in, of which an installation takes one a package.
"""

import platform
import tomllib
import uuid
from base64 import b64decode
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import Distribution
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from jsonschema.validators import Draft7Validator
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from rfc3986_validator import validate_rfc3986

from deploy.supply.engine import PACKAGES, Npm
from deploy.supply.licences import Licence
from deploy.supply.locked import RUN, Locked, SupplyError, here

_VERSION = SchemaVersion.V1_6


def is_reference(address: object) -> bool:
    """Whether a text is a reference by RFC 3986: all of them are by RFC 3987, too."""
    return not isinstance(address, str) or bool(validate_rfc3986(address, "URI_reference"))


Draft7Validator.FORMAT_CHECKER.checks("iri-reference")(is_reference)


def bill(
    root: Path,
    packages: Mapping[str, Locked],
    about: Mapping[str, Distribution],
    licences: Mapping[str, Licence],
    made_at: int,
) -> str:
    """The bill of materials of this checkout as JSON.

    Args:
        root: of the checkout.
        packages: what is installed for a run, by name.
        about: the metadata of what is installed here, by name.
        licences: of each of ``packages``.
        made_at: seconds since 1970, those of the commit.

    Raises:
        SupplyError: what comes out does not follow the schema of CycloneDX.
    """
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    parts = {name: _component(one, licences[name]) for name, one in packages.items()}
    whole = Component(
        name=project["name"],
        version=project["version"],
        type=ComponentType.APPLICATION,
        bom_ref=project["name"],
        licenses=[LicenseExpression(project["license"])],
        purl=PackageURL("pypi", None, project["name"], project["version"]),
    )
    mark = sha256((root / RUN).read_bytes() + (root / "pyproject.toml").read_bytes()).hexdigest()
    of_npm = [*map(_of_npm, PACKAGES)]
    made = Bom(
        serial_number=uuid.uuid5(uuid.NAMESPACE_OID, f"{mark} {platform.python_version()}"),
        components=[*parts.values(), *of_npm],
    )
    made.metadata.timestamp = datetime.fromtimestamp(made_at, UTC)
    made.metadata.component = whole
    made.metadata.properties.add(Property(name="python", value=platform.python_version()))
    made.metadata.properties.add(Property(name="platform", value=platform.machine()))
    direct = [*project["dependencies"], *project["optional-dependencies"]["demo"]]
    made.register_dependency(
        whole, [*(parts[name] for name in _wanted(direct, "", parts)), *of_npm]
    )
    for name, part in parts.items():
        # Which extras of it are asked for does not matter: what is not locked is left out.
        extras = ["", *(about[name].metadata.get_all("Provides-Extra") or [])]
        needs = {
            one for extra in extras for one in _wanted(about[name].requires or [], extra, parts)
        }
        made.register_dependency(part, [parts[one] for one in sorted(needs - {name})])
    text = str(make_outputter(made, OutputFormat.JSON, _VERSION).output_as_string(indent=2))
    fault = JsonStrictValidator(_VERSION).validate_str(text)
    if fault is not None:
        raise SupplyError(f"the bill of materials does not follow its schema: {fault}")
    return f"{text}\n"


def _component(package: Locked, licence: Licence) -> Component:
    known = licence.expression
    return Component(
        name=package.name,
        version=package.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"{package.name}=={package.version}",
        licenses=[LicenseExpression(known)] if known else [],
        purl=PackageURL("pypi", None, package.name, package.version),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=each) for each in package.hashes],
    )


def _of_npm(package: Npm) -> Component:
    scope, _, name = package.name.rpartition("/")
    digest = b64decode(package.digest).hex()
    return Component(
        name=name,
        group=scope or None,
        version=package.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"{package.name}=={package.version}",
        licenses=[LicenseExpression(package.licence)],
        purl=PackageURL("npm", scope or None, name, package.version),
        hashes=[HashType(alg=HashAlgorithm.SHA_512, content=digest)],
    )


def _wanted(lines: list[str], extra: str, known: Mapping[str, object]) -> Iterator[str]:
    """Which of the known packages such requirements name, here, for an extra."""
    environment = {**here(), "extra": extra}
    for line in lines:
        wanted = Requirement(line)
        name = canonicalize_name(wanted.name)
        if name in known and (wanted.marker is None or wanted.marker.evaluate(environment)):
            yield name
