"""What all command lines share: exit codes, plugins, folders that are whole or not there."""
