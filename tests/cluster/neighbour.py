"""Another vendor's mutating webhook beside ours: labels every TrainJob it sees, after us."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.cluster.api_server import ApiServer

NAME = "zz-neighbour"
LABEL = "neighbour.example/seen"


class _Labeller(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps(
            {
                "apiVersion": review["apiVersion"],
                "kind": review["kind"],
                "response": _answer(review["request"]),
            }
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keeps the test output quiet."""


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    labels = request["object"]["metadata"].get("labels", {})
    if LABEL in labels:
        return {"uid": request["uid"], "allowed": True}
    patch = [{"op": "add", "path": "/metadata/labels", "value": {**labels, LABEL: "yes"}}]
    return {
        "uid": request["uid"],
        "allowed": True,
        "patchType": "JSONPatch",
        "patch": base64.b64encode(json.dumps(patch).encode()).decode(),
    }


@contextmanager
def neighbour(server: ApiServer) -> Iterator[None]:
    """Registers the webhook for both TrainJob APIs, behind ours by name, for one block."""
    pair = server.authority.server(NAME)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Labeller) as listener:
        listener.socket = context.wrap_socket(listener.socket, server_side=True)
        thread = threading.Thread(target=listener.serve_forever, daemon=True)
        thread.start()
        server.kubectl("apply", "-f", "-", stdin=_registration(server, listener.server_port))
        try:
            yield
        finally:
            server.kubectl("delete", "mutatingwebhookconfiguration", NAME)
            listener.shutdown()
            thread.join()


def _registration(server: ApiServer, port: int) -> dict[str, Any]:
    authority = base64.b64encode(server.authority.certificate.read_bytes()).decode()
    groups = ["training.vsr.dev", "trainer.kubeflow.org"]
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": NAME},
        "webhooks": [
            {
                "name": "label.neighbour.example",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "clientConfig": {"url": f"https://127.0.0.1:{port}/", "caBundle": authority},
                "rules": [
                    {
                        "apiGroups": groups,
                        "apiVersions": ["*"],
                        "resources": ["trainjobs"],
                        "operations": ["CREATE"],
                    }
                ],
            }
        ],
    }
