"""Reading runtimes from an API server that is quick, slow, wrong or gone."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from app.admission.review import read_review
from app.http.runtimes import (
    ClusterAccess,
    NotInCluster,
    ReaderLimits,
    RuntimeReader,
    api_client,
    cluster_access,
    open_reader,
    prepare_with,
)
from app.trainjobs.kubeflow import KubeflowAdapter, RuntimeReference
from tests.kubeflow.jobs import creation, job, worker

LIMITS = ReaderLimits(budget=0.2, request=1.0, fresh=30.0, pause=5.0)
RUNTIME = {
    "spec": {
        "mlPolicy": {"numNodes": 4},
        "template": {
            "spec": {
                "replicatedJobs": [
                    {
                        "name": "node",
                        "template": {
                            "spec": {
                                "template": {
                                    "spec": {
                                        "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H200"},
                                        "containers": [
                                            {
                                                "name": "node",
                                                "resources": {"limits": {"nvidia.com/gpu": "8"}},
                                            }
                                        ],
                                    }
                                }
                            }
                        },
                    }
                ]
            }
        },
    }
}


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now


class FakeApi:
    """An API server that answers one object after a while."""

    def __init__(self, *, seconds: float = 0.0, status: int = 200, body: object = None) -> None:
        self.seconds, self.status = seconds, status
        self.body = RUNTIME if body is None else body
        self.paths: list[str] = []
        self.tokens: set[str] = set()
        self.busy = self.busiest = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer requests on one kept connection."""
        try:
            while line := await reader.readline():
                self.paths.append(line.split()[1].decode())
                while (header := await reader.readline()) != b"\r\n":
                    if header.lower().startswith(b"authorization"):
                        self.tokens.add(header.decode().split(":", 1)[1].strip())
                self.busy += 1
                self.busiest = max(self.busiest, self.busy)
                await asyncio.sleep(self.seconds)
                self.busy -= 1
                content = json.dumps(self.body).encode()
                head = f"HTTP/1.1 {self.status} X\r\ncontent-length: {len(content)}\r\n\r\n"
                writer.write(head.encode() + content)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()


def reference(name: str = "torch", namespace: str = "") -> RuntimeReference:
    """A runtime's reference."""
    kind = "TrainingRuntime" if namespace else "ClusterTrainingRuntime"
    return RuntimeReference(kind=kind, namespace=namespace, name=name)


