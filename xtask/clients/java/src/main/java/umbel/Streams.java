package umbel;

import static umbel.CaseContext.blob;
import static umbel.CaseContext.event;
import static umbel.CaseContext.events;
import static umbel.CaseContext.expect;
import static umbel.CaseContext.newStream;
import static umbel.CaseContext.numbers;
import static umbel.CaseContext.numbersOf;
import static umbel.CaseContext.refused;

import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.kurrent.dbclient.AppendToStreamOptions;
import io.kurrent.dbclient.DeleteStreamOptions;
import io.kurrent.dbclient.EventData;
import io.kurrent.dbclient.KurrentDBClient;
import io.kurrent.dbclient.ReadAllOptions;
import io.kurrent.dbclient.ReadStreamOptions;
import io.kurrent.dbclient.RecordedEvent;
import io.kurrent.dbclient.ServerVersion;
import io.kurrent.dbclient.StreamDeletedException;
import io.kurrent.dbclient.StreamMetadata;
import io.kurrent.dbclient.StreamNotFoundException;
import io.kurrent.dbclient.StreamState;
import io.kurrent.dbclient.WriteResult;
import io.kurrent.dbclient.WrongExpectedVersionException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.UUID;

/** Appends, reads, deletions, metadata. */
final class Streams {
    private final CaseContext world;

    Streams(CaseContext world) {
        this.world = world;
    }

    void addTo(Map<String, Clients.Case> cases) {
        cases.put("append an event and read it back", this::appendAndRead);
        cases.put("append bytes", this::appendBytes);
        cases.put("append four megabytes", this::appendLarge);
        cases.put("reject an append over the limit", this::appendTooLarge);
        cases.put("append in each expected state", this::appendInEachState);
        cases.put("append the same events again", this::appendAgain);
        cases.put("see a wrong expected version", this::wrongVersion);
        cases.put("read a stream forwards and backwards", this::readBothWays);
        cases.put("see where a stream ends", this::streamEnds);
        cases.put("read all forwards and backwards", this::readAllBothWays);
        cases.put("report a missing stream", this::findNoStream);
        cases.put("observe a deadline", this::keepDeadline);
        cases.put("set and get the metadata of a stream", this::metadata);
        cases.put("delete a stream and create it again", this::deleteAndRecreate);
        cases.put("tombstone a stream", this::tombstone);
        cases.put("get the server's version", this::serverVersion);
        cases.put("find the leader by gossip", this::gossip);
    }

    private void appendAndRead() throws Exception {
        String stream = newStream();
        UUID id = UUID.randomUUID();
        byte[] data = "{\"n\":7}".getBytes(StandardCharsets.UTF_8);
        byte[] metadata = "{\"trace\":\"7\"}".getBytes(StandardCharsets.UTF_8);
        EventData sent = EventData.builderAsJson(id, "Counted", data).metadataAsBytes(metadata).build();
        WriteResult done = CaseContext.wait(world.begin(stream, StreamState.noStream(), sent));
        expect(done.getNextExpectedRevision(), StreamState.streamRevision(0));
        RecordedEvent seen = world.events(stream, ReadStreamOptions.get()).get(0).getEvent();
        expect(List.of(seen.getEventId(), seen.getEventType()), List.of(id, "Counted"));
        expect(List.of(seen.getStreamId(), seen.getRevision()), List.of(stream, 0L));
        expect(seen.getContentType(), "application/json");
        expect(Arrays.equals(seen.getEventData(), data), true);
        String user = new String(seen.getUserMetadata(), StandardCharsets.UTF_8);
        expect(user.contains("\"trace\":\"7\""), true);
        expect(seen.getPosition(), done.getLogPosition());
        Duration age = Duration.between(seen.getCreated(), Instant.now()).abs();
        expect(age.compareTo(Duration.ofMinutes(1)) < 0, true);
    }

