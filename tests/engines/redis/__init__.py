"""Tests of Redis alone."""
