"""Requests to a store: signed as the store's own library does, for who the environment says."""

import os
from pathlib import Path

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from flows.runtime.paths import Address, parse_address
from flows.runtime.reading import object_stores
from flows.runtime.reading.object_stores import size_of
from schemas.errors import InputError
from tests.support.odd_store import odd_store
from tests.support.stores import SECRET

NAMES = st.text(st.characters(exclude_categories=("C", "Z"), exclude_characters="/"), min_size=1)
HOSTS = ["http://127.0.0.1:9000", "https://store.example", "https://store.example/behind/it"]


@given(
    key=st.lists(NAMES.filter(lambda one: one not in (".", "..")), min_size=1, max_size=3),
    token=st.sampled_from(["", "a-token"]),
    endpoint=st.sampled_from(HOSTS),
    headers=st.sampled_from([{}, {"range": "bytes=0-99"}, {"if-none-match": "*"}]),
    method=st.sampled_from(["GET", "PUT"]),
    content=st.binary(max_size=9),
)
def test_a_request_is_signed_as_the_stores_own_library_signs_it(
    key: list[str],
    token: str,
    endpoint: str,
    headers: dict[str, str],
    method: str,
    content: bytes,
) -> None:
    os.environ.update(
        AWS_ACCESS_KEY_ID="who",
        AWS_SECRET_ACCESS_KEY=SECRET,
        AWS_SESSION_TOKEN=token,
        AWS_REGION="eu-central-2",
        AWS_ENDPOINT_URL=endpoint,
    )
    address = parse_address(f"s3://bucket/{'/'.join(key)}")
    place, told = object_stores._signed(method, address, headers, content)
    theirs = AWSRequest(method, place, headers=headers)
    theirs.context["timestamp"] = told["x-amz-date"]
    signer = S3SigV4Auth(Credentials("who", SECRET, token or None), "s3", "eu-central-2")
    signer._modify_request_before_signing(theirs)
    for name in ("content-length", "content-type"):
        if name in told:
            theirs.headers[name] = told[name]
    del theirs.headers["X-Amz-Content-SHA256"]  # of https it signs no content
    theirs.headers["X-Amz-Content-SHA256"] = told["x-amz-content-sha256"]
    asked = signer.canonical_request(theirs)
    signature = signer.signature(signer.string_to_sign(theirs, asked), theirs)
    assert told["authorization"].endswith(f"Signature={signature}")


@pytest.mark.parametrize(
    "written",
    [
        "s3://",
        "s3://bucket",
        "s3://bucket/",
        "s3:///name",
        "s3://bucket/folder/",
        "s3://bucket//name",
        "s3://bucket/../name",
        "s3://bucket/a/./b",
        "s3://Bucket/name",
        "s3://who:secret@bucket/name",
        "s3://bucket/na\nme",
        "gs://bucket/name",
        "az://bucket/name",
        "http://127.0.0.1/name",
        "file:///etc/passwd",
    ],
)
def test_what_is_no_address_of_an_object_is_refused(written: str) -> None:
    with pytest.raises(InputError, match="is nothing that can be read"):
        parse_address(written)


@pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_who_asks_is_looked_for_nowhere_but_in_the_environment(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    profile = tmp_path / "credentials"
    profile.write_text(f"[default]\naws_access_key_id = who\naws_secret_access_key = {SECRET}\n")
    with odd_store() as store:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "who")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profile))
        for other in ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_EC2_METADATA_SERVICE_ENDPOINT"):
            monkeypatch.setenv(other, store.endpoint)
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.endpoint)
        monkeypatch.delenv(name)
        with pytest.raises(InputError, match=f"does not say {name}, and nothing else is asked"):
            size_of(Address("bucket", "name"))
        assert store.asked == []


def test_a_region_or_an_endpoint_has_to_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "who")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InputError, match="does not say AWS_REGION,"):
        size_of(Address("bucket", "name"))
    monkeypatch.setenv("AWS_REGION", "eu-central-2")
    place, _ = object_stores._signed("GET", Address("bucket", "name"), {})
    assert place == "https://s3.eu-central-2.amazonaws.com/bucket/name"


@pytest.mark.parametrize(
    "endpoint", ["store", "ftp://store", "http://who:secret@store", "http://store?x", "http://a b"]
)
def test_an_endpoint_that_is_none_is_refused(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "who")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    with pytest.raises(InputError, match="names is no address") as caught:
        size_of(Address("bucket", "name"))
    assert endpoint not in str(caught.value)
