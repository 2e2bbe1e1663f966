import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.management.OperatingSystemMXBean;
import java.io.RandomAccessFile;
import java.lang.management.ManagementFactory;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.LockSupport;

/**
 * The handler and the measurements that every JVM peer shares; one JSON line on standard output at the end.
 *
 * <p>Arguments are key=value: bootstrap, topic, group, records (ends when so many are handled), limit (seconds), idle
 * (milliseconds without a record that end the run), threads, poll, sleep (0, rand or milliseconds a record), check (order
 * and overlaps per key), slow and slowms (the record with this number takes so long), seen (a file with one byte a
 * record, counting how often it was handled; survives kill -9), parse (1: each record is parsed with Jackson, and the
 * columns of its row are read), progress (1: a JSON line every 250 ms).
 */
final class Bench {
    final String topic;
    final int threads;

    private final Map<String, String> options = new HashMap<>();
    private final long records;
    private final String sleep;
    private final boolean check;
    private final boolean needsNumber;
    private final ObjectMapper parser;
    private final long slowRecord;
    private final long slowMillis;
    private final MappedByteBuffer seen;

    private final AtomicLong handled = new AtomicLong();
    private final AtomicLong first = new AtomicLong();
    private final LongAdder slept = new LongAdder();
    private final LongAdder outOfOrder = new LongAdder();
    private final LongAdder overlaps = new LongAdder();
    private final AtomicInteger running = new AtomicInteger();
    private final AtomicInteger peak = new AtomicInteger();
    private final ConcurrentHashMap<String, long[]> lastOfKey = new ConcurrentHashMap<>();
    private final ConcurrentHashMap<String, AtomicInteger> insideKey = new ConcurrentHashMap<>();
    private final CountDownLatch done = new CountDownLatch(1);
    private volatile long last;
    private volatile double cpuAtFirst;

