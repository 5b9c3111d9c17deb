"""The HTTP interface: appends, reads, status and options of the modules of one store; stateless, any number at once."""
