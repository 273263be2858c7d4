"""The loss of several outcomes in one release, for neighbours that differ in all of one unit's.

Each outcome is drawn by itself (`several_outcomes.md` beside the mechanisms), so what is published
of all of them has the product of their laws: masses are multiplied and losses added. The exact part
lists this product for small instances. It finds a claim that leaves an outcome's price out. Whether
outcomes are in fact drawn by themselves, it takes for granted: the laws below, of draws and noises
of two outcomes of a release, find shared coins and shared noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from privatizers.audit.audit import ARITHMETIC, SLACK, AnyMechanism, enumerations
from privatizers.audit.checks import Check, Events
from privatizers.audit.count_lattice import sum_groups
from privatizers.audit.enumeration import Enumeration, with_squares
from privatizers.audit.laws import AnyResponses
from privatizers.mechanisms.paired_optimal_dp import PairedOptimalDP

JOINT = "the exact loss of small releases, of all outcomes together, is within the claim"
_MOST = 4_000  # outcomes of a product that are listed; alike ones are merged before
_SAME = 12  # decimals of a loss by which outcomes are told apart


@dataclass(frozen=True)
class JointLoss:
    """What small releases of all outcomes together lose."""

    claimed_epsilon: float
    delta: float
    epsilon: float
    """The greatest exact ε found at δ; the claim itself where at most 10⁻¹⁰ from it."""

    @property
    def check(self) -> Check:
        """Whether it is within the claim."""
        evidence = f"epsilon {self.epsilon:.6g} where all of a unit's outcomes change"
        return Check(JOINT, self.epsilon <= self.claimed_epsilon, evidence)


def joint_loss(
    mechanisms: Sequence[AnyMechanism],
    claimed_epsilon: float,
    delta: float = 0.0,
) -> JointLoss:
    """List small releases of outcomes with these mechanisms, drawn by themselves.

    Of each outcome the instance with the greatest loss is taken. ``claimed_epsilon`` is of all
    together. Of two outcomes that are drawn together each instance has the output of both, which
    is counted once.
    """
    worst = [_worst(mechanism) for mechanism in mechanisms]
    shared = shared_loss(mechanisms)
    if shared > 0 and delta > 0:
        raise ValueError("outcomes that are drawn together are released with delta = 0")
    if delta == 0.0:
        epsilon = float(sum(listed.epsilon for listed in worst)) - shared
    else:
        whole = merged(worst[0])
        for listed in worst[1:]:
            whole = product(whole, merged(listed))
        epsilon = whole.epsilon_at(delta + SLACK)
    close = abs(epsilon - claimed_epsilon) <= ARITHMETIC * max(1.0, claimed_epsilon)
    return JointLoss(claimed_epsilon, delta, claimed_epsilon if close else epsilon)


def shared_loss(mechanisms: Sequence[AnyMechanism]) -> float:
    """Return the exact greatest loss of the outputs that two outcomes share; 0 without any."""
    tables = [one.table for one in mechanisms if isinstance(one, PairedOptimalDP)]
    return float(tables[0].sides[0].loss) if tables else 0.0


def _worst(mechanism: AnyMechanism) -> Enumeration:
    listed = [with_squares(mechanism.parameters, one) for one in enumerations(mechanism)]
    return max(listed, key=lambda one: one.epsilon)


def product(first: Enumeration, second: Enumeration) -> Enumeration:
    """Return the outcomes of two releases drawn independently; alike ones merged.

    Merging is post-processing, so the loss is never overstated by it.
    """
    both = replace(
        first,
        mass=np.outer(first.mass, second.mass).ravel(),
        loss=np.add.outer(first.loss, second.loss).ravel(),
        tail_mass=first.tail_mass + second.tail_mass,
    )
    return merged(both)


def merged(listed: Enumeration) -> Enumeration:
    """Return the same with outcomes of the same loss as one, and at most some thousands of them.

    Where there are more, neighbouring losses are merged: ln(ΣP/ΣQ) of theirs.
    """
    _, group = np.unique(np.round(listed.loss, _SAME), return_inverse=True)
    n_groups = int(group.max()) + 1
    if n_groups > _MOST:
        group = group * _MOST // n_groups
    mass = sum_groups(group, listed.mass)
    there = sum_groups(group, listed.mass * np.exp(-listed.loss))
    some = (mass > 0) & (there > 0)
    return replace(listed, mass=mass[some], loss=np.log(mass[some] / there[some]))


# laws of two outcomes


def response_pairs(first: AnyResponses, second: AnyResponses, whose: str) -> list[Events]:
    """Count how often the same unit's two outcomes are both kept, and both redrawn.

    Of tables: become outputs that tell of them, and others. They are independent. The units are
    the same, in the same order.
    """
    n = len(first.levels)
    if n == 0:
        return []
    both = float((first.keeping * second.keeping).sum())
    neither = float(((1.0 - first.keeping) * (1.0 - second.keeping)).sum())
    return [
        Events.one(f"{whose} are both kept", np.count_nonzero(first.kept & second.kept), both, n),
        Events.one(
            f"{whose} are both changed", np.count_nonzero(~first.kept & ~second.kept), neither, n
        ),
    ]
