"""What a release by a mechanism is said to cost, for tests that compare it with what it does."""

from privatizers.accounting.accountant import pure_epsilon
from privatizers.mechanisms.mechanism import Mechanism
from privatizers.mechanisms.parameters import event_of


def guarantee(mechanism: Mechanism) -> float:
    """Return the pure ε of everything that one release publishes, rounded up to a double.

    ε_stat + ε_squares + ln(1 + (1 − λ)/(λ γ)): `cluster_dp.md` has the proof, and `noisy_squares`
    that of the second term. Over disjoint strata it is the maximum, hence the same for one stratum
    and for a million.
    """
    return pure_epsilon(event_of(mechanism.parameters))
