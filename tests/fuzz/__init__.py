"""Random command lines, folders and bytes for every command, each in a process of its own: `make fuzz`.

    grammar     what commands and options there are, asked of the command line itself
    material    small valid things, made once: models, texts, recipes, records
    values      odd numbers and strings;  odd_text, odd_paths, spoiling: odd bytes, paths, and things once valid
    drawing     one case: a mostly valid command line with a fault or two
    child       carries a case out in a forked process;  checks: what must hold afterwards
    pool        forks, waits, kills;  findings: tells what was found, each once

docs/robustness.md says what is promised and how a case is run again.
"""
