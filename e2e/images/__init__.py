"""Builds the images without a registry and brings them into a cluster's containerd.

`python -m e2e.images build` starts from a Debian tree (`base`), runs the Dockerfiles with buildah (`build`), keeps
every layer once in an OCI layout outside the checkout (`layout`), and sends a containerd only the layers that it lacks
(`load`). With Docker and a registry none of this is needed: the Dockerfiles build by themselves.
"""
