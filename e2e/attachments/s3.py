"""S3: botocore's own signer checks who asks.

A request is signed in its header or in its address, by the one key that there is, over exactly what it asks for, and in time.
"""

import datetime
import hmac
from urllib.parse import parse_qsl, quote

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from objects import serve

KEY, SECRET, REGION = "e2e-key", "e2e-secret", "us-east-1"
AUTH = SigV4Auth(Credentials(KEY, SECRET), "s3", REGION)


def signature(environ, when, query, names, payload):
    """What the key's holder would have signed."""

    def header(name):
        name = name.upper().replace("-", "_")
        return environ.get("HTTP_" + name, environ.get(name, ""))

    pairs = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in query)
    canonical = "\n".join(
        [
            environ["REQUEST_METHOD"],
            environ["RAW_URI"].split("?")[0],
            "&".join(f"{name}={value}" for name, value in pairs),
            *(f"{name}:{' '.join(header(name).split())}" for name in names),
            "",
            ";".join(names),
            payload,
        ]
    )
    request = AWSRequest()
    request.context["timestamp"] = when
    return AUTH.signature(AUTH.string_to_sign(request, canonical), request)


def refusal(environ):
    """Why this request may not come in, or None."""
    query = parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True)
    given = dict(query)
    if "X-Amz-Signature" in given:
        when = datetime.datetime.strptime(given["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc)
        if datetime.datetime.now(datetime.timezone.utc) > when + datetime.timedelta(seconds=int(given["X-Amz-Expires"])):
            return "AccessDenied: Request has expired"
        rest = [pair for pair in query if pair[0] != "X-Amz-Signature"]
        names = given["X-Amz-SignedHeaders"].split(";")
        wanted = signature(environ, given["X-Amz-Date"], rest, names, "UNSIGNED-PAYLOAD")
        return None if hmac.compare_digest(wanted, given["X-Amz-Signature"]) else "SignatureDoesNotMatch"
    scheme, _, rest = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
    if scheme != "AWS4-HMAC-SHA256":
        return "AccessDenied: not signed"
    parts = dict(part.strip().split("=", 1) for part in rest.split(","))
    names, payload = parts["SignedHeaders"].split(";"), environ["HTTP_X_AMZ_CONTENT_SHA256"]
    wanted = signature(environ, environ["HTTP_X_AMZ_DATE"], query, names, payload)
    return None if hmac.compare_digest(wanted, parts["Signature"]) else "SignatureDoesNotMatch"


if __name__ == "__main__":
    serve(refusal)
