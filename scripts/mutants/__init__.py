"""Planted faults: each is put into a copy of the tree, and the tests that are named for it must fail there."""
