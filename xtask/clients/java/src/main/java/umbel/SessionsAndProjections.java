package umbel;

import static umbel.CaseContext.blob;
import static umbel.CaseContext.event;
import static umbel.CaseContext.expect;
import static umbel.CaseContext.newStream;
import static umbel.CaseContext.numbers;
import static umbel.CaseContext.refused;

import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.kurrent.dbclient.AppendResponse;
import io.kurrent.dbclient.AppendStreamRequest;
import io.kurrent.dbclient.EventData;
import io.kurrent.dbclient.KurrentDBProjectionManagementClient;
import io.kurrent.dbclient.MultiStreamAppendResponse;
import io.kurrent.dbclient.ProjectionDetails;
import io.kurrent.dbclient.ReadStreamOptions;
import io.kurrent.dbclient.RecordSizeExceededException;
import io.kurrent.dbclient.StreamNotFoundException;
import io.kurrent.dbclient.StreamState;
import io.kurrent.dbclient.StreamTombstonedException;
import io.kurrent.dbclient.TransactionMaxSizeExceededException;
import io.kurrent.dbclient.WrongExpectedVersionException;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/** Multi-stream appends and projections. */
final class SessionsAndProjections {
    private final CaseContext world;
    private final KurrentDBProjectionManagementClient projections;

    SessionsAndProjections(CaseContext world) {
        this.world = world;
        this.projections = KurrentDBProjectionManagementClient.from(world.client);
    }

    void addTo(Map<String, Clients.Case> cases) {
        cases.put("append to several streams in one session", this::appendToSeveral);
        cases.put("see a wrong revision in a session", this::wrongInSession);
        cases.put("see a tombstone in a session", this::tombstoneInSession);
        cases.put("check the limits of a session", this::tooMuchInSession);
        cases.put("list the built-in projections", this::listProjections);
        cases.put("stop, start and reset a projection", this::stopAndStart);
        cases.put("get the state and the result of a projection", this::projectionState);
        cases.put("report a missing projection", this::findNoProjection);
        cases.put("reject projection programs", this::noPrograms);
    }

    private static AppendStreamRequest request(
            String stream, StreamState state, EventData... events) {
        return new AppendStreamRequest(stream, Arrays.asList(events).iterator(), state);
    }

    private CompletableFuture<MultiStreamAppendResponse> session(AppendStreamRequest... requests) {
        return world.client.multiStreamAppend(Arrays.asList(requests).iterator());
    }

    private void appendToSeveral() throws Exception {
        String one = newStream();
        String two = newStream();
        MultiStreamAppendResponse done = CaseContext.wait(session(
                request(one, StreamState.noStream(), event(0), event(1)),
                request(two, StreamState.any(), event(2))));
        List<AppendResponse> results = done.getResults();
        expect(List.of(results.get(0).getStream(), results.get(1).getStream()), List.of(one, two));
        expect(results.get(0).getStreamRevision(), 1L);
        expect(results.get(1).getStreamRevision(), 0L);
        expect(done.getPosition() > 0, true);
        expect(world.all(one), numbers(0, 2));
        expect(world.all(two), List.of(2L));
    }

    private void wrongInSession() throws Exception {
        String one = newStream();
        String two = newStream();
        world.append(one, 0, 2);
        WrongExpectedVersionException why = refused(
                WrongExpectedVersionException.class,
                session(
                        request(two, StreamState.noStream(), event(1)),
                        request(one, StreamState.streamRevision(7), event(2))));
        expect(why.getStreamName(), one);
        expect(why.getExpectedState(), StreamState.streamRevision(7));
        expect(why.getActualState(), StreamState.streamRevision(1));
        refused(
                StreamNotFoundException.class,
                world.client.readStream(two, ReadStreamOptions.get()));
    }

    private void tombstoneInSession() throws Exception {
        String stream = newStream();
        world.append(stream, 0, 1);
        CaseContext.wait(world.client.tombstoneStream(stream));
        StreamTombstonedException why = refused(
                StreamTombstonedException.class,
                session(request(stream, StreamState.any(), event(1))));
        expect(why.getStreamName(), stream);
    }

    private void tooMuchInSession() throws Exception {
        refused(
                RecordSizeExceededException.class,
                session(request(newStream(), StreamState.any(), blob(9_000_000))));
        refused(
                TransactionMaxSizeExceededException.class,
                session(
                        request(newStream(), StreamState.any(), blob(6_000_000)),
                        request(newStream(), StreamState.any(), blob(6_000_000)),
                        request(newStream(), StreamState.any(), blob(6_000_000))));
    }

    private void listProjections() throws Exception {
        Map<String, String> seen = new HashMap<>();
        for (ProjectionDetails one : CaseContext.wait(projections.list())) {
            seen.put(one.getName(), one.getStatus());
        }
        Map<String, String> wanted = Map.of(
                "$by_category", "Running",
                "$by_event_type", "Running",
                "$streams", "Running",
                "$stream_by_category", "Stopped",
                "$by_correlation_id", "Stopped");
        expect(seen, wanted);
    }

    private String status(String name) throws Exception {
        return CaseContext.wait(projections.getStatus(name)).getStatus();
    }

    private void stopAndStart() throws Exception {
        CaseContext.wait((CompletableFuture<?>) projections.disable("$by_category"));
        expect(status("$by_category"), "Stopped");
        CaseContext.wait((CompletableFuture<?>) projections.enable("$by_category"));
        CaseContext.wait((CompletableFuture<?>) projections.abort("$by_category"));
        CaseContext.wait((CompletableFuture<?>) projections.enable("$by_category"));
        CaseContext.wait((CompletableFuture<?>) projections.reset("$by_category"));
        expect(status("$by_category"), "Running");
        CaseContext.wait((CompletableFuture<?>) projections.restartSubsystem());
    }

    private void projectionState() throws Exception {
        expect(CaseContext.wait(projections.getState("$streams", Map.class)), Map.of());
        expect(CaseContext.wait(projections.getResult("$streams", Map.class)), Map.of());
    }

    private static void failsWith(CompletableFuture<?> future, Status.Code code, String text)
            throws Exception {
        StatusRuntimeException why = refused(StatusRuntimeException.class, future);
        expect(why.getStatus().getCode(), code);
        expect(String.valueOf(why.getStatus().getDescription()).contains(text), true);
    }

    private void findNoProjection() throws Exception {
        String missing = "Projection 'mine' not found";
        for (CompletableFuture<?> future : List.<CompletableFuture<?>>of(
                projections.getStatus("mine"),
                projections.enable("mine"),
                projections.disable("mine"),
                projections.reset("mine"),
                projections.delete("mine"),
                projections.update("mine", ""))) {
            failsWith(future, Status.Code.NOT_FOUND, missing);
        }
    }

    private void noPrograms() throws Exception {
        failsWith(
                projections.create("mine", "fromAll()"),
                Status.Code.UNIMPLEMENTED,
                "projections in JavaScript are not run here");
        failsWith(projections.create("$by_category", ""), Status.Code.ALREADY_EXISTS, "");
        failsWith(
                projections.enable("$by_correlation_id"),
                Status.Code.UNIMPLEMENTED,
                "is not kept by this server");
    }
}
