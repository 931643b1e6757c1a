"""The settings of answers: sections, the record of them, and how files and words become one."""
