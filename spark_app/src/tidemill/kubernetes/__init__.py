"""A driver pod's life: its turn, its Lease, the options from its Topology, and the status that it writes back.

The only package that speaks to the Kubernetes API; what drivers are started is decided by the operator, a program of
its own.
"""
