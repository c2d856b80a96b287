"""A checkout of another build is what its servers run."""

from __future__ import annotations

from pathlib import Path

from tests.faults.builds import package_of


def test_the_code_of_a_checkout_comes_before_the_installed_one(tmp_path: Path) -> None:
    package = tmp_path / "src" / "pinlater"
    assert package_of(tmp_path) != package, "there is none"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    assert package_of(tmp_path) == package
