"""Tests of Tidemill on a real Kubernetes cluster, and the cluster for machines that have none."""
