#!/usr/bin/env python3
"""test_adam.py and test_adam_state.py can fail: plants one fault at a time in a copy of the package, and expects a test to turn red."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import ranks

HERE = pathlib.Path(__file__).resolve().parent

# law, what goes wrong, file, text (there once), its replacement, the test that must turn red
FAULTS = [
    (4, "a step that is not finite counts", "adam.py", "        if not self._finite:\n", "        if not self._finite and False:\n", "test_not_finite"),
    (4, "a step that is not finite enters the momentum", "adam.py", "result.non_finite == 0\n\n    def _scaled", "True\n\n    def _scaled",
     "test_not_finite"),
    (2, "gradients do not enter the momentum", "adam.py", "momentum.lerp_(self._own[layer], 1 - self._betas[layer][0])", "pass",
     "test_nothing_is_lost"),
    (2, "residuals are dropped by a flush", "adam.py", "self.session.scale_residuals(1 - self._beta1())", "self.session.scale_residuals(1e-6)",
     "test_nothing_is_lost"),
    (2, "a flush adds residuals to the momentum as they are", "adam.py", "self.session.scale_residuals(1 - self._beta1())",
     "self.session.scale_residuals(1.0)", "test_nothing_is_lost"),
    (2, "momenta are summed over old ranks, as residuals are", "adam.py", "alpha=factor or 1.0", "alpha=1.0", "test_another_number_of_ranks"),
    (1, "each rank feeds the variance with its own gradient", "adam.py",
     "            self.refresh.exchange([self._own[layer] for layer in self._parameters] + [self._told])", "            pass", "test_update"),
    (1, "variances are not compared", "adam.py", "                if mine != theirs:", "                if False:", "test_variances_are_compared"),
    (6, "the update has no bound", "adam.py", ".clamp_max(1.0))", ".clamp_max(1.0).clamp_min(1.0))", "test_bounds"),
    (6, "an element's update has no bound", "adam.py", "update.clamp_(-CAP, CAP)", "pass", "test_bounds"),
    (2, "random numbers of refreshes begin anew after a restart", "adam.py", 'self.refresh.set_number(saved["refreshes"])',
     "self.refresh.set_number(0)", "test_resume_bit_for_bit"),
    (2, "torch gets a variance of another scale", "adam.py", "/ (1 - product))", "/ (1 - product + product))", "test_detach_leaves_plain_adamw"),
]


def red(folder, test):
    """Whether a test fails with the package in `folder`."""
    file = next(f for f in ("test_adam.py", "test_adam_state.py") if f"def {test}(" in (HERE / f).read_text())
    done = subprocess.run([sys.executable, str(HERE / file), test], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env={**os.environ, "GRADWIRE_TEST_PACKAGE": folder})
    assert f"FAILED {test}" in done.stdout or f"ok {test}" in done.stdout, done.stdout
    return f"FAILED {test}" in done.stdout


def test_planted_faults():
    package = pathlib.Path(ranks.gradwire.__file__).parent
    unseen = []
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "gradwire"
        shutil.copytree(package, copy)
        os.environ.setdefault("GRADWIRE_LIBRARY", str(ranks.gradwire.library.folder() / "libgradwire.so"))
        assert not red(folder, "test_plain_foreach_fused"), "the package itself is red"
        for law, what, name, text, fault, test in FAULTS:
            source = (package / name).read_text()
            assert source.count(text) == 1, f"'{what}': its text is there {source.count(text)} times: the fault must move with the code"
            (copy / name).write_text(source.replace(text, fault))
            if not red(folder, test):
                unseen.append(f"law {law}: {what}: {test} is green")
            (copy / name).write_text(source)
    assert not unseen, "\n".join(unseen)


if __name__ == "__main__":
    ranks.main(globals())
