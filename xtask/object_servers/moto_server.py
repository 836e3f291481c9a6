"""Runs moto as an S3 server with access control, until standard input ends.

With --ignore-conditions the server has no access control, and overwrites an object although the
request says that it must be absent.

Prints one line of settings, NAME=VALUE with tabs between, once the server takes requests:

- `endpoint` and `bucket`: where the store is;
- `id`, `secret`: a user with all rights;
- `reader_id`, `reader_secret`: a user who may read and list only.
"""

import functools
import json
import logging
import sys
import threading

import boto3
import moto.settings
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.s3.responses import S3Response
from werkzeug.serving import make_server

REGION = "us-east-1"
BUCKET = "umbel-test"
READ_ONLY = ["s3:GetObject", "s3:ListBucket"]


def user(iam, name, actions):
    """Creates a user who may do these actions, and returns the id and the secret of its key."""
    statement = {"Effect": "Allow", "Action": actions, "Resource": "*"}
    policy = {"Version": "2012-10-17", "Statement": [statement]}
    iam.create_user(UserName=name)
    iam.put_user_policy(UserName=name, PolicyName=name, PolicyDocument=json.dumps(policy))
    key = iam.create_access_key(UserName=name)["AccessKey"]
    return key["AccessKeyId"], key["SecretAccessKey"]


def without_conditions(application):
    """Returns the application without the conditions of requests."""

    def run(environ, start_response):
        environ.pop("HTTP_IF_NONE_MATCH", None)
        return application(environ, start_response)

    return run


def run_alone(names):
    """Lets one thread at a time run these methods of S3Response.

    moto checks a condition and writes in two steps. Two of its threads can both create an object.
    """
    lock = threading.RLock()

    def alone(method):
        @functools.wraps(method)
        def run(*arguments, **named):
            with lock:
                return method(*arguments, **named)

        return run

    for name in names:
        setattr(S3Response, name, alone(getattr(S3Response, name)))


def main():
    run_alone(["put_object", "_key_response_post"])
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    ignores_conditions = sys.argv[1:] == ["--ignore-conditions"]
    application = DomainDispatcherApplication(create_backend_app)
    if ignores_conditions:
        application = without_conditions(application)
    server = make_server("127.0.0.1", 0, application, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    settings = {
        "endpoint_url": endpoint,
        "region_name": REGION,
        "aws_access_key_id": "setup",
        "aws_secret_access_key": "setup",
    }
    boto3.client("s3", **settings).create_bucket(Bucket=BUCKET)
    iam = boto3.client("iam", **settings)
    full_id, full_secret = user(iam, "writer", ["s3:*"])
    read_id, read_secret = user(iam, "reader", READ_ONLY)
    if not ignores_conditions:
        # From here on each request needs a valid signature and a policy that allows it.
        moto.settings.INITIAL_NO_AUTH_ACTION_COUNT = 0.0
    line = {
        "endpoint": endpoint,
        "bucket": BUCKET,
        "id": full_id,
        "secret": full_secret,
        "reader_id": read_id,
        "reader_secret": read_secret,
    }
    print("\t".join(f"{name}={value}" for name, value in line.items()), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
