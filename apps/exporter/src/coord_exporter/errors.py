"""The two ways an export ends badly, told apart by their exit code."""


class InputError(Exception):
    """Something about the inputs or the command line forbids the export: exit code 2, nothing written."""


class ExportError(Exception):
    """An export that started and could not be finished or verified: exit code 1, no OUT left behind."""
