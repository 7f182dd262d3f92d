"""Tests for pytest: fixtures that are generators, parameters, temporary folders, an expected exception."""
import pytest
from naps import nap


def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


@pytest.fixture
def numbers():
    yield list(range(50))


@pytest.fixture
def napping(request):
    if request.param % 10 == 0:
        nap()
    yield request.param
    if request.param % 10 == 5:
        nap()


@pytest.mark.parametrize("napping", range(100), indirect=True)
@pytest.mark.parametrize("n", [3, 12])
def test_numbers(napping, n, numbers, tmp_path):
    (tmp_path / "numbers").write_text(str(numbers))
    assert fibonacci(n) in (2, 144) and sum(numbers) == 1225


@pytest.mark.parametrize("n", range(40))
def test_exceptions(n):
    with pytest.raises(ZeroDivisionError):
        n / 0
