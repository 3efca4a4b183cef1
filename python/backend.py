# SPDX-License-Identifier: Apache-2.0
"""The build backend: setuptools, taken from the system where the system has it.

pip builds in an empty environment and would download setuptools, wheel and cffi into it. Where the interpreter is the
system's, or a virtual environment of it, the packages of the distribution serve as well, and no network is needed."""
import importlib.util
import sys

DISTRIBUTION = "/usr/lib/python3/dist-packages"
NEEDS = {"setuptools": "setuptools>=61", "wheel": "wheel", "cffi": "cffi>=1.15"}

if sys.base_prefix == "/usr" and DISTRIBUTION not in sys.path:
    sys.path.append(DISTRIBUTION)
_missing = [requirement for module, requirement in NEEDS.items() if not importlib.util.find_spec(module)]


def _backend():
    from setuptools import build_meta

    return build_meta


def get_requires_for_build_wheel(config_settings=None):
    return _missing


def prepare_metadata_for_build_wheel(folder, config_settings=None):
    return _backend().prepare_metadata_for_build_wheel(folder, config_settings)


def build_wheel(folder, config_settings=None, metadata_folder=None):
    return _backend().build_wheel(folder, config_settings, metadata_folder)
