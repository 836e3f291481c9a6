package umbel;

import static umbel.CaseContext.expect;
import static umbel.CaseContext.newStream;
import static umbel.CaseContext.numbers;
import static umbel.CaseContext.refused;

import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.kurrent.dbclient.CreatePersistentSubscriptionToAllOptions;
import io.kurrent.dbclient.CreatePersistentSubscriptionToStreamOptions;
import io.kurrent.dbclient.KurrentDBPersistentSubscriptionsClient;
import io.kurrent.dbclient.NackAction;
import io.kurrent.dbclient.PersistentSubscription;
import io.kurrent.dbclient.PersistentSubscriptionListener;
import io.kurrent.dbclient.PersistentSubscriptionToAllInfo;
import io.kurrent.dbclient.PersistentSubscriptionToAllStats;
import io.kurrent.dbclient.PersistentSubscriptionToStreamInfo;
import io.kurrent.dbclient.ResolvedEvent;
import io.kurrent.dbclient.SubscriptionFilter;
import io.kurrent.dbclient.UpdatePersistentSubscriptionToStreamOptions;
import io.kurrent.dbclient.WriteResult;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** Persistent subscriptions. */
final class Groups {
    private final CaseContext world;
    private final KurrentDBPersistentSubscriptionsClient client;

    Groups(CaseContext world) {
        this.world = world;
        this.client = KurrentDBPersistentSubscriptionsClient.from(world.client);
    }

    void addTo(Map<String, Clients.Case> cases) {
        cases.put("share the events of a stream", this::shareStream);
        cases.put("take over from a consumer that stops", this::takeOver);
        cases.put("retry, skip, park and replay", this::retrySkipPark);
        cases.put("share all events with a filter", this::shareAll);
        cases.put("share a category", this::shareCategory);
        cases.put("change and delete a group", this::changeAndDelete);
        cases.put("list groups and restart them", this::listAndRestart);
        cases.put("report a missing group", this::findNoGroup);
    }

    /** A consumer and the messages that it received. */
    static final class Consumer extends PersistentSubscriptionListener {
        private final LinkedBlockingQueue<Object> received = new LinkedBlockingQueue<>();
        PersistentSubscription group;

        @Override
        public void onEvent(PersistentSubscription group, int retries, ResolvedEvent event) {
            received.add(Map.entry(retries, event));
        }

        @Override
        public void onCancelled(PersistentSubscription group, Throwable why) {
            received.add(why == null ? "cancelled" : why);
        }

        private Object next() throws Exception {
            Object next = received.poll(60, TimeUnit.SECONDS);
            return Objects.requireNonNull(next, "nothing was received in time");
        }

        /** Returns the next event and its number of retries. */
        @SuppressWarnings("unchecked")
        Map.Entry<Integer, ResolvedEvent> event() throws Exception {
            Object next = next();
            if (next instanceof Map.Entry) {
                return (Map.Entry<Integer, ResolvedEvent>) next;
            }
            throw new AssertionError(next);
        }

        /** Acknowledges the given number of events and returns their numbers. */
        List<Long> acknowledge(int count) throws Exception {
            List<Long> seen = new ArrayList<>();
            while (seen.size() < count) {
                ResolvedEvent event = event().getValue();
                seen.add(CaseContext.number(event));
                group.ack(event);
            }
            return seen;
        }

        /** Checks that the server drops it with this status; earlier messages are ignored. */
        void dropped(Status.Code code) throws Exception {
            Object next = next();
            while (next instanceof Map.Entry) {
                next = next();
            }
            if (next instanceof Throwable) {
                expect(Status.fromThrowable((Throwable) next).getCode(), code);
            } else {
                throw new AssertionError(next);
            }
        }
    }

    static void until(Callable<Boolean> isSo) throws Exception {
        for (int times = 0; !isSo.call(); times++) {
            expect(times < 200, true);
            Thread.sleep(50);
        }
    }

    /** Options with a checkpoint after each event. */
    static CreatePersistentSubscriptionToStreamOptions soon() {
        return CreatePersistentSubscriptionToStreamOptions.get()
                .fromStart()
                .checkpointLowerBound(1)
                .checkpointUpperBound(1);
    }

