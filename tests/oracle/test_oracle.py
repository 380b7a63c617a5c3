#!/usr/bin/env python3
"""Tests of the second implementation: python3 tests/oracle/test_oracle.py runs every test_*.py here."""

import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True  # the source tree stays clean


def load_tests(loader, tests, pattern):
    del pattern
    tests.addTests(loader.discover(HERE, "test_[!o]*.py"))
    return tests


if __name__ == "__main__":
    unittest.main()
