"""Whether two outcomes are drawn together: what is asked for, what it needs, and the designs.

One table at what both outcomes' parts of ε leave for units takes the place of two tables at a part
each. It is decided from the configuration and public sizes alone.
"""

import math
from collections.abc import Sequence

from flows.config.experiment import AnyDesign, Config
from privatizers.mechanisms.paired_optimal_dp import drawn_together, own_price, price_together
from privatizers.optimal_response.pairs import MOST_PAIRS
from privatizers.planning.optimal_design import OptimalDesign
from schemas.errors import ConfigError

_TWO = 2
_HALF = math.isqrt(MOST_PAIRS)


def check_joint(config: Config) -> None:
    """Raise ConfigError where outcomes are to be drawn together that cannot be."""
    if config.privacy.joint == "no":
        return
    problem = _problem(config)
    if problem is not None and config.privacy.joint == "yes":
        raise ConfigError("privacy.joint", problem)


def most_levels(config: Config) -> tuple[int | None, ...]:
    """Return the points that the grid of each outcome may have; None for as many as it likes.

    Grids that are planned share what a table of pairs can be solved for.
    """
    outcomes = config.named_outcomes
    if config.privacy.joint != "yes":
        return (None,) * len(outcomes)
    sizes = [None if one.levels == "auto" else len(one.support) for one in outcomes]
    return tuple(_HALF if other is None else MOST_PAIRS // other for other in reversed(sizes))


def joint_designs(config: Config, designs: Sequence[AnyDesign]) -> tuple[AnyDesign, ...]:
    """Return the designs of a release, of outcomes that are drawn together where they are to be.

    ``config`` has the grids of the designs. With "auto" they are where that can be had, and the
    predicted noise of units is less: its logarithms are added up over both outcomes.

    Raises:
        ConfigError: No table of both can be had, or none that is less noisy, and joint is "yes".
    """
    asked = config.privacy.joint
    if asked == "no" or _problem(config) is not None:
        return tuple(designs)
    first, second = designs
    if not (isinstance(first, OptimalDesign) and isinstance(second, OptimalDesign)):
        raise AssertionError("checked above")
    try:
        pair = drawn_together(first.mechanism, second.mechanism)
    except ValueError as error:
        if asked == "auto":
            return tuple(designs)
        raise ConfigError("privacy.joint", f"{error}; leave the key out") from None
    if price_together(*pair) > first.epsilon + second.epsilon:  # never; the claim rests on it
        raise AssertionError("both together cost more than their parts of epsilon")
    gain = sum(
        math.log(together.noise_by_guess / alone.mechanism.noise_by_guess)
        for together, alone in zip(pair, (first, second), strict=True)
    )
    if gain >= 0:
        if asked == "auto":
            return tuple(designs)
        raise ConfigError(
            "privacy.joint", "one table is predicted to be noisier than two; leave the key out"
        )
    return tuple(OptimalDesign(one, own_price(one), 0.0) for one in pair)


def _problem(config: Config) -> str | None:
    """Why the outcomes of a configuration cannot be drawn together; None where they can."""
    privacy, outcomes = config.privacy, config.named_outcomes
    if privacy.mechanism != "cluster-optimal-dp":
        return 'goes with mechanism = "cluster-optimal-dp" alone; leave the key out'
    if len(outcomes) != _TWO:
        return f"draws two [[outcomes]] together, and there are {len(config.outcomes)}"
    if privacy.delta != 0:
        return "needs delta = 0: parts of delta do not add up to that of one table"
    if config.private_clusters is not None:
        return "does not go with private_clusters"
    sizes = [2 if one.levels == "auto" else len(one.support) for one in outcomes]
    if math.prod(sizes) > MOST_PAIRS:
        return (
            f"the grids have {sizes[0]} and {sizes[1]} points, {math.prod(sizes)} pairs of values, "
            f"and {MOST_PAIRS} can be drawn from at most: give fewer values, or levels"
        )
    return None
