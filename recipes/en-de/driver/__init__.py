"""The parts of drive.py: what is to be done (one file per family of systems), and what does it (schedule.py)."""
