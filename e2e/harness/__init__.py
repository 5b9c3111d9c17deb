"""What the stories share: the system under test, traffic with a truth beside it, faults, and measured figures."""
