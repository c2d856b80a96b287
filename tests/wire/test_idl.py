"""The generated code is what the IDL says, and nothing that was released ever changes."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from pinlater.domain.errors import ErrorCode
from pinlater.domain.job import JobState, Outcome, UniqueScope
from pinlater.server.features.all import METHODS
from pinlater.wire.generated import structs
from pinlater.wire.generated.structs import SPECS
from pinlater.wire.methods import METHODS_BY_NAME
from pinlater.wire.names import our_class
from scripts import idl
from tests.compiled import PinLater, constants
from tests.compiled import ttypes as types


@pytest.fixture
def compiler() -> str:
    found = idl.compiler()
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("no thrift compiler, and CI must have one")
        pytest.skip("no thrift compiler here")
    return found


@pytest.fixture(scope="module")
def released() -> dict[str, Any]:
    record: dict[str, Any] = json.loads(idl.RECORD.read_text())
    return record


def test_the_committed_code_is_what_the_compiler_makes_of_the_idl(compiler: str) -> None:
    assert idl.differences() == []


def test_released_ids_and_types_never_change(compiler: str, released: dict[str, Any]) -> None:
    assert idl.broken_promises(released, idl.ids_of(idl.describe())) == []


@pytest.mark.parametrize("struct", SPECS, ids=lambda struct: str(struct.__name__))
def test_a_field_that_was_not_sent_shows_its_default(struct: Any) -> None:
    """But attempts: the queue's default holds where a producer leaves them out."""
    name = struct.__name__
    module = PinLater if name.endswith("_args") else types
    by_compiler = next(value for word, value in vars(module).items() if our_class(word) == name)
    defaults = {entry[2]: entry[4] for entry in filter(None, by_compiler.thrift_spec)}
    for _, _, ours, _, word in filter(None, SPECS[struct]):
        expected = None if (name, word) in idl.ABSENT_IS_NONE else defaults[word]
        assert getattr(struct(), ours) == expected, word


def test_changes_of_what_was_released_are_seen() -> None:
    was = {"types": {"T": {"1": "required string a", "2": "optional i32 b"}}}
    now = {"types": {"T": {"1": "required string renamed", "3": "optional i32 b"}}, "enums": {}}
    assert idl.broken_promises(was, now) == [
        "/types/T/1 was 'required string a', is 'required string renamed'",
        "/types/T/2 is gone",
    ]


# Words that a name in the generated code can't be in one of Java, Scala, Kotlin, C#, C++, Rust, Dart, JavaScript, Python.
RESERVED = """
    abstract and as assert async auto await base become bool boolean break byte case catch char checked class const continue
    crate debugger decimal def default del delegate delete do double elif else enum event except explicit export extends extern
    false final finally fixed float fn for foreach from fun function global go goto if impl implements implicit import in inline
    instanceof int interface internal is lambda lazy let lock long loop match mod module move mut namespace native new nonlocal
    not null object operator or out override package params pass private protected public pub raise readonly ref register return
    sealed self short signed sizeof static strictfp string struct super switch synchronized template this throw throws trait
    transient true try type typeof uint ulong union unsafe unsigned unwrap use using val var virtual void volatile when where
    while with yield"""


def test_no_field_or_argument_is_a_reserved_word_of_a_language_that_generates_code(released: dict[str, Any]) -> None:
    """Java's compiler refuses a field named `final`; the names are for every language, and can't change later."""
    fields = [text for spec in released["types"].values() for text in spec.values()]
    arguments = [text for method in released["methods"].values() for text in method["arguments"].values()]
    names = {text.split(" = ")[0].split()[-1] for text in fields + arguments}
    assert names & set(RESERVED.split()) == set()


