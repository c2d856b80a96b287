"""Ends with 0 if the server at HOST:PORT, its HTTP port, is alive: `python healthcheck.py 127.0.0.1:9999`.

A port speaks HTTP or HTTPS, and warns in the log of a client that tries the other one. So HTTPS comes first only if the environment has a
certificate for the server; the other one comes second. The certificate is not checked: it is for the name that clients use, and this
program for loopback.
"""

import http.client
import os
import ssl
import sys

TIMEOUT_S = 1.0


def is_alive(address: str) -> bool:
    """Whether /healthz answers 200, with TLS or without."""
    kinds = [is_healthy_without_tls, is_healthy_with_tls]
    if os.environ.get("PINLATER_TLS_CERTIFICATE_FILE"):
        kinds.reverse()
    return any(is_healthy(address) for is_healthy in kinds)


def is_healthy_without_tls(address: str) -> bool:
    return is_ok(http.client.HTTPConnection(address, timeout=TIMEOUT_S))


def is_healthy_with_tls(address: str) -> bool:
    unchecked = ssl.create_default_context()
    unchecked.check_hostname = False
    unchecked.verify_mode = ssl.CERT_NONE
    return is_ok(http.client.HTTPSConnection(address, timeout=TIMEOUT_S, context=unchecked))


def is_ok(connection: http.client.HTTPConnection) -> bool:
    """Whether the page answers 200; False, too, if no answer comes."""
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException) as error:
        print(error, file=sys.stderr)  # `docker inspect` shows it
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(0 if is_alive(sys.argv[1]) else 1)
