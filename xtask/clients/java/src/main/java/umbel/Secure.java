package umbel;

import static umbel.CaseContext.event;
import static umbel.CaseContext.expect;
import static umbel.CaseContext.newStream;
import static umbel.CaseContext.numbers;
import static umbel.CaseContext.numbersOf;
import static umbel.CaseContext.refused;

import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.kurrent.dbclient.Acl;
import io.kurrent.dbclient.Acls;
import io.kurrent.dbclient.AppendStreamRequest;
import io.kurrent.dbclient.KurrentDBPersistentSubscriptionsClient;
import io.kurrent.dbclient.KurrentDBProjectionManagementClient;
import io.kurrent.dbclient.ReadStreamOptions;
import io.kurrent.dbclient.StreamMetadata;
import io.kurrent.dbclient.StreamState;
import io.kurrent.dbclient.SubscribeToStreamOptions;
import io.kurrent.dbclient.WriteResult;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/**
 * A TLS server that authenticates users. The passwords of admin and ops are first and second; the
 * folder has ca.crt (the authority of the server), strange.crt (another authority), and ops.crt
 * with ops.key, a certificate of the user ops.
 */
final class Secure {
    private final String connection;
    private final Path folder;
    private final CaseContext admin;
    private final CaseContext ops;

    Secure(String connection, String folder) {
        this.connection = connection;
        this.folder = Path.of(folder);
        this.admin = as("admin:first");
        this.ops = as("ops:second");
    }

    void addTo(Map<String, Clients.Case> cases) {
        cases.put("append and read encrypted with a password", this::withPassword);
        cases.put("authenticate one call", this::oneCall);
        cases.put("reject a missing and a wrong password", this::wrongPassword);
        cases.put("authenticate by a user certificate", this::userCertificate);
        cases.put("reject a server without a trusted certificate", this::strangeServer);
        cases.put("obey the ACL of a stream", this::obeyAcl);
        cases.put("use the general ACL by name", this::generalAcl);
        cases.put("end a subscription after its permission is revoked", this::rightTakenAway);
        cases.put("consume with read permission only", this::consumeReadable);
        cases.put("require permission for groups and projections", this::leaveToOperators);
    }

    private CaseContext by(String authority, String user, String more) {
        String at = user.isEmpty() ? "" : user + "@";
        String string = connection.replace("://", "://" + at) + "?tlsCaFile=" + folder.resolve(authority);
        return new CaseContext(string + more, "");
    }

    /** Returns a world with the client of this user, or anonymous. */
    private CaseContext as(String user) {
        return by("ca.crt", user, "");
    }

    private static void status(Status.Code code, CompletableFuture<?> future) throws Exception {
        StatusRuntimeException why = refused(StatusRuntimeException.class, future);
        expect(why.getStatus().getCode(), code);
    }

    private static void denied(CompletableFuture<?> future) throws Exception {
        status(Status.Code.PERMISSION_DENIED, future);
    }

    private static CompletableFuture<WriteResult> rule(CaseContext user, String stream, Acl acl) {
        StreamMetadata metadata = new StreamMetadata();
        metadata.setAcl(acl);
        return user.client.setStreamMetadata(stream, metadata);
    }

    private static Acl forAdmin() {
        return Acls.newStreamAcl()
                .addReadRoles("admin")
                .addWriteRoles("$ops")
                .addDeleteRoles("admin")
                .addMetaReadRoles("admin")
                .addMetaWriteRoles("admin");
    }

    private static CompletableFuture<?> peek(CaseContext user, String stream) {
        return user.client.readStream(stream, ReadStreamOptions.get().fromStart());
    }

    /** Creates a stream of admin with one event. */
    private String ownStream(Acl acl) throws Exception {
        String stream = newStream();
        admin.append(stream, 0, 1);
        if (acl != null) {
            CaseContext.wait(rule(admin, stream, acl));
        }
        return stream;
    }

    private void withPassword() throws Exception {
        String stream = ownStream(null);
        ops.append(stream, 1, 2);
        expect(ops.all(stream), numbers(0, 2));
    }

    private void oneCall() throws Exception {
        String stream = ownStream(forAdmin());
        denied(peek(ops, stream));
        ReadStreamOptions options = ReadStreamOptions.get().fromStart();
        options.authenticated("admin", "first");
        expect(numbersOf(ops.events(stream, options)), numbers(0, 1));
        options.authenticated("admin", "second");
        status(Status.Code.UNAUTHENTICATED, ops.client.readStream(stream, options));
    }

