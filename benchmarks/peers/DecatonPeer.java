import com.linecorp.decaton.processor.TaskMetadata;
import com.linecorp.decaton.processor.runtime.DecatonTask;
import com.linecorp.decaton.processor.runtime.ProcessorProperties;
import com.linecorp.decaton.processor.runtime.ProcessorsBuilder;
import com.linecorp.decaton.processor.runtime.Property;
import com.linecorp.decaton.processor.runtime.StaticPropertySupplier;
import com.linecorp.decaton.processor.runtime.SubscriptionBuilder;
import com.linecorp.decaton.processor.runtime.TaskExtractor;
import java.util.List;
import java.util.Properties;

/** Decaton with its thread pools; `threads` is its partition.concurrency, all else its default. */
public final class DecatonPeer {
    /** A Decaton processor is given the task, not the record. */
    record Task(byte[] key, byte[] value) {}

    public static void main(String[] arguments) throws Exception {
        Bench bench = new Bench(arguments);
        Properties consumer = bench.consumerProperties();
        consumer.remove("key.deserializer"); // Decaton brings its own
        consumer.remove("value.deserializer");
        consumer.put("client.id", "decaton");
        TaskExtractor<Task> extract = record -> new DecatonTask<>(
            TaskMetadata.builder().build(), new Task(record.key(), record.value()), record.value());
        SubscriptionBuilder.newBuilder("benchmark")
            .consumerConfig(consumer)
            .addProperties(StaticPropertySupplier.of(List.of(
                Property.ofStatic(ProcessorProperties.CONFIG_PARTITION_CONCURRENCY, bench.threads))))
            .processorsBuilder(ProcessorsBuilder.consuming(bench.topic, extract)
                .thenProcess((context, task) -> bench.handle(task.key(), task.value())))
            .buildAndStart();
        bench.finish();
    }
}
