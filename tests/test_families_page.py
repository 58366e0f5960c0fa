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
    questions = list(families.QUESTIONS)
    for name, cells in known.items():
        latent = name.startswith("DeepSeek")  # a norm stands between the weights of a head
        refused = {question for question, cell in zip(questions, cells, strict=True) if cell.startswith("(")}
        assert refused <= {"positions", "OV"} if latent else refused <= {"positions"}
        off = {
            question: float(cell) for question, cell in zip(questions, cells, strict=True) if question not in refused
        }
        assert off.pop("card") == latent and max(off.values()) < 1e-5
