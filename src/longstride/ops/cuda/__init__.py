"""Kernels of our own for single operations on CUDA devices, one file each; `table` says which there are and for what.

A file that imports Triton is imported when its kernel is first launched. Nothing here knows modules.
"""
