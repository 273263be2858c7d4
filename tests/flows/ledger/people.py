"""People with accounts: what tests of the ledger charge for, and what each has paid by hand."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from flows.config.model.declared import Terms
from flows.ledger.database import ChargeGrant, Ledger
from flows.ledger.members import Accounts, Members
from flows.ledger.rules import ChargeRequest, Fingerprint
from privatizers.accounting.budget import Budget, total
from privatizers.noise.keyed_digests import keyed_digests

HERE = Path("/somewhere/releases/trial")
ARMS = ("none", "mail")
NO_LIMIT = Budget(float("inf"), float("inf"))
SECRET = b"s" * 32


def terms(
    experiment: str = "trial",
    cost: Budget | float = 2.0,
    limit: Budget | float = NO_LIMIT,
    *,
    once: bool = False,
    spares: bool = False,
) -> Terms:
    """Terms of population ``people``, where each unit pays for the releases it is in."""
    price = cost if isinstance(cost, Budget) else Budget(cost)
    most = limit if isinstance(limit, Budget) else Budget(limit, float("inf"))
    return Terms(experiment, "people", price, most, by_unit=True, once=once, spares=spares)


def members(
    people: Iterable[int],
    experiment: str = "trial",
    *,
    arms: Iterable[int] | None = None,
    secret: bytes = SECRET,
) -> Members:
    """These people, every other one of them with mail where ``arms`` do not say."""
    names = [str(one).encode() for one in people]
    ends = np.cumsum([0, *map(len, names)])
    digests = keyed_digests(secret, np.frombuffer(b"".join(names), np.uint8), ends)
    given = np.arange(len(names)) % 2 if arms is None else np.array(list(arms))
    fingerprint = secret.hex()[:32]
    others = {fingerprint: (digests,)}  # ledgers of before had registers of the same digests
    arms_of = given.astype(np.uint16)
    return Members(digests, arms_of, experiment, ARMS, fingerprint, others=others)


def asked(
    of: Terms,
    period: str,
    accounts: Accounts | None,
    *,
    draft: Path | None = None,
    revise: bool = False,
) -> ChargeRequest:
    """What a run asks for, from rows that no other has."""
    made_from = Fingerprint(f"k:{of.experiment} {period}", f"k:units of {period}", "k:s")
    return ChargeRequest(of, period, made_from, HERE, draft, revise, accounts=accounts)


def reserve(
    ledger: Ledger, of: Terms, period: str, people: Members, *, revise: bool = False
) -> ChargeGrant:
    """Charge for a release of these people, as a run does."""
    with ledger.turn(of.population):
        ledger.settle()
        accounts = ledger.accounts(of, people, period)
        return ledger.reserve(asked(of, period, accounts, revise=revise))


def publish(
    ledger: Ledger, of: Terms, period: str, people: Members, *, revise: bool = False
) -> ChargeGrant:
    """Charge for a release of these people, and note that it is public."""
    grant = reserve(ledger, of, period, people, revise=revise)
    assert grant.charge is not None
    ledger.begin_publishing(grant.charge)
    ledger.publish(grant.charge)
    ledger.sum_up(of.population, people.mark)
    return grant


@dataclass
class ByHand:
    """What everybody has paid, kept by name."""

    paid: dict[int, list[Budget]] = field(default_factory=lambda: defaultdict(list))

    def charge(self, people: Iterable[int], cost: Budget) -> None:
        for one in people:
            self.paid[one].append(cost)

    def amounts(self) -> Counter[Budget]:
        """How many have paid how much."""
        return Counter(total(each) for each in self.paid.values())

    def most(self) -> Budget:
        sums = [total(each) for each in self.paid.values()]
        return Budget(max(s.epsilon for s in sums), max(s.delta for s in sums))
