"""Try cases by their numbers, as a program that tells of each on standard output, in JSON.

A case that kills this process, or never ends, is noticed by its reader, :mod:`tests.fuzz.soak`.
"""

import json
import os
import resource
import sys
from dataclasses import asdict

from tests.fuzz.attempt import Problem, problems
from tests.fuzz.case import Case
from tests.fuzz.kinds import case

CHUNK = 100
"""Cases after which progress is kept."""

LIMIT = 60.0
"""A command counts as stuck after twice these seconds of processor time, or six times in all."""

MEMORY = 12 << 30
"""Bytes of addresses that this process may use: a case must not take the machine's memory."""

_AS_PROGRAM = 250  # every so many cases one is run in processes of its own


def found_in(number: int, made: Case) -> list[Problem]:
    """What is wrong with the case of this number."""
    return problems(made, as_program=number % _AS_PROGRAM == _AS_PROGRAM - 1, limit=LIMIT)


def main(kind: str, first: int, chunks: list[int]) -> None:
    """Try the cases of ``chunks`` in turn, those of a number below ``first`` left out."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")

    def tell(**what: object) -> None:
        print(json.dumps(what), file=out, flush=True)

    for chunk in chunks:
        for number in range(max(first, chunk * CHUNK), (chunk + 1) * CHUNK):
            tell(begun=number)
            made = case(kind, number)
            found = [asdict(one) | {"signature": one.signature} for one in found_in(number, made)]
            tell(number=number, found=found, hits=made.hits)
        tell(done=chunk)
    out.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), [int(chunk) for chunk in sys.argv[3:]])
