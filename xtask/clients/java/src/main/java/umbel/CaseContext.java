package umbel;

import io.kurrent.dbclient.AppendToStreamOptions;
import io.kurrent.dbclient.EventData;
import io.kurrent.dbclient.KurrentDBClient;
import io.kurrent.dbclient.Position;
import io.kurrent.dbclient.ReadStreamOptions;
import io.kurrent.dbclient.ResolvedEvent;
import io.kurrent.dbclient.StreamState;
import io.kurrent.dbclient.SubscribeToAllOptions;
import io.kurrent.dbclient.SubscribeToStreamOptions;
import io.kurrent.dbclient.Subscription;
import io.kurrent.dbclient.SubscriptionListener;
import io.kurrent.dbclient.WriteResult;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.LongStream;

/** State and helpers that every case needs. */
final class CaseContext {
    /** Time limit of a call; a call that takes longer hangs. */
    private static final long TIMEOUT_SECONDS = 60;

    final KurrentDBClient client;
    final String connection;
    final String kept;

    CaseContext(String connection, String kept) {
        this.client = Clients.connect(connection);
        this.connection = connection;
        this.kept = kept;
    }

    static <T> T wait(CompletableFuture<T> future) throws Exception {
        return future.get(TIMEOUT_SECONDS, TimeUnit.SECONDS);
    }

    /** Returns the error of this kind with which a call must fail. */
    static <E extends Throwable> E refused(Class<E> kind, CompletableFuture<?> future)
            throws Exception {
        try {
            throw new AssertionError(wait(future) + " instead of a " + kind.getSimpleName());
        } catch (ExecutionException error) {
            if (kind.isInstance(error.getCause())) {
                return kind.cast(error.getCause());
            }
            throw error;
        }
    }

    static void expect(Object seen, Object wanted) {
        if (!Objects.equals(seen, wanted)) {
            throw new AssertionError(seen + " is not " + wanted);
        }
    }

    static String newStream() {
        return "java-" + UUID.randomUUID();
    }

    static List<Long> numbers(long from, long to) {
        return LongStream.range(from, to).boxed().collect(Collectors.toList());
    }

    static List<Long> odd(long from, long to) {
        return numbers(from, to).stream().filter(n -> n % 2 == 1).collect(Collectors.toList());
    }

    static List<Long> backwards(List<Long> numbers) {
        List<Long> turned = new ArrayList<>(numbers);
        Collections.reverse(turned);
        return turned;
    }

    static EventData event(long n) {
        byte[] data = ("{\"n\":" + n + "}").getBytes(StandardCharsets.UTF_8);
        return EventData.builderAsJson(UUID.randomUUID(), "Counted", data).build();
    }

    static EventData[] events(long from, long to) {
        return LongStream.range(from, to).mapToObj(CaseContext::event).toArray(EventData[]::new);
    }

    static EventData blob(int size) {
        return EventData.builderAsBinary("Blob", new byte[size]).build();
    }

    CompletableFuture<WriteResult> begin(String stream, StreamState state, EventData... events) {
        AppendToStreamOptions options = AppendToStreamOptions.get().streamState(state);
        return client.appendToStream(stream, options, events);
    }

    WriteResult append(String stream, long from, long to) throws Exception {
        return wait(begin(stream, StreamState.any(), events(from, to)));
    }

    static long number(ResolvedEvent read) {
        String data = new String(read.getEvent().getEventData(), StandardCharsets.UTF_8);
        return Long.parseLong(data.replaceAll("[^0-9]", ""));
    }

    static List<Long> numbersOf(List<ResolvedEvent> events) {
        return events.stream().map(CaseContext::number).collect(Collectors.toList());
    }

    List<ResolvedEvent> events(String stream, ReadStreamOptions options) throws Exception {
        return wait(client.readStream(stream, options)).getEvents();
    }

    List<Long> read(String stream, ReadStreamOptions options) throws Exception {
        return numbersOf(events(stream, options));
    }

    List<Long> all(String stream) throws Exception {
        return read(stream, ReadStreamOptions.get().fromStart());
    }

    /** Appends the numbers alternately to two streams with a unique name. */
    Position mixed(String name, long from, long to) throws Exception {
        Position first = null;
        for (long n = from; n < to; n++) {
            WriteResult done = append(name + (n % 2 == 1 ? "-cart" : "-order"), n, n + 1);
            first = first == null ? done.getLogPosition() : first;
        }
        return first;
    }

    /** A subscription and the messages that it received. */
    static final class Followed extends SubscriptionListener {
        private static final Object CAUGHT_UP = "caught up";

        private final LinkedBlockingQueue<Object> received = new LinkedBlockingQueue<>();
        private Subscription subscription;
        int caughtUp;

        @Override
        public void onEvent(Subscription subscription, ResolvedEvent event) {
            received.add(event);
        }

        @Override
        public void onCancelled(Subscription subscription, Throwable why) {
            received.add(why == null ? "cancelled" : why);
        }

        @Override
        public void onCaughtUp(Subscription subscription, Instant at, Long revision, Position at2) {
            received.add(CAUGHT_UP);
        }

        private Object next() throws Exception {
            Object next = received.poll(TIMEOUT_SECONDS, TimeUnit.SECONDS);
            caughtUp += CAUGHT_UP.equals(next) ? 1 : 0;
            return Objects.requireNonNull(next, "nothing was received in time");
        }

        /** Returns the numbers of the given number of events. */
        List<Long> take(int count) throws Exception {
            List<Long> seen = new ArrayList<>();
            while (seen.size() < count) {
                Object next = next();
                if (next instanceof ResolvedEvent) {
                    seen.add(number((ResolvedEvent) next));
                } else if (next instanceof Throwable) {
                    throw new AssertionError((Throwable) next);
                }
            }
            return seen;
        }

        void untilCaughtUp() throws Exception {
            while (!CAUGHT_UP.equals(next())) {
                // Earlier messages are ignored.
            }
        }

        /** Returns the reason why it was dropped. */
        Throwable dropped() throws Exception {
            while (true) {
                Object next = next();
                if (next instanceof Throwable) {
                    return (Throwable) next;
                }
            }
        }

        void stop() {
            subscription.stop();
        }
    }

    Followed follow(String stream, SubscribeToStreamOptions options) throws Exception {
        Followed followed = new Followed();
        followed.subscription = wait(client.subscribeToStream(stream, followed, options));
        return followed;
    }

    Followed followAll(SubscribeToAllOptions options) throws Exception {
        Followed followed = new Followed();
        followed.subscription = wait(client.subscribeToAll(followed, options));
        return followed;
    }
}
