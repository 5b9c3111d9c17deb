"""Objects that are created if absent, and what is built on nothing else: logs, leases, URLs.

Knows no records and no state.
"""
