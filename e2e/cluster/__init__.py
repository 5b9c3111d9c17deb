"""A real Kubernetes cluster for tests: the one of KUBECONFIG, a kind cluster, or one started here from its programs."""

from e2e.cluster.choice import Cluster, find

__all__ = ["Cluster", "find"]