    private void appendBytes() throws Exception {
        String stream = newStream();
        byte[] data = new byte[256];
        for (int at = 0; at < data.length; at++) {
            data[at] = (byte) at;
        }
        EventData sent = EventData.builderAsBinary("Blob", data).build();
        CaseContext.wait(world.begin(stream, StreamState.any(), sent));
        RecordedEvent seen = world.events(stream, ReadStreamOptions.get()).get(0).getEvent();
        expect(seen.getContentType(), "application/octet-stream");
        expect(Arrays.equals(seen.getEventData(), data), true);
    }

    private void appendLarge() throws Exception {
        String stream = newStream();
        CaseContext.wait(world.begin(stream, StreamState.any(), blob(4_000_000)));
        RecordedEvent seen = world.events(stream, ReadStreamOptions.get()).get(0).getEvent();
        expect(seen.getEventData().length, 4_000_000);
    }

    private void appendTooLarge() throws Exception {
        EventData[] three = {blob(7_000_000), blob(7_000_000), blob(7_000_000)};
        StatusRuntimeException why = refused(
                StatusRuntimeException.class, world.begin(newStream(), StreamState.any(), three));
        expect(why.getStatus().getCode(), Status.Code.INVALID_ARGUMENT);
        expect(world.append(newStream(), 0, 1).getNextExpectedRevision(), StreamState.streamRevision(0));
    }

    private void appendInEachState() throws Exception {
        String stream = newStream();
        StreamState[] states = {
            StreamState.noStream(),
            StreamState.any(),
            StreamState.streamExists(),
            StreamState.streamRevision(2)
        };
        for (int at = 0; at < states.length; at++) {
            WriteResult done = CaseContext.wait(world.begin(stream, states[at], event(at)));
            expect(done.getNextExpectedRevision(), StreamState.streamRevision(at));
        }
        expect(world.all(stream), numbers(0, 4));
    }

    private void appendAgain() throws Exception {
        String stream = newStream();
        EventData[] events = events(0, 2);
        WriteResult first = CaseContext.wait(world.begin(stream, StreamState.noStream(), events));
        WriteResult again = CaseContext.wait(world.begin(stream, StreamState.noStream(), events));
        expect(again.getLogPosition(), first.getLogPosition());
        expect(again.getNextExpectedRevision(), first.getNextExpectedRevision());
        expect(world.all(stream), numbers(0, 2));
    }

    private void wrongVersion() throws Exception {
        String stream = newStream();
        world.append(stream, 0, 2);
        for (long expected : new long[] {0, 7}) {
            StreamState state = StreamState.streamRevision(expected);
            WrongExpectedVersionException why = refused(
                    WrongExpectedVersionException.class, world.begin(stream, state, event(9)));
            expect(why.getStreamName(), stream);
            expect(why.getExpectedState(), state);
            expect(why.getActualState(), StreamState.streamRevision(1));
        }
        Class<WrongExpectedVersionException> kind = WrongExpectedVersionException.class;
        refused(kind, world.begin(stream, StreamState.noStream(), event(9)));
        WrongExpectedVersionException why =
                refused(kind, world.begin(newStream(), StreamState.streamExists(), event(9)));
        expect(why.getActualState(), StreamState.noStream());
    }

    private void readBothWays() throws Exception {
        String stream = newStream();
        world.append(stream, 0, 100);
        ReadStreamOptions some = ReadStreamOptions.get().fromRevision(40).maxCount(3);
        expect(world.read(stream, some), List.of(40L, 41L, 42L));
        expect(world.all(stream), numbers(0, 100));
        ReadStreamOptions last = ReadStreamOptions.get().backwards().fromEnd().maxCount(2);
        expect(world.read(stream, last), List.of(99L, 98L));
        ReadStreamOptions first = ReadStreamOptions.get().backwards().fromRevision(2);
        expect(world.read(stream, first), List.of(2L, 1L, 0L));
    }

    private void streamEnds() throws Exception {
        String stream = newStream();
        world.append(stream, 0, 5);
        ReadStreamOptions two = ReadStreamOptions.get().fromStart().maxCount(2);
        expect(CaseContext.wait(world.client.readStream(stream, two)).getLastStreamPosition(), 4L);
    }

