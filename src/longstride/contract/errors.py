"""The one tree of errors a person may see.

    LongstrideError            anything we report in one sentence, without a traceback
    ├── UsageError             exit 2: a wrong option, argument or file, before any work was done
    │   ├── OptionError        an option that does not exist or has a value it cannot have
    │   ├── InputError         text or data files that cannot be read as what they should be
    │   └── ModelFolderError   a model folder that is missing, incomplete or corrupt
    └── WorkError              exit 1: the work was well asked for and failed all the same

Every message names the file, line or option, what was expected and what was found.
"""


class LongstrideError(Exception):
    """Anything we report in one sentence, without a traceback."""

    exit_code = 1


class UsageError(LongstrideError):
    """Misuse: the person can mend it by asking differently."""

    exit_code = 2


class OptionError(UsageError):
    """An option that does not exist or has a value it cannot have."""


class InputError(UsageError):
    """Text or data files that cannot be read as what they should be."""


class ModelFolderError(UsageError):
    """A model folder that is missing, incomplete or corrupt."""


class WorkError(LongstrideError):
    """The work was well asked for and failed all the same."""