@asynccontextmanager
async def reading(api: FakeApi, tmp_path, clock=None, limits=LIMITS):
    """A reader of `api`."""
    server = await asyncio.start_server(api.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    token = tmp_path / "token"
    token.write_text("secret\n")
    access = ClusterAccess(url=f"http://127.0.0.1:{port}", token_file=token, ca_file=None)
    reader = RuntimeReader(api_client(access, limits), token, clock=clock or Clock(), limits=limits)
    try:
        yield reader, server
    finally:
        await reader.aclose()
        server.close()


def test_a_runtime_is_read_once_and_believed_for_a_while(tmp_path):
    async def scene():
        api, clock = FakeApi(), Clock()
        async with reading(api, tmp_path, clock) as (reader, _):
            for _ in range(3):
                await reader.prefetch(reference("torch", "team"), 1.0)
            assert reader.known(reference("torch", "team")).nodes == 4
            assert reader.known(reference("torch")) is None
            clock.now = 31.0
            assert reader.known(reference("torch", "team")) is None
            await reader.prefetch(reference("torch", "team"), 1.0)
        path = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainingruntimes/torch"
        assert api.paths == [path, path]
        assert api.tokens == {"Bearer secret"}

    asyncio.run(scene())


def test_many_reviews_of_few_runtimes_make_few_requests(tmp_path):
    """200 at once, 20 runtimes, 50 ms each: one request a runtime, all side by side."""

    async def scene():
        api = FakeApi(seconds=0.05)
        async with reading(api, tmp_path, limits=ReaderLimits(budget=5.0)) as (reader, _):
            names = [reference(f"runtime-{index % 20}") for index in range(200)]
            await asyncio.gather(*(reader.prefetch(each, 10.0) for each in names))
            assert all(reader.known(each) for each in names)
        assert len(api.paths) == 20
        assert api.busiest > 1, "requests were made one after the other"

    asyncio.run(scene())


def test_an_outage_costs_the_first_review_little_and_the_others_nothing(tmp_path):
    async def scene():
        api, clock = FakeApi(), Clock()
        async with reading(api, tmp_path, clock) as (reader, server):
            server.close()
            await server.wait_closed()
            await asyncio.gather(*(reader.prefetch(reference(), 1.0) for _ in range(50)))
            assert reader.known(reference()) is None
            assert api.paths == []

    asyncio.run(scene())


@pytest.mark.parametrize(
    "api",
    [
        FakeApi(status=403, body={"kind": "Status"}),
        FakeApi(status=404, body={"kind": "Status"}),
        FakeApi(status=500),
        FakeApi(body=["no", "object"]),
    ],
    ids=["forbidden", "absent", "broken", "odd"],
)
def test_a_failure_is_left_alone_for_a_while(tmp_path, api):
    async def scene():
        clock = Clock()
        async with reading(api, tmp_path, clock) as (reader, _):
            for _ in range(5):
                await reader.prefetch(reference(), 1.0)
            assert reader.known(reference()) is None
            assert len(api.paths) == 1
            clock.now = 6.0
            await reader.prefetch(reference(), 1.0)
            assert len(api.paths) == 2

    asyncio.run(scene())


def test_a_slow_answer_is_not_waited_for_but_serves_later_reviews(tmp_path):
    async def scene():
        api = FakeApi(seconds=0.4)
        async with reading(api, tmp_path) as (reader, _):
            await asyncio.gather(*(reader.prefetch(reference(), 0.05) for _ in range(50)))
            assert reader.known(reference()) is None
            while reader.known(reference()) is None:  # noqa: ASYNC110 - the reader has no event
                await asyncio.sleep(0.05)
        assert len(api.paths) == 1

    asyncio.run(scene())


def test_a_missing_token_is_a_failure_like_any_other(tmp_path):
    async def scene():
        api = FakeApi()
        async with reading(api, tmp_path) as (reader, _):
            (tmp_path / "token").unlink()
            await reader.prefetch(reference(), 1.0)
            assert reader.known(reference()) is None
            assert api.paths == []

    asyncio.run(scene())


def review(created, *, operation="CREATE", group="trainer.kubeflow.org"):
    named = {"group": group, "version": "v1alpha1"}
    request = {
        "uid": "1",
        "kind": {**named, "kind": "TrainJob"},
        "resource": {**named, "resource": "trainjobs"},
        "operation": operation,
        "object": created,
        "oldObject": created if operation == "UPDATE" else None,
    }
    document = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return read_review(document)


OPEN = job(gpu_label=None, trainer=worker(numNodes=None, resourcesPerNode=None))


@pytest.mark.parametrize(
    ("asked", "requests"),
    [
        (review(OPEN), 1),
        (review(OPEN, operation="UPDATE"), 0),
        (review({**OPEN, "metadata": {"annotations": {"training.vsr.dev/plan": ""}}}), 0),
        (review({**OPEN, "spec": {"runtimeRef": {"name": "../../secrets"}}}), 0),
        (review({**OPEN, "spec": {"runtimeRef": {"name": "x", "kind": "Secret"}}}), 0),
        (review(OPEN, group="training.vsr.dev"), 0),
    ],
    ids=["creation", "update", "not opted in", "no DNS name", "other kind", "other API"],
)
def test_only_reviews_that_will_be_planned_read_anything(tmp_path, asked, requests):
    async def scene():
        api = FakeApi()
        async with reading(api, tmp_path) as (reader, _):
            await prepare_with(reader)(asked, 1.0)
        assert len(api.paths) == requests

    asyncio.run(scene())


def test_a_runtime_that_was_read_decides_what_the_job_hides(tmp_path):
    async def scene():
        async with reading(FakeApi(), tmp_path) as (reader, _):
            await prepare_with(reader)(review(OPEN), 1.0)
            intent = KubeflowAdapter(runtimes=reader).wish(creation(OPEN)).intent
            assert (intent.nodes, intent.gpus_per_node) == (4, 8)
            assert intent.node_labels == {"nvidia.com/gpu.product": "NVIDIA-H200"}

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("host", "url"), [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
)
def test_a_pod_finds_its_api_server(tmp_path, host, url):
    (tmp_path / "token").write_text("x")
    found = cluster_access(
        {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"}, tmp_path
    )
    assert found.url == url
    assert found.ca_file == tmp_path / "ca.crt"


def test_outside_a_cluster_it_says_so(tmp_path):
    with pytest.raises(NotInCluster, match="KUBERNETES_SERVICE_HOST"):
        cluster_access({}, tmp_path)


def test_a_reader_opens_with_the_pods_own_authority(tmp_path):
    (tmp_path / "token").write_text("x")
    (tmp_path / "ca.crt").write_text(authority_pem())
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}

    async def scene():
        reader = open_reader(environment, clock=Clock(), limits=LIMITS, directory=tmp_path)
        await reader.prefetch(reference(), 1.0)
        assert reader.known(reference()) is None
        await reader.aclose()

    asyncio.run(scene())


def authority_pem() -> str:
    """A certificate authority nobody uses."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def test_closing_gives_up_what_is_under_way(tmp_path):
    async def scene():
        async with reading(FakeApi(seconds=0.3), tmp_path) as (reader, _):
            await reader.prefetch(reference(), 0.01)
        await asyncio.sleep(0.35)
        assert reader.known(reference()) is None

    asyncio.run(scene())
