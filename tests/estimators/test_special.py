"""scipy's compiled functions, loaded without the package around them."""

import subprocess
import sys

import pytest

ASKED = """
import sys
{first}
from estimators import special
assert ("scipy.special" in sys.modules) is {is_loaded}
import scipy.special
assert scipy.special.ellipk(0.0) > 1.5 and scipy.special.logsumexp([0.0]) == 0.0
assert all(getattr(special, name) is getattr(scipy.special, name) for name in special.__all__)
"""
MEANWHILE = """
import sys
from importlib.abc import MetaPathFinder
class Other(MetaPathFinder):  # as another thread that asks while the compiled functions are loaded
    def find_spec(self, name, path=None, target=None):
        if name == "scipy.special._ufuncs" and not found:
            found.append(name)
            from scipy.special import ndtri, expit
            found.append(expit(0.0))
found = []
sys.meta_path.insert(0, Other())
from estimators.special import ndtri
import scipy.special
assert found[1:] == [0.5] and scipy.special.ndtri is ndtri
"""
ELSEWHERE = """
import sys
class Moved:
    def find_spec(self, name, path=None, target=None):
        if name == "scipy.special._ufuncs" and "scipy.special._basic" not in sys.modules:
            if "__getattr__" in vars(sys.modules["scipy.special"]):
                raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Moved())
from estimators.special import ndtri
import scipy.special
assert scipy.special.ndtri is ndtri
"""


@pytest.mark.parametrize(
    "program",
    [
        ASKED.format(first="", is_loaded=False),
        ASKED.format(first="import scipy.special", is_loaded=True),
        MEANWHILE,
        ELSEWHERE,
    ],
    ids=["package later", "package before", "package meanwhile", "functions elsewhere"],
)
def test_they_are_the_functions_of_the_package(program: str) -> None:
    subprocess.run([sys.executable, "-c", program], check=True)
