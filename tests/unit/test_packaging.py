"""What is in the checkout must be in the wheel: `packages` is a list, and a folder that it lacks drops out silently."""

import re
import tomllib
from importlib import metadata, resources
from pathlib import Path

import clhist

ROOT = Path(__file__).parents[2]
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
FOLDERS = {package: ROOT / folder for package, folder in SETUPTOOLS["package-dir"].items()}


def folder_of(package):
    if package in FOLDERS:
        return FOLDERS[package]
    parent, _, name = package.rpartition(".")
    return folder_of(parent) / name


def test_every_folder_with_code_is_a_package():
    listed = {folder_of(package) for package in SETUPTOOLS["packages"]}
    present = {init.parent for folder in FOLDERS.values() for init in folder.rglob("__init__.py")}
    assert listed == present


def test_every_data_file_is_packaged():
    patterns = {folder_of(package): globs for package, globs in SETUPTOOLS["package-data"].items()}
    packaged = {file for folder, globs in patterns.items() for pattern in globs for file in folder.glob(pattern)}
    present = {
        file
        for folder in FOLDERS.values()
        for file in folder.rglob("*")
        if file.is_file() and file.suffix not in (".py", ".pyc")
    }
    assert packaged == present


def test_templates_and_profiles_are_found_as_resources():
    templates = {item.name for item in resources.files("clhist.kernels_cl").iterdir()}
    profiles = {item.name for item in resources.files("clhist.devices").iterdir()}
    assert {"types.mako", "update.mako", "sweep.mako", "combine.mako"} <= templates
    assert {"default-cpu.toml", "default-gpu.toml", "nvidia-geforce-rtx-2080-ti.toml"} <= profiles


def test_the_description_on_package_indexes_has_absolute_links():
    found = metadata.metadata("clhist")
    description = found.get_payload() or found["Description"]  # of `importlib_metadata`, where that was imported
    links = re.findall(r"\]\(([^)\s]+)\)", description)
    assert len(links) >= 10
    assert [link for link in links if not link.startswith("https://")] == []


def test_the_installed_version_is_the_one_in_the_code():
    assert metadata.version("clhist") == clhist.__version__
