package umbel;

import static umbel.CaseContext.expect;
import static umbel.CaseContext.newStream;
import static umbel.CaseContext.numbers;
import static umbel.CaseContext.numbersOf;
import static umbel.CaseContext.odd;

import io.kurrent.dbclient.EventData;
import io.kurrent.dbclient.Position;
import io.kurrent.dbclient.ReadStreamOptions;
import io.kurrent.dbclient.ResolvedEvent;
import io.kurrent.dbclient.StreamState;
import io.kurrent.dbclient.SubscribeToAllOptions;
import io.kurrent.dbclient.SubscribeToStreamOptions;
import io.kurrent.dbclient.SubscriptionFilter;
import io.kurrent.dbclient.WriteResult;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;

/** Subscriptions, filters, links and views. */
final class Subscriptions {
    /** The client compiles an expression by itself; this one only Java knows. */
    private static final String JAVA_ONLY = "\\p{javaLowerCase}";

    private final CaseContext world;

    Subscriptions(CaseContext world) {
        this.world = world;
    }

    void addTo(Map<String, Clients.Case> cases) {
        cases.put("subscribe to a stream, catch up and go live", this::subscribe);
        cases.put("subscribe after an event and from the end", this::subscribeLater);
        cases.put("subscribe to a missing stream", this::subscribeEarly);
        cases.put("subscribe to all", this::subscribeToAll);
        cases.put("subscribe with filters by prefix and expression", this::subscribeFiltered);
        cases.put("subscribe with a filter and keep a checkpoint", this::keepCheckpoint);
        cases.put("reject a broken expression", this::brokenExpression);
        cases.put("resolve links", this::resolveLinks);
        cases.put("read and follow views", this::followView);
    }

    void addAgain(Map<String, Clients.Case> cases) {
        cases.put("resume at a checkpoint after a restart", this::goOn);
    }

    private static SubscribeToStreamOptions options() {
        return SubscribeToStreamOptions.get();
    }

    private void subscribe() throws Exception {
        String stream = newStream();
        world.append(stream, 0, 120);
        CaseContext.Followed followed = world.follow(stream, options().fromStart());
        List<Long> seen = new ArrayList<>(followed.take(120));
        for (long n = 120; n < 170; n++) {
            world.append(stream, n, n + 1);
        }
        seen.addAll(followed.take(50));
        expect(seen, numbers(0, 170));
        expect(followed.caughtUp, 1);
        followed.stop();
    }

    private void subscribeLater() throws Exception {
        String stream = newStream();
        world.append(stream, 0, 5);
        CaseContext.Followed behind = world.follow(stream, options().fromRevision(2));
        CaseContext.Followed live = world.follow(stream, options().fromEnd());
        live.untilCaughtUp();
        world.append(stream, 5, 6);
        expect(behind.take(3), List.of(3L, 4L, 5L));
        expect(live.take(1), List.of(5L));
        behind.stop();
        live.stop();
    }

    private void subscribeEarly() throws Exception {
        String stream = newStream();
        CaseContext.Followed followed = world.follow(stream, options().fromStart());
        followed.untilCaughtUp();
        world.append(stream, 0, 3);
        expect(followed.take(3), numbers(0, 3));
        followed.stop();
    }

    private void subscribeToAll() throws Exception {
        String stream = newStream();
        WriteResult first = world.append(stream, 0, 1);
        CaseContext.Followed followed =
                world.followAll(SubscribeToAllOptions.get().fromPosition(first.getLogPosition()));
        for (long n = 1; n < 21; n++) {
            world.append(stream, n, n + 1);
        }
        expect(followed.take(20), numbers(1, 21));
        followed.stop();
    }

    private void followed(Position from, SubscriptionFilter filter, List<Long> wanted)
            throws Exception {
        SubscribeToAllOptions options = SubscribeToAllOptions.get().fromPosition(from).filter(filter);
        CaseContext.Followed followed = world.followAll(options);
        expect(followed.take(wanted.size()), wanted);
        followed.stop();
    }

