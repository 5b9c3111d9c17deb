"""Column implementations of operators; results equal the row form in `language.operations`."""
