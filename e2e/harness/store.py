"""The MinIO of the stories, inside the cluster: a bucket for each story."""

from __future__ import annotations

import io
from pathlib import Path

from minio import Minio
from minio.deleteobjects import DeleteObject

from e2e.harness import timeouts
from e2e.harness.kubernetes import Kubernetes, Object
from e2e.harness.reach import Reach
from e2e.harness.waiting import until

NAMESPACE = "tidemill-e2e-store"
ACCESS_KEY = "tidemill"
SECRET_KEY = "tidemill-e2e-secret"
MANIFEST = Path(__file__).resolve().parents[1] / "manifests/minio.yaml"


class Store:
    """The store as an administrator sees it."""

    def __init__(self, kubernetes: Kubernetes, reach: Reach) -> None:
        self._kubernetes = kubernetes
        self._reach = reach

    def install(self) -> None:
        """Starts MinIO, if it does not run, and waits until it answers."""
        self._kubernetes.kubectl("apply", "--server-side", "-f", str(MANIFEST))
        self.wait_ready()

    def wait_ready(self) -> None:
        """Returns once MinIO answers this machine."""
        until("MinIO answers", lambda: self._client().list_buckets() is not None, timeouts.SYSTEM_UP)

    def pod(self) -> Object:
        """The pod of MinIO."""
        return self._kubernetes.list("Pod", NAMESPACE, {"app": "minio"})[0]

    def make(self, bucket: str) -> None:
        """An empty bucket."""
        self.remove(bucket)
        self._client().make_bucket(bucket)

    def remove(self, bucket: str) -> None:
        """A bucket with all that is in it; none is fine."""
        client = self._client()
        if not client.bucket_exists(bucket):
            return
        names = [DeleteObject(each.object_name or "") for each in client.list_objects(bucket, recursive=True)]
        for error in client.remove_objects(bucket, names):
            raise AssertionError(f"could not remove {error}")
        client.remove_bucket(bucket)

    def put(self, bucket: str, name: str, data: bytes) -> None:
        """An object of the user's own."""
        self._client().put_object(bucket, name, io.BytesIO(data), len(data))

    def outer_url(self, bucket: str) -> str:
        """As `url`, for programs on this machine."""
        return f"s3://{bucket}/store?endpoint=http://{self._reach.address(NAMESPACE, 'minio', 9000)}&region=us-east-1"

    def objects(self, bucket: str) -> list[str]:
        """Names of all objects of a bucket."""
        return [each.object_name or "" for each in self._client().list_objects(bucket, recursive=True)]

    def url(self, bucket: str) -> str:
        """For `spec.store.url`."""
        return f"s3://{bucket}/store?endpoint=http://minio.{NAMESPACE}.svc.cluster.local:9000&region=us-east-1"

    def _client(self) -> Minio:
        address = self._reach.address(NAMESPACE, "minio", 9000)
        return Minio(address, ACCESS_KEY, SECRET_KEY, secure=False, region="us-east-1")


def credentials(namespace: str) -> Object:
    """The Secret that Modules of a namespace name."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "store", "namespace": namespace},
        "stringData": {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY},
    }
