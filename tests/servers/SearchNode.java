import java.io.IOException;
import java.util.Collections;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.node.Node;
import org.opensearch.transport.Netty4Plugin;

/** A node with its HTTP interface: the arguments are settings, each a name and a value. */
public class SearchNode extends Node {
    SearchNode(Environment environment) {
        super(environment, Collections.singletonList(Netty4Plugin.class), true);
    }

    public static void main(String[] settings) throws Exception {
        Settings.Builder builder = Settings.builder();
        for (int each = 0; each < settings.length; each += 2) {
            builder.put(settings[each], settings[each + 1]);
        }
        final Node node = new SearchNode(new Environment(builder.build(), null));
        Runtime.getRuntime().addShutdownHook(new Thread() {
            public void run() {
                try {
                    node.close();
                } catch (IOException error) {
                    error.printStackTrace();
                }
            }
        });
        node.start();
        Thread.currentThread().join();
    }
}
