import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.CommitMode;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.reactor.ReactorProcessor;
import java.time.Duration;
import java.util.List;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import reactor.core.publisher.Mono;

/** Parallel Consumer's reactor in KEY order: no thread waits; a commit every 5 seconds; all else its default. */
public final class ReactorPeer {
    public static void main(String[] arguments) throws Exception {
        Bench bench = new Bench(arguments);
        Duration sleep = Duration.ofMillis(bench.number("sleep", 0));
        var options = ParallelConsumerOptions.<byte[], byte[]>builder()
            .consumer(new KafkaConsumer<>(bench.consumerProperties()))
            .ordering(ProcessingOrder.KEY)
            .commitMode(CommitMode.PERIODIC_CONSUMER_SYNC)
            .commitInterval(Duration.ofSeconds(5))
            .maxConcurrency(bench.threads)
            .build();
        var processor = new ReactorProcessor<byte[], byte[]>(options);
        processor.subscribe(List.of(bench.topic));
        processor.react(context -> {
            var record = context.getSingleConsumerRecord();
            Runnable end = bench.begin(record.key(), record.value());
            return Mono.delay(sleep).doOnNext(tick -> end.run());
        });
        bench.finish();
    }
}
