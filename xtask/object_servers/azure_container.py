"""Waits for an Azurite server, and creates a container.

azure_container.py ENDPOINT ACCOUNT KEY CONTAINER, where ENDPOINT ends with the account.
"""

import base64
import email.utils
import hashlib
import hmac
import sys
import time
import urllib.error
import urllib.request

SECONDS_MAX = 60
VERSION = "2023-11-03"


def create(endpoint, account, key, container):
    """Creates the container. A container that exists is the aim, too."""
    date = email.utils.formatdate(usegmt=True)
    headers = f"x-ms-date:{date}\nx-ms-version:{VERSION}\n"
    resource = f"/{account}/{account}/{container}\nrestype:container"
    text = "PUT" + "\n" * 12 + headers + resource
    digest = hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()
    signature = base64.b64encode(digest).decode()
    request = urllib.request.Request(f"{endpoint}/{container}?restype=container", method="PUT")
    request.add_header("x-ms-date", date)
    request.add_header("x-ms-version", VERSION)
    request.add_header("Content-Length", "0")
    request.add_header("Authorization", f"SharedKey {account}:{signature}")
    try:
        urllib.request.urlopen(request, timeout=5).read()
    except urllib.error.HTTPError as error:
        if error.code != 409:
            raise


def main():
    end = time.monotonic() + SECONDS_MAX
    while True:
        try:
            return create(*sys.argv[1:])
        except Exception as error:
            if time.monotonic() > end:
                sys.exit(f"{sys.argv[1]}: {error}")
            time.sleep(0.5)


if __name__ == "__main__":
    main()