    private void readAllBothWays() throws Exception {
        String stream = newStream();
        WriteResult first = world.append(stream, 0, 1);
        world.append(stream, 1, 5);
        ReadAllOptions forwards =
                ReadAllOptions.get().fromPosition(first.getLogPosition()).maxCount(5);
        expect(numbersOf(CaseContext.wait(world.client.readAll(forwards)).getEvents()), numbers(0, 5));
        ReadAllOptions back = ReadAllOptions.get().backwards().fromEnd().maxCount(5);
        List<Long> seen = numbersOf(CaseContext.wait(world.client.readAll(back)).getEvents());
        expect(seen, CaseContext.backwards(numbers(0, 5)));
    }

    private void findNoStream() throws Exception {
        String stream = newStream();
        StreamNotFoundException why = refused(
                StreamNotFoundException.class,
                world.client.readStream(stream, ReadStreamOptions.get()));
        expect(why.getStreamName(), stream);
        refused(WrongExpectedVersionException.class, world.client.deleteStream(newStream()));
    }

    private void keepDeadline() throws Exception {
        AppendToStreamOptions options = AppendToStreamOptions.get().deadline(60_000);
        CaseContext.wait(world.client.appendToStream(newStream(), options, event(1)));
    }

    private void metadata() throws Exception {
        String stream = newStream();
        world.append(stream, 0, 5);
        StreamMetadata wanted = new StreamMetadata();
        wanted.setMaxCount(2L);
        CaseContext.wait(world.client.setStreamMetadata(stream, wanted));
        expect(CaseContext.wait(world.client.getStreamMetadata(stream)).getMaxCount(), 2L);
        expect(world.all(stream), List.of(3L, 4L));
    }

    private void deleteAndRecreate() throws Exception {
        String stream = newStream();
        world.append(stream, 0, 2);
        DeleteStreamOptions wrong = DeleteStreamOptions.get().streamRevision(5);
        WrongExpectedVersionException why = refused(
                WrongExpectedVersionException.class, world.client.deleteStream(stream, wrong));
        expect(why.getActualState(), StreamState.streamRevision(1));
        DeleteStreamOptions right = DeleteStreamOptions.get().streamRevision(1);
        CaseContext.wait(world.client.deleteStream(stream, right));
        refused(
                StreamNotFoundException.class,
                world.client.readStream(stream, ReadStreamOptions.get()));
        WriteResult done = CaseContext.wait(world.begin(stream, StreamState.noStream(), event(2)));
        expect(done.getNextExpectedRevision(), StreamState.streamRevision(2));
        expect(world.all(stream), List.of(2L));
    }

    private void tombstone() throws Exception {
        String stream = newStream();
        world.append(stream, 0, 1);
        CaseContext.wait(world.client.tombstoneStream(stream));
        Class<StreamDeletedException> kind = StreamDeletedException.class;
        refused(kind, world.begin(stream, StreamState.any(), event(1)));
        refused(kind, world.client.deleteStream(stream));
        // The client returns the error of a read unchanged.
        StatusRuntimeException why = refused(
                StatusRuntimeException.class,
                world.client.readStream(stream, ReadStreamOptions.get()));
        expect(why.getStatus().getCode(), Status.Code.FAILED_PRECONDITION);
        expect(why.getStatus().getDescription(), "Event stream '" + stream + "' is deleted.");
    }

    private void serverVersion() throws Exception {
        ServerVersion version = CaseContext.wait(world.client.getServerVersion()).orElseThrow();
        expect(version.isGreaterOrEqualThan(26, 1), true);
        expect(version.isLessThan(26, 2, 0), true);
    }

    private void gossip() throws Exception {
        String discover = world.connection.replace("kurrentdb://", "kurrentdb+discover://");
        KurrentDBClient found = Clients.connect(discover);
        CaseContext.wait(found.appendToStream(newStream(), event(1)));
        CaseContext.wait(found.shutdown());
    }
}
