"""Builds the C library and puts it into the wheel: pip wheel python/

One wheel serves every Python and every torch: nothing is compiled against either. GRADWIRE_BLAS=OFF in the environment
leaves the codec lowrank out, and with it the need for libopenblas.so.0 where the wheel is used. Where there is no jansson,
the wheel reads no plan files.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile

from setuptools import setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:
    from wheel.bdist_wheel import bdist_wheel

ROOT = pathlib.Path(__file__).resolve().parent.parent


class build_with_library(build_py):
    def run(self):
        super().run()
        with tempfile.TemporaryDirectory() as folder:
            subprocess.check_call(["cmake", "-S", str(ROOT), "-B", folder, "-DCMAKE_BUILD_TYPE=Release", "-DGRADWIRE_CLI=OFF",
                                   "-DGRADWIRE_MPI=OFF", f"-DGRADWIRE_BLAS={os.environ.get('GRADWIRE_BLAS', 'ON')}"])
            libraries = {"gradwire_shared": "libgradwire.so"}
            if subprocess.run(["pkg-config", "--exists", "jansson"], check=False).returncode == 0:
                libraries["gradwire_files"] = "libgradwire_files.so"
            subprocess.check_call(["cmake", "--build", folder, "--target", *libraries, "--parallel"])
            for name in libraries.values():
                shutil.copy(pathlib.Path(folder) / "src" / name, pathlib.Path(self.build_lib) / "gradwire" / name)


class wheel_of_this_platform(bdist_wheel):
    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(cmdclass={"build_py": build_with_library, "bdist_wheel": wheel_of_this_platform})
