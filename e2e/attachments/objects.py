"""A server of objects that believes nobody: moto keeps them, and every request is looked at before it gets there.

moto takes any signature, and those in addresses for ever. So whoever starts this says why a request may not come in.
Prints a line of JSON when it is ready; for each line that it is told, prints what it keeps. Ends when its input does.
"""

import json
import logging
import sys
import threading

from moto.s3.models import s3_backends
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
from werkzeug.test import create_environ, run_wsgi_app

BUCKET = "e2e-files"


class Guarded:
    """The objects, behind the look."""

    def __init__(self, app, refusal):
        self.app = app
        self.refusal = refusal

    def __call__(self, environ, start):
        why = self.refusal(environ)
        if why is None:
            return self.app(environ, start)
        # What is not read would be taken for the next request.
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start("403 Forbidden", [("Content-Type", "text/plain")])
        return [why.encode()]


def serve(refusal, **more):
    """Keeps objects in the bucket for whoever is not refused. `more` is printed with the port."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    objects = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, Guarded(objects, refusal), threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    # The bucket is there before anybody asks.
    run_wsgi_app(objects, create_environ(f"/{BUCKET}", f"http://127.0.0.1:{server.server_port}", method="PUT"))
    print(json.dumps({"port": server.server_port, **more}), flush=True)
    kept = s3_backends["123456789012"]["aws"].buckets[BUCKET]
    for _ in sys.stdin:
        print(json.dumps({"objects": list(kept.keys), "uploads": list(kept.multiparts)}), flush=True)
