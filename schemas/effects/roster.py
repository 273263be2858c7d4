"""What may be told of the log of an effect model: all of it follows from ids alone."""

from dataclasses import dataclass


@dataclass(frozen=True)
class EffectRoster:
    """How many units there are; never how many rows have a fault."""

    n_units: int
    """n: ids, and rows without one."""
    n_repeats: int = 0
    """Rows whose id stood in a row before."""
    n_without_id: int = 0

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the operator should look into; none of it stops a model."""
        found = []
        if self.n_repeats:
            found.append(
                f"{self.n_repeats:,} rows have the id of a row before them and do not count; a "
                "model takes one row a unit"
            )
        if self.n_without_id:
            found.append(
                f"{self.n_without_id:,} rows have no readable id, and each counts as a unit of its "
                "own; nobody can see whether one of them stands twice"
            )
        return tuple(found)