    private void wrongPassword() throws Exception {
        denied(as("").begin(newStream(), StreamState.any(), event(0)));
        for (String user : List.of("admin:second", "unknown:first")) {
            CaseContext other = as(user);
            status(
                    Status.Code.UNAUTHENTICATED,
                    other.begin(newStream(), StreamState.any(), event(0)));
            status(Status.Code.UNAUTHENTICATED, peek(other, newStream()));
        }
    }

    private void userCertificate() throws Exception {
        String stream = ownStream(Acls.newStreamAcl().addReadRoles("ops").addWriteRoles("ops"));
        String more = "&userCertFile=" + folder.resolve("ops.crt");
        CaseContext user = by("ca.crt", "", more + "&userKeyFile=" + folder.resolve("ops.key"));
        user.append(stream, 1, 2);
        expect(user.all(stream), numbers(0, 2));
    }

    private void strangeServer() throws Exception {
        CaseContext user = by("strange.crt", "admin:first", "&maxDiscoverAttempts=1");
        refused(Exception.class, user.begin(newStream(), StreamState.any(), event(0)));
    }

    private static CompletableFuture<?> session(CaseContext user, String... streams) {
        return user.client.multiStreamAppend(List.of(streams).stream()
                .map(stream -> new AppendStreamRequest(
                        stream, List.of(event(2)).iterator(), StreamState.any()))
                .iterator());
    }

    private void obeyAcl() throws Exception {
        String stream = ownStream(forAdmin());
        denied(peek(ops, stream));
        ops.append(stream, 1, 2);
        // This client wraps the errors of metadata reads.
        RuntimeException why =
                refused(RuntimeException.class, ops.client.getStreamMetadata(stream));
        expect(Status.fromThrowable(why).getCode(), Status.Code.PERMISSION_DENIED);
        denied(rule(ops, stream, Acls.newUserStreamAcl()));
        denied(ops.client.deleteStream(stream));
        CaseContext.wait(session(ops, stream));
        expect(admin.all(stream), numbers(0, 3));
        expect(CaseContext.wait(admin.client.getStreamMetadata(stream)).getAcl(), forAdmin());
        String hidden = ownStream(Acls.newSystemStreamAcl());
        denied(session(ops, stream, hidden));
        CaseContext.wait(admin.client.deleteStream(stream));
    }

    private void generalAcl() throws Exception {
        String stream = ownStream(Acls.newSystemStreamAcl());
        denied(peek(ops, stream));
        CaseContext.wait(rule(admin, stream, Acls.newUserStreamAcl()));
        expect(ops.all(stream), numbers(0, 1));
    }

    private void rightTakenAway() throws Exception {
        String stream = ownStream(null);
        CaseContext.Followed followed = ops.follow(stream, SubscribeToStreamOptions.get().fromStart());
        expect(followed.take(1), numbers(0, 1));
        CaseContext.wait(rule(admin, stream, forAdmin()));
        admin.append(stream, 1, 2);
        Status why = Status.fromThrowable(followed.dropped());
        expect(why.getCode(), Status.Code.PERMISSION_DENIED);
    }

    private void consumeReadable() throws Exception {
        String stream = ownStream(null);
        String hidden = ownStream(forAdmin());
        KurrentDBPersistentSubscriptionsClient client =
                KurrentDBPersistentSubscriptionsClient.from(ops.client);
        Groups.done(client.createToStream(stream, "group", Groups.soon()));
        Groups.done(client.createToStream(hidden, "group", Groups.soon()));
        Groups groups = new Groups(ops);
        Groups.Consumer consumer = groups.join(stream);
        expect(consumer.acknowledge(1), numbers(0, 1));
        groups.untilDone(stream, 0);
        consumer.group.stop();
        denied(client.subscribeToStream(hidden, "group", new Groups.Consumer()));
    }

    private void leaveToOperators() throws Exception {
        String stream = ownStream(null);
        KurrentDBPersistentSubscriptionsClient client =
                KurrentDBPersistentSubscriptionsClient.from(ops.client);
        Groups.done(client.createToStream(stream, "group", Groups.soon()));
        CaseContext anonymous = as("");
        KurrentDBPersistentSubscriptionsClient groups =
                KurrentDBPersistentSubscriptionsClient.from(anonymous.client);
        denied(groups.deleteToStream(stream, "group"));
        denied(groups.listAll());
        denied(KurrentDBProjectionManagementClient.from(anonymous.client).disable("$by_category"));
        Groups.done(client.deleteToStream(stream, "group"));
    }
}
