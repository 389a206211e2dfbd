"""The parts of drive.py: the mixed corpus, the stages, the one folder that everything ends in, and its card."""
