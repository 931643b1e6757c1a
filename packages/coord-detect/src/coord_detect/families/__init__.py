"""Model families: a frozen record for each, in a table that a plug-in file may extend."""
