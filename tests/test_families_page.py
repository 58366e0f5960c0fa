"""docs/families.md says what the generator finds: all rows and columns are there, and two of them are found again."""

import pytest

from benchmarks import families


@pytest.fixture(scope="module")
def written() -> dict[str, list[str]]:
    rows = [line.strip("|").split("|") for line in families.PAGE.read_text().splitlines() if line.startswith("| ")]
    return {name.strip(): [cell.strip() for cell in cells] for name, *cells in rows}


def test_every_architecture_and_question_is_there(written: dict[str, list[str]]) -> None:
    assert list(written) == ["", *families.models()] and written[""] == list(families.QUESTIONS)


@pytest.mark.parametrize("name", ["GPT-NeoX (Pythia)", "Falcon (not known)"])
def test_it_is_what_is_found(name: str, written: dict[str, list[str]]) -> None:
    page = families.PAGE.read_text()
    for said, found in zip(written[name], families.answers(families.models()[name]()), strict=True):
        if isinstance(found, str):
            assert f"{said} {found}" in page
        else:
            assert abs(float(said) - found) < 1e-5


def test_nothing_is_off_by_more_than_rounding(written: dict[str, list[str]]) -> None:
    known = {name: cells for name, cells in written.items() if name not in ("", "Falcon (not known)")}
    refused = {name: cells.index(cell) for name, cells in known.items() for cell in cells if cell.startswith("(")}
    assert set(refused.values()) == {list(families.QUESTIONS).index("positions")}
    assert all(float(cell) < 1e-5 for cells in known.values() for cell in cells if not cell.startswith("("))
