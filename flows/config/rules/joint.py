"""Whether two outcomes are drawn together: what is asked for, what it needs, and the designs.

One table at what both outcomes' parts of ε leave for units takes the place of two tables at a part
each. It is decided from the configuration and public sizes alone.
"""

import math
from collections.abc import Sequence

from flows.config.model.experiment import AnyDesign, Config
from privatizers.mechanisms.paired_optimal_dp import drawn_together, own_price, price_together
from privatizers.optimal_response.pairs import MOST_PAIRS
from privatizers.planning.optimal_design import OptimalDesign
from schemas.errors import ConfigError

_HALF = math.isqrt(MOST_PAIRS)


def check_joint(config: Config) -> None:
    """Raise ConfigError where outcomes are to be drawn together that cannot be."""
    if config.privacy.joint == "no":
        return
    problem = joint_problem(config)
    if problem is not None and config.privacy.joint == "yes":
        raise ConfigError("privacy.joint", problem)


def most_levels(config: Config) -> tuple[int | None, ...]:
    """Return the points that the grid of each outcome may have; None where that is not planned.

    Grids that are planned get what a declared one leaves, or share what tables of pairs can have.
    """
    outcomes = config.named_outcomes
    if config.privacy.joint != "yes":
        return (None,) * len(outcomes)
    sizes = [None if one.levels == "auto" else len(one.support) for one in outcomes]
    left = [_HALF if other is None else MOST_PAIRS // other for other in reversed(sizes)]
    return tuple(most if own is None else None for own, most in zip(sizes, left, strict=True))


def joint_designs(
    config: Config, designs: Sequence[AnyDesign]
) -> tuple[AnyDesign, AnyDesign] | None:
    """Return the designs of two outcomes that are drawn together; None where they are not to be.

    ``designs`` are those of outcomes apart, that learn nothing, and ``config`` has their grids.
    With "auto" outcomes are drawn together where that can be had, and the predicted noise of units
    is less: its logarithms are added up over both outcomes.

    Raises:
        ConfigError: No table of both can be had, or none that is less noisy, and joint is "yes".
    """
    asked = config.privacy.joint
    if joint_problem(config) is not None:
        return None
    first, second = designs
    if not (isinstance(first, OptimalDesign) and isinstance(second, OptimalDesign)):
        raise AssertionError("checked above")
    try:
        pair = drawn_together(first.mechanism, second.mechanism)
    except ValueError as error:
        if asked == "auto":
            return None
        raise ConfigError("privacy.joint", f"{error}; leave the key out") from None
    if price_together(*pair) > first.epsilon + second.epsilon:  # never; the claim rests on it
        raise AssertionError("both together cost more than their parts of epsilon")
    gain = sum(
        math.log(together.noise_by_guess / alone.mechanism.noise_by_guess)
        for together, alone in zip(pair, (first, second), strict=True)
    )
    if gain >= 0:
        if asked == "auto":
            return None
        raise ConfigError(
            "privacy.joint", "one table is predicted to be noisier than two; leave the key out"
        )
    one, other = (OptimalDesign(each, own_price(each), 0.0) for each in pair)
    return one, other


def joint_problem(config: Config) -> str | None:
    """Why outcomes cannot be drawn together; None where they can."""
    privacy, outcomes = config.privacy, config.named_outcomes
    sizes = [2 if one.levels == "auto" else len(one.support) for one in outcomes]
    pairs, points = math.prod(sizes), " and ".join(map(str, sizes))
    problems = {
        'goes with mechanism = "cluster-optimal-dp" alone; leave the key out': (
            privacy.mechanism != "cluster-optimal-dp"
        ),
        f"draws two [[outcomes]] together, and there are {len(config.outcomes)}": (
            len(outcomes) != 2
        ),
        f'learns nothing, and learn_from is "{privacy.learn_from}": leave one of them out': (
            privacy.learn_from not in ("auto", "nothing")
        ),
        "needs delta = 0: parts of delta do not add up to that of one table": privacy.delta != 0,
        "does not go with privacy.margins": bool(privacy.margins),
        "does not go with private_clusters": config.private_clusters is not None,
        f"the grids have {points} points, {pairs} pairs of values, and {MOST_PAIRS} can be drawn "
        "from at most: give fewer values, or levels": pairs > MOST_PAIRS,
    }
    return next((problem for problem, is_there in problems.items() if is_there), None)