# The original's types, from the contract. Additions have ids of 100 and more and are in the record only.
CONTRACT: dict[str, dict[str, str]] = {
    "PinLaterJob": {
        "1": "required binary body",
        "2": "optional i8 priority = 1",
        "3": "optional i64 runAfterTimestampMillis",
        "4": "optional i32 numAttemptsAllowed = 2",
        "5": 'optional string customStatus = ""',
    },
    "PinLaterEnqueueRequest": {"1": "required string queueName", "2": "required list<PinLaterJob> jobs"},
    "PinLaterEnqueueResponse": {"1": "required list<string> jobDescriptors"},
    "PinLaterJobAckInfo": {
        "1": "required string jobDescriptor",
        "2": 'optional string appendCustomStatus = ""',
        "3": "optional i64 retryDelayMillis = 0",
    },
    "PinLaterJobAckRequest": {
        "1": "required string queueName",
        "2": "optional list<PinLaterJobAckInfo> jobsSucceeded",
        "3": "optional list<PinLaterJobAckInfo> jobsFailed",
    },
    "PinLaterDequeueRequest": {
        "1": "required string queueName",
        "2": "required i32 limit",
        "3": "optional PinLaterJobAckRequest jobAckRequest",
        "4": "optional bool dryRun = 0",
        "5": "optional double coverage = 1",
    },
    "PinLaterDequeueMetadata": {"1": "optional i32 attemptsAllowed", "2": "optional i32 attemptsRemaining"},
    "PinLaterDequeueResponse": {
        "1": "optional map<string,binary> jobs",
        "2": "optional map<string,PinLaterDequeueMetadata> jobMetadata",
    },
    "PinLaterCheckpointJobRequest": {
        "1": "required string jobDescriptor",
        "2": "optional binary newBody",
        "3": "optional bool moveToPending = 0",
        "4": "optional i64 runAfterTimestampMillis",
        "5": "optional i32 numOfAttemptsAllowed",
        "6": "optional string prependCustomStatus",
    },
    "PinLaterCheckpointJobsRequest": {
        "1": "required string queueName",
        "2": "required list<PinLaterCheckpointJobRequest> requests",
    },
    "PinLaterLookupJobRequest": {"1": "required list<string> jobDescriptors", "2": "optional bool includeBody = 0"},
    "PinLaterJobInfo": {
        "1": "required string jobDescriptor",
        "2": "required i32 jobState",
        "10": "required i32 attemptsAllowed",
        "3": "required i32 attemptsRemaining",
        "4": "required string customStatus",
        "5": "required i64 createdAtTimestampMillis",
        "6": "optional i64 runAfterTimestampMillis",
        "7": "optional i64 updatedAtTimestampMillis",
        "8": "optional string claimDescriptor",
        "9": "optional binary body",
    },
    "PinLaterGetJobCountRequest": {
        "1": "required string queueName",
        "2": "required i32 jobState",
        "3": "optional i8 priority",
        "4": "optional bool countFutureJobs = 0",
        "5": "optional string bodyRegexToMatch",
    },
    "PinLaterScanJobsRequest": {
        "1": "required string queueName",
        "2": "required i32 jobState",
        "3": "optional i8 priority",
        "4": "optional bool scanFutureJobs = 0",
        "5": 'optional string continuation = "0"',
        "6": "optional i32 limit = 100",
        "7": "optional string bodyRegexToMatch",
    },
    "PinLaterScanJobsResponse": {
        "1": "required list<PinLaterJobInfo> scannedJobs",
        "2": 'optional string continuation = "-1"',
    },
    "PinLaterRetryFailedJobsRequest": {
        "1": "required string queueName",
        "2": "optional i8 priority = 1",
        "3": "optional i32 attemptsToAllow = 1",
        "4": "optional i64 runAfterTimestampMillis",
        "5": "optional i32 limit = 1000",
    },
    "PinLaterDeleteJobsRequest": {
        "1": "required string queueName",
        "2": "required i32 jobState",
        "3": "optional i8 priority = 1",
        "4": "optional string bodyRegexToMatch",
        "5": "optional i32 limit = 1000",
    },
    "PinLaterException": {"1": "required i32 errorCode", "2": "required string message"},
    "RequestContext": {"1": "required string source", "2": 'optional string requestId = ""'},
}
ORIGINAL_METHODS = {
    "createQueue": ({"2": "string name"}, "void"),
    "deleteQueue": ({"2": "string name", "3": "string password"}, "void"),
    "enqueueJobs": ({"2": "PinLaterEnqueueRequest request"}, "PinLaterEnqueueResponse"),
    "dequeueJobs": ({"2": "PinLaterDequeueRequest request"}, "PinLaterDequeueResponse"),
    "ackDequeuedJobs": ({"2": "PinLaterJobAckRequest request"}, "void"),
    "checkpointJobs": ({"2": "PinLaterCheckpointJobsRequest request"}, "void"),
    "lookupJobs": ({"2": "PinLaterLookupJobRequest request"}, "map<string,PinLaterJobInfo>"),
    "getJobCount": ({"2": "PinLaterGetJobCountRequest request"}, "i32"),
    "getQueueNames": ({}, "set<string>"),
    "scanJobs": ({"2": "PinLaterScanJobsRequest request"}, "PinLaterScanJobsResponse"),
    "retryFailedJobs": ({"2": "PinLaterRetryFailedJobsRequest request"}, "i32"),
    "deleteJobs": ({"2": "PinLaterDeleteJobsRequest request"}, "i32"),
}


