"""Carries out programs; knows no system."""
