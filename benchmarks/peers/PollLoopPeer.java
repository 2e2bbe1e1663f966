import java.time.Duration;
import java.util.List;
import org.apache.kafka.clients.consumer.KafkaConsumer;

/** The JVM's floor: one thread that polls and counts. */
public final class PollLoopPeer {
    public static void main(String[] arguments) throws Exception {
        Bench bench = new Bench(arguments);
        Thread loop = new Thread(() -> {
            var consumer = new KafkaConsumer<byte[], byte[]>(bench.consumerProperties());
            consumer.subscribe(List.of(bench.topic));
            while (true) {
                for (var record : consumer.poll(Duration.ofMillis(100))) bench.handle(record.key(), record.value());
            }
        }, "poll-loop");
        loop.setDaemon(true);
        loop.start();
        bench.finish();
    }
}