    Bench(String[] arguments) throws Exception {
        for (String a : arguments) {
            int at = a.indexOf('=');
            options.put(a.substring(0, at), a.substring(at + 1));
        }
        topic = options.get("topic");
        threads = (int) number("threads", 16);
        records = number("records", Long.MAX_VALUE);
        sleep = text("sleep", "0");
        check = number("check", 0) == 1;
        parser = number("parse", 0) == 1 ? new ObjectMapper() : null;
        slowRecord = number("slow", -1);
        slowMillis = number("slowms", 60_000);
        String file = options.get("seen");
        if (file == null) {
            seen = null;
        } else {
            try (RandomAccessFile f = new RandomAccessFile(file, "rw")) { // a mapping outlives its file's handle
                seen = f.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, f.length());
            }
        }
        needsNumber = seen != null || slowRecord >= 0 || "rand".equals(sleep);
    }

    String text(String option, String otherwise) {
        return options.getOrDefault(option, otherwise);
    }

    long number(String option, long otherwise) {
        return Long.parseLong(text(option, Long.toString(otherwise)));
    }

    Properties consumerProperties() {
        Properties p = new Properties();
        p.put("bootstrap.servers", options.get("bootstrap"));
        p.put("group.id", options.get("group"));
        p.put("auto.offset.reset", "earliest");
        p.put("enable.auto.commit", "false");
        p.put("session.timeout.ms", "6000");
        p.put("max.poll.records", text("poll", "500"));
        String bytes = "org.apache.kafka.common.serialization.ByteArrayDeserializer";
        p.put("key.deserializer", bytes);
        p.put("value.deserializer", bytes);
        return p;
    }

    /** The sleep of record n in microseconds, uniform in 0 to 5,000: the same as micros() in topics.py. */
    static long micros(long n) {
        long x = (n * 2654435761L + 12345) & 0xffffffffL;
        x ^= x >>> 16;
        x = (x * 0x45d9f3bL) & 0xffffffffL;
        x ^= x >>> 16;
        return x % 5001;
    }

    private static final int AFTER_NUMBER = "\"}],\"old\":null}".length();

    /** The record's number within the topic: the digits before the end, ..."n":"123"}],"old":null} */
    private static long numberOf(byte[] value) {
        long n = 0;
        long unit = 1;
        for (int i = value.length - AFTER_NUMBER - 1; value[i] != '"'; i--, unit *= 10) n += unit * (value[i] - '0');
        return n;
    }

    /** The record's number within its table: {"id":123,... */
    private static long sequenceOf(byte[] value) {
        long sequence = 0;
        for (int i = 6; value[i] != ','; i++) sequence = sequence * 10 + value[i] - '0';
        return sequence;
    }

    void handle(byte[] key, byte[] value) {
        if (first.get() == 0 && first.compareAndSet(0, System.nanoTime())) cpuAtFirst = cpuSeconds();
        if (parser != null) read(value);
        String table = check ? enter(key, value) : null;
        long n = needsNumber ? numberOf(value) : -1;
        long us = slowRecord >= 0 && n == slowRecord ? slowMillis * 1000
            : "0".equals(sleep) ? 0
            : "rand".equals(sleep) ? micros(n)
            : Long.parseLong(sleep) * 1000;
        if (us > 0) sleepFor(us * 1000);
        leave(table);
        if (seen != null) seen.put((int) n, (byte) (seen.get((int) n) + 1));
        count();
    }

    /** As handle, for a peer that waits in its own way: the result is to be called when its wait is over. */
    Runnable begin(byte[] key, byte[] value) {
        if (first.get() == 0 && first.compareAndSet(0, System.nanoTime())) cpuAtFirst = cpuSeconds();
        String table = check ? enter(key, value) : null;
        long begun = System.nanoTime();
        return () -> {
            slept.add(System.nanoTime() - begun);
            leave(table);
            count();
        };
    }

    private void leave(String table) {
        if (table == null) return;
        running.decrementAndGet();
        insideKey.get(table).decrementAndGet();
    }

    private void count() {
        long count = handled.incrementAndGet();
        if (count <= records) last = System.nanoTime();
        if (count == records) done.countDown();
    }

    /** What a handler has to have for its work: the row's columns, by their names, of the types that MySQL tells. */
    private void read(byte[] value) {
        try {
            JsonNode record = parser.readTree(value);
            JsonNode types = record.get("mysqlType");
            Map<String, Object> row = new HashMap<>();
            for (Map.Entry<String, JsonNode> column : record.get("data").get(0).properties()) {
                String text = column.getValue().textValue();
                String type = types.get(column.getKey()).textValue();
                row.put(column.getKey(), text == null ? null : typed(type, text));
            }
            if (row.isEmpty()) throw new IllegalStateException("a row without columns");
        } catch (java.io.IOException e) {
            throw new java.io.UncheckedIOException(e);
        }
    }

    private static Object typed(String type, String text) {
        if (type.startsWith("bigint") || type.startsWith("int")) return Long.valueOf(text);
        if (type.startsWith("decimal")) return new java.math.BigDecimal(text);
        return text;
    }

    private String enter(byte[] key, byte[] value) {
        String table = new String(key, StandardCharsets.UTF_8);
        if (insideKey.computeIfAbsent(table, k -> new AtomicInteger()).incrementAndGet() != 1) overlaps.increment();
        long sequence = sequenceOf(value);
        long[] before = lastOfKey.computeIfAbsent(table, k -> new long[] {-1});
        if (sequence <= before[0]) outOfOrder.increment();
        before[0] = sequence;
        int now = running.incrementAndGet();
        if (now > peak.get()) peak.accumulateAndGet(now, Math::max);
        return table;
    }

    private void sleepFor(long nanos) {
        long begin = System.nanoTime();
        long now = begin;
        while (now - begin < nanos && !Thread.currentThread().isInterrupted()) {
            LockSupport.parkNanos(nanos - (now - begin));
            now = System.nanoTime();
        }
        slept.add(now - begin);
    }

    private static double cpuSeconds() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() / 1e9;
    }

    /** Waits for the last record, for idleness or for the limit; prints the figures and ends the process. */
    void finish() throws Exception {
        long begin = System.nanoTime();
        long limit = number("limit", 300) * 1_000_000_000L;
        long idle = number("idle", 0) * 1_000_000L;
        boolean progress = number("progress", 0) == 1;
        boolean ok = false;
        for (long i = 1; !ok && System.nanoTime() - begin < limit; i++) {
            ok = done.await(50, TimeUnit.MILLISECONDS);
            if (progress && i % 5 == 0) print("\"progress\":true");
            if (idle > 0 && last != 0 && System.nanoTime() - last > idle) break;
        }
        print("\"progress\":false,\"ok\":" + ok);
        Runtime.getRuntime().halt(0); // a clean close is not measured
    }

    private void print(String head) throws Exception {
        double cpu = cpuSeconds();
        double seconds = first.get() == 0 ? 0 : (last - first.get()) / 1e9;
        long rss = Files.readAllLines(Path.of("/proc/self/status")).stream()
            .filter(line -> line.startsWith("VmHWM"))
            .mapToLong(line -> Long.parseLong(line.replaceAll("\\D", "")))
            .findFirst().orElse(0);
        System.out.printf(Locale.ROOT,
            "{%s,\"records\":%d,\"seconds\":%.4f,\"cpu_seconds\":%.3f,\"cpu_at_first\":%.3f,\"rss_kib\":%d,"
                + "\"slept_seconds\":%.3f,\"out_of_order\":%d,\"overlaps\":%d,\"peak_parallel\":%d}%n",
            head, handled.get(), seconds, cpu, cpuAtFirst, rss, slept.sum() / 1e9, outOfOrder.sum(), overlaps.sum(), peak.get());
        System.out.flush();
    }
}
