import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.CommitMode;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.time.Duration;
import java.util.List;
import org.apache.kafka.clients.consumer.KafkaConsumer;

/** Confluent Parallel Consumer in KEY order; a commit every `commit` seconds (5, as binlane); all else its default. */
public final class ParallelConsumerPeer {
    public static void main(String[] arguments) throws Exception {
        Bench bench = new Bench(arguments);
        var options = ParallelConsumerOptions.<byte[], byte[]>builder()
            .consumer(new KafkaConsumer<>(bench.consumerProperties()))
            .ordering(ProcessingOrder.KEY)
            .commitMode(CommitMode.PERIODIC_CONSUMER_SYNC)
            .commitInterval(Duration.ofSeconds(bench.number("commit", 5)))
            .maxConcurrency(bench.threads)
            .build();
        ParallelStreamProcessor<byte[], byte[]> processor = ParallelStreamProcessor.createEosStreamProcessor(options);
        processor.subscribe(List.of(bench.topic));
        processor.poll(context -> {
            var record = context.getSingleConsumerRecord();
            bench.handle(record.key(), record.value());
        });
        bench.finish();
    }
}