@pytest.mark.parametrize("name", CONTRACT)
def test_the_original_s_types_are_as_the_contract_says(name: str, released: dict[str, Any]) -> None:
    recorded = released["types"][name]
    assert {number: text for number, text in recorded.items() if int(number) < 100} == CONTRACT[name]
    assert all(text.startswith("optional") for number, text in recorded.items() if int(number) >= 100)


@pytest.mark.parametrize("name", ORIGINAL_METHODS)
def test_the_original_s_methods_are_as_the_contract_says(name: str, released: dict[str, Any]) -> None:
    arguments, returns = ORIGINAL_METHODS[name]
    recorded = released["methods"][name]
    # The original calls it `context`, which code for TypeScript can't have. Names are not sent.
    assert recorded["arguments"] == {"1": "RequestContext requestContext", **arguments}
    assert recorded["returns"] == returns
    assert recorded["throws"] == {"1": "PinLaterException e"}


def test_enums_and_constants_are_the_domain_s(released: dict[str, Any]) -> None:
    for name, ours in {
        "ErrorCode": ErrorCode,
        "PinLaterJobState": JobState,
        "UniqueScope": UniqueScope,
        "Outcome": Outcome,
    }.items():
        assert released["enums"][name] == {str(int(member)): member.name for member in ours}
        assert all(getattr(getattr(types, name), member.name) == member for member in ours)
    assert (constants.CONTINUATION_START, constants.CONTINUATION_END) == ("0", "-1")


def test_the_record_and_the_generated_types_agree(released: dict[str, Any]) -> None:
    """Without the compiler, too, an id can't move unseen."""
    for name, fields in released["types"].items():
        spec = [entry for entry in SPECS[getattr(structs, our_class(name))] if entry is not None]
        assert {str(entry[0]): entry[4] for entry in spec} == {
            number: text.split(" = ")[0].split()[-1] for number, text in fields.items()
        }


def test_every_method_is_recorded_decoded_and_served(released: dict[str, Any]) -> None:
    assert released["methods"].keys() == METHODS_BY_NAME.keys() == METHODS.keys()


def test_no_field_uses_an_id_that_is_kept_for_later(released: dict[str, Any]) -> None:
    for name, kept in {"PinLaterJob": {"107"}}.items():
        assert kept.isdisjoint(released["types"][name])


def test_generated_clients_find_their_namespaces() -> None:
    lines = idl.IDL.read_text().splitlines()
    assert "namespace py thrift_libs" in lines
    assert "namespace java com.pinterest.pinlater.thrift" in lines
