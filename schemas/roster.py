"""Public facts about a log: how many units, arms and clusters it has, and nothing of outcomes."""

from dataclasses import dataclass, field

SAMPLE_RATIO_ALARM = 0.001
"""The p-value under which the arm sizes do not look like the intended shares."""


@dataclass(frozen=True)
class Repeats:
    """Units that have several rows in a log of units; by public facts alone."""

    n_lost: int = 0
    """Units that are set aside for it: no row of theirs is released."""
    n_alike: int = 0
    """Of those, the ones whose rows agree in all that is public: ``source.repeated = "first"``
    would keep them."""
    n_unused: int = 0
    """Rows that count for nothing, as the first of their unit does."""

    def __add__(self, other: "Repeats") -> "Repeats":
        """What becomes of the units of both."""
        return Repeats(
            self.n_lost + other.n_lost,
            self.n_alike + other.n_alike,
            self.n_unused + other.n_unused,
        )

    @property
    def problem(self) -> str | None:
        """How many people are lost, and how they would not be; None where nobody is."""
        if not self.n_lost:
            return None
        told = f"people (units) with several rows, none of which is released: {self.n_lost:,}"
        if self.n_alike:
            told += (
                f'. With repeated = "first" under [source] {self.n_alike:,} of them are kept, by '
                "the first row of each: their rows agree in all that is public"
            )
        if self.n_lost > self.n_alike:
            told += (
                f". Rows of {self.n_lost - self.n_alike:,} differ in arm, cluster or something "
                "else that is public: mend the log"
            )
        return told


@dataclass(frozen=True)
class Roster:
    """How many units, clusters and faulty rows a log has; computed without any outcome."""

    n_units: int
    n_clusters: int
    units_by_arm: dict[str, int]
    quarantined: int
    quarantined_by_rule: dict[str, int] = field(default_factory=dict)
    sample_ratio_p: float | None = None
    attribute_changed: int | None = None
    """Units of which a later exposure states other public facts than the first, which counts; None
    where that cannot be."""
    one_arm_question: str | None = field(default=None, compare=False)
    """What to ask where arms look as if they had been given to whole clusters; else None."""
    n_returning: int | None = field(default=None, compare=False)
    """Units that the experiment has released before; None where nobody looked for them."""
    n_arm_changed: int | None = field(default=None, compare=False)
    """Of those, the ones that were in another arm then."""
    n_together: int = field(default=0, compare=False)
    """Rows whose id is that of another row but for its spelling: they share an account."""
    most_paid: int = field(default=1, compare=False)
    """The most of these rows that share one: who they are pays for each."""
    account_key_fingerprint: str | None = field(default=None, compare=False)
    """Of the key of the accounts by unit, where there are any. It and its neighbours hang on what
    was released before, not on the log."""
    n_read: int | None = field(default=None, compare=False)
    """Rows of the log, or exposures, that were read; None where nobody counted them."""
    n_faulty: int | None = field(default=None, compare=False)
    """Of those, the ones with a fault: not who is left out for what was released before."""
    repeats: Repeats = Repeats()
    notes: tuple[str, ...] = field(default=(), compare=False)
    """What is to be told of the accounts."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Problems that the operator should look into; none of them stops a release."""
        told = list(self.notes)
        if self.repeats.problem is not None:
            told.append(self.repeats.problem)
        if self.n_together:
            told.append(
                f"{self.n_together:,} row(s) have the id of another row, but for case, zeros, "
                "blanks or the like. They are released as units of their own, and each of them is "
                f"charged to the account they share (up to {self.most_paid:,} rows in one). If "
                "these are copies, mend the log; if they are different people, declare source.ids "
                '= "exact"'
            )
        if self.attribute_changed:
            told.append(
                f"attribute_changed: {self.attribute_changed:,} unit(s) have later exposures with "
                "other attributes, or another household; those of the first count"
            )
        if self.one_arm_question is not None:
            told.append(self.one_arm_question)
        problem = self.sample_ratio_problem
        if problem is not None:
            advice = "find out why before you trust an effect, or declare arms.shares"
            told.append(f"{problem}; {advice}")
        return tuple(told)

    @property
    def faulty_share(self) -> float | None:
        """The share of the rows that were read which have a fault; None where it is not known."""
        return self.n_faulty / self.n_read if self.n_read and self.n_faulty is not None else None

    @property
    def sample_ratio_problem(self) -> str | None:
        """That the arm sizes do not fit the intended shares; None where they may."""
        if self.sample_ratio_p is None or self.sample_ratio_p >= SAMPLE_RATIO_ALARM:
            return None
        sizes = ", ".join(f"{arm} {count:,}" for arm, count in self.units_by_arm.items())
        return (
            f"sample ratio mismatch (p = {self.sample_ratio_p:.2g}): the arm sizes ({sizes}) do "
            "not fit the intended shares"
        )
