"""Answers in lines without marks: `values` finds numbers and fields, `beside` reads the words, `records` joins both."""