    private void subscribeFiltered() throws Exception {
        String name = newStream();
        Position first = world.mixed(name, 0, 20);
        followed(
                first,
                SubscriptionFilter.newBuilder()
                        .addStreamNamePrefix(name + "-cart")
                        .build(),
                odd(1, 20));
        followed(
                first,
                SubscriptionFilter.newBuilder()
                        .withStreamNameRegularExpression("^" + name + "-(?!order)")
                        .build(),
                odd(1, 20));
        followed(
                first,
                SubscriptionFilter.newBuilder().addEventTypePrefix("Count").build(),
                numbers(1, 20));
        followed(
                first,
                SubscriptionFilter.newBuilder()
                        .withEventTypeRegularExpression("^[^\\$].*")
                        .build(),
                numbers(1, 20));
    }

    private void keepCheckpoint() throws Exception {
        String name = newStream();
        Position first = world.mixed(name, 0, 20);
        List<Position> places = new CopyOnWriteArrayList<>();
        SubscriptionFilter filter = SubscriptionFilter.newBuilder()
                .addStreamNamePrefix(name + "-cart")
                .withMaxWindow(3)
                .withCheckpointer((subscription, position) -> {
                    places.add(position);
                    return CompletableFuture.completedFuture(null);
                })
                .build();
        CaseContext.Followed followed =
                world.followAll(SubscribeToAllOptions.get().fromPosition(first).filter(filter));
        expect(followed.take(10), odd(1, 20));
        followed.untilCaughtUp();
        expect(places.size() >= 6, true);
        followed.stop();
        long last = places.get(places.size() - 1).getCommitUnsigned();
        Files.writeString(Path.of(world.kept), name + " " + last);
    }

    private void goOn() throws Exception {
        String[] kept = Files.readString(Path.of(world.kept)).split(" ");
        world.mixed(kept[0], 20, 26);
        long place = Long.parseLong(kept[1]);
        SubscriptionFilter filter =
                SubscriptionFilter.newBuilder().addStreamNamePrefix(kept[0] + "-cart").build();
        followed(new Position(place, place), filter, odd(21, 26));
    }

    private void brokenExpression() throws Exception {
        SubscriptionFilter filter =
                SubscriptionFilter.newBuilder()
                        .withEventTypeRegularExpression(JAVA_ONLY)
                        .build();
        SubscribeToAllOptions options = SubscribeToAllOptions.get().fromStart().filter(filter);
        String message;
        try {
            message = world.followAll(options).dropped().toString();
        } catch (java.util.concurrent.ExecutionException error) {
            message = error.toString();
        }
        expect(message.contains("INVALID_ARGUMENT"), true);
        expect(message.contains("expression"), true);
    }

    private static EventData link(String target) {
        byte[] data = target.getBytes(StandardCharsets.UTF_8);
        return EventData.builderAsBinary("$>", data).build();
    }

    private void resolveLinks() throws Exception {
        String stream = newStream();
        String links = newStream();
        world.append(stream, 7, 9);
        EventData[] both = {link("1@" + stream), link("0@" + stream)};
        CaseContext.wait(world.begin(links, StreamState.any(), both));
        ReadStreamOptions resolving = ReadStreamOptions.get().fromStart().resolveLinkTos();
        List<ResolvedEvent> read = world.events(links, resolving);
        expect(numbersOf(read), List.of(8L, 7L));
        expect(read.get(1).getEvent().getStreamId(), stream);
        expect(read.get(1).getLink().getRevision(), 1L);
        CaseContext.Followed followed = world.follow(links, options().fromStart().resolveLinkTos());
        expect(followed.take(2), List.of(8L, 7L));
        followed.stop();
    }

    private void followView() throws Exception {
        String category = newStream().replace("-", "");
        world.append(category + "-1", 0, 2);
        world.append(category + "-2", 2, 4);
        String view = "$ce-" + category;
        ReadStreamOptions resolving = ReadStreamOptions.get().fromStart().resolveLinkTos();
        expect(world.read(view, resolving), numbers(0, 4));
        CaseContext.Followed followed = world.follow(view, options().fromRevision(1).resolveLinkTos());
        world.append(category + "-1", 4, 5);
        expect(followed.take(3), numbers(2, 5));
        followed.stop();
    }
}
