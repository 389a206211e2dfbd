"""Hugging Face folders, in and out: families, weights, generation settings, and a check against transformers itself."""

from longstride.interop.hf.exporting import export_hf
from longstride.interop.hf.importing import Imported, import_folder
from longstride.interop.hf.marian import write_marian

__all__ = ["Imported", "export_hf", "import_folder", "write_marian"]
