"""Google: its own signer and its own reader of tokens check who asks.

Google's XML interface takes objects, parts and lists as S3 does, so moto keeps them here, too. What is Google's alone is who
may come in: with a token of the service account, or by an address that its key signed over exactly what is asked for. A key
signs the same words the same way every time, so an address is good if Google's client would have made the same one.
"""

import datetime
import hmac
import json
from urllib.parse import parse_qs, parse_qsl, quote, urlsplit

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import jwt
from google.cloud.storage._signing import generate_signed_url_v4
from google.oauth2.service_account import Credentials
from objects import serve

EMAIL = "e2e@files.example"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PUBLIC = KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
ACCOUNT = {
    "type": "service_account",
    "client_email": EMAIL,
    "token_uri": "https://oauth2.googleapis.com/token",
    "private_key_id": "e2e",
    "private_key": KEY.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode(),
}
SIGNER = Credentials.from_service_account_info(ACCOUNT)
# What a signature says of itself; the signer adds it.
OWN = {"X-Goog-Algorithm", "X-Goog-Credential", "X-Goog-Date", "X-Goog-Expires", "X-Goog-SignedHeaders", "X-Goog-Signature"}


def signature(environ, given):
    """What Google's client would have signed."""
    url = generate_signed_url_v4(
        SIGNER,
        resource=environ["RAW_URI"].split("?")[0],
        expiration=int(given["X-Goog-Expires"]),
        method=environ["REQUEST_METHOD"],
        query_parameters={name: value for name, value in given.items() if name not in OWN},
        _request_timestamp=given["X-Goog-Date"],
    )
    return parse_qs(urlsplit(url).query)["X-Goog-Signature"][0]


def refusal(environ):
    """Why this request may not come in, or None."""
    why = unproven(environ)
    # Google reads `%2D` as `-` in a bucket's name; moto does not.
    environ["RAW_URI"] = environ["REQUEST_URI"] = f"{quote(environ['PATH_INFO'])}?{environ.get('QUERY_STRING', '')}"
    return why


def unproven(environ):
    """What is wrong with the proof of who asks, or None."""
    given = dict(parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True))
    if "X-Goog-Signature" in given:
        when = datetime.datetime.strptime(given["X-Goog-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc)
        if datetime.datetime.now(datetime.timezone.utc) > when + datetime.timedelta(seconds=int(given["X-Goog-Expires"])):
            return "ExpiredToken: Request has expired"
        return None if hmac.compare_digest(signature(environ, given), given["X-Goog-Signature"]) else "SignatureDoesNotMatch"
    # moto would look for a signature of its own kind.
    scheme, _, token = environ.pop("HTTP_AUTHORIZATION", "").partition(" ")
    if scheme != "Bearer":
        return "AccessDenied: not signed"
    try:
        claims = jwt.decode(token, certs=PUBLIC)
    except ValueError as error:
        return f"AccessDenied: {error}"
    return None if (claims["iss"], claims["scope"]) == (EMAIL, SCOPE) else "AccessDenied: somebody else"


if __name__ == "__main__":
    serve(refusal, account=json.dumps(ACCOUNT))