    /** Creates a stream of events with the numbers below this one, and a group on it. */
    private String newGroup(long count) throws Exception {
        String stream = newStream();
        if (count > 0) {
            world.append(stream, 0, count);
        }
        done(client.createToStream(stream, "group", soon()));
        return stream;
    }

    static void done(CompletableFuture<?> future) throws Exception {
        CaseContext.wait(future);
    }

    Consumer join(String stream) throws Exception {
        Consumer consumer = new Consumer();
        consumer.group = CaseContext.wait(client.subscribeToStream(stream, "group", consumer));
        return consumer;
    }

    private PersistentSubscriptionToStreamInfo info(String stream) throws Exception {
        return CaseContext.wait(client.getInfoToStream(stream, "group")).orElseThrow();
    }

    private void untilParked(String stream, long count) throws Exception {
        until(() -> info(stream).getStats().getParkedMessageCount() == count);
    }

    void untilDone(String stream, long revision) throws Exception {
        until(() -> info(stream)
                .getStats()
                .getLastCheckpointedEventRevision()
                .filter(last -> last == revision)
                .isPresent());
    }

    private void shareStream() throws Exception {
        String stream = newGroup(3);
        Consumer first = join(stream);
        expect(first.acknowledge(3), numbers(0, 3));
        world.append(stream, 3, 4);
        expect(first.acknowledge(1), numbers(3, 4));
        untilDone(stream, 3);
        first.group.stop();
        until(() -> info(stream).getConnections().isEmpty());
        world.append(stream, 4, 5);
        Consumer second = join(stream);
        expect(second.acknowledge(1), numbers(4, 5));
        PersistentSubscriptionToStreamInfo seen = info(stream);
        expect(List.of(seen.getEventSource(), seen.getGroupName()), List.of(stream, "group"));
        expect(seen.getSettings().getCheckpointUpperBound(), 1);
        expect(seen.getConnections().size(), 1);
        second.group.stop();
    }

    private void takeOver() throws Exception {
        String stream = newGroup(3);
        Consumer first = join(stream);
        for (long n = 0; n < 3; n++) {
            expect(CaseContext.number(first.event().getValue()), n);
        }
        first.group.stop();
        Consumer second = join(stream);
        for (long n = 0; n < 3; n++) {
            Map.Entry<Integer, ResolvedEvent> again = second.event();
            expect(CaseContext.number(again.getValue()), n);
            expect(again.getKey(), 1);
            second.group.ack(again.getValue());
        }
        second.group.stop();
    }

    private void retrySkipPark() throws Exception {
        String stream = newGroup(3);
        Consumer consumer = join(stream);
        NackAction[] actions = {NackAction.Retry, NackAction.Skip, NackAction.Park};
        List<ResolvedEvent> events = new ArrayList<>();
        for (long n = 0; n < 3; n++) {
            events.add(consumer.event().getValue());
            expect(CaseContext.number(events.get((int) n)), n);
        }
        for (int at = 0; at < 3; at++) {
            consumer.group.nack(actions[at], "because", events.get(at));
        }
        Map.Entry<Integer, ResolvedEvent> again = consumer.event();
        expect(List.of(again.getKey(), CaseContext.number(again.getValue())), List.of(1, 0L));
        consumer.group.ack(again.getValue());
        untilParked(stream, 1);
        done(client.replayParkedMessagesToStream(stream, "group"));
        expect(consumer.acknowledge(1), List.of(2L));
        untilParked(stream, 0);
        consumer.group.stop();
    }

    private PersistentSubscriptionToAllStats statsToAll(String name) throws Exception {
        return CaseContext.wait(client.getInfoToAll(name)).orElseThrow().getStats();
    }

