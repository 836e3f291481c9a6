package umbel;

import io.kurrent.dbclient.KurrentDBClient;
import io.kurrent.dbclient.KurrentDBConnectionString;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * The Java client, unchanged, against a server: {@code CONNECTION FILE [again|secure]}.
 *
 * <p>CONNECTION is the client's connection string. FILE keeps state for the cases of "again",
 * which run after a restart of the server. With "secure", CONNECTION names a TLS server without a
 * user, and FILE is a folder of certificates. Each case prints a line; the last line counts
 * passed, failed and skipped cases.
 */
public final class Clients {
    /** A case; it fails by throwing. */
    interface Case {
        void run() throws Exception;
    }

    private Clients() {}

    public static void main(String[] arguments) throws Exception {
        CaseContext world = new CaseContext(arguments[0], arguments[1]);
        Map<String, Case> cases = new LinkedHashMap<>();
        if (arguments.length > 2 && arguments[2].equals("secure")) {
            new Secure(arguments[0], arguments[1]).addTo(cases);
        } else if (arguments.length > 2 && arguments[2].equals("again")) {
            new Subscriptions(world).addAgain(cases);
        } else {
            new Streams(world).addTo(cases);
            new Subscriptions(world).addTo(cases);
            new SessionsAndProjections(world).addTo(cases);
            new Groups(world).addTo(cases);
        }
        int passed = 0;
        int failed = 0;
        for (Map.Entry<String, Case> one : cases.entrySet()) {
            try {
                one.getValue().run();
                passed++;
                System.out.println("ok Java: " + one.getKey());
            } catch (Throwable why) {
                failed++;
                System.out.println("FAILED Java: " + one.getKey());
                why.printStackTrace(System.out);
            }
        }
        world.client.shutdown().get(10, TimeUnit.SECONDS);
        System.out.println(passed + " passed, " + failed + " failed, 0 skipped");
        System.exit(failed > 0 ? 1 : 0);
    }

    static KurrentDBClient connect(String connection) {
        return KurrentDBClient.create(KurrentDBConnectionString.parseOrThrow(connection));
    }
}
