"""Errors of the DP-EBM learners that the new ones are held against: cited, not computed here.

A to E: the authors' results file (``dp_cate_simulation_final.csv`` in the repository
FengshiNiu/DP-CATE at 6b6b41f), means over its five runs, to four digits. The file has no DR-learner
for B at ε = 2 and n = 4,000. H is no data set of theirs: runs of the library InterpretML 0.7.8, two
to eight fits a cell. All with δ = 1e-5.
"""

from typing import Final, NamedTuple

AUTHORS_FILE: Final = "the authors' results file"
OWN_RUNS: Final = "runs of InterpretML 0.7.8"


class Reference(NamedTuple):
    """Mean squared errors of the three learners; None where the source has none."""

    dr: float | None
    r: float | None
    s: float | None


_AUTHORS = """
A 1 500 615.9 385.7 1.037
A 1 1000 46.56 17.57 0.3637
A 1 2000 13.3 4.907 0.1697
A 1 4000 3.337 1.87 0.1006
A 1 8000 1.228 0.5586 0.09487
A 1 16000 0.4065 0.2051 0.08516
A 2 500 67.49 54.56 0.2523
A 2 1000 11.85 3.364 0.1351
A 2 2000 3.559 1.235 0.1199
A 2 4000 1.233 0.5272 0.09473
A 2 8000 0.3874 0.2285 0.09202
A 2 16000 0.127 0.08553 0.08714
B 1 500 439.1 441.8 2.78
B 1 1000 62.74 15.78 1.649
B 1 2000 21.61 3.838 1.352
B 1 4000 5.602 1.601 1.311
B 1 8000 1.714 0.9352 1.278
B 1 16000 0.563 0.6758 1.276
B 2 500 101.4 29.87 1.859
B 2 1000 14.67 4.284 1.422
B 2 2000 5.302 1.738 1.288
B 2 4000 - 0.9305 1.282
B 2 8000 0.5451 0.6708 1.275
B 2 16000 0.2219 0.5678 1.273
C 1 500 1450 851.4 3.848
C 1 1000 68.13 18.85 1.3
C 1 2000 18.59 5.258 1.277
C 1 4000 6.813 1.992 0.6075
C 1 8000 2.812 0.9656 0.3611
C 1 16000 1.119 0.5784 0.2959
C 2 500 116.8 36.39 2.012
C 2 1000 17.46 3.746 1.108
C 2 2000 6.233 1.957 0.6539
C 2 4000 2.771 1.015 0.3929
C 2 8000 1.177 0.5121 0.2925
C 2 16000 0.6562 0.285 0.268
D 1 500 268.1 300.3 4.722
D 1 1000 46.78 13.25 2.725
D 1 2000 16.25 8.492 2.331
D 1 4000 8.45 3.674 1.997
D 1 8000 3.416 1.996 1.9
D 1 16000 1.414 1.383 1.856
D 2 500 64.79 33.27 3.052
D 2 1000 17.4 8.558 2.281
D 2 2000 8.289 3.458 2.004
D 2 4000 3.754 2.17 1.88
D 2 8000 1.395 1.421 1.872
D 2 16000 0.785 1.097 1.842
E 1 500 7068 6174 28.22
E 1 1000 558.8 869.4 15.84
E 1 2000 93.97 85.37 13.92
E 1 4000 22.67 25.29 10.6
E 1 8000 10.79 14.81 10.3
E 1 16000 5.252 9.918 10.15
E 2 500 777.7 545.5 19.12
E 2 1000 120.5 103.1 12.75
E 2 2000 24.53 23.01 10.76
E 2 4000 9.881 12.98 10.35
E 2 8000 5.217 9.367 10.18
E 2 16000 3.311 7.256 10.13
"""
"""Set-up, ε, n, DR-learner, R-learner, S-learner."""

_HILLSTROM = """
H 1 500 7.6 - -
H 1 2000 0.364 0.67 0.022
H 1 4000 0.043 - -
H 1 8000 0.0158 - -
H 1 16000 0.0078 0.012 0.018
H 2 500 1.27 - -
H 2 2000 0.082 0.166 0.019
H 2 4000 0.0177 - -
H 2 8000 0.0071 - -
H 2 16000 0.00415 0.0070 0.018
"""


def _read(lines: str) -> dict[tuple[str, float, int], Reference]:
    found = {}
    for line in lines.split("\n")[1:-1]:
        name, epsilon, n, *errors = line.split()
        dr, r, s = (None if each == "-" else float(each) for each in errors)
        found[name, float(epsilon), int(n)] = Reference(dr, r, s)
    return found


REFERENCE: Final = _read(_AUTHORS) | _read(_HILLSTROM)
"""By set-up, ε and n."""