    private void shareAll() throws Exception {
        String name = "group-" + UUID.randomUUID();
        String stream = newStream();
        SubscriptionFilter filter =
                SubscriptionFilter.newBuilder().addStreamNamePrefix(stream).build();
        CreatePersistentSubscriptionToAllOptions options =
                CreatePersistentSubscriptionToAllOptions.get()
                        .fromStart()
                        .filter(filter)
                        .checkpointLowerBound(1)
                        .checkpointUpperBound(1);
        done(client.createToAll(name, options));
        world.append(newStream(), 7, 8);
        WriteResult last = world.append(stream, 0, 2);
        Consumer consumer = new Consumer();
        consumer.group = CaseContext.wait(client.subscribeToAll(name, consumer));
        expect(consumer.acknowledge(1), numbers(0, 1));
        consumer.group.nack(NackAction.Park, "because", consumer.event().getValue());
        until(() -> statsToAll(name).getParkedMessageCount() == 1);
        done(client.replayParkedMessagesToAll(name));
        expect(consumer.acknowledge(1), numbers(1, 2));
        until(() -> statsToAll(name)
                .getLastCheckpointedEventPosition()
                .filter(at -> at.compareTo(last.getLogPosition()) >= 0)
                .isPresent());
        List<PersistentSubscriptionToAllInfo> listed = CaseContext.wait(client.listToAll());
        expect(listed.stream().anyMatch(one -> one.getGroupName().equals(name)), true);
        done(client.updateToAll(name));
        consumer.dropped(Status.Code.CANCELLED);
        done(client.deleteToAll(name));
        expect(CaseContext.wait(client.getInfoToAll(name)).isPresent(), false);
    }

    private void shareCategory() throws Exception {
        String category = newStream().replace("-", "");
        String view = "$ce-" + category;
        world.append(category + "-1", 0, 2);
        done(client.createToStream(view, "group", soon().resolveLinkTos()));
        Consumer consumer = join(view);
        expect(consumer.acknowledge(2), numbers(0, 2));
        untilDone(view, 1);
        world.append(category + "-2", 2, 3);
        ResolvedEvent live = consumer.event().getValue();
        expect(live.getEvent().getStreamId(), category + "-2");
        expect(live.getLink().getStreamId(), view);
        consumer.group.ack(live);
        untilDone(view, 2);
        consumer.group.stop();
    }

    private static void status(Status.Code code, CompletableFuture<?> future) throws Exception {
        StatusRuntimeException why = refused(StatusRuntimeException.class, future);
        expect(why.getStatus().getCode(), code);
    }

    private void changeAndDelete() throws Exception {
        String stream = newGroup(0);
        status(Status.Code.ALREADY_EXISTS, client.createToStream(stream, "group", soon()));
        Consumer consumer = join(stream);
        UpdatePersistentSubscriptionToStreamOptions one =
                UpdatePersistentSubscriptionToStreamOptions.get().maxSubscriberCount(1);
        done(client.updateToStream(stream, "group", one));
        consumer.dropped(Status.Code.CANCELLED);
        expect(info(stream).getSettings().getMaxSubscriberCount(), 1);
        consumer = join(stream);
        status(
                Status.Code.FAILED_PRECONDITION,
                client.subscribeToStream(stream, "group", new Consumer()));
        done(client.deleteToStream(stream, "group"));
        consumer.dropped(Status.Code.CANCELLED);
        status(Status.Code.NOT_FOUND, client.deleteToStream(stream, "group"));
    }

    private void listAndRestart() throws Exception {
        String stream = newGroup(1);
        Consumer consumer = join(stream);
        consumer.event();
        expect(CaseContext.wait(client.listToStream(stream)).get(0).getGroupName(), "group");
        expect(
                CaseContext.wait(client.listAll()).stream()
                        .anyMatch(one -> one.getEventSource().equals(stream)),
                true);
        done(client.restartSubsystem());
        consumer.dropped(Status.Code.CANCELLED);
        // Unacknowledged events come again.
        consumer = join(stream);
        expect(consumer.acknowledge(1), numbers(0, 1));
        consumer.group.stop();
    }

    private void findNoGroup() throws Exception {
        String none = newStream();
        expect(CaseContext.wait(client.getInfoToStream(none, "group")).isPresent(), false);
        for (CompletableFuture<?> future : List.<CompletableFuture<?>>of(
                client.subscribeToStream(none, "group", new Consumer()),
                client.replayParkedMessagesToStream(none, "group"),
                client.updateToStream(none, "group"),
                client.deleteToStream(none, "group"))) {
            status(Status.Code.NOT_FOUND, future);
        }
    }
}
