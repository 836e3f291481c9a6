"""The Python client, unchanged, against a TLS server that authenticates users.

    python python_secure.py CONNECTION FOLDER

CONNECTION names the server without a user. FOLDER has ca.crt (the authority of the server) and
strange.crt (another authority). The passwords of admin and ops are first and second. Each case
prints a line; the last line counts passed, failed and skipped cases.
"""

import json
import sys
from pathlib import Path
from uuid import uuid4

from kurrentdbclient import KurrentDBClient, NewEvent, StreamState
from kurrentdbclient.exceptions import (
    AccessDeniedError,
    DiscoveryFailedError,
    ServiceUnavailableError,
    UnauthenticatedError,
)

# An isolated interpreter does not look into the folder of the program.
sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from case_list import CaseList, fails

case = CaseList()
CONNECTION, FOLDER = sys.argv[1], Path(sys.argv[2])


def connect(user, ca="ca.crt"):
    # This client requires a user with TLS.
    scheme, host = CONNECTION.split("://")
    return KurrentDBClient(uri=f"{scheme}://{user}@{host}?tlsCaFile={FOLDER / ca}")


def counted(n):
    return NewEvent(type="Counted", data=json.dumps({"n": n}).encode())


def append(client, stream, n=0):
    return client.append_to_stream(stream, current_version=StreamState.ANY, events=[counted(n)])


def rule(client, stream, **acl):
    metadata = {"$acl": {f"${right}": names for right, names in acl.items()}}
    client.set_stream_metadata(stream, metadata=metadata, current_version=StreamState.ANY)


def new_stream(admin, **acl):
    stream = f"secure-{uuid4()}"
    append(admin, stream)
    rule(admin, stream, **acl)
    return stream


@case
def append_and_read_encrypted_with_a_password(admin, ops):
    stream = new_stream(admin)
    assert append(ops, stream, 1) > 0
    read = [json.loads(event.data)["n"] for event in ops.get_stream(stream)]
    assert read == [0, 1], read


@case
def reject_a_wrong_password(admin, ops):
    for user in ("admin:second", "unknown:first"):
        wrong = connect(user)
        fails(UnauthenticatedError, lambda: append(wrong, "secure-wrong"))
        wrong.close()


@case
def reject_a_server_without_a_trusted_certificate(admin, ops):
    def work():
        # This client asks for the leader as soon as it connects.
        strange = connect("admin:first", ca="strange.crt")
        append(strange, "secure-strange")

    fails((ServiceUnavailableError, DiscoveryFailedError), work)


@case
def obey_the_acl_of_a_stream(admin, ops):
    stream = new_stream(admin, r=["admin"], w=["$ops"], d=["admin"], mr=["admin"], mw=["admin"])
    fails(AccessDeniedError, lambda: ops.get_stream(stream))
    append(ops, stream)
    fails(AccessDeniedError, lambda: ops.get_stream_metadata(stream))
    fails(AccessDeniedError, lambda: rule(ops, stream, r=["ops"]))
    fails(AccessDeniedError, lambda: ops.delete_stream(stream, current_version=StreamState.ANY))
    assert len(admin.get_stream(stream)) == 2
    admin.delete_stream(stream, current_version=StreamState.ANY)


@case
def end_a_subscription_after_its_permission_is_revoked(admin, ops):
    stream = new_stream(admin)
    subscription = ops.subscribe_to_stream(stream)
    assert next(subscription).stream_position == 0
    rule(admin, stream, r=["admin"])
    append(admin, stream)
    fails(AccessDeniedError, lambda: next(subscription))


@case
def read_all_events_as_an_administrator_only(admin, ops):
    fails(AccessDeniedError, lambda: list(ops.read_all(limit=5)))
    new_stream(admin)
    assert len(list(admin.read_all(limit=1))) == 1


@case
def consume_with_read_permission_only(admin, ops):
    stream, hidden = new_stream(admin), new_stream(admin, r=["admin"])
    for of in (stream, hidden):
        ops.create_subscription_to_stream("group", of)
    subscription = ops.read_subscription_to_stream("group", stream)
    subscription.ack(next(subscription))
    subscription.stop()
    fails(AccessDeniedError, lambda: next(ops.read_subscription_to_stream("group", hidden)))


def main():
    admin, ops = connect("admin:first"), connect("ops:second")
    outcome = case.run(admin, ops)
    admin.close()
    ops.close()
    return outcome


sys.exit(main())
