"""What `make` installs and builds with has hashes, but for torch: see Dependencies in CONTRIBUTING.md."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def hashed(lock: str) -> set[str]:
    """The packages of a lock, each of which has the hash of a file."""
    return set(re.findall(r"^([\w.-]+)==\S+ \\\n    --hash=sha256:", (ROOT / lock).read_text(), re.M))


def test_nothing_is_installed_or_built_with_that_has_no_hash() -> None:
    told = [line.split("$(INSTALL)")[1].split() for line in (ROOT / "Makefile").read_text().splitlines()
            if line.startswith("\t$(INSTALL)")]  # fmt: skip
    assert len(told) == 5
    for words in told:
        own = {"-e", "."} <= set(words) and {"--no-deps", "--no-build-isolation"} <= set(words)
        assert own or "--require-hashes" in words or words == ["-r", "requirements-torch.lock"], words


def test_what_builds_us_is_in_the_locks() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    names = {re.split(r"[^\w-]", one)[0] for one in wanted}
    # what hatchling 1.33 requires, and asks for when an install is editable
    names |= {"editables", "packaging", "pathspec", "pluggy", "tomlkit", "trove-classifiers"}
    assert names <= hashed("requirements.lock") | hashed("requirements-build.lock")
    assert not hashed("requirements.lock") & hashed("requirements-build.lock")
